"""Derived datatypes and own operations in calls with counts, and freed while a call goes on, over processes."""

from __future__ import annotations

import threading
from typing import Any

import numpy
import pytest

import intranode
from intranode import IN_PLACE, Communicator
from intranode._region import _format
from job import run


def with_counts(comm: Communicator) -> None:
    """Counts and displacements are those of the datatype, as of one double where there are three times as many."""
    from intranode import MPI

    world = MPI.COMM_WORLD
    size, rank = world.size, world.rank
    three = MPI.DOUBLE.Create_contiguous(3).Commit()
    counts = [2 + each % 2 for each in range(size)]
    for gap in (0, 1):
        displs = [sum(counts[:each]) + gap * each for each in range(size)]
        length = sum(counts) + gap * size
        tripled = [3 * each for each in counts], [3 * each for each in displs]

        def empty() -> Any:
            return numpy.full(3 * length, -1.0)

        own, all_ = 100.0 * rank + numpy.arange(3 * counts[rank]), numpy.arange(3.0 * length) + 1000 * rank
        for root in range(size):
            found, expected = empty(), empty()
            of_root = rank == root
            world.Gatherv(own, [found, counts, displs, three] if of_root else None, root)
            world.Gatherv(own, [expected, *tripled, MPI.DOUBLE] if of_root else None, root)
            assert (found == expected).all() and (not of_root or (found != -1).sum() == 3 * sum(counts))
            found, expected = numpy.zeros(3 * counts[rank]), numpy.zeros(3 * counts[rank])
            world.Scatterv([all_, counts, displs, three] if of_root else None, [found, counts[rank], three], root)
            world.Scatterv([all_, *tripled, MPI.DOUBLE] if of_root else None, expected, root)
            assert (found == expected).all() and found[0] == 1000 * root + 3 * displs[rank]
        found, expected = empty(), empty()
        world.Allgatherv(own, [found, counts, displs, three])
        world.Allgatherv(own, [expected, *tripled, MPI.DOUBLE])
        assert (found == expected).all() and (found != -1).sum() == 3 * sum(counts)
        world.Allgatherv(IN_PLACE, [found, counts, displs, three])
        assert (found == expected).all()
        # Each sends each of the others as much.
        same = [2] * size
        places = [each * (2 + gap) for each in range(size)]
        sent = numpy.arange(3.0 * size * (2 + gap)) + 1000 * rank
        found, expected = numpy.full_like(sent, -1), numpy.full_like(sent, -1)
        world.Alltoallv([sent, same, places, three], [found, same, places, three])
        tripled = [6] * size, [3 * each for each in places]
        world.Alltoallv([sent, *tripled, MPI.DOUBLE], [expected, *tripled, MPI.DOUBLE])
        assert (found == expected).all() and (found != -1).sum() == 6 * size
        found = sent.copy()
        world.Alltoallv(IN_PLACE, [found, same, places, three])
        assert (found[expected != -1] == expected[expected != -1]).all()


def freed(comm: Communicator) -> None:
    """What is freed while a call goes on is used by it to its end."""
    from intranode import MPI

    world = MPI.COMM_WORLD
    other = 1 - world.rank
    # Of its own in each call.
    def every_second() -> MPI.Datatype:
        return MPI.DOUBLE.Create_vector(3, 1, 2).Commit()

    def freeing(start: Any, memory: Any) -> Any:
        datatype = every_second()
        request = start([memory, 1, datatype])
        datatype.Free()
        return request

    found = numpy.zeros(5)
    request = freeing(lambda spec: world.Irecv(spec, other, 1), found)
    world.Send(numpy.array([1.0, 2.0, 3.0]), other, 1)
    request.Wait()
    assert found.tolist() == [1, 0, 2, 0, 3]
    found = numpy.arange(5.0) if world.rank == 0 else numpy.zeros(5)
    freeing(lambda spec: world.Ibcast(spec, 0), found).Wait()
    assert found.tolist() == ([0, 1, 2, 3, 4] if world.rank == 0 else [0, 0, 2, 0, 4])
    data, found = numpy.arange(5.0), numpy.zeros(5)
    sends = freeing(lambda spec: world.Send_init(spec, other, 2), data)
    receives = freeing(lambda spec: world.Recv_init(spec, other, 2), found)
    for turn in (1, 2):
        data *= turn
        MPI.Prequest.Startall([sends, receives])
        MPI.Request.Waitall([sends, receives])
        assert found.tolist() == [0, 0, 2 * turn, 0, 4 * turn]

    def adds(left: Any, right: Any, _: Any) -> None:
        numpy.frombuffer(right)[:] += numpy.frombuffer(left)

    operation = MPI.Op.Create(adds)
    found = numpy.zeros(2)
    request = world.Iallreduce(numpy.full(2, world.rank + 1.0), found, operation)
    operation.Free()
    request.Wait()
    assert found.tolist() == [3, 3]


