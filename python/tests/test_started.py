"""Collectives that do not block: their order, their buffers and their errors, over processes."""

from __future__ import annotations

import array
import gc
import signal
import time
from typing import Any

import numpy
import pytest

import intranode
from intranode import Communicator
from job import Job, run


def several(comm: Communicator) -> None:
    """Many at once, of one step and of two, waited for in another order, and with blocking ones between them."""
    from intranode import MPI

    world = MPI.COMM_WORLD
    rank, size = world.rank, world.size
    counts = [each + 1 for each in range(size)]
    for turn in range(20):
        own = numpy.full(rank + 1, rank + turn, "f8")
        all_ = numpy.zeros(sum(counts))
        total, block = numpy.zeros(2), numpy.zeros(size, "i4")
        requests: list[Any] = [
            world.Ibarrier(),
            world.Igatherv(own, [all_, counts] if rank == 0 else None, 0),
            world.Iallreduce(numpy.full(2, rank + 1.0), total),
            world.Ialltoallv([numpy.arange(size, dtype="i4"), [1] * size], [block, [1] * size]),
            world.Ibarrier(),
        ]
        assert all(requests)
        if turn % 4 == 0:
            # Completes them all first, as does every call that blocks.
            assert world.allreduce(rank) == sum(range(size))
        for request in requests[:: -1 if turn % 2 else 1]:
            request.Wait()
        assert not any(requests)
        assert (total == sum(range(1, size + 1))).all() and (block == rank).all()
        if rank == 0:
            assert (all_ == numpy.repeat(numpy.arange(size) + turn, counts)).all()
    # Tested until they are complete, mixed with messages.
    value = array.array("l", [0])
    found = array.array("l", [-1])
    mixed: list[Any] = [world.Iscan(array.array("l", [rank + 1]), value), world.Irecv(found, (rank - 1) % size, 3)]
    mixed.append(world.Isend(array.array("l", [rank]), (rank + 1) % size, 3))
    while not MPI.Request.Testall(mixed):
        time.sleep(0)
    assert value[0] == sum(range(1, rank + 2)) and found[0] == (rank - 1) % size
    # What nobody waits for is completed by others.
    world.Ibcast(numpy.zeros(100_000), 0)
    gc.collect()
    world.Barrier()
    big = numpy.full(300_000, float(rank))
    wide = numpy.zeros(300_000 * size)
    MPI.Request.Waitall([world.Iallgather(big, wide), world.Ibarrier()])
    assert (wide == numpy.repeat(numpy.arange(size), 300_000)).all()


def kept(comm: Communicator) -> None:
    """Where is received cannot be resized, and stays."""
    from intranode import MPI

    world = MPI.COMM_WORLD
    buffer = bytearray(8)
    request = world.Ibcast(b"12345678" if world.rank == 0 else buffer, 0)
    if world.rank:
        with pytest.raises(BufferError):
            buffer.append(1)
    request.Wait()
    assert world.rank == 0 or buffer == b"12345678"
    del request
    gc.collect()
    buffer.append(1)


def mistakes(comm: Communicator) -> list[str]:
    """On rank 1 the arguments are wrong: all ranks get an error, and can go on."""
    from intranode import MPI

    world, seen = MPI.COMM_WORLD, []
    one, two = numpy.zeros(1), numpy.zeros(2)
    mine: list[Any] = [
        lambda: world.Iallreduce(one, numpy.zeros(4)[::2] if world.rank else one),
        lambda: world.Iallreduce(one, b"12345678" if world.rank else one),
        lambda: world.Iallgather(two if world.rank else one, two),
        lambda: world.Ialltoallv([two, [1, 1]], [two, [2, 0] if world.rank else [1, 1]]),
        lambda: world.Iallreduce(numpy.zeros(1 + world.rank), numpy.zeros(1 + world.rank)),
        lambda: world.Ibcast(one, 7),
    ]
    for call in mine:
        try:
            call().Wait()
            seen.append("none")
        except Exception as error:
            seen.append(type(error).__name__)
    world.Barrier()
    with pytest.raises(NotImplementedError):
        world.Ibarrier().Cancel()
    return seen


