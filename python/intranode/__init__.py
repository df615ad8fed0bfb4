"""Collectives, shared arrays and a launcher for the processes of one machine.

    import numpy
    import intranode

    comm = intranode.world()
    total = numpy.zeros(3)
    comm.Allreduce(numpy.full(3, comm.rank, "f8"), total, op=intranode.SUM)
    names = comm.allgather(f"rank {comm.rank}")

`python -m intranode -n 4 script.py` starts it in four processes, `intranode.run(function, 4)` starts a function in four.
`from intranode import MPI` is a subset of mpi4py.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import zlib
from pathlib import Path

from . import _core, _reaction, errors
from ._communicator import Communicator
from ._message import IN_PLACE
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
    PROD,
    SUM,
    Op,
)
from ._region import Region, Shared
from ._run import report, run
from .errors import (
    Aborted,
    AllocationFailed,
    ConcurrentUse,
    CountsDisagree,
    Error,
    Forked,
    InitializationFailed,
    Interrupted,
    InvalidArgument,
    InvalidConfiguration,
    Mismatch,
    Poisoned,
    RankDied,
    RankLeft,
    Refused,
    TimedOut,
    Truncated,
)

__version__ = _core.__version__

__all__ = [
    "BAND",
    "BOR",
    "BXOR",
    "IN_PLACE",
    "LAND",
    "LOR",
    "LXOR",
    "MAX",
    "MAXLOC",
    "MIN",
    "MINLOC",
    "PROD",
    "SUM",
    "Aborted",
    "AllocationFailed",
    "Communicator",
    "ConcurrentUse",
    "CountsDisagree",
    "Error",
    "Forked",
    "InitializationFailed",
    "Interrupted",
    "InvalidArgument",
    "InvalidConfiguration",
    "Mismatch",
    "Op",
    "Poisoned",
    "RankDied",
    "RankLeft",
    "Refused",
    "Region",
    "Shared",
    "TimedOut",
    "Truncated",
    "errors",
    "join",
    "report",
    "run",
    "world",
]

_world: Communicator | None = None
_joining = threading.Lock()


def world() -> Communicator:
    """The communicator of all ranks of this job: the same object every time. The first call joins.

    Who started this process says which rank it is: `INTRANODE_NAME`, `INTRANODE_RANK` and `INTRANODE_SIZE`, else the variables
    of Open MPI's, MPICH's or Intel's mpiexec, torchrun or srun. Without any it is alone, and so is a process that a rank has
    started, such as a worker of multiprocessing, whose variables are those of that rank. It is left when the interpreter exits.

    Raises `InvalidConfiguration` for variables that are wrong, and `InitializationFailed` if a rank does not join in time. A
    forked child of a rank gets the same object; its calls raise `Forked`.
    """
    global _world
    if _world is None:
        with _joining:  # other threads run while this one joins
            if _world is None:
                _world = Communicator(_joined())
                atexit.register(_leave, _world, os.getpid())
    return _world


def join(
    name: str, rank: int, size: int, *, timeout: float | None = 60.0, join_timeout: float | None = 30.0
) -> Communicator:
    """Joins the job `name` (`/` and up to 230 bytes, as in `"/job-42"`) as `rank` of `size`, and waits for the others.

    The ranks may start in any order, in processes that were forked, spawned or started in any other way, and in threads of one
    process. The time-outs are in seconds; None is none. When all have joined the name is free again. Leave by `leave()`, or
    `with intranode.join(...) as comm:`.
    """
    return Communicator(_core.join(name, rank, size, timeout, join_timeout))


_JOINED = "INTRANODE_JOINED"
"""In what a rank starts: the rank's process, and a digest of the variables that made it a rank."""
_MAKE_RANKS = ("INTRANODE_NAME", "INTRANODE_RANK", "INTRANODE_SIZE", "MASTER_", "OMPI_", "PMI", "RANK", "SLURM_", "TORCH", "WORLD_")
"""How the names of such variables begin."""


def _joined() -> _core.Joined:
    """As the variables say. Those that are a rank's own, and were inherited, say nothing: this process is alone."""
    variables = sorted(item for item in os.environ.items() if item[0].startswith(_MAKE_RANKS))
    digest = str(zlib.crc32(repr(variables).encode("utf-8", "surrogateescape")))
    process, _, known = os.environ.get(_JOINED, "").partition(":")
    # Ranks of another mpiexec, which this rank has started, may have equal variables. They are no children of the rank.
    if process != str(os.getpid()) and known == digest and ("INTRANODE_NAME" in os.environ or _is_worker_of(process)):
        launcher = os.environ.get("INTRANODE_LAUNCHER")
        os.environ["INTRANODE_LAUNCHER"] = "none"
        try:
            return _core.from_env()
        finally:
            if launcher is None:
                del os.environ["INTRANODE_LAUNCHER"]
            else:
                os.environ["INTRANODE_LAUNCHER"] = launcher
    joined = _core.from_env()
    os.environ[_JOINED] = f"{os.getpid()}:{digest}"
    return joined


def _is_worker_of(process: str) -> bool:
    """Whether this is a child of that process, or of processes of multiprocessing that it has started: of its server of forks, too."""
    parent = str(os.getppid())
    with contextlib.suppress(OSError, ValueError):
        while parent != process and b"from multiprocessing." in Path("/proc", parent, "cmdline").read_bytes():
            # Behind the name, which may have anything in it, come the state and the parent.
            parent = Path("/proc", parent, "stat").read_text(errors="replace").rpartition(")")[2].split()[1]
    return parent == process


def _leave(comm: Communicator, pid: int) -> None:
    """Not in a forked child, which is no rank."""
    if os.getpid() == pid:
        _reaction.tell()
        comm.leave()
