"""A short call keeps the interpreter's lock while the others are there, and gives it away when it has to wait."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy
import pytest

import intranode
from intranode import Communicator
from job import Job, run


def await_file(path: str) -> None:
    while not Path(path).exists():
        time.sleep(0.001)


def beside_a_thread(comm: Communicator, path: str) -> int:
    """The other rank comes when a thread of rank 0 has run Python, which it can only while rank 0 waits in its call."""
    numbers: list[int] = []

    def work() -> None:
        begins.wait()
        for number in range(100_000):
            numbers.append(number)
        Path(path).touch()

    begins = threading.Event()
    if comm.rank == 0:
        thread = threading.Thread(target=work)
        thread.start()
        begins.set()
        comm.Barrier()
        thread.join()
    else:
        await_file(path)
        comm.Barrier()
    return int(comm.allreduce(len(numbers)))


@pytest.mark.parametrize("size", [2, 4])
def test_threads_run_while_a_call_waits(size: int, tmp_path: Path) -> None:
    assert run("test_waiting:beside_a_thread", size, str(tmp_path / "done")) == [100_000] * size


def with_a_handler(comm: Communicator, path: str) -> list[Any]:
    """A handler of a signal makes calls of its own in the middle of one that waits, which goes on afterwards."""
    alone = comm.split(comm.rank)
    seen: list[Any] = []

    def handle(*_: object) -> None:
        total = numpy.zeros(2)
        alone.Barrier()
        alone.Allreduce(numpy.ones(2), total)
        seen.append((total.sum(), alone.bcast("inside", 0)))
        print("handled", flush=True)

    signal.signal(signal.SIGUSR1, handle)
    print("ready", flush=True)
    if comm.rank == 1:
        await_file(path)
    comm.Barrier()
    return seen + [comm.allreduce(1)]


def test_a_handler_makes_calls_in_the_middle_of_a_call(tmp_path: Path) -> None:
    path = tmp_path / "goes on"
    with Job("test_waiting:with_a_handler", 2, str(path)) as job:
        for rank in range(2):
            assert job.wait_for_line(rank) == b"ready\n"
        for _ in range(2):
            job.ranks[0].send_signal(signal.SIGUSR1)
            assert job.wait_for_line(0) == b"handled\n"
        path.touch()
        own, other = job.results()
    assert own == [(2.0, "inside"), (2.0, "inside"), 2]
    assert other == [2]


def test_ranks_that_are_threads_meet_in_short_calls() -> None:
    """The lock that the one keeps is what the other needs to come."""
    size, rounds = 3, 200
    name = f"/intranode-threads-{os.getpid()}"
    totals: list[float] = []

    def member(rank: int) -> None:
        comm = intranode.join(name, rank, size)
        total = numpy.zeros(4)
        for _ in range(rounds):
            comm.Barrier()
            comm.Allreduce(numpy.ones(4), total)
            assert comm.bcast(rank, 1) == 1
        totals.append(total.sum())
        comm.Barrier()
        comm.leave()

    threads = [threading.Thread(target=member, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert totals == [4.0 * size] * size


def leaving(comm: Communicator) -> str:
    """A thread leaves while the other is in a call: this rank leaves when that has returned, and further calls are errors."""
    if comm.rank == 1:
        with pytest.raises(intranode.RankLeft):
            for _ in range(1 << 30):
                comm.Barrier()
        return "left"
    began = threading.Event()

    def leave() -> None:
        began.wait()
        comm.leave()

    thread = threading.Thread(target=leave)
    thread.start()
    began.set()
    with pytest.raises(ValueError, match="has left"):
        for _ in range(1 << 30):
            comm.Barrier()
    thread.join()
    return "left"


def test_a_thread_leaves_while_another_calls() -> None:
    assert run("test_waiting:leaving", 2) == ["left"] * 2
