"""Collectives on buffers, over processes."""

from __future__ import annotations

import array
import ctypes
from typing import Any

import numpy
import pytest

import intranode
from intranode import IN_PLACE, Communicator
from job import run

SIZES = [1, 2, 3, 4]
FORMATS = ["b", "h", "i", "q", "B", "H", "I", "Q", "f", "d", "F", "D"]


def reductions(comm: Communicator) -> None:
    size, rank = comm.size, comm.rank
    for code in FORMATS:
        own = numpy.arange(size * 2).astype(code) + numpy.array(rank).astype(code)
        all_ = [numpy.arange(size * 2).astype(code) + numpy.array(each).astype(code) for each in range(size)]
        total = sum(all_[1:], all_[0])
        got = numpy.zeros_like(own)
        comm.Allreduce(own, got)
        assert (got == total).all() and got.dtype == own.dtype, code
        got = own.copy()
        comm.Allreduce(IN_PLACE, got)
        assert (got == total).all(), code
        for root in range(size):
            got = numpy.full_like(own, 77)
            comm.Reduce(own, got if rank == root else None, root=root)
            assert (got == (total if rank == root else 77)).all(), code
            got = own.copy()
            comm.Reduce(IN_PLACE if rank == root else got, got, root=root)
            assert (got == (total if rank == root else own)).all(), code
        got = numpy.zeros_like(own)
        comm.Scan(own, got)
        assert (got == sum(all_[1 : rank + 1], all_[0])).all(), code
        got = numpy.full_like(own, 77)
        comm.Exscan(own, got)
        assert (got == (sum(all_[1:rank], all_[0]) if rank else 77)).all(), code
        got = numpy.zeros(2, code)
        comm.Reduce_scatter_block(own, got)
        assert (got == total[2 * rank : 2 * rank + 2]).all(), code
        counts = [2] * size
        if size > 1:
            counts[0], counts[1] = 1, 3
        start = sum(counts[:rank])
        for given in (counts, None):
            got = numpy.zeros(counts[rank], code)
            comm.Reduce_scatter(own, got, given)
            assert (got == total[start : start + counts[rank]]).all(), code
    truth = numpy.array([rank == 0, True, False])
    got = numpy.zeros(3, "?")
    comm.Allreduce(truth, got, op=intranode.LAND)
    assert got.tolist() == [size == 1, True, False]
    comm.Allreduce(truth, got, op=intranode.MAX)
    assert got.tolist() == [True, True, False]
    least = array.array("l", [5 - rank])
    comm.Allreduce(IN_PLACE, least, op=intranode.MIN)
    assert least.tolist() == [6 - size]


def movements(comm: Communicator) -> None:
    size, rank = comm.size, comm.rank
    record = numpy.dtype([("a", "i4"), ("b", "f8")])
    codes: list[Any] = [*FORMATS, "?", "e", "g", "G", ">f8", "S5", record]
    for code in codes:
        own = numpy.array([(rank + each, rank + each) if code is record else rank + each for each in range(2)], code)
        all_ = [
            (each + item, each + item) if code is record else each + item for each in range(size) for item in range(2)
        ]
        expected = numpy.array(all_, code)
        got = numpy.zeros(2 * size, code)
        comm.Allgather(own, got)
        assert (got == expected).all(), code
        got = numpy.zeros(2 * size, code)
        got[2 * rank : 2 * rank + 2] = own
        comm.Allgather(IN_PLACE, got)
        assert (got == expected).all(), code
        for root in range(size):
            got = numpy.zeros(2, code) if rank != root else expected[:2].copy()
            comm.Bcast(got, root)
            assert (got == expected[:2]).all(), code
            got = numpy.zeros(2 * size, code)
            comm.Gather(own, got, root)
            assert rank != root or (got == expected).all(), code
            got = numpy.zeros(2, code)
            comm.Scatter(expected if rank == root else None, got, root)
            assert (got == expected[2 * rank : 2 * rank + 2]).all(), code
        got = numpy.zeros(2 * size, code)
        comm.Alltoall(expected, got)
        assert (got == numpy.tile(expected[2 * rank : 2 * rank + 2], size)).all(), code


