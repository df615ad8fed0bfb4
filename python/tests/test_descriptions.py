"""mpi4py's descriptions of buffers, with a count and a displacement: over processes."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy
import pytest

from intranode import Communicator
from job import run


def one_block(comm: Communicator) -> list[Any]:
    """What a send or a receive of `[data, [count, displ]]` and the like means: one block, from its displacement on."""
    from intranode import MPI

    world, data, results = MPI.COMM_WORLD, numpy.arange(6.0), list[Any]()
    described: list[Any] = [
        [data, [2, 3]],
        [data, (2, 3)],
        [data, [2, 3], MPI.DOUBLE],
        [data, 2, 3, MPI.DOUBLE],
        [data, (None, 3)],
        [data, None, 3, MPI.DOUBLE],
    ]
    for sent in described:
        found, status = numpy.full(6, -1.0), MPI.Status()
        world.Isend(sent, comm.rank)
        world.Recv([found, [3, 1], MPI.DOUBLE], comm.rank, status=status)
        results.append((list(found), status.Get_count(MPI.DOUBLE)))
    for wrong in ([data, [1, 2, 3]], [data, [1, 2], [0, 1], MPI.DOUBLE], [data, numpy.array([1, 2])], [data, (None, 7)], [data, [1, -1]], [data, 2, 0, numpy.dtype("f4")]):
        with pytest.raises((TypeError, ValueError)):
            world.Isend(wrong, comm.rank)
    return results


def test_a_message_has_one_count_and_one_displacement() -> None:
    two = ([-1.0, 3.0, 4.0, -1.0, -1.0, -1.0], 2)
    three = ([-1.0, 3.0, 4.0, 5.0, -1.0, -1.0], 3)
    assert run("test_descriptions:one_block", 1) == [[two] * 4 + [three] * 2]


def blocks_of_one_length(comm: Communicator) -> list[Any]:
    """Of a call with blocks of one length the displacement is where the first of them begins."""
    from intranode import MPI

    world, size, rank = MPI.COMM_WORLD, comm.size, comm.rank
    results = []
    forms: list[Any] = [
        lambda data: [data, (2, 1)],
        lambda data: [data, [2, 1]],
        lambda data: [data, 2, 1, MPI.DOUBLE],
        lambda data: [data, (None, 1)],
    ]
    for described in forms:
        blocks = numpy.arange(2 * size + 1) + 10.0 * rank
        own = [blocks, (2, 1)]

        def room() -> Any:
            return numpy.full(2 * size + 1, -1.0)

        calls: list[Any] = [
            lambda found: world.Allgather(own, described(found)),
            lambda found: world.Gather(own, described(found) if rank == 0 else None),
            lambda found: world.Scatter(described(blocks) if rank == 0 else None, [found, (2, 1)]),
            lambda found: world.Alltoall(described(blocks), described(found)),
            lambda found: world.Iallgather(own, described(found)).Wait(),
            lambda found: world.Igather(own, described(found) if rank == 0 else None).Wait(),
            lambda found: world.Iscatter(described(blocks) if rank == 0 else None, [found, (2, 1)]).Wait(),
            lambda found: world.Ialltoall(described(blocks), described(found)).Wait(),
        ]
        for call in calls:
            found = room()
            call(found)
            results.append(found.tolist())
        # Where the blocks are of different lengths, each has its own.
        found = room()
        world.Allgatherv(own, [found, 2, 2, MPI.DOUBLE])
        results.append(found.tolist())
        found = room()
        world.Allgatherv(own, [found, [2, 2]])
        results.append(found.tolist())
    return results


def test_a_displacement_is_where_the_first_block_begins() -> None:
    for rank, found in enumerate(run("test_descriptions:blocks_of_one_length", 2)):
        gathered = [-1.0, 1.0, 2.0, 11.0, 12.0]
        at_root = gathered if rank == 0 else [-1.0] * 5
        scattered = [-1.0, 1.0 + 2 * rank, 2.0 + 2 * rank, -1.0, -1.0]
        exchanged = [-1.0, 1.0 + 2 * rank, 2.0 + 2 * rank, 11.0 + 2 * rank, 12.0 + 2 * rank]
        table = [1.0, 2.0, 11.0, 12.0, -1.0]
        assert found == [*[gathered, at_root, scattered, exchanged] * 2, table, table] * 4


def uneven(comm: Communicator) -> list[str]:
    """A buffer that does not divide into blocks of one length, on one rank."""
    from intranode import MPI

    world, raised = MPI.COMM_WORLD, []
    for call in (world.Allgather, lambda *both: world.Iallgather(*both).Wait()):
        try:
            call(numpy.zeros(1), [numpy.zeros(3 if comm.rank else 2), MPI.DOUBLE])
        except ValueError as error:
            raised.append(type(error).__name__)
    return raised


def test_blocks_of_one_length_divide_a_buffer() -> None:
    assert run("test_descriptions:uneven", 2) == [["Refused"] * 2, ["ValueError"] * 2]


def scattered_blocks(comm: Communicator) -> list[Any]:
    """A count is that of one block, also where all blocks are combined."""
    from intranode import MPI

    world, size, results = MPI.COMM_WORLD, comm.size, []
    calls: list[Any] = [
        world.Reduce_scatter_block,
        lambda *both: world.Ireduce_scatter_block(*both).Wait(),
    ]
    for call in calls:
        found = numpy.full(5, -1.0)
        call([numpy.arange(4.0 * size + 1), (4, 1)], [found, (4, 0)])
        results.append(found.tolist())
        data = numpy.arange(4.0 * size)
        call(MPI.IN_PLACE, [data, 4, MPI.DOUBLE])
        results.append(data[:4].tolist())
    return results


def test_a_count_is_that_of_one_block_where_all_are_combined() -> None:
    for rank, found in enumerate(run("test_descriptions:scattered_blocks", 2)):
        sums = [2.0 * (4 * rank + index) for index in range(4)]
        assert found == [[each + 2.0 for each in sums] + [-1.0], sums] * 2


def mistaken(comm: Communicator) -> list[str]:
    """What is said of values that are no buffers, and of types that are no datatypes."""
    from intranode import MPI

    world, texts = MPI.COMM_WORLD, list[str]()
    dates = numpy.array(["2026-01-01"], "M8[D]")
    wrong: list[Any] = [
        lambda: world.Send([1, 2, 3], comm.rank),
        lambda: world.Allreduce([1.0, 2.0], numpy.zeros(2)),
        lambda: world.Bcast([1, 2, 3, 4, 5]),
        lambda: world.Isend("text", comm.rank),
        lambda: world.Recv({"a": 1}, comm.rank),
        lambda: world.Bcast([numpy.zeros(3), float]),
        lambda: world.Bcast([numpy.zeros(3), numpy.dtype("f8")]),
        lambda: world.Bcast([numpy.zeros(3), 1.0, MPI.DOUBLE]),
        lambda: world.Bcast(dates),
        lambda: world.Send(dates, comm.rank),
        lambda: world.Bcast([dates, 1]),
    ]
    for call in wrong:
        with pytest.raises((TypeError, ValueError)) as failed:
            call()
        texts.append(str(failed.value))
    world.Bcast(dates.view("i8"))
    assert world.bcast(dates) == dates
    return texts


def test_a_mistake_is_told_with_the_way_out() -> None:
    several = "put them into an array, or use the methods in small letters, which take any object"
    expected = [
        ("and 1 is none", several),
        ("and 1.0 is none", several),
        ("not 5 items", several),
        ("a buffer is needed", "not str; for other objects there are the methods in small letters"),
        ("a buffer is needed", "not dict; for other objects"),
        ("<class 'float'> is no count, displacement or datatype", "MPI.DOUBLE"),
        ("dtype('float64') is no count", "its format 'd'"),
        ("1.0 is no count", "[data, count, displ, datatype]"),
        *[("cannot include dtype 'M' in a buffer", 'x.view("i8")')] * 3,
    ]
    for texts in run("test_descriptions:mistaken", 2):
        for text, parts in zip(texts, expected, strict=True):
            assert all(part in text for part in parts), (text, parts)


class Described(NamedTuple):
    data: Any
    number: int
    datatype: Any


class Listed(list[Any]):
    pass


def of_own_classes(_: Communicator) -> list[list[float]]:
    from intranode import MPI

    world = MPI.COMM_WORLD
    results = []
    for describe in (Described, lambda *parts: Listed(parts)):
        sent, found = numpy.arange(5.0), numpy.zeros(2 * world.size)
        world.Bcast(describe(sent, 5, MPI.DOUBLE))
        world.Allgather(describe(sent, 2, MPI.DOUBLE), describe(found, 2, MPI.DOUBLE))
        results.append(found.tolist())
        found = numpy.zeros(2)
        world.Allreduce(describe(sent, 2, MPI.DOUBLE), describe(found, 2, MPI.DOUBLE))
        world.Sendrecv(describe(sent, 2, MPI.DOUBLE), world.rank, 0, describe(found, 2, MPI.DOUBLE), world.rank)
        results.append(found.tolist())
    return results


def test_descriptions_may_be_of_classes_of_the_program() -> None:
    assert run("test_descriptions:of_own_classes", 2) == [[[0, 1, 0, 1], [0, 1]] * 2] * 2
