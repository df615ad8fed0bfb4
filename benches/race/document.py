#!/usr/bin/env python3
"""Writes the figures of docs/performance.md, between its markers.

Runs of messages alone replace the figures of messages alone, and their picture; runs with more ranks than processors alone
replace theirs.
"""

import argparse
import json
import re
import shutil
import statistics
import subprocess
from pathlib import Path

import machine
import peers
import report

PAGE = peers.ROOT / "docs/performance.md"
PICTURE = peers.ROOT / "docs/pictures/messages.svg"

MESSAGES = {"ping-pong", "stream", "wake-up"}


def bench(name):
    """The output of one of the cargo benches."""
    command = ["cargo", "bench", "--quiet", "--locked", "--bench", name]
    return subprocess.run(command, cwd=peers.ROOT, check=True, capture_output=True, text=True).stdout.strip()


# The cases that are timed at every number of ranks: an operation, and its size.
GROWING = [("barrier", 0), ("allreduce", 32), ("allreduce", 8192), ("allgatherv", 1024), ("allgatherv", 65536), ("broadcast", 10240)]


def growth(counts):
    """The times of calls at these numbers of ranks, on any number of processors."""
    launcher = peers.cargo("intranode-cli", "intranode")
    lines = [
        "Time per call in µs, with ranks bound in blocks to the processors of this machine: it shows the growth, not the speed.",
        "",
        "| operation | size |" + "".join(f" {count} ranks |" for count in counts),
        "| --- | --: |" + " --: |" * len(counts),
    ]
    for operation, size in GROWING:
        which = ["--op", operation, *(["--bytes", str(size)] if size else [])]
        shown = []
        for count in counts:
            command = [launcher, "bench", "--ranks", str(count), "--bind", "--json", "--seconds", "0.5", *which]
            said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            shown.append(report.number(json.loads(said.splitlines()[-1])["median_us"]))
        lines.append(f"| {operation} | {report.size(size)} | " + " | ".join(shown) + " |")
    return "\n".join(lines)


