#!/usr/bin/env python3
"""The effects of a rank that dies, stops or makes a wrong call, in this library and in three MPI libraries.

    benches/race/faults.py [--times N] [--out FILE]

Each fault happens to a job of three ranks, several times. Writes docs/faults-compared.md. Needs what race.py needs.
"""

import argparse
import contextlib
import os
import re
import select
import signal
import statistics
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import jobs
import machine
import peers

RANKS = 3
VICTIM = 1
# A process without output after this many seconds counts as waiting for ever.
PATIENCE = 10
TIME_OUT = 2
MIB = 1024

# The title, the program's arguments, the signal.
FAULTS = [
    ("A rank is killed (SIGKILL)", ["loop"], signal.SIGKILL),
    (f"A rank that holds {MIB} MiB is killed", ["loop", VICTIM, MIB], signal.SIGKILL),
    ("A rank is stopped (SIGSTOP)", ["loop"], signal.SIGSTOP),
    ("Rank 0 calls a barrier, the others a reduction", ["operations"], None),
    ("A reduction of 1000 values on rank 0, of 2000 on the others", ["lengths"], None),
    ("A broadcast from rank 0 on rank 0, from rank 1 on the others", ["roots"], None),
]

# Ranks without a launcher.
BY_SHELL = """
trap 'kill -TERM $ranks; kill -CONT $ranks' TERM
export INTRANODE_NAME=/faults-$$ INTRANODE_RANK
for INTRANODE_RANK in $(seq 0 $(($0 - 1))); do
    "$@" &
    ranks="$ranks $!"
done
wait
"""


@dataclass
class Outcome:
    """The outcome of one job."""

    # For each survivor: its output; `ended` if it ended without output, `waits` if neither.
    said: list[str] = field(default_factory=list)
    # The time of the last survivor's output or end, in seconds from the fault.
    delays: list[float] = field(default_factory=list)
    # The share of a processor of each survivor while it waits.
    usage: list[float] = field(default_factory=list)
    alive: int = 0
    processes: int = 0
    bytes: int = 0


