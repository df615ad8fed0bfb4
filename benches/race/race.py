#!/usr/bin/env python3
"""Compares this library with Open MPI, MPICH and Intel MPI, with OpenSHMEM, and with UCX, in one run on one machine.

    benches/race/race.py [--quick] [--out DIR] ...

The libraries come from PyPI into virtual environments under target/race, which can be deleted at any time. Each is
given its best known settings (peers.py), some several ones: a cell's opponent is whichever is fastest in it. The runs
of the libraries are interleaved in blocks, so that what else the machine does hits all of them. What is measured is
defined in mpi_bench.c, and the same in `intranode bench`, in benches/mpi-rs for the crate mpi-rs, which is built from
crates.io, and in shmem_bench.c for OpenSHMEM, which comes from Debian's packages (oshmem.py) and takes part in the one-sided
operations. What cannot run is left out. limits.c measures what the machine itself takes. With `--op training`, Cobre trains
over this library and over MPICH, which it is built for first.

A collective or a ping-pong is measured by two definitions: "renewed", in which the payload is written before each call, and
"unchanged", in which it is written once, as in the OSU benchmarks. This library is measured twice: with private buffers as the others, and
(`intranode-shared`) with the payload in memory that all ranks map. A cell of which a library's blocks differ by more than
three times is measured again by all, once, and marked.

A hypervisor may move virtual processors between cores that share a cache and cores that do not, at any time. So the transfer of a line is
measured between all measurements, and the report compares what was measured with the processors near each other, or distant, by
itself too.

Writes race.json, race.md and race.svg. Needs Python 3.10, a C compiler, cargo, and PyPI.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import cobre
import jobs
import machine
import oshmem
import mpi_rs
import peers
import report
import ucx

CELLS = {
    "barrier": [0],
    "allreduce": [32, 8 << 10, 1 << 20, 32 << 20],
    "allreduce-with": [1 << 20],
    "allgatherv": [1 << 10, 64 << 10, 3_200_000, 206_000_000],
    "broadcast": [10 << 10, 1 << 20, 64 << 20],
    "reduce": [8, 1 << 10, 64 << 10, 1 << 20],
    "gather": [8, 1 << 10, 64 << 10, 1 << 20],
    "scatter": [8, 1 << 10, 64 << 10, 1 << 20],
    "alltoall": [8, 1 << 10, 64 << 10, 1 << 20],
    "gatherv": [8, 64 << 10, 1 << 20],
    "scatterv": [8, 64 << 10, 1 << 20],
    "alltoallv": [8, 1 << 10, 64 << 10, 1 << 20],
    "reduce-scatter": [8, 1 << 10, 64 << 10, 1 << 20],
    "exscan": [8],
    "put": [8, 4 << 10, 64 << 10, 1 << 20, 64 << 20],
    "get": [8, 4 << 10, 64 << 10, 1 << 20, 64 << 20],
    "fetch-add": [8],
    "put-signal": [8, 64 << 10],
    "ping-pong": [8, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20],
    "stream": [8],
    "wake-up": [16],
}
# What is measured by one definition, with private buffers.
PLAIN = {"barrier", "put", "get", "fetch-add", "put-signal", "stream", "wake-up"}
START_UP = "start-up"
# Takes minutes to build: on request only.
TRAINING = "training"


def every_peer():
    return [*(variant[0] for variant in peers.VARIANTS), mpi_rs.NAME, oshmem.NAME, ucx.NAME]


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="few repetitions and one setting a library: some minutes")
    parser.add_argument("--ranks", default="2,4,8", help="numbers of ranks; 2,4,8 if not given")
    parser.add_argument("--op", action="append", choices=[*CELLS, START_UP, TRAINING], help="only this operation")
    parser.add_argument("--most-bytes", type=int, default=1 << 40, help="only cells up to this size")
    parser.add_argument("--peer", action="append", help="only this peer: " + ", ".join(every_peer()))
    parser.add_argument("--buffers", action="append", choices=report.DEFINITIONS, help="only this definition")
    parser.add_argument("--blocks", type=int, help="how often everything is measured")
    parser.add_argument("--seconds", type=float, help="about how long each measurement may take")
    parser.add_argument("--intranode", type=Path, help="the launcher, instead of building it")
    parser.add_argument("--out", type=Path, help="where the results go; target/race/results if not given")
    given = parser.parse_args()
    given.blocks = given.blocks or (2 if given.quick else 7)
    given.seconds = given.seconds or (0.1 if given.quick else 0.5)
    given.buffers = given.buffers or report.DEFINITIONS
    given.ranks = [int(ranks) for ranks in given.ranks.split(",")]
    # With few measurements, the settings that are best in most cells.
    given.peer = given.peer or ([*peers.QUICK, mpi_rs.NAME, oshmem.NAME] if given.quick else every_peer())
    return given


def measure(peer, operation, sizes, ranks, cores, given):
    """The rows of one operation, by one run."""
    seconds = given.seconds
    if peer.measure:
        return peer.measure(peer, operation, sizes, ranks, cores, seconds)
    definitions = ["renewed"] if operation in PLAIN else given.buffers
    expected = [(size, buffers) for size in sizes for buffers in definitions]
    if peer.memory:
        command = [peer.bench, "bench", "-n", ranks, "--bind", "--json", "--seconds", seconds, "--op", operation]
        command += [word for size in sizes if size for word in ("--bytes", size)]
        command += [word for buffers in definitions for word in ("--buffers", buffers)] + ["--memory", peer.memory]
        command = list(map(str, command))
        environment = peer.command(ranks, cores, [])[1]
    else:
        ending = {"renewed": "", "unchanged": ":unchanged"}
        cases = [f"{operation}:{size}{ending[buffers]}" for size, buffers in expected]
        command, environment = peer.command(ranks, cores, [peer.bench, seconds, *cases])
    lines = jobs.run(command, environment, timeout=60 + 20 * seconds * len(definitions))
    rows = [json.loads(line) for line in lines if line.startswith("{")]
    if [(row["bytes"], row.get("buffers", "renewed")) for row in rows] != expected:
        raise jobs.Failed(f"{len(rows)} rows for {len(expected)} cases")
    return rows


def start_up(peer, ranks, cores):
    """The time from the launcher's start until the last rank has left its first barrier."""
    program = [peer.bench, "__start-up"] if peer.memory else [peer.bench, START_UP]
    command, environment = peer.command(ranks, cores, program)
    times = []
    for _ in range(3):
        begin = time.clock_gettime(time.CLOCK_MONOTONIC)
        lines = jobs.run(command, environment, timeout=60)
        # A launcher may lose a line's end where two ranks print at a time.
        done = [float(clock) for clock in re.findall(r"\d+\.\d{9}", "\n".join(lines))]
        if len(done) != ranks:
            raise jobs.Failed(f"{len(done)} of {ranks} ranks have started")
        times.append((max(done) - begin) * 1e6)
    return [jobs.row(START_UP, ranks, times)]


