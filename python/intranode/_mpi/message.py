"""Messages that a probe has found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

from .. import _core
from .constants import ANY_SOURCE, ANY_TAG, NOTHING
from .request import Request
from .status import Status

if TYPE_CHECKING:
    from .messages import Messages


class Message:
    """A message that `Mprobe` or `Improbe` has found: no other receive gets it. Gone with all its handles, it is there for others again."""

    def __init__(self, message: Message | None = None) -> None:
        self._comm: Messages | None = None
        self._started: _core.Started | None = None
        self._known: tuple[int, int, int] | None = None
        """None: it is null."""
        if message is not None:
            self._comm, self._started, self._known = message._comm, message._started, message._known

    @classmethod
    def Probe(cls, comm: Messages, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Self:
        """Waits for a message, and takes it."""
        return cls(comm.Mprobe(source, tag, status))

    @classmethod
    def Iprobe(
        cls, comm: Messages, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None
    ) -> Self | None:
        """Takes a message that has come; None: none has."""
        found = comm.Improbe(source, tag, status)
        return None if found is None else cls(found)

    probe, iprobe = Probe, Iprobe

    def Recv(self, buf: Any, status: Status | None = None) -> None:
        """Receives it into the beginning of a buffer. One that is longer is `Truncated`, and kept."""
        self.Irecv(buf).Wait(status)

    def Irecv(self, buf: Any) -> Request:
        """Starts to receive it. The buffer is written when the request completes."""
        return self._received(lambda comm, started, known: comm._start_matched(buf, started, known))

    def recv(self, status: Status | None = None) -> Any:
        """Receives it, an object."""
        return self.irecv().wait(status)

    def irecv(self) -> Request:
        """Starts to receive it, an object."""
        return self._received(lambda comm, started, _: comm._start_object(started))

    def _received(self, receive: Any) -> Request:
        if self._known is None:
            raise ValueError("the message is null, or was received already")
        request = Request._of(None, None) if self._started is None else receive(self._comm, self._started, self._known)
        if self is not MESSAGE_NO_PROC:
            self._comm = self._started = self._known = None
        return request

    def __bool__(self) -> bool:
        return self._known is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message):
            return NotImplemented
        return (self._started, self._known) == (other._started, other._known)

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> Any:
        if self._started is not None:
            raise ValueError("a message cannot be pickled: only the process that it was sent to can receive it")
        names = {id(MESSAGE_NULL): "MESSAGE_NULL", id(MESSAGE_NO_PROC): "MESSAGE_NO_PROC"}
        return names.get(id(self)) or (Message, (MESSAGE_NO_PROC if self else MESSAGE_NULL,))


MESSAGE_NULL = Message()
MESSAGE_NO_PROC = Message()
"""What is found where nobody sends: of PROC_NULL."""
MESSAGE_NO_PROC._known = NOTHING
