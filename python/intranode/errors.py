"""The exceptions of every call. All are an `Error`; most are also the builtin exception that one would catch.

`operation` is the name of the call that failed, as of objects: `allreduce` stands for `Allreduce` too, `Iallreduce` is one that does
not block, `Gatherv` and `Scatterv` are an `alltoallv`. Of objects, `allreduce`, `scan` and `exscan` are an `allgather`, `reduce` is a
`gather`, `alltoall` and `scatter` are an `alltoall` and an `alltoallv`. `fatal` says whether the communicator has ended. After an error
that is not fatal all ranks can go on: every rank got one.
"""

from __future__ import annotations

import re
from typing import Any

__all__ = [
    "Aborted",
    "AllocationFailed",
    "ConcurrentUse",
    "CountsDisagree",
    "Error",
    "Forked",
    "InitializationFailed",
    "Interrupted",
    "InvalidArgument",
    "InvalidConfiguration",
    "Mismatch",
    "Poisoned",
    "RankDied",
    "RankLeft",
    "Refused",
    "TimedOut",
    "Truncated",
]


_NAMES = re.compile(
    r"\b(start_)?(allgatherv?|allreduce|alltoallv?|barrier|broadcast|exscan|gather|reduce(?:_scatter(?:_block)?)?|scan|scatter"
    r"|set_ownership)(?:_vec)?\b"
)
_IN_PYTHON = {"broadcast": "bcast", "set_ownership": "distribute"}


def called(text: str) -> str:
    """The same with Python's names of calls instead of the library's: `Iallreduce`, `bcast`."""
    return _NAMES.sub(lambda found: ("I" if found[1] else "") + _IN_PYTHON.get(found[2], found[2]), text)


class Error(Exception):
    """The error of a call, with its fields as attributes."""

    operation: str
    fatal: bool

    def __init__(self, message: str = "", **fields: Any) -> None:
        # A text about joining may have a name of the user's in it.
        if fields.get("operation", "") not in ("", "init"):
            message, fields["operation"] = called(message), called(fields["operation"])
            if "calls" in fields:
                fields["calls"] = list(map(called, fields["calls"]))
        super().__init__(message)
        self.__dict__.update({"operation": "", "fatal": True} | fields)

    def Get_error_class(self) -> int:
        """As MPI numbers classes of errors: 7, ERR_ROOT, for a root that does not exist, otherwise 15, ERR_OTHER."""
        return 7 if "root" in self.__dict__ else 15

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (type(self), str(self), self.__dict__)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""


def _again(kind: type[Error], message: str, fields: dict[str, Any]) -> Error:
    return kind(message, **fields)


class RankDied(Error, ConnectionError):
    """A rank's process has ended without leaving."""

    rank: int
    pid: int
    round: int


class RankLeft(Error, ConnectionError):
    """A rank has left, and this rank made a further call."""

    rank: int
    round: int


class TimedOut(Error, TimeoutError):
    """`late` are the ranks that did not arrive within `timeout` seconds, `pids` their processes."""

    late: list[int]
    pids: list[int]
    timeout: float | None
    round: int


class Mismatch(Error, ValueError):
    """The ranks made different calls: `calls`, by rank."""

    calls: list[str]
    round: int


class Refused(Error, ValueError):
    """The arguments of `rank` were wrong, and it refused the call; its own exception says why."""

    rank: int
    round: int


class Interrupted(Error, KeyboardInterrupt):
    """`rank` was interrupted inside a call. That rank itself gets what its handler has raised: `KeyboardInterrupt`."""

    rank: int
    round: int


class Aborted(Error, ConnectionError):
    """`rank` has called `abort` with `code`."""

    rank: int
    code: int


class Poisoned(Error, ConnectionError):
    """The communicator has ended because of an error of `rank`."""

    rank: int


class InvalidArgument(Error, ValueError):
    """A length, a root or an operation of this rank is wrong. Lengths: `expected` and `actual`, in elements."""


class CountsDisagree(Error, ValueError):
    """`sender` sends `sent` elements to `receiver`, which expects `expected`. The same on every rank."""

    sender: int
    receiver: int
    sent: int
    expected: int


class Truncated(Error, ValueError):
    """A message of `bytes` bytes from `rank` is longer than the buffer for it, of `capacity`. It is kept."""

    rank: int
    bytes: int
    capacity: int


class AllocationFailed(Error, MemoryError):
    """`requested_bytes` could not be allocated."""

    requested_bytes: int


class InvalidConfiguration(Error, ValueError):
    """`setting` has a `value` that is not `allowed`, or is missing."""

    setting: str
    value: str | None
    allowed: str


class InitializationFailed(Error, ConnectionError):
    """This rank could not join. `missing` are the ranks that never did, if that is the reason."""

    missing: list[int]


class Forked(Error, RuntimeError):
    """This process was forked from a rank. Only the process that joined can make calls."""


class ConcurrentUse(Error, RuntimeError):
    """Two threads of a rank made calls at the same time. The communicator has ended."""