def clock():
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def cpu_time(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def shared_files(pids):
    """The files under /dev/shm that these processes have mapped or open."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            found |= set(re.findall(r"/dev/shm/\S+", Path(f"/proc/{pid}/maps").read_text()))
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with contextlib.suppress(OSError):
                    found |= {target for target in [os.readlink(descriptor)] if target.startswith("/dev/shm/")}
    return found


def listen(stream, lines):
    for line in stream:
        lines.append((clock(), line.rstrip()))


def await_until(condition, seconds):
    """Whether the condition becomes true in time."""
    end = clock() + seconds
    while not (done := condition()) and clock() < end:
        time.sleep(0.001)
    return done


def ends_of(pids, seconds):
    """Yields repeatedly the times at which processes have ended."""
    ends = {}
    with contextlib.ExitStack() as stack:
        poll = select.poll()
        watched = {}
        for rank, pid in pids.items():
            try:
                descriptor = os.pidfd_open(pid)
            except ProcessLookupError:
                ends[rank] = clock()
                continue
            stack.callback(os.close, descriptor)
            poll.register(descriptor, select.POLLIN)
            watched[descriptor] = rank
        limit = clock() + seconds
        yield ends
        while watched and clock() < limit:
            for descriptor, _ in poll.poll(10):
                ends[watched.pop(descriptor)] = clock()
                poll.unregister(descriptor)
            yield ends


def one_job(peer, words, fault, work):
    """Runs one job. Returns its outcome."""
    outcome = Outcome()
    command, environment = peer.command(RANKS, RANKS - 1, [peer.bench, *words])
    environment |= {"TMPDIR": str(work), "INTRANODE_TIMEOUT": str(TIME_OUT)}
    job = jobs.Job(
        command, environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    lines = []
    threading.Thread(target=listen, args=(job.process.stdout, lines), daemon=True).start()
    files = set()
    try:
        ready = lambda: {int(w[1]): int(w[2]) for _, line in lines if (w := line.split())[:1] == ["ready"]}
        if not await_until(lambda: len(ready()) == RANKS or job.process.poll() is not None, 60) or len(ready()) < RANKS:
            raise jobs.Failed("the ranks do not start")
        pids = ready()
        files = shared_files(job.pids())
        survivors = {rank: pid for rank, pid in pids.items() if fault is None or rank != VICTIM}
        time.sleep(0.05)  # So that the ranks are inside their loop.
        begin = max(float(line.split()[3]) for _, line in lines if line.startswith("ready"))
        if fault:
            begin = clock()
            os.kill(pids[VICTIM], fault)
        watch(outcome, job, lines, survivors, begin, fault)
    finally:
        files |= shared_files(job.pids())
        job.end()
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                outcome.bytes += os.stat(file).st_blocks * 512
                os.unlink(file)
    return outcome


def watch(outcome, job, lines, survivors, begin, fault):
    """Watches the survivors until each has printed a result or ended."""

    def words():
        found = {}
        for _, line in list(lines):
            word = line.split(maxsplit=3)
            if word[:1] in (["error"], ["returned"]) and int(word[1]) in survivors:
                found[int(word[1])] = (float(word[2]), word[0], word[3])
        return found

    used, ends = {}, {}
    measured = begin + 0.5
    for ends in ends_of(survivors, PATIENCE):
        if set(words()) | set(ends) >= set(survivors):
            break
        waiting = set(survivors) - set(words()) - set(ends)
        if not used and clock() > measured:
            measured = clock()
            used = {rank: cpu_time(survivors[rank]) for rank in waiting}
        elif used and not outcome.usage and clock() > measured + 1:
            for rank in set(used) & waiting:
                with contextlib.suppress(OSError):
                    outcome.usage.append((cpu_time(survivors[rank]) - used[rank]) / (clock() - measured))
    # Gives the launcher time to kill all ranks.
    await_until(lambda: not any(map(is_running, survivors.values())), 1)
    said = words()
    for rank, pid in survivors.items():
        if rank in said:
            at, kind, text = said[rank]
            outcome.said.append(text if kind == "error" else f"returns, {text}")
            outcome.delays.append(at - begin)
        elif rank in ends:
            outcome.said.append("ended")
            outcome.delays.append(ends[rank] - begin)
        else:
            outcome.said.append("waits")
        outcome.alive += is_running(pid)
    # As a user ends a job that hangs.
    job.process.terminate()
    await_until(lambda: not job.pids(), 5)
    outcome.processes = len(job.pids())


def is_running(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return False


def milliseconds(seconds):
    value = seconds * 1e3
    return f"{value:,.0f} ms" if value >= 10 else f"{value:.2g} ms"


def in_words(outcomes, fault, names):
    """A row's cells: the survivors' results, the delay, processor use, leftovers."""
    said = [text for outcome in outcomes for text in outcome.said]
    kinds = {}
    for text in said:
        kind = text if text in ("ended", "waits") or text.startswith("returns") else "error"
        kinds.setdefault(kind, []).append(text)
    parts = []
    for kind, texts in sorted(kinds.items()):
        share = "" if len(texts) == len(said) else f" ({len(texts)} of {len(said)})"
        if kind == "error":
            sample = re.sub(r"\s+", " ", texts[0]).strip()
            named = "" if not names else "names the rank" if all(re.search(names, t) for t in texts) else "names nobody"
            parts.append(f"an error{share}{': ' + named if named else ''}: “{sample[:160]}”")
        elif kind == "ended":
            parts.append(f"ended by the launcher, or crashed{share}")
        elif kind == "waits":
            parts.append(f"waits for ever{share}")
        else:
            parts.append({"returns, right": "success", "returns, wrong": "**success, wrong data**"}[kind] + share)
    delays = [max(outcome.delays) for outcome in outcomes if outcome.delays and "waits" not in outcome.said]
    after = f"{milliseconds(statistics.median(delays))} ({milliseconds(max(delays))})" if delays else "–"
    usage = [used for outcome in outcomes for used in outcome.usage]
    busy = f"{100 * statistics.median(usage):.0f} %" if usage else "–"
    left = []
    if most := max(outcome.processes for outcome in outcomes):
        left.append(f"{most} processes")
    if most := max(outcome.bytes for outcome in outcomes):
        left.append(f"{most / 2**20:.1f} MiB in /dev/shm")
    live = "error" in kinds and all(outcome.alive == len(outcome.said) for outcome in outcomes)
    return [("lives on with " if live else "") + "; ".join(parts), after, busy, ", ".join(left) or "nothing"]


def contestants(given, work):
    example = ["cargo", "build", "--quiet", "--locked", "--release", "--example", "survivor"]
    subprocess.run(example, cwd=peers.ROOT, check=True)
    ours = peers.intranode(given.intranode)
    ours.launch = lambda ranks, _: (["sh", "-c", BY_SHELL, str(ranks)], {"INTRANODE_SIZE": str(ranks)})
    ours.bench = Path(os.environ.get("CARGO_TARGET_DIR", peers.ROOT / "target")) / "release/examples/survivor"
    mpi = peers.others(peers.QUICK, work, "mpi_faults.c")
    (openmpi,) = (peer for peer in mpi if peer.name == "openmpi")
    tolerant = peers.Peer(
        "openmpi, ULFM on", openmpi.version, "", peers.open_mpi(["--with-ft", "ulfm"]), home=openmpi.home, bench=openmpi.bench
    )
    return [ours, openmpi, tolerant, *(peer for peer in mpi if peer is not openmpi)]


def main():
    jobs.end_when_told()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--times", type=int, default=5, help="how often each fault happens to each library; 5")
    parser.add_argument("--intranode", type=Path, help="the launcher, instead of building it")
    parser.add_argument("--out", type=Path, default=peers.ROOT / "docs/faults-compared.md")
    given = parser.parse_args()
    work = Path(os.environ.get("CARGO_TARGET_DIR", peers.ROOT / "target")) / "race"
    work.mkdir(parents=True, exist_ok=True)
    libraries = contestants(given, work)

    versions = ", ".join(f"{peer.name} {peer.version}" for peer in libraries if "," not in peer.name)
    text = [
        "# When something goes wrong",
        "",
        "Written by `benches/race/faults.py`, which repeats it. Each fault happened to a job of "
        f"{RANKS} ranks, {given.times} times. The libraries: {versions}, on {machine.in_words(machine.describe())}. The MPI programs ask "
        "for errors to be returned (`MPI_ERRORS_RETURN`). *After* is from the fault, or from the last rank's start, to the "
        "last survivor's error or end: the median, and the worst in brackets. *Busy* is the processor use of a survivor "
        f"that waits. A library that still waits after {PATIENCE} s is taken to wait for ever; intranode had a "
        f"time-out of {TIME_OUT} s (60 s if nothing is set). Then the launcher was told to end (SIGTERM), "
        "and after 5 s what was left was counted. intranode's ranks were started by a shell: its launcher, like the others, "
        "ends a job of which a rank has failed.",
        "",
    ]
    for title, words, fault in FAULTS:
        text += [f"## {title}", "", "| library | a survivor | after | busy | left behind |", "| --- | --- | --: | --: | --- |"]
        for peer in libraries:
            jobs.tell(f"{title}: {peer.name}")
            outcomes = []
            with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as temporary:
                for _ in range(given.times):
                    outcomes.append(one_job(peer, words, fault, temporary))
            names = rf"rank {VICTIM}\b" if fault else None
            text.append(f"| {peer.name} | " + " | ".join(in_words(outcomes, fault, names)) + " |")
        text.append("")
    jobs.tell("")
    given.out.parent.mkdir(exist_ok=True)
    given.out.write_text("\n".join(text).rstrip() + "\n")
    print(given.out.read_text())


if __name__ == "__main__":
    main()
