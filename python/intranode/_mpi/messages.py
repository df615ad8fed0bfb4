"""Sends and receives."""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable
from typing import Any, ClassVar

from .. import _core, errors
from .._communicator import Communicator
from .._message import Place
from .constants import ANY_SOURCE, ANY_TAG, NOTHING, PROC_NULL, pickle
from .kinds import Both, MatchedRequest, ObjectRequest, Prequest
from .message import MESSAGE_NO_PROC, Message
from .request import Request
from .status import Status
from .target import Target


class Messages(Communicator):
    """A communicator that sends and receives, with mpi4py's names."""

    _owing: ClassVar[dict[int, Messages]] = {}
    """Those with sends that no request waits for, by their `id`: also those that the program names no more."""

    def __init__(self, joined: _core.Joined | Communicator) -> None:
        """What it stands for is what `__new__` has been given."""
        self._mail: _core.Messages | None = self._messages()
        self._kept: list[Request] = []
        self._receives: weakref.WeakSet[Request] = weakref.WeakSet()

    @property
    def _post(self) -> _core.Messages:
        if self._mail is None:
            raise ValueError("this rank has left the communicator, by Free() or Finalize(): there are no further calls")
        return self._mail

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Sends a buffer. Returns when it may be changed."""
        if self._receives:
            self.Isend(buf, dest, tag).Wait()
        elif dest != PROC_NULL:
            self._post.send(_bytes(buf), dest, tag)

    def Recv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> None:
        """Receives into the beginning of a buffer. A message that is longer is `Truncated`, and kept."""
        if self._receives:
            self.Irecv(buf, source, tag).Wait(status)
            return
        known = NOTHING
        if source != PROC_NULL:
            place = _receiving(buf)
            known = self._post.recv(place.whole(), _any(source), _any(tag))
            place.finish()
        if status is not None:
            status._set(known)

    def Isend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """Starts to send a copy of the buffer."""
        return self._sending(lambda: _bytes(buf), dest, tag, False)

    def _sending(self, data: Callable[[], Any], dest: int, tag: int, synchronous: bool) -> Request:
        if dest == PROC_NULL:
            return Request._of(None, None)
        self._kept_to_come()
        return Request._of(self, self._post.start_send(data(), dest, tag, synchronous))

    def Issend(self, buf: Any, dest: int, tag: int = 0) -> Request:
        """The same, complete only when it is received."""
        return self._sending(lambda: _bytes(buf), dest, tag, True)

    def Ssend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Sends a buffer. Returns when it is received."""
        self.Issend(buf, dest, tag).Wait()

    def Irecv(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Starts to receive. The buffer is written when the request completes."""
        if source == PROC_NULL:
            return Request._of(None, None)
        return Request._of(*self._start_recv(buf, source, tag))

    def _start_recv(self, buf: Any, source: int, tag: int) -> tuple[Messages, _core.Started, Place]:
        place = _receiving(buf)
        return self, self._post.start_recv(place.whole(), _any(source), _any(tag)), place

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        """Sends and receives at the same time."""
        receiving = self.Irecv(recvbuf, source, recvtag)
        Request.Waitall([receiving, self.Isend(sendbuf, dest, sendtag)], None if status is None else [status])

    def Isendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
    ) -> Request:
        """Starts both."""
        receiving = self.Irecv(recvbuf, source, recvtag)
        both = Both()
        both._start(self, receiving._started, receiving._place)
        both._sending = self.Isend(sendbuf, dest, sendtag)
        return both

    def Sendrecv_replace(
        self,
        buf: Any,
        dest: int,
        sendtag: int = 0,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> None:
        """Sends a buffer, and receives into it."""
        sending = self.Isend(buf, dest, sendtag)
        Request.Waitall([self.Irecv(buf, source, recvtag), sending], None if status is None else [status])

    def Isendrecv_replace(
        self, buf: Any, dest: int, sendtag: int = 0, source: int = ANY_SOURCE, recvtag: int = ANY_TAG
    ) -> Request:
        """Starts both."""
        return self.Isendrecv(buf, dest, sendtag, buf, source, recvtag)

    def Probe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Waits for a message, which stays."""
        known = NOTHING if source == PROC_NULL else self._post.probe(_any(source), _any(tag), self._receives_to_come())
        if status is not None:
            status._set(known)
        return True

    def Iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Whether a message has come, which stays."""
        known: tuple[int, int, int] | None = NOTHING
        if source != PROC_NULL:
            self._receives_to_come()
            known = self._post.try_probe(_any(source), _any(tag))
        if known is not None and status is not None:
            status._set(known)
        return known is not None

    probe, iprobe = Probe, Iprobe

    def Mprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Message:
        """Waits for a message, and takes it: no other receive gets it."""
        while True:
            self.Probe(source, tag)
            # None: another thread has it, or its sender has taken it back.
            if (message := self.Improbe(source, tag, status)) is not None:
                return message

    def Improbe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Message | None:
        """Takes a message that has come; None: none has."""
        message = Message(MESSAGE_NO_PROC)
        if source != PROC_NULL:
            self._receives_to_come()
            taken = self._post.try_take(_any(source), _any(tag))
            if taken is None:
                return None
            message._comm, (message._started, message._known) = self, taken
        if status is not None:
            status._set(message._known or NOTHING)
        return message

    mprobe, improbe = Mprobe, Improbe

    def _start_matched(self, buf: Any, started: _core.Started, known: tuple[int, int, int]) -> Request:
        """A receive of a message that was taken."""
        place = _receiving(buf)
        source, _, length = known
        room = len(memoryview(place.whole()[0]))
        if length > room:
            text = f"recv: the message of rank {source} has {length} bytes, and the buffer for it {room}: it is kept"
            raise errors.Truncated(text, operation="recv", fatal=False, rank=source, bytes=length, capacity=room)
        request = MatchedRequest()
        request._start(self, started, Target(place))
        return request

    def _start_object(self, started: _core.Started | None) -> Request:
        """A receive of an object."""
        request = ObjectRequest()
        request._receives = True
        request._start(None if started is None else self, started, None)
        return request

    def _receives_to_come(self) -> list[_core.Started]:
        """Goes on with the receives that were started, and returns those that are not complete."""
        return [started for each in list(self._receives) if each._is_to_come() for started in each._open()]

    def Send_init(self, buf: Any, dest: int, tag: int = 0, synchronous: bool = False) -> Prequest:
        """A send for `Start`."""
        request = Prequest()
        place = None if dest == PROC_NULL else Place(buf)

        def begin() -> Any:
            if place is None:
                return None, None, None
            return self, self._post.start_send(_bytes(place), dest, tag, synchronous), None

        request._begin = begin
        return request

    def Recv_init(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Prequest:
        """A receive for `Start`."""
        request = Prequest()
        place = None if source == PROC_NULL else _receiving(buf)
        request._begin = lambda: (None, None, None) if place is None else self._start_recv(place, source, tag)
        return request

    def Ssend_init(self, buf: Any, dest: int, tag: int = 0) -> Prequest:
        """The same, complete only when it is received."""
        return self.Send_init(buf, dest, tag, True)

    # What is sent is copied, so a send is a buffered one; and one whose receive has started is a send.
    Rsend = Send
    Ibsend = Irsend = Isend
    Bsend_init = Rsend_init = Send_init

    def Bsend(self, buf: Any, dest: int, tag: int = 0) -> None:
        """Sends a copy of a buffer. It never waits."""
        self._keep(self.Isend(buf, dest, tag))

    def bsend(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Sends an object. It never waits."""
        self._keep(self.isend(obj, dest, tag))

    def _keep(self, request: Request) -> None:
        if not request.Test():
            self._owe(request)

    def _owe(self, request: Request) -> None:
        """A send that no request waits for."""
        self._kept.append(request)
        self._owing[id(self)] = self

    def _kept_to_come(self) -> list[Request]:
        """Goes on with the sends that no request waits for, and returns those that are not complete."""
        if self._kept:
            self._kept = [each for each in self._kept if _is_to_be_sent(each)]
            if not self._kept:
                self._owing.pop(id(self), None)
        return self._kept

    @classmethod
    def _finish_kept(cls) -> None:
        """Waits until what no request waits for is sent, in all communicators; not for a rank that never receives it."""
        for comm in list(cls._owing.values()):
            # The time-out, or the end of the communicator.
            with contextlib.suppress(errors.Error):
                while together := comm._kept_to_come():
                    together[0]._wait_some(together)

    def send(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Sends an object."""
        if self._receives:
            self.isend(obj, dest, tag).Wait()
        elif dest != PROC_NULL:
            self._post.send(pickle.dumps(obj), dest, tag)

    def isend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """Starts to send an object."""
        return self._sending(lambda: pickle.dumps(obj), dest, tag, False)

    def issend(self, obj: Any, dest: int, tag: int = 0) -> Request:
        """The same, complete only when it is received."""
        return self._sending(lambda: pickle.dumps(obj), dest, tag, True)

    def ssend(self, obj: Any, dest: int, tag: int = 0) -> None:
        """Sends an object. Returns when it is received."""
        self.issend(obj, dest, tag).Wait()

    def recv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> Any:
        """Receives an object, of any length: `buf` is ignored."""
        if buf is not None and not isinstance(buf, int):
            warnings.warn("the 'buf' argument is ignored", UserWarning, stacklevel=2)
        if self._receives:
            return self.irecv(None, source, tag).wait(status)
        if source == PROC_NULL:
            data, known = b"", NOTHING
        else:
            data, known = self._post.recv_bytes(_any(source), _any(tag))
        if status is not None:
            status._set(known)
        return pickle.loads(data)

    def irecv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Starts to receive an object, of any length: `buf` is ignored."""
        return self._start_object(None if source == PROC_NULL else self._post.start_recv_bytes(_any(source), _any(tag)))

    def sendrecv(
        self,
        sendobj: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY_SOURCE,
        recvtag: int = ANY_TAG,
        status: Status | None = None,
    ) -> Any:
        """Sends an object and receives one at the same time."""
        sending = self.isend(sendobj, dest, sendtag)
        receiving = self.irecv(recvbuf, source, recvtag)
        received, _ = Request.waitall([receiving, sending], None if status is None else [status])
        return received

    ibsend = isend


def _is_to_be_sent(kept: Request) -> bool:
    """Whether it is not complete. Its error, that its receiver has left, is that of no other call."""
    with contextlib.suppress(errors.Error):
        return not kept.Test()
    return False


def _any(value: int) -> int | None:
    return None if value == ANY_SOURCE else value


def _bytes(spec: Any) -> Any:
    place = spec if isinstance(spec, Place) else Place(spec)
    data, _, _ = place.whole()
    return data, "B", 1


class _Receiving(Place):
    def __init__(self, spec: Any) -> None:
        super().__init__(spec)
        # Also where items are unpacked into, which comes after the message was taken.
        if self.memory.readonly and len(self.memory):
            raise BufferError("the receive buffer is read-only: pass a writable one")

    def whole(self) -> tuple[Any, str, int]:
        return super().whole()[0], "B", 1


def _receiving(spec: Any) -> Place:
    return spec if isinstance(spec, _Receiving) else _Receiving(spec)
