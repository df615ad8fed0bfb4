"""Operations of reductions."""

from __future__ import annotations

import math
import operator
import struct
import sys
from collections.abc import Callable
from typing import Any


def _logical(function: Callable[[bool, bool], bool]) -> Callable[[Any, Any], bool]:
    return lambda a, b: function(bool(a), bool(b))


def _located(is_better: Callable[[Any, Any], bool]) -> Callable[[Any, Any], Any]:
    def choose(a: Any, b: Any) -> Any:
        (first, i), (second, j) = a, b
        if is_better(second, first) or (second == first and j < i):
            return (second, j)
        return (first, i)

    return choose


_MOST_OWN = 32
_own: list[Op] = []


class Op:
    """An operation that combines values. Of buffers: `SUM` and the others by their number. Of objects: a function of two.

    An own one is a function `f(a, b)` of two objects, or mpi4py's `f(a, b, datatype)`: see `Op.Create`.
    """

    name: str
    code: int | None
    function: Callable[..., Any] | None
    commutes: bool
    own: bool

    def __init__(self, op: Op | None = None) -> None:
        self.name = "OP_NULL" if op is None else op.name
        self.code = None if op is None else op.code
        self.function = None if op is None else op.function
        self.commutes = True if op is None else op.commutes
        self.own = False if op is None else op.own

    @classmethod
    def Create(cls, function: Callable[..., Any], commute: bool = False) -> Op:
        """An own operation: `function(a, b, datatype)`. Of objects, `datatype` is None and the result is what it returns; of
        buffers `a` and `b` are their bytes, and the result replaces `b`. Ranks combine in their order, whatever `commute` says.
        """
        if len(_own) >= _MOST_OWN:
            raise RuntimeError(f"there are {_MOST_OWN} own operations already: free some by Op.Free()")
        op = cls()
        op.name, op.function, op.commutes, op.own = "own", function, bool(commute), True
        _own.append(op)
        return op

    def Free(self) -> None:
        """Ends an own operation."""
        if self is _predefined.get(self.name):
            raise ValueError(f"{self.name} is predefined")
        for at, op in enumerate(_own):
            if op is self:
                del _own[at]
                break
        self.name, self.function, self.own, self.code = "OP_NULL", None, False, None

    def __call__(self, a: Any, b: Any) -> Any:
        if self.function is None:
            raise ValueError("OP_NULL does not combine anything")
        return self.function(a, b, None) if self.own else self.function(a, b)

    def Is_commutative(self) -> bool:
        """Whether the order of the values does not matter."""
        return self.commutes

    @property
    def is_commutative(self) -> bool:
        """Whether the order of the values does not matter."""
        return self.commutes

    @property
    def is_predefined(self) -> bool:
        """Whether it is none of `Op.Create`."""
        return not self.own

    def toint(self) -> int:
        """-1: there are no handles."""
        return -1

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:
        """Combines two buffers of this rank, element by element, into `inoutbuf`."""
        from ._message import Place

        source, target = Place(inbuf), Place(inoutbuf)
        kind = target.datatype
        if source.datatype != kind or source.counts != target.counts:
            raise ValueError("both buffers must have the same type and the same number of elements")
        if self.function is None:
            raise ValueError("OP_NULL does not combine anything")
        (given, _, _), (place, _, _) = source.whole(), target.whole()
        old, new = memoryview(given), memoryview(place)
        if self.own:
            result = bytearray(new)
            self.function(bytearray(old), result, kind)
        else:
            result = _combined(self.function, kind.format, kind.width, old, new)
        new[:] = result
        target.finish()

    def __bool__(self) -> bool:
        return self.function is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Op):
            return NotImplemented
        return (self.name, self.function) == (other.name, other.function) and self._number() == other._number()

    def __hash__(self) -> int:
        return hash((self.name, self.function))

    def _number(self) -> int:
        """Of an own one, which has no equal."""
        return id(self) if self.own else 0

    def __repr__(self) -> str:
        return f"intranode.{self.name}" if self.name in _predefined else f"<Op {self.name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self.own:
            return Op.Create, (self.function, self.commutes)
        known = _predefined[self.name]
        return (_named, (self.name,)) if known is self else (type(self), (known,))


def _combined(
    function: Callable[..., Any], code: str, width: int, first: memoryview, second: memoryview
) -> bytearray:
    """The elements of two buffers, combined. Integers wrap."""
    real = code.removeprefix("Z")
    result = bytearray()
    for at in range(0, len(first), width):
        a, b = (
            complex(*struct.unpack_from(f"2{real}", each, at)) if real != code else struct.unpack_from(code, each, at)[0]
            for each in (first, second)
        )
        value = function(a, b)
        if real != code:
            result += _packed(real, value.real) + _packed(real, value.imag)
        elif isinstance(value, int) and not isinstance(value, bool):
            result += (value % (1 << 8 * width)).to_bytes(width, sys.byteorder)
        else:
            result += _packed(code, value)
    return result


def _packed(code: str, value: Any) -> bytes:
    try:
        return struct.pack(code, value)
    except OverflowError:  # of a number of 4 bytes, which is infinite then
        return struct.pack(code, math.copysign(math.inf, value))


_predefined: dict[str, Op] = {}


def _named(name: str) -> Op:
    return _predefined[name]


def _new(name: str, code: int | None, function: Callable[[Any, Any], Any] | None) -> Op:
    op = Op()
    op.name, op.code, op.function = name, code, function
    _predefined[name] = op
    return op


OP_NULL = _new("OP_NULL", None, None)
SUM = _new("SUM", 1, operator.add)
PROD = _new("PROD", 2, operator.mul)
MIN = _new("MIN", 3, lambda a, b: b if b < a else a)
MAX = _new("MAX", 4, lambda a, b: b if b > a else a)
BAND = _new("BAND", 5, operator.and_)
BOR = _new("BOR", 6, operator.or_)
BXOR = _new("BXOR", 7, operator.xor)
LAND = _new("LAND", 8, _logical(operator.and_))
LOR = _new("LOR", 9, _logical(operator.or_))
LXOR = _new("LXOR", 10, _logical(operator.xor))
MINLOC = _new("MINLOC", 11, _located(operator.lt))
MAXLOC = _new("MAXLOC", 12, _located(operator.gt))
REPLACE = _new("REPLACE", None, lambda a, b: b)
NO_OP = _new("NO_OP", None, lambda a, b: a)