def mistakes(comm: Communicator) -> list[str]:
    """Each is made by rank 1 alone, before the call or not at all."""
    from intranode import MPI

    world = MPI.COMM_WORLD
    seen = []
    own = MPI.Op.Create(lambda left, right, _: None)
    wrong: list[Any] = [
        lambda: world.Iallreduce(numpy.zeros(2), numpy.zeros(2), MPI.OP_NULL),
        lambda: world.Iallreduce(numpy.zeros(2), numpy.zeros(1), own),
        lambda: world.Allreduce(numpy.zeros(2), numpy.zeros(1), own),
        lambda: world.Reduce(numpy.zeros(2), None, own, 1),
    ]
    right = [
        lambda: world.Iallreduce(numpy.zeros(2), numpy.zeros(2), own).Wait(),
        lambda: world.Iallreduce(numpy.zeros(2), numpy.zeros(2), own).Wait(),
        lambda: world.Allreduce(numpy.zeros(2), numpy.zeros(2), own),
        lambda: world.Reduce(numpy.zeros(2), None, own, 1),
    ]
    for bad, good in zip(wrong, right, strict=True):
        try:
            (bad if world.rank == 1 else good)()
            seen.append("none")
        except Exception as error:
            seen.append(type(error).__name__)
        world.Barrier()
    halves = numpy.arange(2 * world.size).astype("f2") + 10 * world.rank
    world.Alltoallv(IN_PLACE, [halves, [2] * world.size])
    assert halves.tolist() == [10 * each + 2 * world.rank + at for each in range(world.size) for at in range(2)]
    return seen


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_counts_are_of_the_datatype(size: int) -> None:
    assert run("test_derived:with_counts", size) == [None] * size


def test_what_is_freed_is_used_to_the_end_of_a_call() -> None:
    assert run("test_derived:freed", 2) == [None, None]


def test_lengths_are_checked_before_an_own_operation() -> None:
    others, own = run("test_derived:mistakes", 2)
    assert others == ["Refused"] * 4
    assert own[:1] == ["ValueError"] and own[3] == "TypeError" and "none" not in own


def test_displacements_may_be_short_integers() -> None:
    from intranode import MPI

    lengths: Any = numpy.array([1, 1], "u1")
    displacements: Any = numpy.array([0, 200], "u1")
    short = MPI.DOUBLE.Create_indexed(lengths, displacements)
    assert (short.extent, short.size) == (201 * 8, 16)
    assert MPI.DOUBLE.Create_indexed_block(1, displacements).extent == 201 * 8


def test_predefined_operations_are_not_freed() -> None:
    from intranode import MPI

    with pytest.raises(ValueError, match="predefined"):
        MPI.SUM.Free()
    assert MPI.SUM(2, 3) == 5


def test_types_without_numpy() -> None:
    assert [_format(each) for each in ("f8", "<f4", "|b1", "i8", "u2", "d", "B")] == ["d", "f", "?", "q", "H", "d", "B"]
    for wrong in ("float64", "int64", "complex128", ">f8", "f2", "c16", "i3", ""):
        with pytest.raises(TypeError, match="without NumPy"):
            _format(wrong)


def reports() -> None:
    for _ in range(10):
        intranode.report(bytes(1 << 20))


