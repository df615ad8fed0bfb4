"""mpi4py's ways to describe a buffer: `[data, count, datatype]` and the like, for the compiled part.

That takes a buffer, or a triple of a buffer, a format and the bytes of an item. What has gaps is packed before the call, and
unpacked after it.
"""

from __future__ import annotations

import copy
import operator
from itertools import accumulate
from typing import Any

from . import _core, _datatype
from ._datatype import Datatype


class _InPlace:
    """Instead of a buffer: the data are in the other one already."""

    def __repr__(self) -> str:
        return "intranode.IN_PLACE"

    def __reduce__(self) -> str:
        return "IN_PLACE"


IN_PLACE = _InPlace()

_NOTHING = memoryview(bytearray())


class Table(list[Any]):
    """A description with a count and a displacement for each rank. Any other has one count, and the displacement of its first block."""


class Place:
    """A buffer with its datatype, and the part of it that a call means."""

    __slots__ = ("_packed", "counts", "datatype", "displs", "memory")

    def __init__(self, spec: Any, blocks: int | None = None) -> None:
        """`blocks`: of an operation with a block for each rank, their number."""
        is_table = isinstance(spec, Table) and blocks is not None
        data, count, displs, datatype = split(spec, is_table)
        if data is None:
            view, self.memory = None, _NOTHING
            datatype = datatype if datatype is not None else _datatype.BYTE
        else:
            view = _viewed(spec, data)
            self.memory = _flat(view)
        if datatype is None:
            assert view is not None
            datatype = _datatype.of_buffer(view)
        elif isinstance(datatype, str):
            datatype = _datatype.of_code(datatype)
        if not isinstance(datatype, Datatype) or not datatype:
            raise TypeError(f"a datatype is needed, such as MPI.DOUBLE or its format 'd', not {datatype!r}")
        # Its owner may free it before a call that was started is complete.
        self.datatype = datatype if datatype.is_predefined else copy.copy(datatype)
        self._packed: bytearray | None = None
        whole, rest = divmod(len(self.memory), datatype.extent) if datatype.extent > 0 else (0, len(self.memory))
        number = 1 if blocks is None else blocks
        if count is None and rest:
            raise ValueError(
                f"a buffer of {len(self.memory)} bytes is no whole number of elements of {datatype.name}, of {datatype.extent} "
                "bytes each: pass how many of them are meant, as in [data, count, datatype]"
            )
        self.counts, self.displs = (_of_each if is_table else _of_one_length)(count, displs, whole, number)
        for at, length in zip(self.displs, self.counts, strict=True):
            if at < 0 or length < 0 or (length and not self._fits(at, length)):
                raise ValueError(
                    f"{length} elements of {datatype.name} from element {at} on do not fit into a buffer of "
                    f"{len(self.memory)} bytes"
                )

    def _fits(self, at: int, length: int) -> bool:
        places = (at * self.datatype.extent, (at + length - 1) * self.datatype.extent)
        first, end = self.datatype.bounds
        return min(places) + first >= 0 and max(places) + end <= len(self.memory)

    @property
    def items(self) -> int:
        """The items of an element: 1 if it is not derived."""
        return self.datatype.items

    def lengths(self) -> list[int]:
        """The bytes of each block, without gaps."""
        return [count * self.datatype.size for count in self.counts]

    def whole(self) -> tuple[Any, str, int]:
        """For the compiled part: all blocks, one after the other."""
        datatype = self.datatype
        if datatype.is_plain and self._is_dense():
            start = self.displs[0] * datatype.extent if self.displs else 0
            end = start + sum(self.counts) * datatype.extent
            return self.memory[start:end], datatype.format, datatype.width
        packed = bytearray()
        for at, length in zip(self.displs, self.counts, strict=True):
            packed += datatype.pack(self.memory, at * datatype.extent, length)
        if self.memory.readonly:
            # A call that receives refuses it, on all ranks.
            return bytes(packed), datatype.format, datatype.width
        self._packed = packed
        return packed, datatype.format, datatype.width

    def _is_dense(self) -> bool:
        return all(
            self.displs[rank] == self.displs[rank - 1] + self.counts[rank - 1] for rank in range(1, len(self.displs))
        )

    def finish(self) -> None:
        """After a call that has received: unpacks."""
        if self._packed is None:
            return
        packed, start = memoryview(self._packed), 0
        for at, length in zip(self.displs, self.counts, strict=True):
            end = start + length * self.datatype.size
            self.datatype.unpack(packed[start:end], self.memory, at * self.datatype.extent, length)
            start = end

    def blocks(self) -> tuple[tuple[Any, str, int], tuple[list[int], list[int]]]:
        """For a call with counts: a buffer, and its counts and displacements, in items."""
        if not self.datatype.is_plain:
            return self.whole(), self.table()
        counts, displs = ([each * self.items for each in table] for table in (self.counts, self.displs))
        return (self.memory, self.datatype.format, self.datatype.width), (counts, displs)

    def table(self) -> tuple[list[int], list[int]]:
        """The counts and displacements of what `whole` returns, in items."""
        counts = [count * self.items for count in self.counts]
        displs = [0] * len(counts)
        for rank in range(1, len(counts)):
            displs[rank] = displs[rank - 1] + counts[rank - 1]
        return counts, displs


