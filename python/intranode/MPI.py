"""A subset of mpi4py's interface: docs/python.md in the repository has the table of what of its tests passes.

    from intranode import MPI

    comm = MPI.COMM_WORLD

Importing it joins the job, as importing mpi4py.MPI initialises MPI.
"""

from __future__ import annotations

import atexit
import os
import platform
import sys
import threading
import time
from typing import Any

from . import _core, errors, world
from ._datatype import (
    BYTE,
    C_BOOL,
    C_DOUBLE_COMPLEX,
    C_FLOAT_COMPLEX,
    CHAR,
    DATATYPE_NULL,
    DOUBLE,
    FLOAT,
    INT,
    INT8_T,
    INT16_T,
    INT32_T,
    INT64_T,
    LONG,
    LONG_LONG,
    ORDER_C,
    ORDER_FORTRAN,
    SHORT,
    SIGNED_CHAR,
    UINT8_T,
    UINT16_T,
    UINT32_T,
    UINT64_T,
    UNSIGNED,
    UNSIGNED_CHAR,
    UNSIGNED_LONG,
    UNSIGNED_LONG_LONG,
    UNSIGNED_SHORT,
    Datatype,
    of_code,
)
from ._message import IN_PLACE
from ._mpi.cartesian import Cartcomm, Compute_dims
from ._mpi.constants import (
    ANY_SOURCE,
    ANY_TAG,
    APPNUM,
    BOTTOM,
    BSEND_OVERHEAD,
    COMM_NULL,
    COMM_TYPE_SHARED,
    ERR_OTHER,
    ERR_ROOT,
    ERR_TYPE,
    KEYVAL_INVALID,
    PROC_NULL,
    SUCCESS,
    THREAD_FUNNELED,
    THREAD_MULTIPLE,
    THREAD_SERIALIZED,
    THREAD_SINGLE,
    UNDEFINED,
    pickle,
)
from ._mpi.group import Group
from ._mpi.intracomm import Comm, Intracomm
from ._mpi.kinds import Prequest
from ._mpi.message import MESSAGE_NO_PROC, MESSAGE_NULL, Message
from ._mpi.request import Request
from ._mpi.status import Status
from ._op import (
    BAND,
    BOR,
    BXOR,
    LAND,
    LOR,
    LXOR,
    MAX,
    MAXLOC,
    MIN,
    MINLOC,
    NO_OP,
    OP_NULL,
    PROD,
    REPLACE,
    SUM,
    Op,
)

__all__ = [
    "AINT", "ANY_SOURCE", "ANY_TAG", "APPNUM", "Alloc_mem", "Attach_buffer", "BAND", "BOOL", "BOR", "BOTTOM",
    "BSEND_OVERHEAD", "BXOR", "BYTE", "CHAR", "COMM_NULL", "COMM_SELF", "COMM_TYPE_SHARED", "COMM_WORLD", "COMPLEX",
    "COMPLEX16", "COMPLEX8", "CXX_BOOL", "CXX_DOUBLE_COMPLEX", "CXX_FLOAT_COMPLEX", "C_BOOL", "C_COMPLEX",
    "C_DOUBLE_COMPLEX", "C_FLOAT_COMPLEX", "C_LONG_DOUBLE_COMPLEX", "Cartcomm", "Comm", "Compute_dims", "DATATYPE_NULL",
    "DOUBLE", "DOUBLE_COMPLEX", "DOUBLE_PRECISION", "Datatype", "Detach_buffer", "ERR_OTHER", "ERR_ROOT", "ERR_TYPE",
    "Exception", "FLOAT", "Finalize", "Free_mem", "GROUP_NULL", "Get_library_version", "Get_processor_name", "Get_version",
    "Group", "INT", "INT16_T", "INT32_T", "INT64_T", "INT8_T", "INTEGER", "INTEGER1", "INTEGER2", "INTEGER4", "INTEGER8",
    "IN_PLACE", "Init", "Init_thread", "Intracomm", "Is_finalized", "Is_initialized", "Is_thread_main", "KEYVAL_INVALID",
    "LAND", "LONG", "LONG_DOUBLE", "LONG_LONG", "LOR", "LXOR", "MAX", "MAXLOC", "MESSAGE_NO_PROC", "MESSAGE_NULL", "MIN",
    "MINLOC", "Message", "NO_OP", "OP_NULL", "ORDER_C", "ORDER_F", "ORDER_FORTRAN", "Op", "PROC_NULL", "PROD", "Prequest",
    "Query_thread", "REAL", "REAL4", "REAL8", "REPLACE", "REQUEST_NULL", "Request", "SHORT", "SIGNED_CHAR", "SUCCESS", "SUM",
    "Status", "THREAD_FUNNELED", "THREAD_MULTIPLE", "THREAD_SERIALIZED", "THREAD_SINGLE", "UINT16_T", "UINT32_T", "UINT64_T",
    "UINT8_T", "UNDEFINED", "UNSIGNED", "UNSIGNED_CHAR", "UNSIGNED_INT", "UNSIGNED_LONG", "UNSIGNED_LONG_LONG",
    "UNSIGNED_SHORT", "Wtick", "Wtime", "buffer", "get_vendor", "memory", "pickle",
]  # fmt: skip

