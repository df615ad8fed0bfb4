"""The names of `intranode.MPI` that programs of mpi4py use: over processes."""

from __future__ import annotations

import numpy

from intranode import Communicator
from job import run


def names_of_the_module(_: Communicator) -> list[str]:
    from intranode import MPI

    own = {name for name, value in vars(MPI).items() if not name.startswith("_") and type(value).__name__ != "module"}
    return sorted(own ^ set(MPI.__all__))


def test_all_names_can_be_imported() -> None:
    # What the module imports for itself is no part of it.
    assert run("test_names:names_of_the_module", 1) == [["Any", "annotations", "of_code", "world"]]


def buffers_of_sends(_: Communicator) -> list[bool]:
    from intranode import MPI

    buffer = bytearray(100 + MPI.BSEND_OVERHEAD)
    MPI.Attach_buffer(buffer)
    return [MPI.Detach_buffer() is buffer, MPI.Detach_buffer() is None]


def test_a_buffer_is_detached() -> None:
    assert run("test_names:buffers_of_sends", 1) == [[True, True]]


def fortran(comm: Communicator) -> list[bool]:
    from intranode import MPI

    results = []
    for datatype, kind in (
        (MPI.INTEGER, "i4"),
        (MPI.REAL, "f4"),
        (MPI.DOUBLE_PRECISION, "f8"),
        (MPI.COMPLEX, "c8"),
        (MPI.DOUBLE_COMPLEX, "c16"),
        (MPI.AINT, "i8"),
    ):
        mine, total = numpy.full(3, comm.rank + 1, kind), numpy.zeros(3, kind)
        MPI.COMM_WORLD.Allreduce([mine, datatype], [total, datatype])
        results.append(list(total) == [3, 3, 3])
    return results


def test_datatypes_have_names_of_fortran() -> None:
    assert run("test_names:fortran", 2) == [[True] * 6] * 2


def other_names(_: Communicator) -> None:
    from intranode import MPI

    for code in "?bBhHiIlLqQfdFD":
        kind = numpy.dtype(code)
        assert MPI._typedict[kind.char].Get_size() == kind.itemsize == MPI._typedict[kind.str[1:]].Get_size()
    assert MPI._typedict["d"] is MPI.DOUBLE and MPI._typedict["f4"] is MPI.FLOAT
    assert MPI.Init_thread(MPI.THREAD_MULTIPLE) == MPI.Query_thread() and MPI.Is_thread_main()


def test_names_that_programs_use() -> None:
    assert run("test_names:other_names", 1) == [None]
