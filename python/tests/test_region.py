"""Shared arrays, over processes."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from typing import Any

import numpy
import pytest

import intranode
from intranode import Communicator
from job import run


def epochs(comm: Communicator) -> None:
    rank, size = comm.rank, comm.size
    region = comm.region((7, 3), "f8")
    assert region.shape == (7, 3) and region.array.shape == ((7 if rank == 0 else 0), 3)
    if rank == 0:
        region.array[:] = numpy.arange(21).reshape(7, 3)
    for turn in range(3):
        shared = region.publish()
        array = shared.array
        assert (array == turn + numpy.arange(21).reshape(7, 3)).all()
        assert array.base is not None and not array.flags.writeable and not array.flags.owndata
        with pytest.raises(ValueError):
            array.setflags(write=True)
        with pytest.raises(ValueError):
            array[0, 0] = 1
        total = numpy.zeros(3)
        comm.Allreduce(array[rank], total)  # a region is a buffer as any other
        del array
        region = shared.reclaim()
        if turn == 0:
            region.distribute()
            assert sum(comm.allgather(len(region.rows))) == 7
        region.array[:] += 1
    dtypes: list[Any] = ["i1", "u4", "c16", "?", [("a", "i4"), ("b", "f8")], "f4"]
    for dtype in dtypes:
        shared = comm.region(5, dtype).publish()
        assert shared.array.dtype == numpy.dtype(dtype) and shared.array.shape == (5,)
    assert comm.region((0, 4)).publish().array.shape == (0, 4)
    for length in (numpy.int64(5), numpy.array(5), numpy.array([5])):
        assert comm.region(length, "i1").shape == (5,)  # type: ignore[arg-type]
    wrong: list[Any] = [((2.7,), "f8", TypeError), (2.7, "f8", TypeError), (2, "U", ValueError), (2, "(2,3)f8", ValueError)]
    for shape, dtype, error in wrong:
        with pytest.raises(error):
            comm.region(shape, dtype)


def refusals(comm: Communicator) -> list[str]:
    """Rank 1 keeps a view: all ranks get an error, and all can go on."""
    seen = []

    def call(function: Any) -> Any:
        try:
            return function()
        except Exception as error:
            seen.append(type(error).__name__)
            if comm.rank != 1:
                assert isinstance(error, intranode.Refused) and error.rank == 1
            else:
                # By Python's name.
                assert str(error).partition(":")[0] == function.__name__
            return None

    region = comm.region((4, 4))
    region.distribute()
    region.array[:] = comm.rank
    kept = region.array[:1].T if comm.rank == 1 else None
    assert call(region.publish) is None
    assert call(region.distribute) is None
    del kept
    shared = call(region.publish)
    kept = memoryview(shared.array) if comm.rank == 1 else None
    assert call(shared.reclaim) is None
    assert shared.array.sum() == 4 * sum(len(rows) * rank for rank, rows in enumerate(comm.allgather(region.rows)))
    del kept
    again = call(shared.reclaim)
    # What is used up says so, and no rank takes part.
    for old in (region.publish, shared.reclaim, lambda: region.array, lambda: shared.array):
        with pytest.raises((ValueError, BufferError)):
            old()
    with pytest.raises(TypeError):
        comm.region(4, "O")
    again.publish()
    return seen


def orders(comm: Communicator) -> float:
    """Arrays, regions and the communicator go in every order."""
    part = comm.split(0)
    arrays = []
    for drop in ["region", "array", "comm"]:
        region = part.region(1000)
        if part.rank == 0:
            region.array[:] = 2
        shared = region.publish()
        array = shared.array
        if drop == "region":
            del region, shared
        elif drop == "array":
            del array
            array = shared.array
        else:
            part.leave()
            del part
        gc.collect()
        arrays.append(array[::2])
    comm.Barrier()
    return sum(float(array.sum()) for array in arrays)


def proportional(comm: Communicator, bytes_: int) -> int:
    """How much more memory this rank has with the region, where what several share counts for each in proportion."""

    def own() -> int:
        lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
        return next(1024 * int(line.split()[1]) for line in lines if line.startswith("Pss:"))

    comm.Barrier()
    before = own()
    comm.Barrier()
    region = comm.region(bytes_ // 8, "f8")
    if comm.rank == 0:
        region.array[:] = 1
    shared = region.publish()
    assert shared.array[:: 512].sum() == len(shared.array[:: 512])  # each page
    comm.Barrier()
    after = own()
    comm.Barrier()
    return after - before


def test_an_array_is_counted_once() -> None:
    """`INTRANODE_LARGE_REGION=1`: 4 GB in 8 processes."""
    large = bool(os.environ.get("INTRANODE_LARGE_REGION"))
    size, bytes_ = (8, 4 << 30) if large else (4, 64 << 20)
    total = sum(run("test_region:proportional", size, bytes_, timeout=120))
    assert 0.98 * bytes_ < total < 1.02 * bytes_ + (size << 20), f"{total} bytes for {bytes_}"


@pytest.mark.parametrize("size", [1, 2, 4])
def test_epochs(size: int) -> None:
    assert run("test_region:epochs", size) == [None] * size


def test_a_view_that_is_kept_refuses_on_all_ranks() -> None:
    assert run("test_region:refusals", 3) == [["Refused"] * 3, ["BufferError"] * 3, ["Refused"] * 3]


def test_lifetimes_in_every_order() -> None:
    assert run("test_region:orders", 2) == [3000.0, 3000.0]