def died(comm: Communicator) -> str:
    import os

    from intranode import MPI

    world = MPI.COMM_WORLD
    request = world.Iallreduce(numpy.ones(1), numpy.zeros(1))
    request.Wait()
    if world.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        world.Igatherv(numpy.ones(1), [numpy.zeros(3), [1, 1, 1]] if world.rank == 0 else None).Wait()
    except intranode.Error as error:
        return type(error).__name__
    return "none"


def behind_failures(comm: Communicator) -> list[str]:
    """Calls that fail at their start, alone, behind another one and in front of one: each error is that of its request."""
    from intranode import MPI

    world, seen = MPI.COMM_WORLD, list[str]()

    def fails() -> Any:
        return world.Ireduce_scatter(numpy.ones(4), numpy.zeros(2), [2])

    def waits(request: Any) -> None:
        try:
            request.Wait()
            seen.append("none")
        except Exception as error:
            seen.append(type(error).__name__)

    waits(fails())
    for _ in range(2):
        waits(world.Ibarrier())
    requests = [world.Ibarrier(), fails(), world.Ibarrier()]
    for place in (1, 0, 2, 1):
        waits(requests[place])
    # One that begins later, since a step of the call before it is to come.
    own, total = numpy.zeros(1), numpy.ones(world.size)
    for request in [world.Ireduce_scatter(total, own), fails(), world.Ibarrier()]:
        waits(request)
    world.Barrier()
    assert own[0] == world.size
    return seen


def interrupted(comm: Communicator) -> list[str]:
    """Ctrl-C ends the wait for one, which raises that once, and the communicator: each later call says so."""
    from intranode import MPI

    world, seen = MPI.COMM_WORLD, list[str]()
    calls: list[Any] = [lambda: world.recv(source=0)]
    if comm.rank == 0:
        request = world.Ibarrier()
        calls = [request.Wait, request.Wait, *[lambda: world.Ibarrier().Wait()] * 2, world.Barrier]
    print("ready", flush=True)
    for call in calls:
        try:
            call()
            seen.append("none")
        except BaseException as error:
            seen.append(type(error).__name__)
    return seen


@pytest.mark.parametrize("size", [1, 2, 4])
def test_several_at_once(size: int) -> None:
    assert run("test_started:several", size) == [None] * size


def test_the_buffer_is_kept() -> None:
    assert run("test_started:kept", 2) == [None, None]


def test_mistakes_are_errors_on_all_ranks() -> None:
    other, own = run("test_started:mistakes", 2)
    assert own == ["BufferError", "BufferError", "ValueError", "CountsDisagree", "Mismatch", "InvalidArgument"]
    assert other == ["Refused", "Refused", "Refused", "CountsDisagree", "Mismatch", "InvalidArgument"]


def test_a_death_ends_a_request() -> None:
    assert run("test_started:died", 3) == ["RankDied", -9, "RankDied"]


@pytest.mark.parametrize("size", [1, 2])
def test_calls_go_on_behind_one_that_fails_at_its_start(size: int) -> None:
    first = ["InvalidArgument", "none", "none"]
    assert run("test_started:behind_failures", size) == [
        [*first, "InvalidArgument", "none", "none", "none", "none", "InvalidArgument", "none"]
    ] * size


def test_calls_behind_one_that_ctrl_c_has_ended() -> None:
    with Job("test_started:interrupted", 2) as job:
        for rank in range(2):
            assert job.wait_for_line(rank) == b"ready\n"
        time.sleep(0.2)  # it is in its call, or will be: any moment is a valid one
        job.ranks[0].send_signal(signal.SIGINT)
        assert job.results() == [["KeyboardInterrupt", "none", *["Interrupted"] * 3], ["Interrupted"]]
