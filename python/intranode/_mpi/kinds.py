"""Requests of objects, persistent ones, and those of a send and a receive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .. import _core, errors
from .constants import pickle
from .request import Request


class ObjectRequest(Request):
    """A receive of an object, whose length only its sender knows."""

    def _object_of(self) -> Any:
        if self._known is None or self._known[0] < 0 or self._cancelled or self._started is None:
            return None
        return pickle.loads(self._started.received())


class MatchedRequest(Request):
    """A receive of a message that a probe has found."""

    def _arrived(self, known: tuple[int, int, int]) -> None:
        super()._arrived(known)
        if not self._cancelled and self._started is not None:
            self._place.put(self._started.received())


class Prequest(Request):
    """A request that can be started again and again."""

    def __init__(self, request: Request | None = None) -> None:
        super().__init__(request)
        self._begin: Any = self.__dict__.get("_begin")

    def Start(self) -> None:
        """Starts it: one that is inactive."""
        if self._begin is None:
            raise errors.InvalidArgument("Start: the request is null, or was freed", operation="Start", fatal=False)
        if self._active:
            raise errors.InvalidArgument("Start: the request is active: wait for it before", operation="Start", fatal=False)
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


class Both(Request):
    """A send and a receive."""

    _sending: Request

    def _open(self) -> list[_core.Started]:
        return [*super()._open(), *self._sending._open()]

    def _try(self) -> bool:
        sent, received = self._sending._try(), super()._try()
        return sent and received

    def _await(self) -> None:
        # The receive is among those that go on meanwhile.
        self._sending._await()
        super()._await()
