"""Datatypes by the formats of buffers, and those that are derived from them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any


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
    offsets: list[int]
    """Where the items of an element begin, in bytes."""

    def __init__(self, datatype: Datatype | None = None) -> None:
        self.name = datatype.name if datatype else "DATATYPE_NULL"
        self.format = datatype.format if datatype else ""
        self.width = datatype.width if datatype else 0
        self.lower = datatype.lower if datatype else 0
        self.extent = datatype.extent if datatype else 0
        self.offsets = list(datatype.offsets) if datatype else []

    @property
    def size(self) -> int:
        """The bytes of an element, without gaps."""
        return self.width * len(self.offsets)

    @property
    def is_plain(self) -> bool:
        """Whether elements lie one after the other, without gaps."""
        return self.extent == self.size and self.offsets == list(range(0, self.size, self.width or 1))

    @property
    def is_predefined(self) -> bool:
        return self is _by_name.get(self.name)

    def Get_size(self) -> int:
        """The bytes of an element, without gaps."""
        return self.size

    def Get_extent(self) -> tuple[int, int]:
        """Where an element begins, and the distance of two, in bytes."""
        return self.lower, self.extent

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

    def _of_blocks(self, name: str, blocks: Iterable[tuple[int, int]]) -> Datatype:
        """Of pairs: where a block begins, in bytes, and how many of these elements it has."""
        blocks = list(blocks)
        for _, length in blocks:
            _counted(length)
        new = Datatype(self)._derived(name)
        places = [start + element * self.extent for start, length in blocks for element in range(length)]
        new.offsets = [at + offset for at in places for offset in self.offsets]
        new.lower = min(places, default=0) + (self.lower if places else 0)
        new.extent = max(places, default=0) + (self.lower + self.extent if places else 0) - new.lower
        return new

    def Create_contiguous(self, count: int) -> Datatype:
        """`count` elements."""
        return self._of_blocks("contiguous", [(0, count)])

    def Create_vector(self, count: int, blocklength: int, stride: int) -> Datatype:
        """`count` blocks of `blocklength` elements, each `stride` elements after the one before."""
        return self._of_blocks("vector", [(i * stride * self.extent, blocklength) for i in range(_counted(count))])

    def Create_indexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Datatype:
        """Blocks of these lengths at these displacements, in elements."""
        blocks = zip(displacements, blocklengths, strict=True)
        return self._of_blocks("indexed", [(at * self.extent, length) for at, length in blocks])

    def Create_indexed_block(self, blocklength: int, displacements: Sequence[int]) -> Datatype:
        """Blocks of one length at these displacements, in elements."""
        return self._of_blocks("indexed", [(at * self.extent, blocklength) for at in displacements])

    def Create_resized(self, lb: int, extent: int) -> Datatype:
        """The same with another beginning, and another distance of two elements, in bytes."""
        new = Datatype(self)._derived("resized")
        new.lower, new.extent = lb, extent
        return new

    def pack(self, memory: memoryview, start: int, count: int) -> bytearray:
        """`count` elements from byte `start` on, without gaps."""
        packed = bytearray()
        for element in range(count):
            base = start + element * self.extent
            for offset in self.offsets:
                packed += memory[base + offset : base + offset + self.width]
        return packed

    def unpack(self, packed: memoryview | bytes | bytearray, memory: memoryview, start: int, count: int) -> None:
        """The other way round."""
        at = 0
        for element in range(count):
            base = start + element * self.extent
            for offset in self.offsets:
                memory[base + offset : base + offset + self.width] = packed[at : at + self.width]
                at += self.width

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
        mine = (self.name, self.format, self.width, self.lower, self.extent, self.offsets)
        return mine == (other.name, other.format, other.width, other.lower, other.extent, other.offsets)

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
    new.offsets = [0] if code else []
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
    new = Datatype()
    new.name, new.format, new.width, new.extent, new.offsets = view.format, view.format, view.itemsize, view.itemsize, [0]
    return new