def _of_one_length(count: Any, displ: Any, whole: int, number: int) -> tuple[list[int], list[int]]:
    """The counts and displacements of blocks that follow one another, in a buffer of this many elements."""
    first = 0 if displ is None else _number(displ)
    length, rest = divmod(whole - first, number) if count is None else (_number(count), 0)
    if rest:
        raise ValueError(f"{whole - first} elements do not divide into {number} blocks of one length: pass that of one, as in [data, count]")
    return [length] * number, [first + length * rank for rank in range(number)]


def _of_each(count: Any, displs: Any, whole: int, number: int) -> tuple[list[int], list[int]]:
    """The same of blocks of different lengths. A single displacement is the distance of two."""
    if count is None:
        counts = [whole // number + (rank < whole % number) for rank in range(number)]
    else:
        counts = [_number(each) for each in count] if _is_table(count) else [_number(count)] * number
    if displs is None:
        displs = list(accumulate(counts, initial=0))[:-1]
    elif not _is_table(displs):
        displs = [_number(displs) * rank for rank in range(number)]
    if not len(counts) == len(displs) == number:
        raise ValueError(f"{len(counts)} counts and {len(displs)} displacements for {number} ranks: one for each is needed")
    return counts, [_number(each) for each in displs]


def _number(value: Any) -> int:
    """A count or a displacement of a description."""
    try:
        return operator.index(value)
    except TypeError:
        text = "is no count, displacement or datatype: a datatype is one such as MPI.DOUBLE, or its format 'd'"
        raise TypeError(f"in [data, count, displ, datatype] {value!r:.60} {text}") from None


def split(spec: Any, is_table: bool) -> tuple[Any, Any, Any, Any]:
    """The data, the count or the counts, the displacements, and the datatype."""
    if not isinstance(spec, tuple | list):
        return spec, None, None, None
    if not 1 <= len(spec) <= 4:
        raise ValueError(f"a message is [data, count, displ, datatype] or a beginning of it, not {len(spec)} items{_ADVICE}")
    data, *rest = spec
    datatype = None
    if rest and (isinstance(rest[-1], Datatype | str)):
        datatype = rest.pop()
    elif len(rest) > 1 and rest[-1] is None:
        rest.pop()
    elif len(rest) == 3:
        raise TypeError(f"a datatype is needed, such as MPI.DOUBLE or its format 'd', not {rest[-1]!r}")
    count = rest[0] if rest else None
    displs = rest[1] if len(rest) > 1 else None
    if len(rest) == 1 and isinstance(count, tuple | list) and len(count) == 2:
        # (counts, displs), or two counts.
        if not is_table or isinstance(count, tuple) or any(part is None or _is_table(part) for part in count):
            count, displs = count
    return data, count, displs, datatype


def _is_table(value: Any) -> bool:
    """Whether it has an entry for each rank, and is not a single number, which an array without dimensions is too."""
    return hasattr(value, "__len__") and getattr(value, "ndim", 1) != 0


_ADVICE = "; to send several values, put them into an array, or use the methods in small letters, which take any object"


def _viewed(spec: Any, data: Any) -> memoryview:
    """The data of a description."""
    try:
        return memoryview(data)
    except (TypeError, ValueError):
        if isinstance(spec, tuple | list) and not hasattr(data, "__array__"):
            text = f"a list or a tuple describes a buffer, as [data, count, datatype], and {data!r:.60} is none{_ADVICE}"
            raise TypeError(text) from None
        _core.Flat(data)  # which says what is wrong
        raise


def _flat(view: memoryview) -> memoryview:
    """Its bytes, in the order in which they lie."""
    if view.format == "B" and view.ndim == 1 and view.c_contiguous:
        return view
    return memoryview(_core.Flat(view))
