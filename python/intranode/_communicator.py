"""The communicator."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from ._reductions import Reductions
from ._region import Region, described


MOST = 1 << 63
"""What a color, and a key, is less than."""


def _integer(value: Any, name: str) -> int:
    try:
        return operator.index(value)
    except TypeError:
        # NumPy's truth values are no integers, other than Python's.
        if getattr(getattr(value, "dtype", None), "kind", "") == "b":
            return int(value)
        raise TypeError(f"split: a {name} is an integer, not {value!r:.60}") from None


class Communicator(Reductions):
    """A group of ranks: processes of one machine that make the same calls in the same order.

    Methods with a capital letter take buffers: bytes, array.array, memoryview, numpy.ndarray, in C's or Fortran's order. What
    is sent and where is received may overlap. Methods in small letters take objects,
    which they pickle. Every call is collective unless it says otherwise, and raises a subclass of `intranode.Error`:

    * `InvalidArgument`, `TypeError`, `BufferError` for wrong arguments of this rank; the others get `Refused`;
    * `Mismatch` if the ranks call different things;
    * `RankDied`, `RankLeft`, `TimedOut`, `Interrupted`, `Aborted`: the communicator has ended.

    It can be shared between threads, but calls must not overlap.
    """

    # Shared memory.

    def region(self, shape: int | Sequence[int], dtype: Any = "f8") -> Region:
        """An array of zeros of which there is one copy for all ranks. Collective, with the same arguments on all ranks.

            r = comm.region((n, m), "f8")
            if comm.rank == 0:
                r.array[:] = ...        # or r.distribute(), and each rank its rows
            x = r.publish()             # x.array: all of it on every rank, read-only
            r = x.reclaim()

        The memory is allocated before this returns: too little is `AllocationFailed`, on every rank.
        """
        with self._checking("region"):
            whole, kind, size = described(shape, dtype)
        rows = range(whole[0] if self.rank == 0 else 0)
        return Region(self._region(size), whole, kind, rows)

    # Its life.

    def split(self, color: int, key: int = 0) -> Communicator:
        """A communicator of the ranks that pass the same `color`, ordered by `key`, then by rank."""
        return type(self)(self._split(*self._ordered(color, key)))

    def _ordered(self, color: int, key: int, least: int = 0) -> tuple[int, int]:
        """Of a split, checked; the key counts from the least one on."""
        with self._checking("split"):
            color, key = _integer(color, "color"), _integer(key, "key")
            if not (0 <= color < MOST and least <= key < MOST + least):
                raise ValueError(
                    f"color {color} and key {key}: a color is at least 0 and less than {MOST}, a key at least {least} and less than "
                    f"{MOST + least}"
                )
        return color, key - least

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: rank {self.rank} of {self.size}>"

    def __reduce__(self) -> Any:
        raise TypeError("a communicator cannot be pickled: only the process that joined can make calls")
