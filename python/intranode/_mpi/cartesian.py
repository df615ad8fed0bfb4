"""Communicators whose ranks lie in a grid."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import Any

from .. import _core
from .._communicator import Communicator
from .constants import COMM_NULL, PROC_NULL
from .intracomm import Intracomm


class Cartcomm(Intracomm):
    """A communicator whose ranks lie in a grid, in row-major order: the last coordinate changes first."""

    def __init__(self, joined: _core.Joined | Communicator) -> None:
        super().__init__(joined)
        self.dims: list[int] = []
        """The ranks in each dimension."""
        self.periods: list[int] = []
        """Whether the last rank of a dimension is a neighbour of the first."""
        if isinstance(joined, Cartcomm):
            self.dims, self.periods = joined.dims, joined.periods

    @classmethod
    def _of(cls, comm: Intracomm, dims: Sequence[int], periods: bool | Sequence[bool] | None) -> Cartcomm:
        """Of the first ranks of another; `COMM_NULL` on the rest. Collective."""
        with comm._checking("split"):
            lengths = [operator.index(length) for length in dims]
            wrap = _of_each_dimension(False if periods is None else periods, len(lengths), "periods")
            number = math.prod(lengths)
            if any(length < 1 for length in lengths) or number > comm.size:
                raise ValueError(
                    f"a grid of {_product(lengths)} ranks of {comm.size}: each dimension has at least one rank, and all together no more than "
                    "there are; Compute_dims divides them"
                )
        none: Cartcomm = COMM_NULL
        part = comm._split(*comm._ordered(comm.rank >= number, comm.rank))
        return cls._new(part, lengths, wrap) if comm.rank < number else none

    @classmethod
    def _new(cls, joined: _core.Joined, dims: list[int], periods: list[int]) -> Cartcomm:
        grid = cls(joined)
        grid.dims, grid.periods = dims, periods
        return grid

    def _part(self, joined: _core.Joined) -> Intracomm:
        return Intracomm(joined)

    def Dup(self, info: object = None) -> Cartcomm:
        """A communicator of the same ranks, in the same grid. Collective."""
        return self._new(self._split(0, self.rank), self.dims, self.periods)

    def Get_dim(self) -> int:
        """The number of dimensions."""
        return len(self.dims)

    dim = ndim = property(Get_dim)

    def Get_topo(self) -> tuple[list[int], list[int], list[int]]:
        """The ranks in each dimension, whether it is periodic, and the coordinates of this rank."""
        return list(self.dims), list(self.periods), self.coords

    topo = property(Get_topo)

    @property
    def coords(self) -> list[int]:
        """The coordinates of this rank."""
        return self.Get_coords(self.rank)

    def Get_coords(self, rank: int) -> list[int]:
        """The coordinates of a rank."""
        if not 0 <= (left := operator.index(rank)) < self.size:
            raise ValueError(f"rank {rank} is not one of {self.size} ranks, which count from 0")
        coords = []
        for length in reversed(self.dims):
            left, coord = divmod(left, length)
            coords.append(coord)
        return coords[::-1]

    def Get_cart_rank(self, coords: Sequence[int]) -> int:
        """The rank with these coordinates. In a periodic dimension they count on from the beginning."""
        given = [operator.index(coord) for coord in coords]
        if len(given) != len(self.dims):
            raise ValueError(f"{len(given)} coordinates for {len(self.dims)} dimensions: one for each is needed")
        rank = 0
        for coord, length, wraps in zip(given, self.dims, self.periods, strict=True):
            if not (wraps or 0 <= coord < length):
                raise ValueError(f"coordinates {given} are not in a grid of {_product(self.dims)} ranks")
            rank = rank * length + coord % length
        return rank

    def Shift(self, direction: int, disp: int) -> tuple[int, int]:
        """Who is `disp` before this rank in a dimension, and who behind it: the source and the destination of a shift. PROC_NULL: nobody."""
        direction, disp = operator.index(direction), operator.index(disp)
        if not 0 <= direction < len(self.dims):
            raise ValueError(f"dimension {direction} is not one of {len(self.dims)}, which count from 0")
        return self._neighbour(direction, -disp), self._neighbour(direction, disp)

    def _neighbour(self, direction: int, disp: int) -> int:
        coords = self.coords
        coords[direction] += disp
        is_inside = self.periods[direction] or 0 <= coords[direction] < self.dims[direction]
        return self.Get_cart_rank(coords) if is_inside else PROC_NULL

    def Sub(self, remain_dims: bool | Sequence[bool]) -> Cartcomm:
        """A grid of the dimensions that are true, of the ranks with the same other coordinates. Collective."""
        with self._checking("split"):
            remain = _of_each_dimension(remain_dims, len(self.dims), "remain_dims")
        color = 0
        for coord, length, remains in zip(self.coords, self.dims, remain, strict=True):
            color = color if remains else color * length + coord
        part = self._split(*self._ordered(color, self.rank))
        dims, periods = ([each for each, remains in zip(all_, remain, strict=True) if remains] for all_ in (self.dims, self.periods))
        return self._new(part, dims, periods)


def Compute_dims(nnodes: int, dims: int | Sequence[int]) -> list[int]:
    """Divides ranks among the dimensions of a grid, as evenly as possible: among a number of them, or those that are 0."""
    given: Any = dims
    found = list(map(operator.index, given)) if _is_list(given) else [0] * operator.index(given)
    taken = math.prod(filter(None, found))
    if nnodes < 1 or any(each < 0 for each in found) or nnodes % taken or (0 not in found and taken != nnodes):
        raise ValueError(f"{nnodes} ranks cannot be divided among dimensions {found}, of which those that are 0 are to be found")
    free = iter(_even(nnodes // taken, found.count(0)))
    return [each or next(free) for each in found]


def _even(number: int, parts: int) -> list[int]:
    """Factors, the largest first: no others have a smaller largest one."""
    if parts < 2:
        return [number] * parts
    for first in range(1, number + 1):
        if number % first == 0 and first**parts >= number:
            rest = _even(number // first, parts - 1)
            if rest[0] <= first:
                break
    return [first, *rest]


def _of_each_dimension(values: bool | Sequence[bool], number: int, name: str) -> list[int]:
    """Truth values, one for each dimension; one alone holds for all."""
    given: Any = values
    found = [int(bool(each)) for each in given] if _is_list(given) else [int(bool(given))] * number
    if len(found) != number:
        raise ValueError(f"{len(found)} {name} for {number} dimensions: one for each is needed")
    return found


def _is_list(value: object) -> bool:
    """Whether there is one for each dimension: an array, too."""
    return hasattr(value, "__len__")


def _product(dims: Sequence[int]) -> str:
    return " × ".join(map(str, dims)) or "1"
