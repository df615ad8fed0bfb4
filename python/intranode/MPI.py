"""A subset of mpi4py's interface: docs/python.md in the repository has the table of what of its tests passes.

    from intranode import MPI

    comm = MPI.COMM_WORLD

Importing it joins the job, as importing mpi4py.MPI initialises MPI.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import pickle as _pickle
import platform
import time
import warnings
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Self

from . import _core, errors, world
from ._communicator import Communicator
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
)
from ._message import IN_PLACE, Place
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
    "ANY_SOURCE", "ANY_TAG", "BAND", "BOR", "BOTTOM", "BSEND_OVERHEAD", "BXOR", "BYTE", "CHAR", "COMM_NULL", "COMM_SELF",
    "COMM_WORLD", "C_BOOL", "C_DOUBLE_COMPLEX", "C_FLOAT_COMPLEX", "DATATYPE_NULL", "DOUBLE", "FLOAT", "IN_PLACE", "INT",
    "INT16_T", "INT32_T", "INT64_T", "INT8_T", "LAND", "LONG", "LONG_DOUBLE", "LONG_LONG", "LOR", "LXOR", "MAX", "MAXLOC",
    "MIN", "MINLOC", "NO_OP", "OP_NULL", "PROC_NULL", "PROD", "REPLACE", "REQUEST_NULL", "SHORT", "SIGNED_CHAR", "SUCCESS",
    "SUM", "THREAD_MULTIPLE", "THREAD_SINGLE", "UINT16_T", "UINT32_T", "UINT64_T", "UINT8_T", "UNDEFINED", "UNSIGNED",
    "UNSIGNED_CHAR", "UNSIGNED_INT", "UNSIGNED_LONG", "UNSIGNED_LONG_LONG", "UNSIGNED_SHORT", "Comm", "Datatype",
    "Exception", "Finalize", "Get_processor_name", "Get_version", "Intracomm", "Is_finalized", "Is_initialized", "Op",
    "Prequest", "Query_thread", "Request", "Status", "Wtick", "Wtime", "get_vendor", "memory", "pickle",
]  # fmt: skip

ANY_SOURCE = ANY_TAG = -1
PROC_NULL = -2
UNDEFINED = -32766
SUCCESS = 0
ERR_TYPE, ERR_ROOT, ERR_OTHER = 3, 7, 15
THREAD_SINGLE, THREAD_FUNNELED, THREAD_SERIALIZED, THREAD_MULTIPLE = range(4)
BSEND_OVERHEAD = 0
BOTTOM = None
KEYVAL_INVALID = APPNUM = -1
UNSIGNED_INT = UNSIGNED
LONG_DOUBLE = C_LONG_DOUBLE_COMPLEX = DATATYPE_NULL

Exception = errors.Error


class _Pickle:
    """How objects are pickled."""

    PROTOCOL = _pickle.HIGHEST_PROTOCOL

    def dumps(self, obj: Any) -> bytes:
        return _pickle.dumps(obj, self.PROTOCOL)

    def loads(self, data: Any) -> Any:
        return _pickle.loads(data) if len(data) else None


pickle = _Pickle()
memory = buffer = memoryview


class Status:
    """Who sent a message, with which tag, and how long it is."""

    def __init__(self) -> None:
        self.source, self.tag, self.error = ANY_SOURCE, ANY_TAG, SUCCESS
        self._bytes, self._cancelled = 0, False

    def _set(self, known: tuple[int, int, int]) -> None:
        self.source, self.tag, self._bytes = known

    def Get_source(self) -> int:
        return self.source

    def Get_tag(self) -> int:
        return self.tag

    def Get_error(self) -> int:
        return self.error

    def Get_count(self, datatype: Datatype = BYTE) -> int:
        """Its length, in elements; `UNDEFINED` if it is no whole number of them."""
        return self._bytes // datatype.size if self._bytes % datatype.size == 0 else UNDEFINED

    Get_elements = Get_count

    @property
    def count(self) -> int:
        """Its length, in bytes."""
        return self._bytes

    def Is_cancelled(self) -> bool:
        return self._cancelled


_NOTHING = (PROC_NULL, ANY_TAG, 0)


class Request:
    """A send or a receive that was started. It goes on in calls of its communicator that are passed it."""

    def __init__(self, request: Request | None = None) -> None:
        self._started: _core.Started | None = None
        self._comm: Intracomm | None = None
        self._place: Any = None
        self._known: tuple[int, int, int] | None = None
        self._object: Any = None
        self._receives = False
        self._cancelled = False
        self._active = False
        if request is not None:
            self.__dict__.update(request.__dict__)

    @classmethod
    def _of(cls, comm: Intracomm | None, started: _core.Started | None, place: Any = None) -> Request:
        """Without `started` it is complete: with PROC_NULL."""
        request = cls()
        request._start(comm, started, place)
        return request

    def _start(self, comm: Intracomm | None, started: _core.Started | None, place: Any) -> None:
        self._comm, self._started, self._place, self._active = comm, started, place, True
        self._known = _NOTHING if started is None else None
        if comm is not None and (place is not None or self._receives):
            comm._receives.add(self)

    # What becomes of it. Each returns whether it is complete.

    def _try(self) -> bool:
        if self._known is None and self._started is not None:
            known = self._started.test()
            if known is not None:
                self._arrived(known)
        return self._known is not None

    def _await(self) -> None:
        if self._known is None and self._started is not None:
            self._go_on()
            self._arrived(self._started.wait())

    def _go_on(self) -> None:
        """Waits until it is complete, and goes on with the receives that were started before: a message is received only in calls
        that its receive is passed to, and another rank may wait for that before it sends what this one waits for.
        """
        while self._comm is not None and self._started is not None and not self._try():
            others = [each for each in list(self._comm._receives) if each is not self and not each._try()]
            if not others:
                return
            with contextlib.suppress(errors.Truncated):
                # Of another one, or of this: the next look says.
                self._comm._post.wait_any([self._started, *(each._started for each in others if each._started)])

    def _arrived(self, known: tuple[int, int, int]) -> None:
        self._known = known
        if isinstance(self._place, Place):
            self._place.finish()

    def _take(self, status: Status | None) -> Any:
        """The end of a complete one: the object that it has received."""
        self._tell(status)
        result = self._object_of() if self._receives else None
        self._release()
        return result

    def _object_of(self) -> Any:
        return None

    def _tell(self, status: Status | None) -> None:
        if status is not None:
            status._set(self._known or _NOTHING)
            status._cancelled = self._cancelled

    def _release(self) -> None:
        if self._comm is not None:
            self._comm._receives.discard(self)
        self._started = self._comm = self._known = self._place = None
        self._active = False

    def _open(self) -> list[_core.Started]:
        return [] if self._known is not None or self._started is None else [self._started]

    # One.

    def Wait(self, status: Status | None = None) -> bool:
        """Waits until it is complete."""
        if self._active:
            self._await()
            self._take(status)
        return True

    def wait(self, status: Status | None = None) -> Any:
        """The same; returns the object that was received."""
        if not self._active:
            return None
        self._await()
        return self._take(status)

    def Test(self, status: Status | None = None) -> bool:
        """Whether it is complete."""
        return self.test(status)[0]

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """The same, and the object that was received."""
        if not self._active:
            return True, None
        return (True, self._take(status)) if self._try() else (False, None)

    def Get_status(self, status: Status | None = None) -> bool:
        """Whether it is complete; it stays as it is."""
        if not self._active:
            return True
        done = self._try()
        if done:
            self._tell(status)
        return done

    get_status = Get_status

    def Cancel(self) -> None:
        """Takes it back, if it is not too late."""
        if self._known is None and self._started is not None:
            self._cancelled = self._started.cancel()
            self._arrived(_NOTHING if self._cancelled else self._started.wait())
            if self._cancelled and self._comm is not None and self not in self._comm._receives:
                # The receiver of a send that was taken back notices when it looks: this rank, if it was to itself.
                self._comm._post.try_probe(self._comm.rank, None)

    cancel = Cancel

    def Free(self) -> None:
        """Forgets it: a message that has not been sent is withdrawn."""
        self._release()

    # Several.

    @classmethod
    def _wait_all(cls, requests: Sequence[Request]) -> None:
        """Those of one communicator go on together."""
        waiting = [request for request in requests if request._active and not request._try()]
        while waiting:
            comm = waiting[0]._comm
            together = [each for each in waiting if each._comm is comm]
            if comm is None or len({id(each._comm) for each in waiting}) > 1:
                # Of several communicators: one after the other, as long as none of them is complete.
                time.sleep(0)
            else:
                others = [each for each in list(comm._receives) if each not in together and not each._try()]
                with contextlib.suppress(errors.Truncated):
                    comm._post.wait_any([each._started for each in [*together, *others] if each._started])
            waiting = [request for request in waiting if not request._try()]

    @classmethod
    def Waitall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
        """Waits until all are complete."""
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def waitall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> list[Any]:
        """The same; returns the objects that were received."""
        cls._wait_all(requests)
        return [request._take(status) for request, status in zip(requests, _filled(statuses, len(requests)), strict=True)]

    @classmethod
    def Testall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> bool:
        """Whether all are complete."""
        return cls.testall(requests, statuses)[0]

    @classmethod
    def testall(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> tuple[bool, list[Any] | None]:
        """The same, and the objects that were received."""
        if not all([not request._active or request._try() for request in requests]):
            return False, None
        return True, cls.waitall(requests, statuses)

    @classmethod
    def testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool, Any]:
        """Which one is complete, whether one is, and the object that was received. UNDEFINED and True: there are none."""
        none = True
        for place, request in enumerate(requests):
            if request._active:
                none = False
                if request._try():
                    return place, True, request._take(status)
        return UNDEFINED, none, None

    @classmethod
    def Testany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """The same without the object."""
        return cls.testany(requests, status)[:2]

    @classmethod
    def waitany(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, Any]:
        """Waits until one is complete: which one, and the object that was received. UNDEFINED: there are none."""
        while True:
            place, found, received = cls.testany(requests, status)
            if found:
                return place, received
            time.sleep(0)

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        """The same without the object."""
        return cls.waitany(requests, status)[0]

    @classmethod
    def testsome(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Those that are complete, and the objects that were received; None: there are none."""
        if not any(request._active for request in requests):
            return None, None
        places = [place for place, request in enumerate(requests) if request._active and request._try()]
        filled = _filled(statuses, len(places))
        return places, [requests[place]._take(status) for place, status in zip(places, filled, strict=True)]

    @classmethod
    def Testsome(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> list[int] | None:
        """The same without the objects."""
        return cls.testsome(requests, statuses)[0]

    @classmethod
    def waitsome(
        cls, requests: Sequence[Request], statuses: list[Status] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Waits until at least one is complete."""
        while True:
            places, received = cls.testsome(requests, statuses)
            if places != []:
                return places, received
            time.sleep(0)

    @classmethod
    def Waitsome(cls, requests: Sequence[Request], statuses: list[Status] | None = None) -> list[int] | None:
        """The same without the objects."""
        return cls.waitsome(requests, statuses)[0]

    def __bool__(self) -> bool:
        return self._active

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Request):
            return NotImplemented
        return self is other or (self._active, self._started) == (other._active, other._started)

    def __hash__(self) -> int:
        return id(self)

    def toint(self) -> int:
        return -1

    def py2f(self) -> int:
        return -1


class _Object(Request):
    """A receive of an object, whose length only its sender knows."""

    _pattern: tuple[int | None, int | None]
    _room: bytearray

    def _try(self) -> bool:
        try:
            return super()._try()
        except errors.Truncated as long:
            self._restart(long)
            return super()._try()

    def _await(self) -> None:
        try:
            super()._await()
        except errors.Truncated as long:
            self._restart(long)
            super()._await()

    def _restart(self, long: errors.Truncated) -> None:
        """The message was kept: the next receive that matches gets it."""
        assert self._comm is not None
        self._room = bytearray(long.bytes)
        self._started = self._comm._post.start_recv(self._room, long.rank, self._pattern[1])

    def _object_of(self) -> Any:
        if self._known is None or self._known[0] < 0 or self._cancelled:
            return None
        return pickle.loads(memoryview(self._room)[: self._known[2]])


_FIRST_ROOM = 1 << 16


class Prequest(Request):
    """A request that can be started again and again."""

    def __init__(self, request: Request | None = None) -> None:
        super().__init__()
        self._begin: Any = None
        if request is not None:
            self.__dict__.update(request.__dict__)

    def Start(self) -> None:
        """Starts it."""
        self._start(*self._begin())

    @classmethod
    def Startall(cls, requests: Sequence[Prequest]) -> None:
        """Starts all."""
        for request in requests:
            request.Start()

    def Free(self) -> None:
        super().Free()
        self._begin = None

    def __bool__(self) -> bool:
        return self._begin is not None

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Prequest):
            return self._begin is other._begin
        return not self and not other if isinstance(other, Request) else NotImplemented

    def __hash__(self) -> int:
        return id(self)


class _Both(Request):
    """A send and a receive."""

    _sending: Request

    def _try(self) -> bool:
        sent, received = self._sending._try(), super()._try()
        return sent and received

    def _await(self) -> None:
        # The receive is among those that go on meanwhile.
        self._sending._await()
        super()._await()


def _filled(statuses: list[Status] | None, number: int) -> list[Any]:
    """As mpi4py does: a list is extended to the number of requests."""
    if statuses is None:
        return [None] * number
    statuses.extend(Status() for _ in range(number - len(statuses)))
    return statuses[:number]


class Intracomm(Communicator):
    """A communicator with mpi4py's names, and sends and receives."""

    def __init__(self, joined: _core.Joined | Communicator) -> None:
        """What it stands for is what `__new__` has been given."""
        self._mail: _core.Messages | None = self._messages()
        self._name = ""
        self._kept: list[Request] = []
        self._receives: weakref.WeakSet[Request] = weakref.WeakSet()

    def __new__(cls, joined: _core.Joined | Communicator) -> Self:
        if isinstance(joined, Communicator):
            joined = joined._joined
        return super().__new__(cls, joined)

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Get_name(self) -> str:
        return self._name

    def Set_name(self, name: str) -> None:
        self._name = name

    name = property(Get_name, Set_name)

    def Is_intra(self) -> bool:
        return True

    def Is_inter(self) -> bool:
        return False

    is_intra, is_inter = True, False

    def Dup(self, info: object = None) -> Intracomm:
        """A communicator of the same ranks. Collective."""
        return type(self)(self._split(0, self.rank))

    def Split(self, color: int = 0, key: int = 0) -> Comm:
        """A communicator of the ranks with the same color; `COMM_NULL` with UNDEFINED. Collective."""
        part = self._split(self.size if color == UNDEFINED else color, key + (1 << 32))
        none: Comm = COMM_NULL
        return none if color == UNDEFINED else type(self)(part)

    def Free(self) -> None:
        """Leaves it when all ranks have called this. Collective."""
        with contextlib.suppress(errors.Error):
            self.Barrier()
        self._end()

    def _end(self) -> None:
        self._mail = None
        self.leave()

    def Abort(self, errorcode: int = 0) -> None:
        """Ends this process with the code, and the job for all ranks."""
        self.abort(errorcode)

    def Create_keyval(self) -> None:
        raise NotImplementedError("attributes")

    # Messages.

    @property
    def _post(self) -> _core.Messages:
        if self._mail is None:
            raise ValueError("this rank has left the communicator, by Free()")
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
        known = _NOTHING
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

    def _start_recv(self, buf: Any, source: int, tag: int) -> tuple[Intracomm, _core.Started, Place]:
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
        both = _Both()
        both._start(receiving._comm, receiving._started, receiving._place)
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
        known = _NOTHING if source == PROC_NULL else self._post.probe(_any(source), _any(tag))
        if status is not None:
            status._set(known)
        return True

    def Iprobe(self, source: int = ANY_SOURCE, tag: int = ANY_TAG, status: Status | None = None) -> bool:
        """Whether a message has come, which stays."""
        known = _NOTHING if source == PROC_NULL else self._post.try_probe(_any(source), _any(tag))
        if known is not None and status is not None:
            status._set(known)
        return known is not None

    probe, iprobe = Probe, Iprobe

    def Send_init(self, buf: Any, dest: int, tag: int = 0, synchronous: bool = False) -> Prequest:
        """A send for `Start`."""
        request = Prequest()

        def begin() -> Any:
            if dest == PROC_NULL:
                return None, None, None
            return self, self._post.start_send(_bytes(buf), dest, tag, synchronous), None

        request._begin = begin
        return request

    def Recv_init(self, buf: Any, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Prequest:
        """A receive for `Start`."""
        request = Prequest()
        request._begin = lambda: (None, None, None) if source == PROC_NULL else self._start_recv(buf, source, tag)
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
        self._kept = [each for each in [*self._kept, request] if not each.Test()]

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
            data, known = b"", _NOTHING
        else:
            data, known = self._post.recv_bytes(_any(source), _any(tag))
        if status is not None:
            status._set(known)
        return pickle.loads(data)

    def irecv(self, buf: Any = None, source: int = ANY_SOURCE, tag: int = ANY_TAG) -> Request:
        """Starts to receive an object, of any length: `buf` is ignored."""
        request = _Object()
        request._receives = True
        if source == PROC_NULL:
            request._start(None, None, None)
        else:
            request._pattern, request._room = (_any(source), _any(tag)), bytearray(_FIRST_ROOM)
            request._start(self, self._post.start_recv(request._room, _any(source), _any(tag)), None)
        return request

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

    def py2f(self) -> int:
        return -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Communicator) and self._joined is other._joined

    def __hash__(self) -> int:
        return id(self._joined)


Comm = Intracomm


class _Null:
    """No communicator."""

    def __bool__(self) -> bool:
        return False

    def __repr__(self) -> str:
        return "intranode.MPI.COMM_NULL"


def _any(value: int) -> int | None:
    return None if value == ANY_SOURCE else value


def _bytes(spec: Any) -> Any:
    place = spec if isinstance(spec, Place) else Place(spec)
    data, _, _ = place.whole()
    return data, "B", 1


class _Receiving(Place):
    def whole(self) -> tuple[Any, str, int]:
        return super().whole()[0], "B", 1


def _receiving(spec: Any) -> Place:
    return _Receiving(spec)


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


def Finalize() -> None:
    """Leaves. The interpreter's exit does it too."""
    global _finalized
    if not _finalized and os.getpid() == _pid:
        _finalized = True
        COMM_SELF._end()
        COMM_WORLD._end()


def Alloc_mem(size: int) -> memoryview:
    return memoryview(bytearray(size))


def Free_mem(memory: memoryview) -> None:
    memory.release()


def Attach_buffer(buf: Any) -> None:
    """Nothing: what is sent is copied."""


def Detach_buffer() -> None:
    """Nothing: what is sent is copied."""


_pid = os.getpid()
COMM_NULL: Any = _Null()
REQUEST_NULL = Request()
COMM_WORLD = Intracomm(world())
COMM_SELF = Intracomm(COMM_WORLD._split(COMM_WORLD.rank, 0))
atexit.register(Finalize)
