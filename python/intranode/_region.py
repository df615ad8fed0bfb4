"""Shared arrays: one copy of data for all ranks."""

from __future__ import annotations

import math
import operator
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from . import _core

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]


class _Epoch:
    """What both epochs of a region have."""

    def __init__(self, memory: _core.Memory, shape: tuple[int, ...], dtype: Any, rows: range) -> None:
        self._memory = memory
        self.shape = shape
        """Of the whole array."""
        self.dtype = dtype
        """A numpy.dtype; without NumPy a string such as `"f8"`."""
        self._rows = rows

    def _view(self, shape: tuple[int, ...]) -> Any:
        view = memoryview(self._memory)
        if numpy is not None:
            # By way of the memoryview: it counts as in use until the array and all that was sliced from it are gone.
            return numpy.asarray(view).view(self.dtype).reshape(shape)
        if math.prod(shape) == 0:
            return view
        return view.cast(_format(self.dtype), list(shape))


class Region(_Epoch):
    """A shared array in a write epoch: each rank can write the rows that it owns, at first rank 0 all and the others none."""

    @property
    def rows(self) -> range:
        """The rows that this rank owns."""
        return self._rows

    @property
    def array(self) -> Any:
        """The rows of this rank, to be written: an ndarray, or without NumPy a memoryview. Elsewhere than on an owner it has none."""
        return self._view((len(self._rows), *self.shape[1:]))

    def distribute(self) -> None:
        """Makes each rank the owner of its block of rows. Collective.

        Raises as `publish` does.
        """
        row = math.prod(self.shape[1:]) * itemsize(self.dtype)
        if row == 0:
            return
        start, end = self._memory.distribute(row)
        self._rows = range(start // row, end // row)

    def publish(self) -> Shared:
        """Ends the write epoch: every rank can read the whole array, which nobody can write. Collective, nothing is copied.

        This object is used up. On every rank the pages become read-only before any rank reads them.

        Raises BufferError if arrays of this region still exist on this rank, and `Refused` on the others: all have the region still,
        and can try again when they are deleted.
        """
        return Shared(self._memory.publish(), self.shape, self.dtype, self._rows)

    def __repr__(self) -> str:
        return f"<intranode.Region {self.shape} {self.dtype}: rows {self._rows.start} to {self._rows.stop} to write>"


class Shared(_Epoch):
    """A shared array in a read epoch."""

    @property
    def array(self) -> Any:
        """All of it, read-only: an ndarray, or without NumPy a memoryview. There is one copy for all ranks."""
        return self._view(self.shape)

    def reclaim(self) -> Region:
        """Ends the read epoch: afterwards each rank can write what it owned before. Collective.

        This object is used up. Raises as `publish` does: as long as a rank has an array that others would change, nobody may.
        """
        return Region(self._memory.reclaim(), self.shape, self.dtype, self._rows)

    def __repr__(self) -> str:
        return f"<intranode.Shared {self.shape} {self.dtype}>"


def _format(dtype: str) -> str:
    """The format of the module `struct` for a type as NumPy writes it."""
    kind = dtype.lstrip("<=|")
    if len(kind) == 1 and kind in "bBhHiIlLqQnNfd?":
        return kind
    if kind[1:].isdigit():
        for code in {"i": "bhiq", "u": "BHIQ", "f": "fd", "b": "?"}.get(kind[0], ""):
            if struct.calcsize(code) == int(kind[1:]):
                return code
    raise TypeError(f"without NumPy the type is an integer, a floating-point number or a truth value, such as 'f8', not {dtype!r}")


def itemsize(dtype: Any) -> int:
    """The bytes of an element."""
    return int(numpy.dtype(dtype).itemsize) if numpy is not None else struct.calcsize(_format(dtype))


def described(shape: int | Sequence[int], dtype: Any) -> tuple[tuple[int, ...], Any, int]:
    """The shape, the type, and the bytes of an array."""
    single = isinstance(shape, int) or not isinstance(shape, Iterable) or getattr(shape, "ndim", 1) == 0
    whole = (operator.index(shape),) if single else tuple(map(operator.index, shape))  # type: ignore[arg-type]
    if not whole or any(length < 0 for length in whole):
        raise ValueError(f"the shape is one length or more, each at least 0, not {shape!r}")
    kind = numpy.dtype(dtype) if numpy is not None else str(dtype)
    if numpy is not None and kind.hasobject:
        raise TypeError("an array of Python objects cannot be shared: its elements are addresses of this process")
    if numpy is not None and (kind.itemsize == 0 or kind.subdtype is not None):
        raise ValueError(f"elements of {kind} have no length, or are arrays themselves: pass their length, or a longer shape")
    size = math.prod(whole) * itemsize(kind)
    if size > sys.maxsize:
        raise ValueError(f"an array of {size} bytes is more than this machine can address")
    return whole, kind, size