def race(given, contestants, cores, limiting, training):
    """All rows, each with its block and its library, and with the time that a line took before and after."""
    rows, lines = [], []
    operations = given.op or [*CELLS, START_UP]
    sizes = {operation: [size for size in CELLS.get(operation, [0]) if size <= given.most_bytes] for operation in operations}
    everything = {(ranks, operation): sizes[operation] for ranks in given.ranks for operation in operations if sizes[operation]}

    def run(block, cells):
        for (ranks, operation), sizes in cells.items():
            lines.append({"block": block, "ranks": ranks, "op": operation, "median_us": line_now(limiting)})
            # Each block begins with another library.
            turn = block % len(contestants)
            for peer in contestants[turn:] + contestants[:turn]:
                if not takes_part(peer, operation, ranks, cores):
                    continue
                place = f"block {block + 1} of {given.blocks}: {ranks} ranks, {operation}, {peer.name}"
                jobs.tell(place)
                before = line_now(limiting)
                try:
                    if operation == START_UP:
                        measured = start_up(peer, ranks, cores)
                    elif operation == TRAINING:
                        measured = training.measure(peer, ranks, cores)
                    else:
                        measured = measure(peer, operation, sizes, ranks, cores, given)
                except jobs.Failed as failure:
                    jobs.tell("")
                    print(f"{place}: {failure}", file=sys.stderr)
                    continue
                about = {"block": block, "library": peer.name, "line_us": [before, line_now(limiting)]}
                rows.extend(row | about for row in measured)

    for block in range(given.blocks):
        run(block, everything)
    again = {}
    for ranks, operation, size, _ in sorted(report.unsteady(rows)):
        found = again.setdefault((ranks, operation), [])
        found += [size] if size not in found else []
    for block in range(given.blocks, 2 * given.blocks if again else 0):
        run(block, again)
    jobs.tell("")
    return rows, lines


