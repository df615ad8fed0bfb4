"""Objects, which are pickled."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from ._calls import fold
from ._movements import Movements
from ._op import SUM


class Objects(Movements):
    """The calls on objects."""

    def _pickled(self, operation: str, obj: Any) -> bytes:
        try:
            return pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)
        except BaseException:
            self._refuse(operation)
            raise

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self.Barrier()

    def allgather(self, sendobj: Any) -> list[Any]:
        """The objects of all ranks, by rank."""
        return [pickle.loads(data) for data in self._allgather_bytes(self._pickled("allgather_vec", sendobj))]

    def gather(self, sendobj: Any, root: int = 0) -> list[Any] | None:
        """The objects of all ranks, by rank, on rank `root`; None elsewhere."""
        self._at(root, "gather_vec")
        gathered = self._gather_bytes(self._pickled("gather_vec", sendobj), root)
        return None if gathered is None else [pickle.loads(data) for data in gathered]

    def scatter(self, sendobj: Sequence[Any] | None = None, root: int = 0) -> Any:
        """`sendobj[r]` of rank `root`, on rank r. Elsewhere `sendobj` is ignored."""
        is_root = self._at(root, "alltoall")
        return pickle.loads(self._exchange_bytes(sendobj if is_root else [b""] * self.size, is_root)[root])

    def alltoall(self, sendobj: Sequence[Any]) -> list[Any]:
        """`sendobj[r]` goes to rank r; returns what came from each rank, by rank."""
        return [pickle.loads(data) for data in self._exchange_bytes(sendobj, True)]

    def _exchange_bytes(self, objs: Sequence[Any] | None, pickles: bool) -> list[bytes]:
        """Sends each rank its bytes: first all lengths, then all data."""
        import array

        with self._checking("alltoall"):
            given = [] if objs is None else list(objs)
            if len(given) != self.size:
                raise ValueError(f"{len(given)} objects for {self.size} ranks: one for each is needed")
            data = [pickle.dumps(obj, pickle.HIGHEST_PROTOCOL) for obj in given] if pickles else given
        sent = array.array("Q", map(len, data))
        received = array.array("Q", bytes(8 * self.size))
        self._alltoall(sent, received)
        buffer = bytearray(sum(received))
        tables = []
        for lengths in (sent, received):
            displs = [0] * self.size
            for rank in range(1, self.size):
                displs[rank] = displs[rank - 1] + lengths[rank - 1]
            tables.append((list(lengths), displs))
        self._alltoallv(b"".join(data), tables[0], buffer, tables[1])
        counts, displs = tables[1]
        return [bytes(buffer[at : at + count]) for at, count in zip(displs, counts, strict=True)]

    def allreduce(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        """Combines the objects of all ranks, in rank order: `op` is an `Op` or any function of two."""
        return fold(op, self.allgather(sendobj))

    def reduce(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM, root: int = 0) -> Any:
        """The same on rank `root`; None elsewhere."""
        gathered = self.gather(sendobj, root)
        return None if gathered is None else fold(op, gathered)

    def scan(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        """Combines the objects of ranks 0 to this one."""
        return fold(op, self.allgather(sendobj)[: self.rank + 1])

    def exscan(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        """Combines the objects of the ranks before this one; None on rank 0."""
        before = self.allgather(sendobj)[: self.rank]
        return fold(op, before) if before else None
