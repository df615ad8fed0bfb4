#!/usr/bin/env python3
"""Compares the wheel with mpi4py over Open MPI, MPICH and Intel MPI from PyPI, in one run on one machine.

    python/bench/bench.py [--quick] [--blocks N] [--seconds S] [--ranks N,N] [--peer NAME] [--write]

The libraries are those of benches/race, with its settings; mpi4py is installed beside each. The runs are in blocks, each of which
begins with another library, so that what else the machine does hits all of them. `--write` puts the table into docs/python.md.
Needs the virtual environment of `make python`, and PyPI.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "benches" / "race"))

import jobs  # noqa: E402
import peers  # noqa: E402

PAGE = ROOT / "docs" / "python.md"
OURS = "intranode"
QUICK = ["openmpi", "mpich", "impi"]


def arguments(cores: int) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="two short blocks, and one setting a library")
    parser.add_argument("--blocks", type=int, help="how often everything is measured")
    parser.add_argument("--seconds", type=float, help="about how long a cell is measured")
    parser.add_argument("--ranks", default=f"{cores},{2 * cores}", help="numbers of ranks; as many as cores, and twice as many")
    parser.add_argument("--peer", action="append", help="only this setting: " + ", ".join(each[0] for each in peers.VARIANTS))
    parser.add_argument("--write", action="store_true", help="write the table into docs/python.md")
    given = parser.parse_args()
    given.blocks = given.blocks or (2 if given.quick else 7)
    given.seconds = given.seconds or (0.1 if given.quick else 1.0)
    given.ranks = [int(ranks) for ranks in given.ranks.split(",")]
    given.peer = given.peer or (QUICK if given.quick else [each[0] for each in peers.VARIANTS])
    return given


def contestants(names: list[str], target: Path) -> list[peers.Peer]:
    """Ours, and mpi4py over each library. Each has its interpreter as `bench`."""
    home = target / "python"
    if not (home / "bin" / "python").exists():
        sys.exit("make python builds the virtual environment that is measured: it is not there")

    def launch(ranks: int, fits: bool) -> tuple[list[str], dict[str, str]]:
        return [str(home / "bin" / "python"), "-m", "intranode", "-n", str(ranks), "--"], {}

    version = peers.version_of(home, "intranode")
    found = [peers.Peer(OURS, version, "one processor for each rank, if there are as many", launch, bench=home / "bin" / "python")]
    for name, library, launch_other, about, where in peers.VARIANTS:
        if name not in names:
            continue
        packages, _, main = peers.PACKAGES[library]
        home_of = peers.install(library, packages, target / "race")
        if not (home_of / "mpi4py").exists():
            pip = [home_of / "bin" / "python", "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "mpi4py>=4.1,<5", "numpy"]
            subprocess.run(pip, check=True)
            (home_of / "mpi4py").touch()
        peer = peers.Peer(name, peers.version_of(home_of, main), about, launch_other, frozenset(where), home_of)
        peer.bench = home_of / "bin" / "python"
        found.append(peer)
    return found


def measure(given: argparse.Namespace, all_: list[peers.Peer], cores: int) -> list[dict[str, Any]]:
    rows = []
    for block in range(given.blocks):
        turn = block % len(all_)
        for ranks in given.ranks:
            for peer in all_[turn:] + all_[:turn]:
                if (ranks <= cores) not in peer.where:
                    continue
                which = OURS if peer.name == OURS else "mpi4py"
                command, environment = peer.command(ranks, cores, [peer.bench, HERE / "cells.py", which, given.seconds])
                place = f"block {block + 1} of {given.blocks}: {ranks} ranks, {peer.name}"
                jobs.tell(place)
                try:
                    lines = jobs.run(command, environment, timeout=120 + 60 * given.seconds)
                except jobs.Failed as failure:
                    print(f"{place}: {failure}", file=sys.stderr)
                    continue
                rows += [json.loads(line) | {"block": block, "peer": peer.name} for line in lines if line.startswith("{")]
    jobs.tell("")
    return rows


def library(name: str) -> str:
    return name.partition("-")[0]


def table(rows: list[dict[str, Any]], all_: list[peers.Peer], cores: int) -> str:
    """The median over the blocks, and from the least to the greatest of them. Of a library the fastest setting counts."""
    libraries = [each for each in ("openmpi", "mpich", "impi") if any(library(row["peer"]) == each for row in rows)]
    titles = {"openmpi": "Open MPI", "mpich": "MPICH", "impi": "Intel MPI"}
    versions = {library(peer.name): peer.version for peer in all_}
    heads = [f"mpi4py, {titles[each]} {versions[each]}" for each in libraries]
    lines = [
        f"| ranks | call | intranode {versions[OURS]} | {' | '.join(heads)} | fastest of them / ours |",
        f"| --- | --- |{' --- |' * (len(libraries) + 2)}",
    ]
    for ranks in sorted({row["ranks"] for row in rows}):
        for cell in dict.fromkeys(row["cell"] for row in rows):
            spread: dict[str, list[float]] = {}
            for name in {row["peer"] for row in rows}:
                found = [row["median_us"] for row in rows if (row["peer"], row["ranks"], row["cell"]) == (name, ranks, cell)]
                best = spread.get(library(name))
                if found and (best is None or statistics.median(found) < statistics.median(best)):
                    spread[library(name)] = found
            if OURS not in spread:
                continue
            others = [statistics.median(spread[each]) for each in libraries if each in spread]
            ratio = f"{min(others) / statistics.median(spread[OURS]):.2f}" if others else ""
            cells = [shown(spread.get(each)) for each in (OURS, *libraries)]
            lines.append(f"| {ranks}{'' if ranks <= cores else ' (oversubscribed)'} | {cell} | {' | '.join(cells)} | {ratio} |")
    return "\n".join(lines)


def shown(found: list[float] | None) -> str:
    if not found:
        return "failed"
    return f"{number(statistics.median(found))} ({number(min(found))} to {number(max(found))})"


def number(microseconds: float) -> str:
    return f"{microseconds:,.0f}" if microseconds >= 100 else f"{microseconds:.3g}"


def main() -> None:
    jobs.end_when_told()
    cores = len(os.sched_getaffinity(0))
    given = arguments(cores)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    all_ = contestants(given.peer, target)
    rows = measure(given, all_, cores)
    results = target / "python-bench.json"
    results.write_text(json.dumps({"cores": cores, "blocks": given.blocks, "rows": rows}, indent=1))
    text = table(rows, all_, cores)
    about = (
        f"Microseconds a call on {cores} processors: the median of {given.blocks} blocks, and the least and the greatest. Of each "
        "library its fastest setting."
    )
    print(f"{about}\n\n{text}\n\nall rows: {results}")
    if given.write:
        page = PAGE.read_text()
        pattern = r"(<!-- table of bench.py -->\n).*?(<!-- end of bench.py -->)"
        written, found = re.subn(pattern, lambda match: f"{match[1]}{about}\n\n{text}\n{match[2]}", page, flags=re.S)
        if not found:
            sys.exit(f"{PAGE} has no place for the table")
        PAGE.write_text(written)


if __name__ == "__main__":
    main()