def race(runs):
    """The cells of all runs side by side."""
    first = runs[0]
    cores = first["machine"]["processors"]
    lines = [
        f"Machine: {machine.in_words(first['machine'])}. Separate runs: {len(runs)}. In each, the ratio of the fastest "
        "other library's median to ours, with its minimum and maximum over the run's blocks in parentheses; **below the "
        f"goal** of {report.GOALS[True][0]} with a core for each rank, or of {report.GOALS[False][0]:g} with more ranks "
        "than cores. Times in µs. Buffers: renewed before each call, or unchanged; those of the others are private, ours also "
        "shared. ↻: a library's blocks differed by more than three times in some run, and the cell was measured again.",
        "",
        "| ranks | operation | size | buffers | limit | intranode | fastest other | "
        + " | ".join(f"run {index + 1}" for index in range(len(runs)))
        + " |",
        "| --: | --- | --: | --- | --: | --: | --- |" + " --: |" * len(runs),
    ]
    tables = [report.cells(run) for run in runs]
    ratios = [{} for _ in runs]
    for cell, kind in [(cell, kind) for cell in tables[0] for kind in report.IN_WORDS]:
        ranks, operation, count, buffers = cell
        if operation in report.ALONE:
            continue
        compared = [report.compare(table[cell], kind) if cell in table else None for table in tables]
        if not all(compared):
            continue
        fit = ranks <= cores
        again = any(report.is_again(run, table[cell]) for run, table in zip(runs, tables))
        definition = buffers + report.IN_WORDS[kind] + (" ↻" if again else "")
        shown = []
        for index, (_, _, _, spread) in enumerate(compared):
            ratio = statistics.median(spread)
            ratios[index].setdefault((fit, buffers, kind), []).append(ratio)
            text = f"{ratio:.2f} ({spread[0]:.2f}–{spread[-1]:.2f})"
            shown.append(f"**{text}**" if ratio < report.GOALS[fit][0] else text)
        ours = report.number(statistics.median(each[2] for each in compared))
        names = statistics.mode(each[0] for each in compared)
        theirs = report.number(statistics.median(each[1] for each in compared))
        lines.append(
            f"| {ranks} | {operation} | {report.size(count)} | {definition} | {report.limit(runs[0], cell)} | {ours} | "
            f"{theirs} ({names}) | " + " | ".join(shown) + " |"
        )
    lines.append("")
    for cell in tables[0]:
        ranks, operation, *_ = cell
        if operation in report.ALONE:
            ours = [table[cell][report.OURS].values() for table in tables]
            times = ", ".join(report.number(statistics.median(each)) for each in ours)
            limits = [limit["median_us"] for run in runs for limit in run["limits"] if limit["limit"] == "wake-late"]
            bare = ", ".join(map(report.number, limits))
            lines.append(f"* {operation} at {ranks} ranks: {times} µs; a bare futex that has been slept on as long took {bare} µs.")
    for index, run in enumerate(runs):
        if run["lines"]:
            least, most = (report.number(pick(line["median_us"] for line in run["lines"])) for pick in (min, max))
            lines.append(f"* Run {index + 1}: a line took {least} to {most} µs.")
    for fit, buffers, kind in ratios[0]:
        means = [f"{report.geometric_mean(each[fit, buffers, kind]):.2f}" for each in ratios]
        goal = report.GOALS[fit][1]
        lines.append(f"* {report.in_words(fit, buffers, kind)}: geometric mean {', '.join(means)} (goal {goal}).")
    for index, run in enumerate(runs):
        lines += [f"* Run {index + 1}: load average {run['load'][0]:.1f} before, {run['load'][1]:.1f} after."]
    lines += ["", *report.placed_text(runs), "| library | version | settings |", "| --- | --- | --- |"]
    lines += [f"| {name} | {about['version']} | {about['settings']} |" for name, about in first["libraries"].items()]
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("races", metavar="RACE.json", nargs="+", help="the results of separate runs of race.py on one machine")
    parser.add_argument("--page", type=Path, help="write the comparison alone, and on this page: that of another machine")
    options = parser.parse_args()
    runs = [json.loads(Path(name).read_text()) for name in options.races]
    # Runs of the same operations with the same numbers of ranks share a table.
    tables = {}
    for run in runs:
        tables.setdefault(frozenset((row["op"], row["ranks"]) for row in run["rows"]), []).append(run)
    races = "\n\n".join(race(table) for table in tables.values())
    if options.page:
        return write({"race": races}, page=options.page)
    if all(row["op"] in MESSAGES for run in runs for row in run["rows"]):
        return write({"messages": races}, options.races[0])
    if all(row["ranks"] > run["machine"]["processors"] for run in runs for row in run["rows"]):
        return write({"oversubscribed": races})
    fullest = max(runs, key=lambda run: len(run["rows"]))
    figures = {
        "race": races,
        "limits": "\n".join(report.limits_text(fullest, report.cells(fullest))),
        "waiting": f"```text\n{bench('waiting')}\n```",
        "instructions": f"```text\n{bench('instructions')}\n```",
        "growth": bench("growth") + "\n\n" + growth([2, 4, 8, 16, 32, 64]),
    }
    write(figures)


def write(figures, pictured=None, page=PAGE):
    """Replaces these figures on the page, and the picture by that of a run."""
    text = page.read_text()
    for name, figure in figures.items():
        text, found = re.subn(
            rf"(<!-- {name} -->\n).*?(<!-- end -->)", lambda match: f"{match[1]}\n{figure}\n\n{match[2]}", text, flags=re.S
        )
        assert found == 1, name
    page.write_text(text)
    if pictured:
        PICTURE.parent.mkdir(exist_ok=True)
        shutil.copy(Path(pictured).with_suffix(".svg"), PICTURE)


if __name__ == "__main__":
    main()
