#!/usr/bin/env python3
"""What the shared heap gives: collectives of what lies in a Vec, with and without it, by turns.

    benches/heap.py [--turns N] [--seconds S] [--ranks N] [--write]

`intranode bench` is built twice, with and without `SharedHeap` as its global allocator, which is all that differs. Each turn runs
both, and begins with the other one, so that what else the machine does hits both. `--write` puts the table into docs/heap.md.
`--build` only builds, `--built` takes what that has built: compiling is no part of a measurement.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent / "race"))

import machine
import peers

PAGE = peers.ROOT / "docs/heap.md"
WITHOUT, WITH = "private", "heap"
CALLS = ["allgatherv", "broadcast", "allreduce"]
SIZES = {64 << 10: "64 KiB", 1 << 20: "1 MiB", 16 << 20: "16 MiB"}
DEFINITIONS = ["renewed", "unchanged"]


def target():
    return Path(os.environ.get("CARGO_TARGET_DIR", peers.ROOT / "target"))


def built(name):
    return target() / "heap-bench" / f"intranode-{name}"


def build(name, more):
    """The program, built in release in this way, under a name of its own."""
    command = ["cargo", "rustc", "--quiet", "--locked", "--release", "--package", "intranode-cli", "--bin", "intranode", *more]
    subprocess.run(command, cwd=peers.ROOT, check=True)
    copy = built(name)
    copy.parent.mkdir(exist_ok=True)
    copy.unlink(missing_ok=True)
    shutil.copy2(target() / "release/intranode", copy)


def by_turns(turns, measure):
    """Each turn measures both, and begins with the other one."""
    for turn in range(turns):
        for name in (WITHOUT, WITH) if turn % 2 == 0 else (WITH, WITHOUT):
            measure(name)


def ratio(others, ours):
    """The median of a turn's ratios, and the least and the greatest."""
    ratios = [other / own for other, own in zip(others, ours, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})"


def spread(values, digits=3):
    return f"{number(statistics.median(values), digits)} ({number(min(values), digits)}–{number(max(values), digits)})"


def number(value, digits):
    return f"{value:,.0f}" if value >= 100 else f"{value:.{digits}g}"


def calls(given):
    times = {}

    def measure(name):
        command = [built(name), "bench", "--ranks", str(given.ranks), "--bind", "--json", "--seconds", str(given.seconds)]
        for option, values in ("--op", CALLS), ("--bytes", map(str, SIZES)), ("--buffers", DEFINITIONS):
            for value in values:
                command += [option, value]
        said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
        for row in map(json.loads, said.splitlines()):
            times.setdefault((row["op"], row["bytes"], row["buffers"], name), []).append(row["median_us"])

    by_turns(given.turns, measure)
    lines = [
        f"{machine.in_words(machine.describe())}; {given.ranks} ranks, {given.turns} turns in which the two alternated. Median (lowest to "
        "highest) of the turns; bytes in all. The ratio is the time without the heap over that with it, in the same turn:",
        "",
        "| | buffers | private, µs | shared heap, µs | ratio |",
        "| --- | --- | --: | --: | --: |",
    ]
    for call in CALLS:
        for size, words in SIZES.items():
            for definition in DEFINITIONS:
                found = [times[call, size, definition, name] for name in (WITHOUT, WITH)]
                lines.append(f"| {call} {words} | {definition} | {spread(found[0])} | {spread(found[1])} | {ratio(*found)} |")
    return lines


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of a call in a turn")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--build", action="store_true")
    parser.add_argument("--built", action="store_true")
    given = parser.parse_args()
    if not given.built:
        build(WITHOUT, [])
        build(WITH, ["--", "--cfg", "shared_heap"])
    if given.build:
        return
    text = "\n".join(calls(given))
    print(text)
    if given.write:
        pattern = r"(<!-- table of heap.py -->\n).*?(<!-- end of heap.py -->)"
        written, found = re.subn(pattern, lambda match: f"{match[1]}{text}\n{match[2]}", PAGE.read_text(), flags=re.S)
        if found != 1:
            sys.exit(f"{PAGE} has no place for the table")
        PAGE.write_text(written)


if __name__ == "__main__":
    main()
