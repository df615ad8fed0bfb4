"""Requests that stand for nothing, and several handles of one, as `intranode.MPI` has them: over processes."""

from __future__ import annotations

import gc
from typing import Any

import numpy
import pytest

from intranode import Communicator
from job import run


def empty(_: Communicator) -> dict[str, Any]:
    """What a status that had another message says after a call on requests that stand for nothing."""
    from intranode import MPI

    world = MPI.COMM_WORLD

    def cancelled() -> Any:
        """Complete, so that nothing of it is left."""
        request = world.irecv(source=0)
        request.Cancel()
        request.Wait()
        return request

    def inactive() -> Any:
        request = world.Recv_init(numpy.zeros(1), 0)
        request.Start()
        world.Send(numpy.zeros(1), 0, 3)
        request.Wait()
        return request

    def complete() -> Any:
        request = world.Ibarrier()
        request.Wait()
        return request

    calls: dict[str, Any] = {
        "Wait": lambda request, status: request.Wait(status),
        "wait": lambda request, status: request.wait(status),
        "Test": lambda request, status: request.Test(status),
        "test": lambda request, status: request.test(status),
        "Get_status": lambda request, status: request.Get_status(status),
        "Waitany": lambda request, status: MPI.Request.Waitany([request], status),
        "Testany": lambda request, status: MPI.Request.Testany([request], status),
        "Waitall": lambda request, status: MPI.Request.Waitall([request], [status]),
        "Testall": lambda request, status: MPI.Request.Testall([request], [status]),
    }
    found: dict[str, Any] = {}
    for request in (MPI.Request(), cancelled(), inactive(), complete()):
        for name, call in calls.items():
            status = MPI.Status()
            world.Send(numpy.ones(2), 0, 5)
            world.Recv(numpy.zeros(2), 0, 5, status)
            status._cancelled = True
            call(request, status)
            found.setdefault(name, []).append((status.source, status.tag, status.count, status.Is_cancelled()))
    return found


def test_a_request_that_stands_for_nothing_has_an_empty_status() -> None:
    (found,) = run("test_handles:empty", 1)
    assert len(found) == 9 and found == {name: [(-1, -1, 0, False)] * 4 for name in found}


def of_nobody(_: Communicator) -> list[Any]:
    """The status of a receive from PROC_NULL, of one that was cancelled, and of one by the same status after that."""
    from intranode import MPI

    world, status, results = MPI.COMM_WORLD, MPI.Status(), list[Any]()
    world.Irecv(numpy.zeros(1), MPI.PROC_NULL).Wait(status)
    results.append((status.source, status.tag, status.count, status.Is_cancelled()))
    request = world.irecv(source=0)
    request.Cancel()
    request.Wait(status)
    results.append(status.Is_cancelled())
    world.Recv(numpy.zeros(1), MPI.PROC_NULL, 0, status)
    return [*results, status.Is_cancelled()]


def test_the_status_of_a_receive_from_nobody() -> None:
    assert run("test_handles:of_nobody", 1) == [[(-2, -1, 0, False), True, False]]


def by_another_handle(comm: Communicator, persistent: bool) -> list[Any]:
    """A receive goes on while this rank waits for something else, also if the handle that started it is gone."""
    from intranode import MPI

    world, big = MPI.COMM_WORLD, numpy.zeros(1 << 20)
    if comm.rank == 1:
        world.Send(big + 1, 0, 1)
        world.Recv(big, 0, 2)
        return []
    first: Any = world.Recv_init(big, 1, 1) if persistent else world.Irecv(big, 1, 1)
    second = MPI.Request(first)
    if persistent:
        first.Start()
    del first
    gc.collect()
    world.Ssend(numpy.zeros(1), 1, 2)
    second.Wait()
    return [float(big[-1]), len(world._receives)]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_receive_goes_on_by_any_of_its_handles(persistent: bool) -> None:
    assert run("test_handles:by_another_handle", 2, persistent, timeout=5.0)[0] == [1.0, 0]


def of_no_handle(comm: Communicator) -> list[Any]:
    """A receive whose handles are all gone before its message came, and one that was freed."""
    from intranode import MPI

    world, found = MPI.COMM_WORLD, numpy.zeros(3)
    if comm.rank == 1:
        world.Barrier()
        for value in range(3):
            world.Send(numpy.full(1, value + 1.0), 0)
        return []
    world.Irecv(found[:1], 1)
    gc.collect()
    world.Irecv(found[1:2], 1).Free()
    world.Barrier()
    world.Recv(found[2:], 1)
    return list(found)


def test_a_receive_of_no_handle_leaves_its_message_to_the_next() -> None:
    assert run("test_handles:of_no_handle", 2)[0] == [0.0, 0.0, 1.0]
