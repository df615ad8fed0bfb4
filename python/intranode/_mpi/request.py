"""A send or a receive that was started."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from .. import _core, errors
from .._message import Place
from .constants import EMPTY, NOTHING
from .several import Several
from .status import Status

_OF_ONE = (errors.Truncated, errors.RankLeft)
"""The errors of one request: the others go on."""

if TYPE_CHECKING:
    from .messages import Messages


class Request(Several):
    """A send or a receive that was started. It goes on in calls of its communicator that are passed it."""

    is_collective = False

    def __init__(self, request: Request | None = None) -> None:
        self._started: _core.Started | None = None
        self._comm: Messages | None = None
        self._place: Any = None
        self._known: tuple[int, int, int] | None = None
        self._object: Any = None
        self._receives = False
        self._cancelled = False
        self._active = False
        self._is_kept = False
        self._handles: weakref.WeakSet[Request] | None = None
        """Where there are several; any of them may be the last."""
        if request is not None:
            # Another handle of the same request: what becomes of one becomes of both.
            if type(self) is Request:
                self.__class__ = type(request)
            self.__dict__ = request.__dict__
            if self._handles is None:
                self._handles = weakref.WeakSet([request])
            self._handles.add(self)
            if self._comm is not None and request in self._comm._receives:
                self._comm._receives.add(self)

    @classmethod
    def _of(cls, comm: Messages | None, started: _core.Started | None, place: Any = None) -> Request:
        """Without `started` it is complete: with PROC_NULL."""
        request = cls()
        request._start(comm, started, place)
        return request

    def _start(self, comm: Messages | None, started: _core.Started | None, place: Any) -> None:
        self._comm, self._started, self._place, self._active, self._cancelled = comm, started, place, True, False
        self._known = NOTHING if started is None else None
        if comm is not None and (place is not None or self._receives):
            comm._receives.update(self._all_handles())

    def _all_handles(self) -> Iterable[Request]:
        return [self] if self._handles is None else self._handles

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
            others = [each for each in list(self._comm._receives) if each is not self and each._is_to_come()]
            if not others:
                return
            with contextlib.suppress(*_OF_ONE):
                # Of another one, or of this: the next look says.
                self._started.messages.wait_any([started for each in [self, *others] for started in each._open()])

    def _wait_some(self, together: Sequence[Request]) -> None:
        """Waits until one of these, messages of its communicator, is complete, or another receive of that."""
        assert self._comm is not None
        awaited = [started for each in together for started in each._open()]
        known = set(map(id, awaited))
        others = [each for each in list(self._comm._receives) if id(each._started) not in known and each._is_to_come()]
        with contextlib.suppress(*_OF_ONE):
            awaited[0].messages.wait_any([*awaited, *(started for each in others for started in each._open())])

    def _is_to_come(self) -> bool:
        """Whether it goes on while another one is waited for. Its error is raised where it is waited for itself."""
        with contextlib.suppress(*_OF_ONE):
            return self._active and not self._try()
        return False

    def _arrived(self, known: tuple[int, int, int]) -> None:
        self._known = known
        if isinstance(self._place, Place):
            self._place.finish()

    def _take(self, status: Status | None) -> Any:
        """The end of one that is complete, or inactive: the object that it has received."""
        self._tell(status)
        result = self._object_of() if self._receives else None
        self._release()
        return result

    def _object_of(self) -> Any:
        return None

    def _tell(self, status: Status | None) -> None:
        if status is not None:
            status._set(self._known or EMPTY, self._cancelled)

    def _release(self) -> None:
        if self._comm is not None:
            self._comm._receives.difference_update(self._all_handles())
        self._started = self._comm = self._known = self._place = None
        self._active = self._cancelled = False

    def _open(self) -> list[_core.Started]:
        return [] if self._known is not None or self._started is None else [self._started]

    # One.

    def Wait(self, status: Status | None = None) -> bool:
        """Waits until it is complete."""
        self.wait(status)
        return True

    def wait(self, status: Status | None = None) -> Any:
        """The same; returns the object that was received."""
        if self._active:
            self._await()
        return self._take(status)

    def Test(self, status: Status | None = None) -> bool:
        """Whether it is complete."""
        return self.test(status)[0]

    def test(self, status: Status | None = None) -> tuple[bool, Any]:
        """The same, and the object that was received."""
        return (True, self._take(status)) if not self._active or self._try() else (False, None)

    def Get_status(self, status: Status | None = None) -> bool:
        """Whether it is complete; it stays as it is."""
        done = not self._active or self._try()
        if done:
            self._tell(status)
        return done

    get_status = Get_status

    def Cancel(self) -> None:
        """Takes it back, if it is not too late."""
        if self._known is None and self._started is not None:
            self._cancelled = self._started.cancel()
            self._arrived(NOTHING if self._cancelled else self._started.wait())
            if self._cancelled and self._comm is not None and self not in self._comm._receives:
                # The receiver of a send that was taken back notices when it looks: this rank, if it was to itself.
                self._comm._post.try_probe(self._comm.rank, None)

    cancel = Cancel

    def Free(self) -> None:
        """Forgets it. What it sends is sent all the same; a receive is taken back."""
        self._leave()
        self._release()

    def __del__(self) -> None:
        self._leave()

    def _leave(self) -> None:
        """Leaves a send that is not complete to its communicator."""
        sends = self._comm is not None and self._place is None and not self._receives
        if self._active and sends and self._known is None and self._started is not None and not self._is_kept:
            assert self._comm is not None
            kept = Request._of(self._comm, self._started)
            # It ends with its communicator.
            kept._is_kept = True
            self._comm._owe(kept)

    def __bool__(self) -> bool:
        return self._active

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Request):
            return NotImplemented
        return self is other or (self._active, self._started) == (other._active, other._started)

    def __hash__(self) -> int:
        return id(self)

    def __reduce__(self) -> Any:
        if self:
            raise ValueError("a request cannot be pickled: only the process that started it can wait for it")
        return Request, ()

    def toint(self) -> int:
        return -1

    def py2f(self) -> int:
        return -1
