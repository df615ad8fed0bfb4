"""Datatypes by the formats of buffers, and those that are derived from them."""

from __future__ import annotations

import math
import operator
import struct
import sys
from collections.abc import Iterable, Sequence
from typing import Any

ORDER_C, ORDER_FORTRAN = 56, 57
"""Of an array: the last index changes first, or the first one does."""


class Datatype:
    """The type of a buffer's elements: a format, as of the module `struct`, and where its items lie.

    A derived one has several, with gaps: it is packed into contiguous memory for a call, and unpacked after it.
    """

    name: str
    format: str
    width: int
    """The length of an item, in bytes."""
    lower: int
    """Where an element begins, from its place on, in bytes."""
    extent: int
    """The distance of two elements, in bytes."""
    runs: list[tuple[int, int]]
    """Where items that lie one after the other without gaps begin, and how long they are together, in bytes, in the order of the items."""
    size: int
    """The bytes of an element, without gaps."""
    bounds: tuple[int, int]
    """Where the first of its bytes is, and the end of the last, from its place on."""
    alignment: int
    """What the place of its items is a multiple of in C, in bytes."""

    def __init__(self, datatype: Datatype | None = None) -> None:
        self.name = datatype.name if datatype else "DATATYPE_NULL"
        self.format = datatype.format if datatype else ""
        self.width = datatype.width if datatype else 0
        self.lower = datatype.lower if datatype else 0
        self.extent = datatype.extent if datatype else 0
        self.runs = list(datatype.runs) if datatype else []
        self.size = datatype.size if datatype else 0
        self.bounds = datatype.bounds if datatype else (0, 0)
        self.alignment = datatype.alignment if datatype else 1

    @property
    def is_plain(self) -> bool:
        """Whether elements lie one after the other, without gaps."""
        return self.extent == self.size and self.runs == ([(0, self.size)] if self.size else [])

    @property
    def items(self) -> int:
        """How many items an element has."""
        return self.size // self.width if self.width else 0

    @property
    def is_predefined(self) -> bool:
        return self is _by_name.get(self.name)

    def Get_size(self) -> int:
        """The bytes of an element, without gaps."""
        return self.size

    def Get_extent(self) -> tuple[int, int]:
        """Where an element begins, and the distance of two, in bytes."""
        return self.lower, self.extent

    def Get_true_extent(self) -> tuple[int, int]:
        """Where the first of its bytes is, and how many there are up to the last, in bytes."""
        first, end = self.bounds
        return first, end - first

    lb = property(lambda self: self.lower)
    ub = property(lambda self: self.lower + self.extent)
    true_lb = property(lambda self: self.bounds[0])
    true_ub = property(lambda self: self.bounds[1])
    true_extent = property(lambda self: self.bounds[1] - self.bounds[0])

    def Commit(self) -> Datatype:
        return self

    def Free(self) -> None:
        """Ends a derived datatype."""
        if self.is_predefined:
            raise ValueError(f"{self.name} is predefined")
        self.__dict__.update(Datatype().__dict__)

    def Dup(self) -> Datatype:
        """The same again."""
        return Datatype(self)._derived("dup")

    def _derived(self, name: str) -> Datatype:
        self.name = f"{name} of {self.name}"
        return self

    def _of_one(self, width: int) -> Datatype:
        """One item of this length, or none of length 0."""
        self.runs, self.size, self.bounds = ([(0, width)] if width else []), width, (0, width)
        return self

    def _of_blocks(self, name: str, blocks: Iterable[tuple[int, int]]) -> Datatype:
        """Of pairs: where a block begins, in bytes, and how many of these elements it has."""
        # Of an array of NumPy they are integers of few bytes, which wrap.
        blocks = [(start, operator.index(length)) for start, length in blocks if _counted(length)]
        new = Datatype(self)._derived(name)
        new.size = _bytes(sum(length for _, length in blocks) * self.size)
        if self.is_plain:
            new.runs = _merged((start, length * self.size) for start, length in blocks)
        else:
            places = (start + element * self.extent for start, length in blocks for element in range(length))
            new.runs = _merged((place + offset, length) for place in places for offset, length in self.runs)
        ends = [place for start, length in blocks for place in (start, start + (length - 1) * self.extent)]
        first, last = min(ends, default=0), max(ends, default=0)
        new.lower = first + (self.lower if ends else 0)
        new.extent = _bytes(last + (self.lower + self.extent if ends else 0) - new.lower)
        new.bounds = (first + self.bounds[0], last + self.bounds[1]) if new.size else (0, 0)
        return new

    def Create_contiguous(self, count: int) -> Datatype:
        """`count` elements."""
        return self._of_blocks("contiguous", [(0, count)])

    def Create_vector(self, count: int, blocklength: int, stride: int) -> Datatype:
        """`count` blocks of `blocklength` elements, each `stride` elements after the one before."""
        return self.Create_hvector(count, blocklength, operator.index(stride) * self.extent)

    def Create_hvector(self, count: int, blocklength: int, stride: int) -> Datatype:
        """The same, with `stride` in bytes."""
        count, blocklength, stride = map(operator.index, (count, blocklength, stride))
        _bytes(_counted(count) * _counted(blocklength) * self.size)
        if stride == blocklength * self.extent:
            return self._of_blocks("vector", [(0, count * blocklength)])
        return self._of_blocks("vector", [(i * stride, blocklength) for i in range(count)])

    def Create_indexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Datatype:
        """Blocks of these lengths at these displacements, in elements."""
        return self.Create_hindexed(blocklengths, [operator.index(at) * self.extent for at in displacements])

    def Create_hindexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Datatype:
        """The same, with displacements in bytes."""
        blocks = zip(displacements, blocklengths, strict=True)
        return self._of_blocks("indexed", [(operator.index(at), length) for at, length in blocks])

    def Create_indexed_block(self, blocklength: int, displacements: Sequence[int]) -> Datatype:
        """Blocks of one length at these displacements, in elements."""
        return self.Create_hindexed_block(blocklength, [operator.index(at) * self.extent for at in displacements])

    def Create_hindexed_block(self, blocklength: int, displacements: Sequence[int]) -> Datatype:
        """The same, with displacements in bytes."""
        return self._of_blocks("indexed", [(operator.index(at), blocklength) for at in displacements])

    def Create_subarray(
        self, sizes: Sequence[int], subsizes: Sequence[int], starts: Sequence[int], order: int = ORDER_C
    ) -> Datatype:
        """A part of an array: of each dimension `subsizes` of `sizes` elements, from `starts` on. Its extent is that of the whole array."""
        dimensions = [tuple(map(operator.index, each)) for each in zip(sizes, subsizes, starts, strict=True)]
        if not dimensions:
            raise ValueError("Create_subarray: an array has at least one dimension")
        for size, subsize, start in dimensions:
            if not 0 <= start <= start + subsize <= size or subsize < 1:
                raise ValueError(
                    f"Create_subarray: {subsize} elements from {start} on are no part of a dimension of {size}: at least one, and no more "
                    "than there are"
                )
        if order not in (ORDER_C, ORDER_FORTRAN):
            raise ValueError(f"Create_subarray: the order {order!r} is neither ORDER_C nor ORDER_FORTRAN")
        if order == ORDER_FORTRAN:
            dimensions.reverse()
        _bytes(math.prod(size for size, _, _ in dimensions) * self.extent)
        new = self
        for size, subsize, start in reversed(dimensions):
            extent = new.extent
            new = new._of_blocks("subarray", [(start * extent, subsize)])
            new.lower, new.extent = 0, size * extent
        new.name = f"subarray of {self.name}"
        return new

    @classmethod
    def Create_struct(
        cls, blocklengths: Sequence[int], displacements: Sequence[int], datatypes: Sequence[Datatype]
    ) -> Datatype:
        """Blocks of these lengths at these displacements, in bytes, of these datatypes. As in C, its extent is a multiple of its
        alignment; `Create_resized` says another.

        If its items are of several types they can be moved, and not combined.
        """
        parts = []
        for at, length, datatype in zip(displacements, blocklengths, datatypes, strict=True):
            if not isinstance(datatype, Datatype) or not datatype:
                raise TypeError(f"Create_struct: a datatype is needed, such as MPI.DOUBLE, not {datatype!r}")
            if _counted(length):
                parts.append(datatype._of_blocks("struct", [(operator.index(at), length)]))
        kinds = {(part.format, part.width) for part in parts if part.size}
        new = cls()
        new.name = f"struct of {', '.join(each.name for each in datatypes)}"
        new.format, new.width = kinds.pop() if len(kinds) == 1 else _SEVERAL
        new.size = _bytes(sum(part.size for part in parts))
        new.runs = _merged(run for part in parts for run in part.runs)
        new.lower = min((part.lower for part in parts), default=0)
        new.alignment = max((part.alignment for part in parts), default=1)
        extent = max((part.lower + part.extent for part in parts), default=0) - new.lower
        new.extent = _bytes(-(-extent // new.alignment) * new.alignment)
        if bounds := [part.bounds for part in parts if part.size]:
            new.bounds = min(first for first, _ in bounds), max(end for _, end in bounds)
        return new

    def Create_resized(self, lb: int, extent: int) -> Datatype:
        """The same with another beginning, and another distance of two elements, in bytes."""
        new = Datatype(self)._derived("resized")
        new.lower, new.extent = operator.index(lb), operator.index(extent)
        return new

    def pack(self, memory: memoryview, start: int, count: int) -> bytearray:
        """`count` elements from byte `start` on, without gaps."""
        if self.is_plain:
            return bytearray(memory[start : start + count * self.size])
        packed = bytearray()
        for element in range(count):
            base = start + element * self.extent
            for offset, length in self.runs:
                packed += memory[base + offset : base + offset + length]
        return packed

    def unpack(self, packed: memoryview | bytes | bytearray, memory: memoryview, start: int, count: int) -> None:
        """The other way round."""
        at = 0
        for element in range(count):
            base = start + element * self.extent
            for offset, length in self.runs:
                memory[base + offset : base + offset + length] = packed[at : at + length]
                at += length

    def Pack(self, inbuf: Any, outbuf: Any, position: int, comm: object) -> int:
        """Packs the elements of a buffer into another, from byte `position` on. Returns where they end there."""
        from ._message import Place

        place = Place([inbuf, self._in(inbuf), self])
        packed = memoryview(place.whole()[0])
        position = operator.index(position)
        _part(outbuf, position, len(packed), self)[:] = packed
        return position + len(packed)

    def Unpack(self, inbuf: Any, position: int, outbuf: Any, comm: object) -> int:
        """Unpacks as many elements as a buffer has room for, from byte `position` of another on. Returns where they end there."""
        from ._message import Place

        place = Place([outbuf, self._in(outbuf), self])
        if place.memory.readonly and len(place.memory):
            raise BufferError("Unpack: the buffer is read-only: pass a writable one")
        room = memoryview(place.whole()[0])
        position = operator.index(position)
        room[:] = _part(inbuf, position, len(room), self)
        place.finish()
        return position + len(room)

    def Pack_size(self, count: int, comm: object) -> int:
        """The bytes of `count` elements that are packed."""
        return _bytes(_counted(operator.index(count)) * self.size)

    def _in(self, buffer: Any) -> int:
        """How many elements a buffer has, or has room for."""
        from ._message import Place

        return len(Place([buffer]).memory) // self.extent if self.extent > 0 else 0

    def tocode(self) -> str:
        return self.format

    @property
    def typechar(self) -> str:
        """The format."""
        return self.format

    def __bool__(self) -> bool:
        return bool(self.format)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Datatype):
            return NotImplemented
        mine = (self.name, self.format, self.width, self.lower, self.extent, self.runs)
        return mine == (other.name, other.format, other.width, other.lower, other.extent, other.runs)

    def __hash__(self) -> int:
        return hash((self.name, self.format, self.extent))

    def __repr__(self) -> str:
        return f"<Datatype {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.is_predefined:
            return _named, (self.name,)
        return _rebuilt, (self.__dict__,)


def _counted(number: int) -> int:
    """A number of blocks, or of elements, checked."""
    if number < 0:
        raise ValueError(f"a datatype cannot have {number} blocks or elements: a count is at least 0")
    return number


_SEVERAL = ("V", 1)
"""The format and the length of the items of a datatype of several types: a byte that can be moved, and not combined."""


def _part(buffer: Any, position: int, length: int, datatype: Datatype) -> memoryview:
    """These bytes of a buffer that is packed."""
    from ._message import Place

    memory = Place([buffer]).memory
    if not 0 <= position <= position + length <= len(memory):
        raise ValueError(
            f"{length} bytes of {datatype.name} from byte {position} on are not in a buffer of {len(memory)} bytes: Pack_size says how many "
            "are needed"
        )
    return memory[position : position + length]


def _merged(runs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The same, with those that follow one another without a gap as one."""
    merged: list[tuple[int, int]] = []
    end = None
    for start, length in runs:
        if start == end:
            merged[-1] = (merged[-1][0], merged[-1][1] + length)
        elif length:
            merged.append((start, length))
        if length:
            end = start + length
    return merged


def _bytes(number: int) -> int:
    """A number of bytes, checked."""
    if number > sys.maxsize:
        raise ValueError(f"a datatype cannot have {number} bytes: the most is {sys.maxsize}")
    return number


_by_name: dict[str, Datatype] = {}
_by_format: dict[tuple[str, int], Datatype] = {}


def _named(name: str) -> Datatype:
    return _by_name[name]


def _rebuilt(fields: dict[str, Any]) -> Datatype:
    new = Datatype()
    new.__dict__.update(fields)
    return new


def _predefined(name: str, code: str, width: int | None = None) -> Datatype:
    new = Datatype()
    new.name, new.format = name, code
    new.width = new.extent = struct.calcsize(code) if width is None else width
    # A complex number is two.
    new.alignment = new.width // 2 if code.startswith("Z") else max(new.width, 1)
    new._of_one(new.width if code else 0)
    _by_name[name] = new
    if code:
        _by_format.setdefault((code, new.width), new)
    return new


DATATYPE_NULL = _predefined("DATATYPE_NULL", "", 0)
SIGNED_CHAR = _predefined("SIGNED_CHAR", "b")
SHORT = _predefined("SHORT", "h")
INT = _predefined("INT", "i")
LONG = _predefined("LONG", "l")
LONG_LONG = _predefined("LONG_LONG", "q")
UNSIGNED_CHAR = _predefined("UNSIGNED_CHAR", "B")
UNSIGNED_SHORT = _predefined("UNSIGNED_SHORT", "H")
UNSIGNED = _predefined("UNSIGNED", "I")
UNSIGNED_LONG = _predefined("UNSIGNED_LONG", "L")
UNSIGNED_LONG_LONG = _predefined("UNSIGNED_LONG_LONG", "Q")
FLOAT = _predefined("FLOAT", "f")
DOUBLE = _predefined("DOUBLE", "d")
C_FLOAT_COMPLEX = _predefined("C_FLOAT_COMPLEX", "Zf", 8)
C_DOUBLE_COMPLEX = _predefined("C_DOUBLE_COMPLEX", "Zd", 16)
C_BOOL = _predefined("C_BOOL", "?")
BYTE = _predefined("BYTE", "B")
CHAR = _predefined("CHAR", "c")
INT8_T = _predefined("INT8_T", "b")
INT16_T = _predefined("INT16_T", "h")
INT32_T = _predefined("INT32_T", "i")
INT64_T = _predefined("INT64_T", "q")
UINT8_T = _predefined("UINT8_T", "B")
UINT16_T = _predefined("UINT16_T", "H")
UINT32_T = _predefined("UINT32_T", "I")
UINT64_T = _predefined("UINT64_T", "Q")


def of_code(code: str) -> Datatype:
    """The datatype of a name, or of a format: `"d"`, `"f8"`, `"Zd"`, `"D"`."""
    if code in _by_name:
        return _by_name[code]
    plain = code.lstrip("@=<")
    plain = {"F": "Zf", "D": "Zd", "b1": "?"}.get(plain, plain)
    for (known, _), datatype in _by_format.items():
        if known == plain:
            return datatype
    if len(plain) > 1 and plain[1:].isdigit():
        width = int(plain[1:])
        formats: tuple[str, ...] = {"i": tuple("bhiq"), "u": tuple("BHIQ"), "f": ("f", "d"), "c": ("Zf", "Zd")}.get(plain[0], ())
        for known in formats:
            if (known, width) in _by_format:
                return _by_format[known, width]
    raise ValueError(f"no datatype has the name or the format {code!r}")


def of_buffer(view: memoryview) -> Datatype:
    """The datatype of a buffer's elements; of a format that none has, one that can be moved and not combined."""
    try:
        found = of_code(view.format)
    except ValueError:
        found = DATATYPE_NULL
    if found.width == view.itemsize:
        return found
    return _unnamed(view.format, view.itemsize)


def of_item(datatype: Datatype) -> Datatype:
    """The datatype of the items of another."""
    known = _by_format.get((datatype.format, datatype.width))
    return known if known is not None else _unnamed(datatype.format, datatype.width)


def _unnamed(code: str, width: int) -> Datatype:
    new = Datatype()
    new.name, new.format, new.width, new.extent = code, code, width, width
    return new._of_one(width)
