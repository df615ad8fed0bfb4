"""How a rank tells the launcher that it ends because another one has ended, so that the other one's exit code is the job's."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import sys

from .errors import Aborted, Interrupted, Poisoned, RankDied, RankLeft, Refused

_REACTIONS = (Aborted, Interrupted, Poisoned, RankDied, RankLeft, Refused)
_CREDENTIALS = struct.Struct("3i")
"""A process, its user, and its group, as the system writes them."""


def _address(name: str) -> str:
    """Of the launcher of a job: no file, and gone with it."""
    return f"\0intranode{name}"


def listen(name: str) -> socket.socket | None:
    """In the launcher. None: the system refuses it, and nobody can tell."""
    with contextlib.suppress(OSError):
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            listening.setblocking(False)
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            listening.bind(_address(name))
            return listening
        except OSError:
            listening.close()
    return None


def heard(listening: socket.socket | None) -> set[int]:
    """The processes that have told it since, as the system says: they cannot tell it of another one."""
    found: set[int] = set()
    with contextlib.suppress(OSError):
        while listening is not None:
            _, ancillary, _, _ = listening.recvmsg(1, socket.CMSG_SPACE(_CREDENTIALS.size))
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS):
                    found.add(_CREDENTIALS.unpack(data[: _CREDENTIALS.size])[0])
    return found


def tell() -> None:
    """In a rank that ends: tells it if what ends this one is the error of another rank, which nobody has caught."""
    name = os.environ.get("INTRANODE_NAME")
    if name and isinstance(getattr(sys, "last_value", None), _REACTIONS):
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as telling:
            # The launcher reads every few milliseconds, and few fit in between.
            telling.settimeout(1.0)
            telling.sendto(b"r", _address(name))