def takes_part(peer, operation, ranks, cores):
    if (ranks <= cores) not in peer.where or operation not in (peer.operations or [operation]):
        return False
    if operation == TRAINING:
        return peer.name in (peers.OURS, cobre.PEER)
    return operation != START_UP or not peer.measure


def opponents(given, work):
    """The other libraries, and those that are left out, with the reasons."""
    others, left_out = peers.others(given.peer, work), {}
    for module in [mpi_rs, oshmem, ucx]:
        if module.NAME in given.peer and module.OPERATIONS.intersection(given.op or [*CELLS, START_UP]):
            try:
                others.append(module.peer(work))
            except jobs.Failed as failure:
                left_out[module.NAME] = str(failure)
                print(f"{module.NAME} is left out: {failure}", file=sys.stderr)
    return others, left_out


def line_now(program):
    """What the transfer of a line takes at this moment, in µs."""
    return limits(program, "line")[0]["median_us"]


def limits(program, *which):
    lines = jobs.run([str(program), *which], dict(os.environ), timeout=120)
    return [json.loads(line) for line in lines]


def main():
    jobs.end_when_told()
    given = arguments()
    work = Path(os.environ.get("CARGO_TARGET_DIR", peers.ROOT / "target")) / "race"
    out = given.out or work / "results"
    work.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)

    others, left_out = opponents(given, work)
    ours = peers.intranode(given.intranode)
    contestants = [ours, peers.shared(ours, CELLS.keys() - PLAIN), *others]
    limiting = peers.build(os.environ.get("CC", "cc"), peers.HERE / "limits.c", work / "limits", ["-pthread"])
    cores = len(os.sched_getaffinity(0))
    before = machine.load()
    begin = time.monotonic()
    training = cobre.Training(work) if TRAINING in (given.op or []) else None
    rows, lines = race(given, contestants, cores, limiting, training)
    results = {
        "machine": machine.describe(),
        "quick": given.quick,
        "blocks": given.blocks,
        "libraries": {peer.name: {"version": peer.version, "settings": peer.about} for peer in contestants},
        "left_out": left_out,
        "limits": limits(limiting),
        "lines": lines,
        "rows": rows,
        "load": [before, machine.load()],
        "seconds": round(time.monotonic() - begin),
    }
    (out / "race.json").write_text(json.dumps(results, indent=1) + "\n")
    text = report.report(results)
    (out / "race.md").write_text(text)
    print(text)
    drawing = peers.install("matplotlib", ["matplotlib"], work) / "bin/python"
    subprocess.run([drawing, peers.HERE / "picture.py", out / "race.json", out / "race.svg"], check=True)
    print(f"written: {out}/race.json, race.md, race.svg")


if __name__ == "__main__":
    main()
