"""Where a call that was started receives."""

from __future__ import annotations

from typing import Any

from .. import _core
from .._message import Place


class Target:
    """A buffer that is kept until the call has written it: it can be neither resized nor freed meanwhile."""

    def __init__(self, place: Any) -> None:
        """`place`: a buffer, a `Place`, or None: nothing is received."""
        self._place = place
        self._view: memoryview | None = None
        if place is None:
            return
        if isinstance(place, Place):
            self._view = place.memory
        else:
            self._view = memoryview(_core.Flat(place))
        if self._view.readonly and len(self._view):
            raise BufferError("the receive buffer is read-only: pass a writable one")

    def put(self, data: Any) -> None:
        """Writes its beginning."""
        if self._view is None:
            return
        data = memoryview(data)
        if not isinstance(self._place, Place):
            self._view[: len(data)] = data
            return
        whole = memoryview(self._place.whole()[0])
        whole[: len(data)] = data
        self._place.finish()