def vectors(comm: Communicator) -> None:
    size, rank = comm.size, comm.rank
    counts = [each + 1 for each in range(size)]
    displs = [sum(counts[:each]) + each for each in range(size)]
    own = numpy.full(rank + 1, rank, "f8")
    expected = numpy.full(sum(counts) + size, -1.0)
    for each in range(size):
        expected[displs[each] : displs[each] + counts[each]] = each
    got = numpy.full_like(expected, -1)
    comm.Allgatherv(own, got, counts, displs)
    assert (got == expected).all()
    got = numpy.full_like(expected, -1)
    comm.Allgatherv(own, [got, (counts, displs)])
    assert (got == expected).all()
    got = numpy.full(sum(counts), -1.0)
    comm.Allgatherv(own, got, counts)
    assert (got == numpy.repeat(numpy.arange(size), counts)).all()
    for root in range(size):
        got = numpy.full_like(expected, -1)
        comm.Gatherv(own, [got, (counts, displs)] if rank == root else None, root)
        assert (got == (expected if rank == root else -1)).all()
        got = numpy.zeros(rank + 1)
        comm.Scatterv([expected, (counts, displs)] if rank == root else None, got, root)
        assert (got == own).all()
        got = expected.copy()
        if rank == root:
            comm.Gatherv(IN_PLACE, [got, (counts, displs)], root)
            comm.Scatterv([expected, (counts, displs)], IN_PLACE, root)
        else:
            comm.Gatherv(own, None, root)
            comm.Scatterv(None, own, root)
        assert (got == expected).all()
    # Rank r sends r + 1 elements to each, with a gap after each block.
    send = numpy.full((rank + 2) * size, -1.0)
    for each in range(size):
        send[each * (rank + 2) : each * (rank + 2) + rank + 1] = 10 * rank + each
    got = numpy.full_like(expected, -1)
    comm.Alltoallv(
        [send, ([rank + 1] * size, [each * (rank + 2) for each in range(size)])], [got, (counts, displs)]
    )
    for each in range(size):
        expected[displs[each] : displs[each] + counts[each]] = 10 * each + rank
    assert (got == expected).all()


def large(comm: Communicator) -> None:
    own = numpy.arange(700_001, dtype="f8") * (comm.rank + 1)
    got = numpy.empty_like(own)
    comm.Allreduce(own, got)
    assert (got == numpy.arange(700_001) * sum(range(1, comm.size + 1))).all()
    # What is sent and what is received may overlap.
    comm.Allreduce(own[1:], own[:-1])
    assert (own[:-1] == got[1:]).all()
    fortran = numpy.asfortranarray(numpy.arange(6.0).reshape(2, 3))
    comm.Bcast(fortran)
    assert (fortran == numpy.arange(6.0).reshape(2, 3)).all()
    empty = numpy.zeros(0)
    comm.Allreduce(empty, empty.copy())
    comm.Bcast(numpy.array(3.5))


def long(comm: Communicator) -> None:
    """From 32 KiB on numbers are not copied as a whole. Each rank in another way, which changes from call to call."""
    for code in FORMATS:
        for count in (32 << 10, 300_001):
            all_ = [(numpy.arange(count) % 5 + each).astype(code) for each in range(comm.size)]
            own, total = all_[comm.rank], numpy.sum(all_, axis=0)
            for turn in range(4):
                way = (comm.rank + turn) % 4
                got = own.copy() if way else numpy.zeros(count, code)
                if way == 3:  # no element is aligned
                    room = bytearray(own.nbytes + 1)
                    got = numpy.frombuffer(room, code, count, 1)
                    got[:] = own
                comm.Allreduce(own if way == 0 else got if way == 2 else IN_PLACE, got)
                assert (got == total).all(), (code, count, way)


