"""Reductions of buffers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from . import _core
from ._calls import arg, bytes_of, finish, folded, length, numbers
from ._message import IN_PLACE, Place
from ._objects import Objects
from ._op import SUM, Op
from .errors import called


class Reductions(Objects):
    """The calls that combine buffers."""

    def _allreduce_described(self, sendbuf: Any, recvbuf: Any, op: Op | None) -> None:
        """An Allreduce that takes more than plain buffers and an operation of the library."""
        op = SUM if op is None else op
        code = self._code(op, "allreduce")
        send, recv = self._places("allreduce", (sendbuf, None), (recvbuf, None))
        if code is None:
            return self._own(op, send, recv, lambda all: folded(op, all, recv))
        self._allreduce(arg(send), arg(recv), code)
        finish(recv)

    def Reduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> None:
        """The same into `recvbuf` of rank `root` only; elsewhere it is ignored, and may be None."""
        is_root = self._at(root, "reduce")
        code = self._code(op, "reduce")
        send, recv = self._places("reduce", (sendbuf, None), (recvbuf if is_root else None, None))
        if code is None:
            with self._checking("allgather_vec"):
                if is_root and recv is None:
                    raise TypeError("this rank is the root and needs a receive buffer")
            return self._own(op, send, recv, lambda all: folded(op, all, recv) if is_root else None)
        self._reduce(arg(send), arg(recv), code, root)
        finish(recv)

    def Scan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combines those of ranks 0 to this one."""
        code = self._code(op, "scan")
        send, recv = self._places("scan", (sendbuf, None), (recvbuf, None))
        if code is None:
            return self._own(op, send, recv, lambda all: folded(op, all[: self.rank + 1], recv))
        self._scan(arg(send), arg(recv), code)
        finish(recv)

    def Exscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combines those of the ranks before this one. On rank 0 `recvbuf` does not change."""
        code = self._code(op, "exscan")
        send, recv = self._places("exscan", (sendbuf, None), (recvbuf, None))
        if code is None:
            return self._own(op, send, recv, lambda all: folded(op, all[: self.rank], recv))
        self._exscan(arg(send), arg(recv), code)
        finish(recv)

    def Reduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> None:
        """Combines, and gives each rank its block: `sendbuf` has `size` times the length of `recvbuf`.

        `sendbuf=IN_PLACE`: `recvbuf` has all blocks, and the result at its beginning.
        """
        code = self._known(op, "reduce_scatter_block")
        # In place all blocks are in the buffer that receives.
        blocks = self.size if sendbuf is None or sendbuf is IN_PLACE else None
        send, recv = self._places("reduce_scatter_block", (sendbuf, self.size), (recvbuf, blocks))
        self._reduce_scatter_block(arg(send), arg(recv), code)
        finish(recv)

    def Reduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Op = SUM
    ) -> None:
        """Combines, and gives rank r the `recvcounts[r]` elements of its block. The counts are the same on all ranks.

        Without them the ranks tell each other the lengths of `recvbuf`.
        """
        code = self._known(op, "reduce_scatter")
        send, recv = self._places("reduce_scatter", (sendbuf, None), (recvbuf, None))
        with self._checking("reduce_scatter"):
            counts, own = None if recvcounts is None else numbers(recvcounts), length(recv)
        self._reduce_scatter(arg(send), arg(recv), self.allgather(own) if counts is None else counts, code)
        finish(recv)

    def _known(self, op: Op, operation: str) -> int:
        """The number of an operation where an own one cannot be."""
        code = self._code(op, operation)
        if code is None:
            with self._checking(operation):
                raise NotImplementedError(f"{called(operation)} with an own operation: use Allreduce")
        return code

    def _own(self, op: Op, send: Any, recv: Any, fold: Callable[[list[bytearray]], None]) -> None:
        """A reduction of buffers by an operation in Python: every rank gets all contributions."""
        with self._checking("allgather_vec"):
            if op.function is None:
                raise ValueError("OP_NULL does not combine anything")
            if recv is not None and (recv.memory if isinstance(recv, Place) else memoryview(recv)).readonly:
                raise BufferError("the receive buffer is read-only")
            source = recv if send is None else send
            data = bytes(source.whole()[0] if isinstance(source, Place) else _core.Flat(source))
            if recv is not None and bytes_of(recv) != len(data):
                raise ValueError(f"{len(data)} bytes are sent where {bytes_of(recv)} are received")
        fold([bytearray(each) for each in self._allgather_bytes(data)])
