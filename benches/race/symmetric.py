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
BEGIN, END = "<!-- symmetric -->\n", "<!-- end of symmetric -->\n"


def main():
    lines = [re.split(r"\s{2,}", line.strip()) for line in sys.stdin]
    rows = [cells for cells in lines if len(cells) == 4 and " / " in cells[0] or len(cells) == 4 and ": " in cells[0]]
    if len(rows) < 15:
        sys.exit("this is not what the bench prints")
    table = [
        f"Machine: {machine.in_words(machine.describe())}. Load average: {os.getloadavg()[0]:.1f}.",
        "",
        "| ours / reference | ours, ns | reference, ns | ratio of each block: median, least and greatest |",
        "| --- | --: | --: | --: |",
        *(f"| {' | '.join(cells)} |" for cells in rows),
    ]
    text = PAGE.read_text()
    before, rest = text.split(BEGIN)
    PAGE.write_text(before + BEGIN + "\n" + "\n".join(table) + "\n\n" + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
