"""A large read-only table of which there is one copy for all ranks.

    python -m intranode -n 4 shared_table.py [ROWS]

With pyarrow it is an Arrow table, and with pandas too a DataFrame over the same memory; without pyarrow a structured array of
NumPy. Rank 0 makes it, all ranks read it in place, and each sums its own rows.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy

import intranode

try:
    import pyarrow  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ImportError:
    pyarrow = None
try:
    import pandas  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ImportError:
    pandas = None


def columns(rows: int) -> dict[str, numpy.ndarray[Any, Any]]:
    number = numpy.arange(rows)
    return {"plant": (number % 160).astype("i4"), "inflow": numpy.sqrt(number)}


def share_arrow(comm: intranode.Communicator, rows: int) -> Any:
    """An Arrow table whose columns lie in shared memory: it is written once, as Arrow's own stream, and read without a copy."""
    table = pyarrow.table(columns(rows)) if comm.rank == 0 else None
    size = 0
    if table is not None:
        counted = pyarrow.MockOutputStream()
        with pyarrow.ipc.new_stream(counted, table.schema) as writer:
            writer.write_table(table)
        size = counted.size()
    region = comm.region(comm.bcast(size), "u1")
    if table is not None:
        sink = pyarrow.FixedSizeBufferWriter(pyarrow.py_buffer(region.array))
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        sink.close()
        del sink, writer
    return pyarrow.ipc.open_stream(pyarrow.py_buffer(region.publish().array)).read_all()


def share_array(comm: intranode.Communicator, rows: int) -> Any:
    """A structured array."""
    region = comm.region(rows, [("plant", "i4"), ("inflow", "f8")])
    if comm.rank == 0:
        for name, column in columns(rows).items():
            region.array[name] = column
    return region.publish().array


def main() -> None:
    rows = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    comm = intranode.world()
    table = share_array(comm, rows) if pyarrow is None else share_arrow(comm, rows)
    kind = "structured array" if pyarrow is None else "Arrow table"
    inflow = table["inflow"] if pyarrow is None else table["inflow"].to_numpy()
    if pyarrow is not None and pandas is not None:
        kind = "DataFrame"
        frame = table.to_pandas(split_blocks=True)  # a block for each column: those without missing values are not copied
        assert numpy.shares_memory(frame["inflow"].to_numpy(), inflow)
        inflow = frame["inflow"].to_numpy()
    assert not inflow.flags.writeable
    mine = numpy.array_split(numpy.arange(rows), comm.size)[comm.rank]
    total = comm.allreduce(float(inflow[mine].sum()))
    if comm.rank == 0:
        print(f"{kind} of {rows} rows, once for {comm.size} ranks: mean inflow {total / rows:.6f}")


if __name__ == "__main__":
    main()
