"""How a call goes: what is sent and what is received become what the compiled part takes."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from . import _core, _datatype
from ._message import IN_PLACE, Place, Table
from ._op import Op
from .errors import InvalidArgument, called


class Calls(_core.Core):
    """What all calls have in common."""

    # If what is described is wrong this rank refuses the call, so that the others do not wait for it.

    def _places(self, operation: str, *specs: tuple[Any, int | None]) -> list[Any]:
        try:
            return [place(spec, blocks) for spec, blocks in specs]
        except BaseException:
            self._refuse(operation)
            raise

    @contextmanager
    def _checking(self, operation: str) -> Iterator[None]:
        """Where arguments are looked at that neither `_places` nor the compiled part checks."""
        try:
            yield
        except BaseException:
            self._refuse(operation)
            raise

    def _at(self, root: int, operation: str) -> bool:
        """Whether this rank is the root, which is checked."""
        if type(root) is int and 0 <= root < self.size:
            return self.rank == root
        with self._checking(operation):
            if not 0 <= operator.index(root) < self.size:
                text = f"{operation}: root {root} is not one of {self.size} ranks, which count from 0"
                raise InvalidArgument(text, operation=operation, fatal=False, root=root)
        return self.rank == root

    def _code(self, op: Op, operation: str) -> int | None:
        """The number of an operation of the library; None: it is an own one."""
        if isinstance(op, Op):
            return op.code
        with self._checking(operation):
            raise TypeError(f"{called(operation)}: an operation such as SUM, or of Op.Create, is needed, not {op!r}")


def of_items(place: Place) -> Any:
    """The datatype of a place's items, without gaps."""
    return _datatype.of_item(place.datatype)


def place(spec: Any, blocks: int | None) -> Any:
    """For the compiled part: a plain buffer as it is, None for in place, otherwise a `Place`."""
    if not isinstance(spec, (tuple, list)):
        # As in mpi4py, None stands for it too.
        return None if spec is IN_PLACE else spec
    return Place(spec, blocks)


def are_plain(send: Any, recv: Any) -> bool:
    """Whether both are buffers, or the first is in place: they need no `Place`, and small calls no time for one."""
    described = (tuple, list)
    return not isinstance(send, described) and not isinstance(recv, described) and recv is not IN_PLACE


def vector(spec: Any) -> Any:
    """Of an operation with counts a plain buffer is divided among the ranks."""
    if spec is None or spec is IN_PLACE:
        return spec
    return Table(spec if isinstance(spec, tuple | list) else [spec])


def as_place(place: Any, blocks: int | None) -> Any:
    return place if isinstance(place, Place) else Place(Table([place]), blocks)


def with_counts(spec: Any, counts: Any, displs: Any) -> Any:
    if counts is None and displs is None:
        return spec
    if isinstance(spec, tuple | list):
        raise TypeError("the counts are either arguments or in the description of the buffer")
    return [spec, list(counts), displs]


def arg(place: Any) -> Any:
    return place.whole() if isinstance(place, Place) else place


def finish(place: Any) -> None:
    if isinstance(place, Place):
        place.finish()


def bytes_of(place: Any) -> int:
    """The bytes of what a call sends or receives, without gaps."""
    if place is None:
        return 0
    return sum(place.lengths()) if isinstance(place, Place) else memoryview(place).nbytes


def length(place: Any) -> int:
    if isinstance(place, Place):
        return sum(place.counts) * place.items
    view = memoryview(place)
    return view.nbytes // view.itemsize


def numbers(counts: Sequence[int]) -> list[int]:
    """Counts of elements, checked."""
    found = [operator.index(count) for count in counts]
    for rank, count in enumerate(found):
        if not 0 <= count <= sys.maxsize:
            raise ValueError(f"count {count} of rank {rank}: a number of elements is at least 0 and at most {sys.maxsize}")
    return found


def fold(op: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = op(result, value)
    return result


def folded(op: Op, values: list[bytearray], recv: Any) -> None:
    """Combines bytes by mpi4py's functions, which replace their second argument."""
    if not values:
        return
    assert op.function is not None
    place = recv if isinstance(recv, Place) else Place([recv])
    datatype = place.datatype if place.datatype.is_plain else of_items(place)
    result = values[0]
    for value in values[1:]:
        if op.own:
            op.function(result, value, datatype)
            result = value
        else:
            result = bytearray(op.function(result, value))
    packed, _, _ = place.whole()
    memoryview(packed).cast("B")[:] = result
    place.finish()
