"""What becomes of several requests."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .constants import EMPTY, UNDEFINED
from .status import Status

if TYPE_CHECKING:
    from .request import Request


class Several:
    """The methods of `Request` that take several."""

    @classmethod
    def _wait_all(cls, requests: Sequence[Request]) -> None:
        """Those of one communicator go on together."""
        waiting = [request for request in requests if request._active and not request._try()]
        while waiting:
            if all(request.is_collective and request._comm is waiting[0]._comm for request in waiting):
                for request in waiting:
                    request._await()
                return
            _wait_some(waiting)
            waiting = [request for request in waiting if not request._try()]

    @classmethod
    def Waitall(cls, requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> bool:
        """Waits until all are complete."""
        cls.waitall(requests, statuses)
        return True

    @classmethod
    def waitall(cls, requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> list[Any]:
        """The same; returns the objects that were received."""
        cls._wait_all(requests)
        return [request._take(status) for request, status in zip(requests, _filled(statuses, len(requests)), strict=True)]

    @classmethod
    def Testall(cls, requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> bool:
        """Whether all are complete."""
        return cls.testall(requests, statuses)[0]

    @classmethod
    def testall(cls, requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> tuple[bool, list[Any] | None]:
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
        if none and status is not None:
            status._set(EMPTY)
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
            _wait_some([request for request in requests if request._active])

    @classmethod
    def Waitany(cls, requests: Sequence[Request], status: Status | None = None) -> int:
        """The same without the object."""
        return cls.waitany(requests, status)[0]

    @classmethod
    def testsome(
        cls, requests: Sequence[Request], statuses: Sequence[Status] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Those that are complete, and the objects that were received; None: there are none."""
        if not any(request._active for request in requests):
            return None, None
        places = [place for place, request in enumerate(requests) if request._active and request._try()]
        filled = _filled(statuses, len(places))
        return places, [requests[place]._take(status) for place, status in zip(places, filled, strict=True)]

    @classmethod
    def Testsome(cls, requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> list[int] | None:
        """The same without the objects."""
        return cls.testsome(requests, statuses)[0]

    @classmethod
    def waitsome(
        cls, requests: Sequence[Request], statuses: Sequence[Status] | None = None
    ) -> tuple[list[int] | None, list[Any] | None]:
        """Waits until at least one is complete."""
        while True:
            places, received = cls.testsome(requests, statuses)
            if places != []:
                return places, received
            _wait_some([request for request in requests if request._active])

    @classmethod
    def Waitsome(cls, requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> list[int] | None:
        """The same without the objects."""
        return cls.waitsome(requests, statuses)[0]


    @classmethod
    def Get_status_all(cls, requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> bool:
        """Whether all are complete; they stay as they are."""
        if not all([request.Get_status() for request in requests]):
            return False
        for request, status in zip(requests, _filled(statuses, len(requests)), strict=True):
            request.Get_status(status)
        return True

    @classmethod
    def Get_status_any(cls, requests: Sequence[Request], status: Status | None = None) -> tuple[int, bool]:
        """Which one is complete, and whether one is; it stays as it is. UNDEFINED and True: there are none."""
        active = [(place, request) for place, request in enumerate(requests) if request._active]
        for place, request in active:
            if request.Get_status(status):
                return place, True
        if not active and status is not None:
            status._set(EMPTY)
        return UNDEFINED, not active

    @classmethod
    def Get_status_some(cls, requests: Sequence[Request], statuses: Sequence[Status] | None = None) -> list[int] | None:
        """Those that are complete; they stay as they are. None: there are none."""
        if not any(request._active for request in requests):
            return None
        places = [place for place, request in enumerate(requests) if request._active and request.Get_status()]
        for place, status in zip(places, _filled(statuses, len(places)), strict=True):
            requests[place].Get_status(status)
        return places

    get_status_all, get_status_any, get_status_some = Get_status_all, Get_status_any, Get_status_some


def _wait_some(waiting: Sequence[Request]) -> None:
    """Waits until one of these may be complete: none was."""
    first = waiting[0]
    if any(each._comm is not first._comm or each.is_collective != first.is_collective for each in waiting):
        # Of several communicators, or messages and collectives: one after the other, as long as none is complete.
        time.sleep(0)
    else:
        first._wait_some(waiting)


def _filled(statuses: Sequence[Status] | None, number: int) -> list[Status | None]:
    """As mpi4py does: a list is extended to the number of requests."""
    if isinstance(statuses, list):
        statuses.extend(Status() for _ in range(number - len(statuses)))
    given = list(statuses or [])[:number]
    return [*given, *[None] * (number - len(given))]