UNSIGNED_INT = UNSIGNED
BOOL = CXX_BOOL = C_BOOL
C_COMPLEX = CXX_FLOAT_COMPLEX = C_FLOAT_COMPLEX
CXX_DOUBLE_COMPLEX = C_DOUBLE_COMPLEX
AINT = INT64_T
# Fortran's, by which programs with NumPy name what has the same size in C.
INTEGER, INTEGER1, INTEGER2, INTEGER4, INTEGER8 = INT, INT8_T, INT16_T, INT32_T, INT64_T
REAL = REAL4 = FLOAT
DOUBLE_PRECISION = REAL8 = DOUBLE
COMPLEX = COMPLEX8 = C_FLOAT_COMPLEX
DOUBLE_COMPLEX = COMPLEX16 = C_DOUBLE_COMPLEX
ORDER_F = ORDER_FORTRAN
_typedict = {code: of_code(code) for code in "? c b B h H i I l L q Q f d F D b1 i1 i2 i4 i8 u1 u2 u4 u8 f4 f8 c8 c16".split()}
"""By the codes of NumPy's types, as programs look them up: `MPI._typedict[array.dtype.char]`."""
LONG_DOUBLE = C_LONG_DOUBLE_COMPLEX = DATATYPE_NULL

Exception = errors.Error
memory = buffer = memoryview


def Wtime() -> float:
    """Seconds since a moment in the past."""
    return time.monotonic()


def Wtick() -> float:
    """The resolution of `Wtime`."""
    return time.get_clock_info("monotonic").resolution


def Get_processor_name() -> str:
    return platform.node()


def Get_version() -> tuple[int, int]:
    """Of the standard whose subset this is."""
    return (4, 0)


def Get_library_version() -> str:
    return f"intranode {_core.__version__}"


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    major, minor, patch = (int(part) for part in _core.__version__.split("."))
    return "intranode", (major, minor, patch)


def Query_thread() -> int:
    """Threads may call, one at a time."""
    return THREAD_SERIALIZED


def Is_initialized() -> bool:
    return True


_finalized = False


def Is_finalized() -> bool:
    return _finalized


def Init() -> None:
    """Importing this module has done it."""


def Init_thread(required: int = THREAD_MULTIPLE) -> int:
    """The same; returns which threads may call, as `Query_thread`."""
    return Query_thread()


def Is_thread_main() -> bool:
    """Whether this is the interpreter's main thread."""
    return threading.current_thread() is threading.main_thread()


def Finalize() -> None:
    """Leaves, when what was sent by `Bsend`, or by a request that is gone, has been received. The interpreter's exit does it too."""
    global _finalized
    if not _finalized and os.getpid() == _pid:
        _finalized = True
        # After an exception that nobody has caught the other ranks may wait for this one.
        if getattr(sys, "last_value", None) is None:
            COMM_WORLD._finish_kept()
        COMM_SELF._end()
        COMM_WORLD._end()


def Alloc_mem(size: int, info: object = None) -> memoryview:
    return memoryview(bytearray(size))


def Free_mem(mem: memoryview) -> None:
    mem.release()


_attached: Any = None


def Attach_buffer(buf: Any) -> None:
    """Keeps the buffer for `Detach_buffer`, and does not use it: what is sent is copied."""
    global _attached
    _attached = buf


def Detach_buffer() -> Any:
    """The buffer that was attached, or None. What was sent is sent as before."""
    global _attached
    buf, _attached = _attached, None
    return buf


_pid = os.getpid()
REQUEST_NULL = Request()
GROUP_NULL = Group()
COMM_WORLD = Intracomm(world())
COMM_SELF = Intracomm(COMM_WORLD._split(COMM_WORLD.rank, 0))
atexit.register(Finalize)
