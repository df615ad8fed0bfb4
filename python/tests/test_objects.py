"""Collectives on objects, which are pickled."""

from __future__ import annotations

import fractions
from pathlib import Path
from typing import Any

import pytest

import intranode
from intranode import Communicator
from job import run

SIZES = [1, 2, 3, 4]


class Unpicklable:
    def __reduce__(self) -> Any:
        raise ValueError("not this one")


def objects(comm: Communicator) -> None:
    size, rank = comm.size, comm.rank
    values = [{"rank": each, "data": [None, 1.5, "é" * each], "half": fractions.Fraction(each, 2)} for each in range(size)]
    assert comm.allgather(values[rank]) == values
    for root in range(size):
        given = values[root] if rank == root else None
        got = comm.bcast(given, root)
        assert got == values[root] and (got is given) == (rank == root)
        assert comm.gather(values[rank], root) == (values if rank == root else None)
        assert comm.scatter(values if rank == root else None, root) == values[rank]
        assert comm.reduce(f"{rank}", root=root) == ("".join(map(str, range(size))) if rank == root else None)
    # Around what is sent with its length, pickled.
    for length in (0, 70, 80, 4060, 4070, 4080, 4090, 100_000):
        assert comm.bcast(bytes(length) if rank == 0 else None) == bytes(length)
    assert comm.alltoall([(rank, each) for each in range(size)]) == [(each, rank) for each in range(size)]
    # In rank order: strings do not commute.
    assert comm.allreduce(str(rank)) == "".join(map(str, range(size)))
    assert comm.allreduce(rank, op=lambda a, b: 10 * a + b) == int("".join(map(str, range(size))))
    assert comm.scan(str(rank)) == "".join(map(str, range(rank + 1)))
    assert comm.exscan(str(rank)) == ("".join(map(str, range(rank))) if rank else None)
    assert comm.allreduce((5.0 - rank, rank), op=intranode.MINLOC) == (6.0 - size, size - 1)
    assert comm.allreduce(("same", rank), op=intranode.MAXLOC) == ("same", 0)
    large = bytes(range(256)) * 8_000
    assert comm.bcast(large if rank == 0 else None) == large
    assert [len(each) for each in comm.alltoall([large[: rank + each] for each in range(size)])] == [
        each + rank for each in range(size)
    ]
    comm.barrier()


def unpicklable(comm: Communicator) -> str:
    seen = []
    mine = Unpicklable() if comm.rank == 0 else 1
    calls: list[Any] = [
        lambda: comm.bcast(mine),
        lambda: comm.allgather(mine),
        lambda: comm.gather(mine, 1),
        lambda: comm.alltoall([mine, mine]),
        lambda: comm.scatter([mine, mine] if comm.rank == 0 else None),
        lambda: comm.scatter([1, 2, 3]),
    ]
    for call in calls:
        try:
            call()
        except Exception as error:
            seen.append(type(error).__name__)
    comm.barrier()
    return " ".join(seen)


@pytest.mark.parametrize("size", SIZES)
def test_results(size: int) -> None:
    assert run("test_objects:objects", size) == [None] * size


def test_what_cannot_be_pickled_is_refused_on_all_ranks() -> None:
    refused, own = "Refused ", "ValueError "
    assert run("test_objects:unpicklable", 2) == [(own * 6).strip(), (refused * 6).strip()]


def made_of(comm: Communicator) -> list[str]:
    """The operation of the error where rank 0 has an object that cannot be pickled."""
    names = []
    for call in (comm.allreduce, comm.scan, comm.exscan, comm.reduce, comm.gather, comm.allgather, comm.alltoall, comm.scatter, comm.bcast):
        wrong: Any = (lambda: None) if comm.rank == 0 else 1
        if call.__name__ in ("alltoall", "scatter"):
            wrong = [wrong] * comm.size
        with pytest.raises(Exception) as failed:
            call(wrong)
        names.append(getattr(failed.value, "operation", ""))
    return names


def test_errors_name_what_calls_on_objects_are_made_of() -> None:
    # As the documentation of `intranode.errors` says.
    expected = [*["allgather"] * 3, *["gather"] * 2, "allgather", *["alltoall"] * 2, "bcast"]
    assert run("test_objects:made_of", 2)[1] == expected


def without_memory(_: Communicator) -> list[str]:
    """Rank 0 has memory for the pickle of an object, and not for another copy of it."""
    import resource

    world, length = intranode.world(), 64 << 20
    seen = []
    data = bytes(length)
    # Started before: its stack is memory, too.
    world.barrier()
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if world.rank == 0:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        # `pickle.dumps` takes half as much again, and gives it back.
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + length * 7 // 4, limits[1]))
    for call in (world.bcast, world.allgather, world.gather):
        try:
            call(data if world.rank == 0 else None)
            seen.append("none")
        except Exception as error:
            seen.append(type(error).__name__)
    resource.setrlimit(resource.RLIMIT_AS, limits)
    assert world.allgather(world.rank) == [0, 1]
    return seen


def test_an_object_without_memory_for_its_copy_is_an_error() -> None:
    # The process was ended by SIGABRT.
    assert run("test_objects:without_memory", 2) == [["AllocationFailed"] * 3, ["Refused"] * 3]
