"""The communicator."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from .. import _core, errors
from .._communicator import MOST, Communicator
from .constants import COMM_NULL, COMM_TYPE_SHARED, UNDEFINED
from .collectives import Collectives
from .group import Group

if TYPE_CHECKING:
    from .cartesian import Cartcomm


class Intracomm(Collectives):
    """A communicator with mpi4py's names."""

    def __init__(self, joined: _core.Joined | Communicator) -> None:
        """What it stands for is what `__new__` has been given."""
        super().__init__(joined)
        self._name = ""

    def __new__(cls, joined: _core.Joined | Communicator) -> Self:
        if isinstance(joined, Communicator):
            joined = joined._joined
        return super().__new__(cls, joined)

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Get_name(self) -> str:
        return self._name

    def Set_name(self, name: str) -> None:
        self._name = name

    name = property(Get_name, Set_name)

    def Is_intra(self) -> bool:
        return True

    def Is_inter(self) -> bool:
        return False

    is_intra, is_inter = True, False

    def Dup(self, info: object = None) -> Intracomm:
        """A communicator of the same ranks. Collective."""
        return type(self)(self._split(0, self.rank))

    def Clone(self) -> Intracomm:
        """The same as `Dup`."""
        return self.Dup()

    def Split(self, color: int = 0, key: int = 0) -> Comm:
        """A communicator of the ranks with the same color; `COMM_NULL` with UNDEFINED. Collective."""
        # Ranks without a color have one that nobody else can have.
        none: Comm = COMM_NULL
        is_none = color == UNDEFINED
        color, key = self._ordered(0 if is_none else color, key, -1 << 32)
        part = self._split(MOST if is_none else color, key)
        return none if is_none else self._part(part)

    def _part(self, joined: _core.Joined) -> Intracomm:
        """A communicator of the same kind for the ranks of a part."""
        return type(self)(joined)

    def Split_type(self, split_type: int, key: int = 0, info: object = None) -> Comm:
        """A communicator of the ranks that share memory, which are all, with COMM_TYPE_SHARED. Collective."""
        with self._checking("split"):
            if split_type not in (COMM_TYPE_SHARED, UNDEFINED):
                raise ValueError(f"Split_type: {split_type!r} is neither COMM_TYPE_SHARED nor UNDEFINED")
        return self.Split(UNDEFINED if split_type == UNDEFINED else 0, key)

    def Get_group(self) -> Group:
        """The group of its ranks. Not collective."""
        return Group._of(self)

    group = property(Get_group)

    def Create(self, group: Group) -> Comm:
        """A communicator of the ranks of a group of this one, in its order; `COMM_NULL` on the others. Collective over this one: all ranks
        of a group pass the same, and a rank may pass one that it is not in.
        """
        with self._checking("split"):
            if not isinstance(group, Group) or group._joined is not self._joined:
                raise ValueError(f"Create needs a group of this communicator, as of Get_group().Incl(ranks), not {group!r}")
        own = group.Get_rank()
        part = self.Split(UNDEFINED, 0) if own == UNDEFINED else self.Split(group._ranks[0], own)
        if own != UNDEFINED and any(each != group._ranks for each in part.allgather(group._ranks)):
            raise ValueError(f"the ranks of {group!r} have passed different groups to Create")
        return part

    def Create_cart(
        self, dims: Sequence[int], periods: bool | Sequence[bool] | None = None, reorder: bool = False
    ) -> Cartcomm:
        """A communicator of the first ranks, in a grid; `COMM_NULL` on the others. They keep their order. Collective."""
        from .cartesian import Cartcomm

        return Cartcomm._of(self, dims, periods)

    def Free(self) -> None:
        """Leaves it when all ranks have called this. Collective."""
        with contextlib.suppress(errors.Error):
            self.Barrier()
        self._end()

    def _end(self) -> None:
        self._mail = None
        self.leave()

    def Abort(self, errorcode: int = 0) -> None:
        """Ends this process with the code, and the job for all ranks."""
        self.abort(errorcode)

    def Create_keyval(self) -> None:
        raise NotImplementedError("attributes")

    def py2f(self) -> int:
        return -1

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Communicator) and self._joined is other._joined

    def __hash__(self) -> int:
        return id(self._joined)


Comm = Intracomm