def written(comm: Communicator) -> None:
    """Another thread writes both buffers meanwhile: any result, and the next call is right."""
    import threading

    own, got = numpy.ones(200_000), numpy.zeros(200_000)
    ends = threading.Event()

    def write() -> None:
        while not ends.is_set():
            own[:] = 1
            got[:] = 2

    thread = threading.Thread(target=write)
    thread.start()
    # A length that all numbers of ranks divide.
    part = len(own) // 12 * 12 // comm.size
    counts = [part] * comm.size
    for turn in range(15):
        comm.Allreduce(own, got)
        comm.Alltoall(own[: part * comm.size], got[: part * comm.size])
        comm.Alltoallv([own, counts], [got, counts])
        comm.Scatter(own[: part * comm.size], got[:part], root=turn % comm.size)
        comm.Gatherv(own[:part], [got, counts], root=turn % comm.size)
    ends.set()
    thread.join()
    comm.Allreduce(own, got)
    assert (got == comm.size).all()
    comm.Alltoallv([own, counts], [got, counts])
    assert (got[: part * comm.size] == 1).all()


def arguments(comm: Communicator) -> list[str]:
    """On rank 1 the arguments are wrong: it gets the reason, rank 0 an error that names it, and both can go on."""
    from intranode import MPI

    seen = []
    matrix, bytes_ = numpy.zeros((4, 4)), bytearray(8)
    wrong: list[Any] = [
        lambda: comm.Allreduce(matrix[:, 0], numpy.zeros(4)),
        lambda: comm.Allreduce(numpy.zeros(4), matrix[:, 0]),
        lambda: comm.Allreduce(numpy.zeros(1), b"12345678"),
        lambda: comm.Allreduce(numpy.zeros(1), numpy.zeros(1, "f4")),
        lambda: comm.Allreduce(numpy.zeros(1), numpy.zeros(2)),
        lambda: comm.Allreduce("text", bytes_),
        lambda: comm.Allreduce([1, 2], bytes_),
        lambda: comm.Allreduce(numpy.zeros(1, "g"), numpy.zeros(1, "g")),
        lambda: comm.Allreduce(numpy.zeros(1, "?"), numpy.zeros(1, "?")),
        lambda: comm.Allreduce(numpy.zeros(1, "O"), numpy.zeros(1, "O")),
        lambda: comm.Allreduce(numpy.zeros(1), [numpy.zeros(1), 5]),
        lambda: comm.Allreduce(numpy.zeros(1), numpy.zeros(1), op=intranode.MINLOC),
        lambda: comm.Bcast([bytes(24), 1, MPI.DOUBLE.Create_vector(2, 1, 2)], root=0),
        lambda: comm.Allreduce(numpy.zeros(1), bytes(8), MPI.Op.Create(lambda a, b, _: None)),
        lambda: comm.Allreduce(numpy.zeros(1), numpy.zeros(1), op=max),  # type: ignore[arg-type]
        lambda: comm.Reduce_scatter(numpy.zeros(2), numpy.zeros(1), [-1, 3]),
        lambda: comm.Bcast([bytes_[:7], MPI.INT], root=1),
        lambda: comm.Bcast([bytes_, MPI.INT.Create_resized(0, -4)], root=1),
    ]
    for call in wrong:
        try:
            call() if comm.rank == 1 else comm.Allreduce(numpy.zeros(1), numpy.zeros(1))
        except Exception as error:
            seen.append(f"{type(error).__name__}: {error}")
            if comm.rank == 0:
                assert isinstance(error, intranode.Refused) and error.rank == 1 and not error.fatal
        else:
            seen.append("none")
    wrong = [lambda: comm.Bcast(bytes_, root=7), lambda: comm.scatter([1]), lambda: comm.bcast(lambda: 0, comm.rank)]
    for call in wrong:
        try:
            call()
        except Exception as error:
            seen.append(type(error).__name__)
    comm.Barrier()
    return seen


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("what", ["reductions", "movements", "vectors", "large", "long", "written", "layouts"])
def test_results(what: str, size: int) -> None:
    assert run(f"test_buffers:{what}", size) == [None] * size


