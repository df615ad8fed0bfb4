"""The communicator."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

from . import _core, _datatype
from ._message import IN_PLACE, Place
from ._op import SUM, Op
from ._region import Region, described
from .errors import InvalidArgument


class Communicator(_core.Core):
    """A group of ranks: processes of one machine that make the same calls in the same order.

    Methods with a capital letter take buffers: bytes, array.array, memoryview, numpy.ndarray, in C's or Fortran's order. What
    is sent is copied before the call and what is received after it, so both may overlap. Methods in small letters take objects,
    which they pickle. Every call is collective unless it says otherwise, and raises a subclass of `intranode.Error`:

    * `InvalidArgument`, `TypeError`, `BufferError` for wrong arguments of this rank; the others get `Refused`;
    * `Mismatch` if the ranks call different things;
    * `RankDied`, `RankLeft`, `TimedOut`, `Interrupted`, `Aborted`: the communicator has ended.

    It can be shared between threads, but calls must not overlap.
    """

    # How a call goes: what is sent and what is received become what the compiled part takes. If that fails this rank refuses the
    # call, so that the others do not wait for it.

    def _places(self, operation: str, *specs: tuple[Any, int | None]) -> list[Any]:
        try:
            return [_place(spec, blocks) for spec, blocks in specs]
        except BaseException:
            self._refuse(operation)
            raise

    def _at(self, root: int, operation: str) -> bool:
        """Whether this rank is the root, which is checked."""
        if not 0 <= root < self.size:
            self._refuse(operation)
            text = f"{operation}: root {root} is not one of {self.size} ranks, which count from 0"
            raise InvalidArgument(text, operation=operation, fatal=False, root=root)
        return self.rank == root

    def Allreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combines `sendbuf[i]` of all ranks into `recvbuf[i]` of every rank, in rank order.

        Both have the same length and type on all ranks. `sendbuf=IN_PLACE`: the contribution is in `recvbuf`.
        """
        send, recv = self._places("allreduce", (sendbuf, None), (recvbuf, None))
        if op.code is None:
            return self._own(op, "allreduce", send, recv, lambda all: _folded(op, all, recv))
        self._allreduce(_arg(send), _arg(recv), op.code)
        _finish(recv)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> None:
        """The same into `recvbuf` of rank `root` only; elsewhere it is ignored, and may be None."""
        is_root = self._at(root, "reduce")
        send, recv = self._places("reduce", (sendbuf, None), (recvbuf if is_root else None, None))
        if op.code is None:
            return self._own(op, "reduce", send, recv, lambda all: _folded(op, all, recv) if is_root else None)
        self._reduce(_arg(send), _arg(recv), op.code, root)
        _finish(recv)

    def Scan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combines those of ranks 0 to this one."""
        send, recv = self._places("scan", (sendbuf, None), (recvbuf, None))
        if op.code is None:
            return self._own(op, "scan", send, recv, lambda all: _folded(op, all[: self.rank + 1], recv))
        self._scan(_arg(send), _arg(recv), op.code)
        _finish(recv)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combines those of the ranks before this one. On rank 0 `recvbuf` does not change."""
        send, recv = self._places("exscan", (sendbuf, None), (recvbuf, None))
        if op.code is None:
            return self._own(op, "exscan", send, recv, lambda all: _folded(op, all[: self.rank], recv))
        self._exscan(_arg(send), _arg(recv), op.code)
        _finish(recv)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combines, and gives each rank its block: `sendbuf` has `size` times the length of `recvbuf`.

        `sendbuf=IN_PLACE`: `recvbuf` has all blocks, and the result at its beginning.
        """
        send, recv = self._places("reduce_scatter_block", (sendbuf, None), (recvbuf, None))
        if op.code is None:
            raise NotImplementedError("Reduce_scatter_block with an own operation: use Allreduce")
        self._reduce_scatter_block(_arg(send), _arg(recv), op.code)
        _finish(recv)

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Op = SUM
    ) -> None:
        """Combines, and gives rank r the `recvcounts[r]` elements of its block. The counts are the same on all ranks.

        Without them the ranks tell each other the lengths of `recvbuf`.
        """
        send, recv = self._places("reduce_scatter", (sendbuf, None), (recvbuf, None))
        if op.code is None:
            raise NotImplementedError("Reduce_scatter with an own operation: use Allreduce")
        if recvcounts is None:
            recvcounts = self.allgather(_length(recv))
        self._reduce_scatter(_arg(send), _arg(recv), list(recvcounts), op.code)
        _finish(recv)

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """`buf` of rank `root` to all others, of the same length and type on all ranks. The root's may be read-only."""
        is_root = self._at(root, "broadcast")
        (place,) = self._places("broadcast", (buf, None))
        self._bcast(_arg(place), root)
        if not is_root:
            _finish(place)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """`sendbuf` of every rank, in rank order, into `recvbuf` of every rank, which has `size` times its length.

        `sendbuf=IN_PLACE`: each rank's block is at its place in `recvbuf`.
        """
        send, recv = self._places("allgather", (sendbuf, None), (recvbuf, self.size))
        self._allgather(_arg(send), _arg(recv))
        _finish(recv)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any, counts: Any = None, displs: Any = None) -> None:
        """The same with blocks of different lengths: `counts[r]` elements of rank r at `recvbuf[displs[r]]`.

        The counts are the same on all ranks. They can be in `recvbuf=[data, counts, displs, datatype]` too. Without displacements
        the blocks follow each other.
        """
        recvbuf = _with_counts(recvbuf, counts, displs)
        send, recv = self._places("allgatherv", (sendbuf, None), (_vector(recvbuf), self.size))
        if isinstance(recv, Place) and recv.datatype.is_plain:
            buffer, table = (recv.memory, recv.datatype.format, recv.datatype.width), (recv.counts, recv.displs)
        else:
            buffer, table = _arg(recv), recv.table()
        self._allgatherv(_arg(send), buffer, *table)
        _finish(recv)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """`sendbuf` of every rank, in rank order, into `recvbuf` of rank `root`; elsewhere that is ignored, and may be None.

        On the root `sendbuf=IN_PLACE`: its block is at its place in `recvbuf`.
        """
        is_root = self._at(root, "gather")
        send, recv = self._places("gather", (sendbuf, None), (recvbuf if is_root else None, self.size))
        self._gather(_arg(send), _arg(recv), root)
        _finish(recv)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """The blocks of the root's `sendbuf`, one for each rank, into `recvbuf`. Elsewhere `sendbuf` is ignored.

        On the root `recvbuf=IN_PLACE`: its block stays where it is.
        """
        is_root = self._at(root, "scatter")
        send, recv = self._places("scatter", (sendbuf if is_root else None, self.size), (recvbuf, None))
        self._scatter(_arg(send), _arg(recv), root)
        _finish(recv)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Block r of `sendbuf` goes to rank r; block r of `recvbuf` comes from it. `sendbuf=IN_PLACE`: they are exchanged."""
        send, recv = self._places("alltoall", (sendbuf, self.size), (recvbuf, self.size))
        self._alltoall(_arg(send), _arg(recv))
        _finish(recv)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        """The same with blocks of different lengths: each is `[data, counts, displs, datatype]`, with an entry a rank.

        `sendbuf=IN_PLACE`: the counts of `recvbuf` hold for what is sent too.
        """
        send, recv = self._places("alltoallv", (_vector(sendbuf), self.size), (_vector(recvbuf), self.size))
        if send is None:
            now = Place([recv.memory, recv.counts, recv.displs, recv.datatype], self.size)
            send = Place([bytearray(now.whole()[0]), now.table()[0], None, _of_items(now)], self.size)
        self._exchange(send, recv)

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """A Gather with blocks of different lengths: the root's `recvbuf` is `[data, counts, displs, datatype]`."""
        is_root = self._at(root, "alltoallv")
        send, recv = self._places(
            "alltoallv", (sendbuf, None), (_vector(recvbuf) if is_root else None, self.size if is_root else None)
        )
        self._rooted(send, recv, root, gathers=True)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """A Scatter with blocks of different lengths: the root's `sendbuf` is `[data, counts, displs, datatype]`."""
        is_root = self._at(root, "alltoallv")
        send, recv = self._places(
            "alltoallv", (_vector(sendbuf) if is_root else None, self.size if is_root else None), (recvbuf, None)
        )
        self._rooted(send, recv, root, gathers=False)

    def _rooted(self, send: Any, recv: Any, root: int, gathers: bool) -> None:
        """By an alltoallv: only the root has the table of counts, each other rank its own count."""
        try:
            many, one = (recv, send) if gathers else (send, recv)
            if one is None and self.rank != root:
                raise TypeError("only the root can pass IN_PLACE")
            if self.rank == root and many is None:
                raise TypeError("this rank is the root and needs the buffer with the blocks of all ranks")
            many_table = one_table = ([0] * self.size, [0] * self.size)
            if many is not None:
                many = _as_place(many, self.size)
                counts = list(many.counts)
                if one is None:
                    counts[root] = 0
                many_table = ([count * many.items for count in counts], many.displs)
            if one is not None:
                one = _as_place(one, None)
                counts = [0] * self.size
                counts[root] = sum(one.counts) * one.items
                one_table = (counts, [0] * self.size)
            many_arg = None
            if many is not None:
                if many.datatype.is_plain:
                    many_arg = (many.memory, many.datatype.format, many.datatype.width)
                else:
                    many_arg = many.whole()
                    many_table = (many_table[0], many.table()[1])
            one_arg = None if one is None else one.whole()
        except BaseException:
            self._refuse("alltoallv")
            raise
        if gathers:
            self._alltoallv(one_arg, one_table, many_arg, many_table)
        else:
            self._alltoallv(many_arg, many_table, one_arg, one_table)
        _finish(many if gathers else one)

    def _exchange(self, send: Any, recv: Any) -> None:
        send, recv = _as_place(send, self.size), _as_place(recv, self.size)
        sides = []
        for place in (send, recv):
            if place.datatype.is_plain:
                buffer = (place.memory, place.datatype.format, place.datatype.width)
                sides.append((buffer, (place.counts, place.displs)))
            else:
                sides.append((place.whole(), place.table()))
        (send_arg, sent), (recv_arg, received) = sides
        self._alltoallv(send_arg, sent, recv_arg, received)
        _finish(recv)

    def _own(self, op: Op, operation: str, send: Any, recv: Any, fold: Callable[[list[bytearray]], None]) -> None:
        """A reduction of buffers by an operation in Python: every rank gets all contributions."""
        try:
            if op.function is None:
                raise ValueError("OP_NULL does not combine anything")
            source = recv if send is None else send
            data = bytes(source.whole()[0]) if isinstance(source, Place) else bytes(memoryview(source).cast("B"))
        except BaseException:
            self._refuse("allgather_vec")
            raise
        fold([bytearray(each) for each in self._allgather_bytes(data)])

    # Objects.

    def _pickled(self, operation: str, obj: Any) -> bytes:
        try:
            return pickle.dumps(obj, pickle.HIGHEST_PROTOCOL)
        except BaseException:
            self._refuse(operation)
            raise

    def barrier(self) -> None:
        """Returns when all ranks have called it."""
        self.Barrier()

    def bcast(self, obj: Any = None, root: int = 0) -> Any:
        """`obj` of rank `root`, on every rank; there it is the object itself."""
        is_root = self._at(root, "broadcast_vec")
        data = self._broadcast_bytes(self._pickled("broadcast_vec", obj) if is_root else None, root)
        return obj if is_root else pickle.loads(data)

    def allgather(self, obj: Any) -> list[Any]:
        """The objects of all ranks, by rank."""
        return [pickle.loads(data) for data in self._allgather_bytes(self._pickled("allgather_vec", obj))]

    def gather(self, obj: Any, root: int = 0) -> list[Any] | None:
        """The objects of all ranks, by rank, on rank `root`; None elsewhere."""
        self._at(root, "gather_vec")
        gathered = self._gather_bytes(self._pickled("gather_vec", obj), root)
        return None if gathered is None else [pickle.loads(data) for data in gathered]

    def scatter(self, objs: Sequence[Any] | None = None, root: int = 0) -> Any:
        """`objs[r]` of rank `root`, on rank r. Elsewhere `objs` is ignored."""
        is_root = self._at(root, "alltoall")
        return pickle.loads(self._exchange_bytes(objs if is_root else [b""] * self.size, is_root)[root])

    def alltoall(self, objs: Sequence[Any]) -> list[Any]:
        """`objs[r]` goes to rank r; returns what came from each rank, by rank."""
        return [pickle.loads(data) for data in self._exchange_bytes(objs, True)]

    def _exchange_bytes(self, objs: Sequence[Any] | None, pickles: bool) -> list[bytes]:
        """Sends each rank its bytes: first all lengths, then all data."""
        import array

        try:
            given = [] if objs is None else list(objs)
            if len(given) != self.size:
                raise ValueError(f"{len(given)} objects for {self.size} ranks: one for each is needed")
            data = [pickle.dumps(obj, pickle.HIGHEST_PROTOCOL) for obj in given] if pickles else given
        except BaseException:
            self._refuse("alltoall")
            raise
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
        return _fold(op, self.allgather(sendobj))

    def reduce(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM, root: int = 0) -> Any:
        """The same on rank `root`; None elsewhere."""
        gathered = self.gather(sendobj, root)
        return None if gathered is None else _fold(op, gathered)

    def scan(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        """Combines the objects of ranks 0 to this one."""
        return _fold(op, self.allgather(sendobj)[: self.rank + 1])

    def exscan(self, sendobj: Any, op: Callable[[Any, Any], Any] = SUM) -> Any:
        """Combines the objects of the ranks before this one; None on rank 0."""
        before = self.allgather(sendobj)[: self.rank]
        return _fold(op, before) if before else None

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
        try:
            whole, kind, size = described(shape, dtype)
        except BaseException:
            self._refuse("region")
            raise
        rows = range(whole[0] if self.rank == 0 else 0)
        return Region(self._region(size), whole, kind, rows)

    # Its life.

    def split(self, color: int, key: int = 0) -> Communicator:
        """A communicator of the ranks that pass the same `color`, ordered by `key`, then by rank."""
        return type(self)(self._split(color, key))

    def __enter__(self) -> Communicator:
        return self

    def __exit__(self, *_: object) -> None:
        self.leave()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: rank {self.rank} of {self.size}>"

    def __reduce__(self) -> Any:
        raise TypeError("a communicator cannot be pickled: only the process that joined can make calls")


def _of_items(place: Place) -> Any:
    """The datatype of a place's items, without gaps."""
    return _datatype.of_code(place.datatype.format)


def _place(spec: Any, blocks: int | None) -> Any:
    """For the compiled part: a plain buffer as it is, None for in place, otherwise a `Place`."""
    if type(spec) is not tuple and type(spec) is not list:
        # As in mpi4py, None stands for it too.
        return None if spec is IN_PLACE else spec
    return Place(spec, blocks)


def _vector(spec: Any) -> Any:
    """Of an operation with counts a plain buffer is divided among the ranks."""
    return spec if spec is None or spec is IN_PLACE or isinstance(spec, tuple | list) else [spec]


def _as_place(place: Any, blocks: int | None) -> Any:
    if isinstance(place, Place) and (blocks is None or len(place.counts) == blocks):
        return place
    if isinstance(place, Place):
        return Place([place.memory, None, None, place.datatype], blocks)
    return Place([place], blocks)


def _with_counts(spec: Any, counts: Any, displs: Any) -> Any:
    if counts is None and displs is None:
        return spec
    if isinstance(spec, tuple | list):
        raise TypeError("the counts are either arguments or in the description of the buffer")
    return [spec, list(counts), displs]


def _arg(place: Any) -> Any:
    return place.whole() if isinstance(place, Place) else place


def _finish(place: Any) -> None:
    if isinstance(place, Place):
        place.finish()


def _length(place: Any) -> int:
    if isinstance(place, Place):
        return sum(place.counts) * place.items
    view = memoryview(place)
    return view.nbytes // view.itemsize


def _fold(op: Callable[[Any, Any], Any], values: list[Any]) -> Any:
    result = values[0]
    for value in values[1:]:
        result = op(result, value)
    return result


def _folded(op: Op, values: list[bytearray], recv: Any) -> None:
    """Combines bytes by mpi4py's functions, which replace their second argument."""
    if not values or op.function is None:
        return
    place = recv if isinstance(recv, Place) else Place([recv])
    datatype = place.datatype if place.datatype.is_plain else _datatype.of_code(place.datatype.format)
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
