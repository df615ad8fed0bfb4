#!/usr/bin/env python3
"""Puts what `cargo bench --bench symmetric` prints into docs/performance.md.

    cargo bench --bench symmetric | benches/race/symmetric.py
"""

import os
import re
import sys

import machine
from peers import ROOT

PAGE = ROOT / "docs/performance.md"
CIRCUIT = "circuit: "


def put(text, name, lines):
    """The page with these lines in place of what is between two marks."""
    before, rest = text.split(f"<!-- {name} -->\n")
    _, after = rest.split(f"<!-- end of {name} -->\n")
    machine_now = f"Machine: {machine.in_words(machine.describe())}. Load average: {os.getloadavg()[0]:.1f}."
    block = "\n".join(["", machine_now, "", *lines, "", ""])
    return f"{before}<!-- {name} -->\n{block}<!-- end of {name} -->\n{after}"


def main():
    lines = [re.split(r"\s{2,}", line.strip()) for line in sys.stdin]
    found = [cells for cells in lines if len(cells) == 4 and (" / " in cells[0] or ": " in cells[0])]
    rows = [cells for cells in found if not cells[0].startswith(CIRCUIT)]
    circuits = [cells for cells in found if cells[0].startswith(CIRCUIT)]
    # With `token` the bench prints the circuits only.
    if not circuits or 0 < len(rows) < 15:
        sys.exit("this is not what the bench prints")
    text = PAGE.read_text()
    if rows:
        head = [
            "| ours / reference | ours, ns | reference, ns | ratio of each block: median, least and greatest |",
            "| --- | --: | --: | --: |",
        ]
        text = put(text, "symmetric", [*head, *(f"| {' | '.join(cells)} |" for cells in rows)])
    head = [
        "| a token's way round 4 ranks on 2 processors | ns | context switches | the fastest and the slowest block, ns |",
        "| --- | --: | --: | --: |",
    ]
    rows = [f"| {cells[0].removeprefix(CIRCUIT)} | {' | '.join(cells[1:])} |" for cells in circuits]
    PAGE.write_text(put(text, "circuits", [*head, *rows]))


if __name__ == "__main__":
    main()