def test_wrong_arguments_are_refused_on_all_ranks() -> None:
    others, own = run("test_buffers:arguments", 2)
    assert all(each.startswith("Refused") for each in others[:18])
    expected = [
        "BufferError: the array is not contiguous in memory: pass numpy.ascontiguousarray(x)",
        "BufferError: the array is not contiguous in memory",
        "BufferError: the receive buffer is read-only",
        "TypeError: the send buffer has elements of format 'd' (8 bytes), the receive buffer of format 'f' (4 bytes)",
        "InvalidArgument: allreduce: a buffer of this rank has 2 elements and needs 1",
        "TypeError: a buffer is needed",
        "TypeError: ",
        "TypeError: SUM is not defined for elements of format 'g'",
        "TypeError: SUM is not defined for elements of format '?'",
        "TypeError: an array of Python objects cannot be sent as a buffer",
        "ValueError: 5 elements of DOUBLE from element 0 on do not fit into a buffer of 8 bytes",
        "ValueError: this operation is not defined for buffers",
        "BufferError: the receive buffer is read-only",
        "BufferError: the receive buffer is read-only",
        "TypeError: allreduce: an operation such as SUM, or of Op.Create, is needed",
        "ValueError: count -1 of rank 0: a number of elements is at least 0",
        "ValueError: a buffer of 7 bytes is no whole number of elements of INT, of 4 bytes each",
        "ValueError: a buffer of 8 bytes is no whole number of elements of resized of INT",
    ]
    for text, beginning in zip(own, expected, strict=False):
        assert text.replace('"', "'").startswith(beginning), text
    assert own[18] == "InvalidArgument"


def layouts(comm: Communicator) -> None:
    """Names of fields that look like formats, and an own operation of arrays in Fortran's order."""
    from intranode import MPI

    prices = numpy.full(3, 1.0 + comm.rank, [("Open", "f8"), ("Object", "i4")])
    comm.Bcast(prices)
    assert (prices["Open"] == 1).all()
    with pytest.raises(TypeError, match="Python objects"):
        comm.Bcast(numpy.zeros(3, [("x", "O")]))

    def add(a: bytearray, b: bytearray, _: Any) -> None:
        numpy.frombuffer(b, "f8")[:] += numpy.frombuffer(a, "f8")

    total = numpy.zeros((2, 3), order="F")
    MPI.COMM_WORLD.Allreduce(numpy.ones((2, 3), order="F"), total, MPI.Op.Create(add))
    assert (total == comm.size).all()
    # An array without dimensions is a number, also as a count.
    count, all_ = numpy.array(2), numpy.zeros(2 * comm.size)
    comm.Allgatherv(numpy.full(2, comm.rank + 1.0), [all_, count])
    assert all_.reshape(comm.size, 2).sum() == comm.size * (comm.size + 1)
    huge = numpy.full(2, 3e38, "f4")
    MPI.SUM.Reduce_local(numpy.array([3e38, -3e38], "f4"), huge)
    assert list(huge) == [numpy.inf, 0]


def test_a_buffer_of_ctypes() -> None:
    values = (ctypes.c_double * 3)(1, 2, 3)
    comm = intranode.join(f"/intranode-ctypes-{id(values)}", 0, 1)
    got = (ctypes.c_double * 3)()
    comm.Allreduce(values, got)
    assert list(got) == [1, 2, 3]
    comm.leave()
    with pytest.raises(ValueError, match="has left"):
        comm.Barrier()
