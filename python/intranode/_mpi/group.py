"""Groups: ranks of a communicator, in an order."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Self

from .constants import UNDEFINED

if TYPE_CHECKING:
    from .intracomm import Intracomm


class Group:
    """Ranks of a communicator, of which its `Create` makes a communicator. Calls on groups are of one rank, not collective."""

    def __init__(self, group: Group | None = None) -> None:
        self._joined: object = None if group is None else group._joined
        """Of the communicator; None: it is null."""
        self._own: int = UNDEFINED if group is None else group._own
        self._ranks: list[int] = [] if group is None else list(group._ranks)

    @classmethod
    def _of(cls, comm: Intracomm) -> Self:
        group = cls()
        group._joined, group._own, group._ranks = comm._joined, comm.rank, list(range(comm.size))
        return group

    def _with(self, ranks: Iterable[int]) -> Self:
        """A group of the same communicator."""
        group = type(self)(self)
        group._ranks = list(ranks)
        return group

    def Get_size(self) -> int:
        return len(self._ranks)

    def Get_rank(self) -> int:
        """The number of this rank in the group; UNDEFINED if it is not in it."""
        return self._ranks.index(self._own) if self._own in self._ranks else UNDEFINED

    size, rank = property(Get_size), property(Get_rank)

    def _chosen(self, ranks: Sequence[int]) -> list[int]:
        """Numbers in this group, checked."""
        found = [operator.index(rank) for rank in ranks]
        for rank in found:
            if not 0 <= rank < len(self._ranks):
                raise ValueError(f"rank {rank} is not one of {len(self._ranks)} of the group, which count from 0")
        if len(set(found)) != len(found):
            raise ValueError(f"the ranks {found} are not all different")
        return found

    def Incl(self, ranks: Sequence[int]) -> Self:
        """Those with these numbers, in this order."""
        return self._with(self._ranks[rank] for rank in self._chosen(ranks))

    def Excl(self, ranks: Sequence[int]) -> Self:
        """Those without these numbers."""
        without = set(self._chosen(ranks))
        return self._with(each for rank, each in enumerate(self._ranks) if rank not in without)

    def Range_incl(self, ranks: Sequence[tuple[int, int, int]]) -> Self:
        """Those of ranges: each is a first number, a last one, and their distance."""
        return self.Incl(_in_ranges(ranks))

    def Range_excl(self, ranks: Sequence[tuple[int, int, int]]) -> Self:
        """Those of no such range."""
        return self.Excl(_in_ranges(ranks))

    @classmethod
    def Union(cls, group1: Group, group2: Group) -> Self:
        """Those of the first, then the others of the second."""
        return cls(group1)._with([*group1._ranks, *(each for each in group1._others(group2) if each not in group1._ranks)])

    @classmethod
    def Intersection(cls, group1: Group, group2: Group) -> Self:
        """Those of the first that are in the second."""
        others = group1._others(group2)
        return cls(group1)._with(each for each in group1._ranks if each in others)

    @classmethod
    def Difference(cls, group1: Group, group2: Group) -> Self:
        """Those of the first that are not in the second."""
        others = group1._others(group2)
        return cls(group1)._with(each for each in group1._ranks if each not in others)

    def _others(self, group: Group) -> list[int]:
        if group._joined is not self._joined:
            raise ValueError("the groups are of different communicators: both must be of one")
        return group._ranks

    def Translate_ranks(self, ranks: Sequence[int] | None = None, group: Group | None = None) -> list[int]:
        """The numbers that these ranks of this group have in another of the same communicator, at first its own."""
        others = list(range(len(self._ranks) and max(self._ranks) + 1)) if group is None else self._others(group)
        chosen = range(len(self._ranks)) if ranks is None else self._chosen(ranks)
        return [others.index(each) if each in others else UNDEFINED for each in (self._ranks[rank] for rank in chosen)]

    def Dup(self) -> Self:
        return self._with(self._ranks)

    def Free(self) -> None:
        self._joined, self._own, self._ranks = None, UNDEFINED, []

    def __bool__(self) -> bool:
        return self._joined is not None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Group):
            return NotImplemented
        return (self._joined is other._joined, self._ranks) == (True, other._ranks)

    def __hash__(self) -> int:
        return hash((id(self._joined), tuple(self._ranks)))

    def __repr__(self) -> str:
        return f"<Group of ranks {self._ranks}>" if self else "intranode.MPI.GROUP_NULL"


def _in_ranges(ranges: Sequence[tuple[int, int, int]]) -> list[int]:
    found: list[int] = []
    for first, last, step in ranges:
        if not step:
            raise ValueError(f"the range from {first} to {last} has a distance of 0")
        found += range(first, last + (1 if step > 0 else -1), step)
    return found
