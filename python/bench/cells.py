"""A rank of the comparison with mpi4py: measures each cell, and prints a line of JSON for it on rank 0.

    cells.py (intranode | mpi4py) SECONDS [PART OF A NAME]

A cell is timed in batches, each after a barrier; the time of a call in a batch is that of the slowest rank. The buffers and the
objects are the same in all calls.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy

BATCHES = 15


def cells(comm: Any, summed: Any) -> dict[str, Callable[[], object]]:
    """The calls, by the names of the table."""
    made: dict[str, Callable[[], object]] = {"Barrier": comm.Barrier}
    for name, size in (("32 B", 32), ("8 KiB", 8 << 10), ("1 MiB", 1 << 20)):
        send, recv = numpy.ones(size // 8), numpy.zeros(size // 8)
        made[f"Allreduce, {name}"] = lambda send=send, recv=recv: comm.Allreduce(send, recv, op=summed)  # type: ignore[misc]
    parameters = {f"parameter {each}": [each, each / 7, str(each)] for each in range(20)}
    mine = parameters if comm.rank == 0 else None
    made["bcast of a dict"] = lambda: comm.bcast(mine, root=0)
    point = {"rank": comm.rank, "position": (1.5, 2.5), "name": "a point"}
    made["allgather of objects"] = lambda: comm.allgather(point)
    return made


def measure(comm: Any, greatest: Any, call: Callable[[], object], seconds: float) -> list[float]:
    """Microseconds of a call, of each batch."""

    def batch(number: int) -> float:
        comm.Barrier()
        begin = time.perf_counter()
        for _ in range(number):
            call()
        return float(comm.allreduce(time.perf_counter() - begin, op=greatest))

    number, taken = 1, batch(1)
    while taken < seconds / BATCHES / 4 and number < 1 << 20:
        number *= 2
        taken = batch(number)
    number = max(1, int(number * seconds / BATCHES / taken))
    return sorted(batch(number) / number * 1e6 for _ in range(BATCHES))


def main() -> None:
    which, seconds, part = sys.argv[1], float(sys.argv[2]), "".join(sys.argv[3:])
    if which == "intranode":
        import intranode

        comm: Any = intranode.world()
        summed, greatest = intranode.SUM, intranode.MAX
        cores = sorted(os.sched_getaffinity(0))
        if comm.size <= len(cores):
            # As the launchers of the others do.
            os.sched_setaffinity(0, {cores[comm.rank]})
    else:
        from mpi4py import MPI  # type: ignore[import-not-found,unused-ignore]

        comm, summed, greatest = MPI.COMM_WORLD, MPI.SUM, MPI.MAX
    for name, call in cells(comm, summed).items():
        if part not in name:
            continue
        times = measure(comm, greatest, call, seconds)
        if comm.rank == 0:
            row = {"cell": name, "ranks": comm.size, "median_us": times[len(times) // 2], "min_us": times[0], "max_us": times[-1]}
            print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