def reports_from_threads() -> None:
    threads = [threading.Thread(target=reports) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Stubborn(Exception):
    """It is not made again of what it shows."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(one)


def is_stubborn() -> None:
    raise Stubborn(1, 2)


def test_reports_of_threads_do_not_mix() -> None:
    seen: list[bytes] = []
    assert intranode.run(reports_from_threads, 1, progress=lambda _, value: seen.append(value)) == [None]
    assert seen == [bytes(1 << 20)] * 20


def test_an_error_that_cannot_be_sent_says_where_it_was_raised() -> None:
    with pytest.raises(RuntimeError, match="Stubborn") as raised:
        intranode.run(is_stubborn, 1)
    assert any("is_stubborn" in note for note in raised.value.__notes__)


def heat(_: Communicator, order: str) -> bool:
    """Some steps of a stencil on a periodic grid of ranks, whose edges go as parts of arrays; beside one array of all."""
    from intranode import MPI

    rows, columns = 6, 5
    grid = MPI.COMM_WORLD.Create_cart(MPI.Compute_dims(MPI.COMM_WORLD.size, 2), periods=True)
    dims, (y, x) = grid.dims, grid.coords
    table = numpy.random.default_rng(3).random((dims[0] * rows, dims[1] * columns))
    own: Any = numpy.zeros((rows + 2, columns + 2), order=order)  # type: ignore[call-overload]
    own[1:-1, 1:-1] = table[y * rows : (y + 1) * rows, x * columns : (x + 1) * columns]
    mpi_order = MPI.ORDER_C if order == "C" else MPI.ORDER_F

    def edge(subsizes: list[int], starts: list[int]) -> Any:
        return MPI.DOUBLE.Create_subarray(list(own.shape), subsizes, starts, order=mpi_order).Commit()

    # By dimension: what is sent downwards and where it is received, then upwards.
    row, column = [1, columns], [rows, 1]
    edges = [
        [edge(row, [1, 1]), edge(row, [rows + 1, 1]), edge(row, [rows, 1]), edge(row, [0, 1])],
        [edge(column, [1, 1]), edge(column, [1, columns + 1]), edge(column, [1, columns]), edge(column, [1, 0])],
    ]
    for _step in range(4):
        for dimension, (first, behind, last, before) in enumerate(edges):
            lower, upper = grid.Shift(dimension, 1)
            grid.Sendrecv([own, 1, first], lower, 0, [own, 1, behind], upper, 0)
            grid.Sendrecv([own, 1, last], upper, 1, [own, 1, before], lower, 1)
        own[1:-1, 1:-1] = (own[:-2, 1:-1] + own[2:, 1:-1] + own[1:-1, :-2] + own[1:-1, 2:]) / 4
        table = (numpy.roll(table, 1, 0) + numpy.roll(table, -1, 0) + numpy.roll(table, 1, 1) + numpy.roll(table, -1, 1)) / 4
    # All of it on rank 0, each part where it lies.
    found: Any = numpy.zeros_like(table)
    inner = edge([rows, columns], [1, 1])
    sending = grid.Isend([own, 1, inner], 0, 2)
    for rank in range(grid.size if grid.rank == 0 else 0):
        place = [at * length for at, length in zip(grid.Get_coords(rank), (rows, columns), strict=True)]
        part = MPI.DOUBLE.Create_subarray(list(found.shape), [rows, columns], place)
        if order == "F":
            turned: Any = numpy.zeros((columns, rows))
            grid.Recv(turned, rank, 2)
            found[place[0] : place[0] + rows, place[1] : place[1] + columns] = turned.T
        else:
            grid.Recv([found, 1, part], rank, 2)
    sending.Wait()
    return grid.rank != 0 or bool(numpy.allclose(found, table, rtol=1e-14))


def records(_: Communicator) -> Any:
    """Records with gaps, of several types, by a struct."""
    from intranode import MPI

    world = MPI.COMM_WORLD
    kind = numpy.dtype([("number", "i4"), ("value", "f8"), ("flag", "i1")], align=True)
    assert kind.fields is not None
    places = [kind.fields[name][1] for name in ("number", "value", "flag")]
    struct = MPI.Datatype.Create_struct([1, 1, 1], places, [MPI.INT, MPI.DOUBLE, MPI.SIGNED_CHAR]).Commit()
    mine, all_ = numpy.zeros(2, kind), numpy.zeros(2 * world.size, kind)
    mine["number"], mine["value"], mine["flag"] = world.rank, [0.5, 1.5], 1
    world.Allgather([mine, 2, struct], [all_, 2, struct])
    status = MPI.Status()
    found = numpy.zeros(2, kind)
    world.Sendrecv([mine, struct], (world.rank + 1) % world.size, 0, [found, struct], status=status)
    with pytest.raises(TypeError, match="SUM is not defined"):
        world.Allreduce([mine, struct], [found.copy(), struct])
    return all_.tolist(), found["number"].tolist(), status.Get_count(struct)


@pytest.mark.parametrize("size", [1, 2, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_a_stencil_exchanges_parts_of_arrays(order: str, size: int) -> None:
    assert run("test_derived:heat", size, order) == [True] * size


def test_records_are_moved_by_a_struct() -> None:
    every = [(rank, value, 1) for rank in range(2) for value in (0.5, 1.5)]
    assert run("test_derived:records", 2) == [(every, [1, 1], 2), (every, [0, 0], 2)]
