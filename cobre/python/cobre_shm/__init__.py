"""Cobre's training and simulation over several processes of one machine.

    import cobre_shm

    result = cobre_shm.run("my-case", num_workers=4, on_iteration=print)
"""

from __future__ import annotations

from ._run import RunResult, Worker, program, run, train
from .errors import (
    CaseIoError,
    CobreError,
    CommunicationError,
    InternalError,
    SolverError,
    ValidationError,
)
from .progress import Progress

__all__ = [
    "CaseIoError",
    "CobreError",
    "CommunicationError",
    "InternalError",
    "Progress",
    "RunResult",
    "SolverError",
    "ValidationError",
    "Worker",
    "program",
    "run",
    "train",
]
