"""The exceptions: their names, and the builtin ones that they also are, are those of cobre-python where it has them."""

from __future__ import annotations


class CobreError(Exception):
    """Any error of a run. `status` is the exit status of `cobre-shm`."""

    status: int | None

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ValidationError(CobreError, ValueError):
    """The case, its configuration, an override or a policy is refused."""


class CaseIoError(CobreError, OSError):
    """A file cannot be read or written."""

    def __str__(self) -> str:
        return str(self.args[0])


class SolverError(CobreError, RuntimeError):
    """Training or the solver has failed."""


class CommunicationError(CobreError, RuntimeError):
    """A worker has died, or did not come in time."""


class InternalError(CobreError, RuntimeError):
    """Anything else."""


_BY_STATUS: dict[int, type[CobreError]] = {1: ValidationError, 2: CaseIoError, 3: SolverError, 4: CommunicationError}


def of_status(status: int, text: str) -> CobreError:
    """The error for an exit status. A worker that a signal has ended has 128 and more."""
    if status >= 128 or status < 0:
        return CommunicationError(text, status)
    return _BY_STATUS.get(status, InternalError)(text, status)
