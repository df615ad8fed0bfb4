"""Buffers that are moved."""

from __future__ import annotations

from typing import Any

from ._calls import Calls, are_plain, arg, as_place, finish, of_items, vector, with_counts
from ._message import IN_PLACE, Place, Table


class Movements(Calls):
    """The calls that move buffers."""

    def Bcast(self, buf: Any, root: int = 0) -> None:
        """`buf` of rank `root` to all others, of the same length and type on all ranks. The root's may be read-only."""
        if type(root) is int and 0 <= root < self.size and not isinstance(buf, (tuple, list)) and buf is not IN_PLACE:
            return self._bcast(buf, root)
        is_root = self._at(root, "broadcast")
        (place,) = self._places("broadcast", (buf, None))
        self._bcast(arg(place), root)
        if not is_root:
            finish(place)

    def Allgather(self, sendbuf: Any, recvbuf: Any) -> None:
        """`sendbuf` of every rank, in rank order, into `recvbuf` of every rank, which has `size` times its length.

        `sendbuf=IN_PLACE`: each rank's block is at its place in `recvbuf`.
        """
        if are_plain(sendbuf, recvbuf):
            return self._allgather(None if sendbuf is IN_PLACE else sendbuf, recvbuf)
        send, recv = self._places("allgather", (sendbuf, None), (recvbuf, self.size))
        self._allgather(arg(send), arg(recv))
        finish(recv)

    def Allgatherv(self, sendbuf: Any, recvbuf: Any, counts: Any = None, displs: Any = None) -> None:
        """The same with blocks of different lengths: `counts[r]` elements of rank r at `recvbuf[displs[r]]`.

        The counts are the same on all ranks. They can be in `recvbuf=[data, counts, displs, datatype]` too. Without displacements
        the blocks follow each other.
        """
        with self._checking("allgatherv"):
            recvbuf = with_counts(recvbuf, counts, displs)
            if recvbuf is None or recvbuf is IN_PLACE:
                raise TypeError("every rank needs a receive buffer")
        send, recv = self._places("allgatherv", (sendbuf, None), (vector(recvbuf), self.size))
        buffer, table = recv.blocks()
        self._allgatherv(arg(send), buffer, *table)
        finish(recv)

    def Gather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """`sendbuf` of every rank, in rank order, into `recvbuf` of rank `root`; elsewhere that is ignored, and may be None.

        On the root `sendbuf=IN_PLACE`: its block is at its place in `recvbuf`.
        """
        is_root = self._at(root, "gather")
        send, recv = self._places("gather", (sendbuf, None), (recvbuf if is_root else None, self.size))
        self._gather(arg(send), arg(recv), root)
        finish(recv)

    def Scatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """The blocks of the root's `sendbuf`, one for each rank, into `recvbuf`. Elsewhere `sendbuf` is ignored.

        On the root `recvbuf=IN_PLACE`: its block stays where it is.
        """
        is_root = self._at(root, "scatter")
        send, recv = self._places("scatter", (sendbuf if is_root else None, self.size), (recvbuf, None))
        self._scatter(arg(send), arg(recv), root)
        finish(recv)

    def Alltoall(self, sendbuf: Any, recvbuf: Any) -> None:
        """Block r of `sendbuf` goes to rank r; block r of `recvbuf` comes from it. `sendbuf=IN_PLACE`: they are exchanged."""
        send, recv = self._places("alltoall", (sendbuf, self.size), (recvbuf, self.size))
        self._alltoall(arg(send), arg(recv))
        finish(recv)

    def Alltoallv(self, sendbuf: Any, recvbuf: Any) -> None:
        """The same with blocks of different lengths: each is `[data, counts, displs, datatype]`, with an entry a rank.

        `sendbuf=IN_PLACE`: the counts of `recvbuf` hold for what is sent too.
        """
        send, recv = self._places("alltoallv", (vector(sendbuf), self.size), (vector(recvbuf), self.size))
        if send is None:
            with self._checking("alltoallv"):
                if recv is None:
                    raise TypeError("in place every rank needs a receive buffer")
            now = Place(Table([recv.memory, recv.counts, recv.displs, recv.datatype]), self.size)
            send = Place(Table([bytearray(now.whole()[0]), now.table()[0], None, of_items(now)]), self.size)
        self._exchange(send, recv)

    def Gatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """A Gather with blocks of different lengths: the root's `recvbuf` is `[data, counts, displs, datatype]`."""
        is_root = self._at(root, "alltoallv")
        send, recv = self._places(
            "alltoallv", (sendbuf, None), (vector(recvbuf) if is_root else None, self.size if is_root else None)
        )
        self._rooted(send, recv, root, gathers=True)

    def Scatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> None:
        """A Scatter with blocks of different lengths: the root's `sendbuf` is `[data, counts, displs, datatype]`."""
        is_root = self._at(root, "alltoallv")
        send, recv = self._places(
            "alltoallv", (vector(sendbuf) if is_root else None, self.size if is_root else None), (recvbuf, None)
        )
        self._rooted(send, recv, root, gathers=False)

    def _rooted(self, send: Any, recv: Any, root: int, gathers: bool) -> None:
        """By an alltoallv: only the root has the table of counts, each other rank its own count."""
        with self._checking("alltoallv"):
            many, one = (recv, send) if gathers else (send, recv)
            if one is None and self.rank != root:
                raise TypeError("only the root can pass IN_PLACE")
            if self.rank == root and many is None:
                raise TypeError("this rank is the root and needs the buffer with the blocks of all ranks")
            many_table = one_table = ([0] * self.size, [0] * self.size)
            many_arg = None
            if many is not None:
                many = as_place(many, self.size)
                many_arg, many_table = many.blocks()
                if one is None:
                    many_table[0][root] = 0
            if one is not None:
                one = as_place(one, None)
                counts = [0] * self.size
                counts[root] = sum(one.counts) * one.items
                one_table = (counts, [0] * self.size)
            one_arg = None if one is None else one.whole()
        if gathers:
            self._alltoallv(one_arg, one_table, many_arg, many_table)
        else:
            self._alltoallv(many_arg, many_table, one_arg, one_table)
        finish(many if gathers else one)

    def _exchange(self, send: Any, recv: Any) -> None:
        send, recv = as_place(send, self.size), as_place(recv, self.size)
        (send_arg, sent), (recv_arg, received) = send.blocks(), recv.blocks()
        self._alltoallv(send_arg, sent, recv_arg, received)
        finish(recv)
