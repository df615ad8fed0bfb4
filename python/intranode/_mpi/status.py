"""What is known of a message."""

from __future__ import annotations

from .._datatype import BYTE, Datatype
from .constants import ANY_SOURCE, ANY_TAG, SUCCESS, UNDEFINED


def _whole(length: int, part: int) -> int:
    if part == 0:
        return 0 if length == 0 else UNDEFINED
    return length // part if length % part == 0 else UNDEFINED


class Status:
    """Who sent a message, with which tag, and how long it is."""

    def __init__(self) -> None:
        self.source, self.tag, self.error = ANY_SOURCE, ANY_TAG, SUCCESS
        self._bytes, self._cancelled = 0, False

    def _set(self, known: tuple[int, int, int], cancelled: bool = False) -> None:
        self.source, self.tag, self._bytes = known
        self._cancelled = cancelled

    def Get_source(self) -> int:
        return self.source

    def Get_tag(self) -> int:
        return self.tag

    def Get_error(self) -> int:
        return self.error

    def Get_count(self, datatype: Datatype = BYTE) -> int:
        """Its length, in elements; `UNDEFINED` if it is no whole number of them."""
        return _whole(self._bytes, datatype.size)

    def Get_elements(self, datatype: Datatype) -> int:
        """The same in the items that elements consist of."""
        return _whole(self._bytes, datatype.width)

    @property
    def count(self) -> int:
        """Its length, in bytes."""
        return self._bytes

    def Is_cancelled(self) -> bool:
        return self._cancelled
