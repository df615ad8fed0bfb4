"""Collectives that do not block: those that the library has, and others made of these, one step after the other."""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Any

from .._calls import arg, folded, length, vector
from .._message import Place
from .._op import SUM, Op
from ..errors import CountsDisagree
from .messages import Messages
from .started import Collective, Queue, Steps
from .target import Target, bytes_of


class Collectives(Messages):
    """A communicator with collectives that do not block.

    As in MPI, neither buffer may be used until the request is complete. What is sent is copied by a step of the call; where is
    received is written at its end, and cannot be resized until then. Calls of a communicator complete in the order in which they
    were started, on every rank.
    """

    def __init__(self, joined: Any) -> None:
        super().__init__(joined)
        self._queue = Queue(self)

    def _begin(self, steps: Steps, number: int = 1) -> Collective:
        """Starts what was checked: the first step now, if no call before it has one to come."""
        return self._queue.add(self, steps, number)

    def _checked(self, operation: str, sent: int, needed: int) -> None:
        if sent != needed:
            self._refuse(operation)
            raise ValueError(f"{operation}: {sent} bytes are sent where {needed} are received")

    def Ibarrier(self) -> Collective:
        """Starts a Barrier."""

        def steps() -> Steps:
            yield self._start_barrier()

        return self._begin(steps())

    def Ibcast(self, buf: Any, root: int = 0) -> Collective:
        """Starts a Bcast."""
        is_root = self._at(root, "start_broadcast")
        (place,) = self._places("start_broadcast", (buf, None))
        target = self._target("start_broadcast", None if is_root else place)
        send, given = arg(place), bytes_of(place)

        def steps() -> Steps:
            done = yield self._start_bcast(send, None, given, root)
            target.put(done)

        return self._begin(steps())

    def _target(self, operation: str, place: Any) -> Target:
        try:
            return Target(place)
        except BaseException:
            self._refuse(operation)
            raise

    # Reductions.

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Collective:
        """Starts an Allreduce."""
        send, recv = self._places("start_allreduce", (sendbuf, None), (recvbuf, None))
        if op.code is None:
            return self._folding(send, recv, op, slice(0, self.size))
        target, code = self._target("start_allreduce", recv), op.code
        source, place = arg(send), arg(recv)

        def steps() -> Steps:
            done = yield self._start_allreduce(source, place, code)
            target.put(done)

        return self._begin(steps())

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> Collective:
        """Starts a Reduce."""
        operation = "start_reduce" if op.code is not None else "start_allgatherv"
        is_root = self._at(root, operation)
        send, recv = self._places(operation, (sendbuf, None), (recvbuf if is_root else None, None))
        if op.code is None:
            return self._folding(send, recv, op, slice(0, self.size))
        target, code = self._target(operation, recv), op.code
        source, place = arg(send), arg(recv)

        def steps() -> Steps:
            done = yield self._start_reduce(source, place, code, root)
            target.put(done)

        return self._begin(steps())

    def Iscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Collective:
        """Starts a Scan."""
        return self._prefix(sendbuf, recvbuf, op, False)

    def Iexscan(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Collective:
        """Starts an Exscan."""
        return self._prefix(sendbuf, recvbuf, op, True)

    def _prefix(self, sendbuf: Any, recvbuf: Any, op: Op, is_exclusive: bool) -> Collective:
        if op.code is None:
            send, recv = self._places("start_allgatherv", (sendbuf, None), (recvbuf, None))
            return self._folding(send, recv, op, slice(0, self.rank + (not is_exclusive)))
        operation = "start_exscan" if is_exclusive else "start_scan"
        send, recv = self._places(operation, (sendbuf, None), (recvbuf, None))
        target, code = self._target(operation, recv), op.code
        source, place = arg(send), arg(recv)

        def steps() -> Steps:
            done = yield self._start_scan(source, place, code, is_exclusive)
            if self.rank or not is_exclusive:
                target.put(done)

        return self._begin(steps())

    def _folding(self, send: Any, recv: Any, op: Op, whose: slice) -> Collective:
        """Combines the contributions of these ranks here, in their order, by an own operation."""
        target = self._target("start_allgatherv", recv)
        source = arg(recv if send is None else send)
        own = bytes_of(recv if send is None else send)

        def steps() -> Steps:
            done = yield self._start_allgatherv(source, None, [own] * self.size)
            everything = memoryview(done)
            all_ = [bytearray(everything[at * own : (at + 1) * own]) for at in range(self.size)][whose]
            if recv is not None and all_:
                folded(op, all_, recv)

        return self._begin(steps())

    def Ireduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Collective:
        """Starts a Reduce_scatter_block."""
        send, recv = self._places("start_reduce_scatter", (sendbuf, None), (recvbuf, None))
        blocks = length(recv if send is None else send) // self.size
        return self._scattered(send, recv, [blocks] * self.size, op)

    def Ireduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Op = SUM
    ) -> Collective:
        """Starts a Reduce_scatter."""
        send, recv = self._places("start_reduce_scatter", (sendbuf, None), (recvbuf, None))
        return self._scattered(send, recv, None if recvcounts is None else list(recvcounts), op)

    def _scattered(self, send: Any, recv: Any, counts: list[int] | None, op: Op) -> Collective:
        if op.code is None:
            raise NotImplementedError("a reduction that scatters with an own operation: use Iallreduce")
        target, code = self._target("start_reduce_scatter", recv), op.code
        source, own = arg(recv if send is None else send), length(recv)

        def steps() -> Steps:
            lengths = counts
            if lengths is None:
                done = yield self._start_allgatherv(array.array("Q", [own]), None, [8] * self.size)
                lengths = list(memoryview(done).cast("Q"))
            done = yield self._start_reduce_scatter(source, None, lengths, code)
            target.put(done)

        return self._begin(steps(), 2 if counts is None else 1)

    # Movements.

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Collective:
        """Starts an Allgather."""
        send, recv = self._places("start_allgatherv", (sendbuf, None), (recvbuf, self.size))
        return self._gathered(send, recv, [bytes_of(recv) // self.size] * self.size)

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any) -> Collective:
        """Starts an Allgatherv."""
        send, recv = self._places("start_allgatherv", (sendbuf, None), (vector(recvbuf), self.size))
        return self._gathered(send, recv, recv.lengths())

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Collective:
        """Starts a Gather."""
        is_root = self._at(root, "start_gather")
        send, recv = self._places("start_gather", (sendbuf, None), (recvbuf if is_root else None, self.size))
        target = self._target("start_gather", recv)
        block = bytes_of(recv) // self.size if is_root else bytes_of(send)
        if send is not None:
            self._checked("start_gather", bytes_of(send), block)
        source, place = arg(send), arg(recv)

        def steps() -> Steps:
            done = yield self._start_gather(source, place, block, root)
            target.put(done)

        return self._begin(steps())

    def _gathered(self, send: Any, recv: Any, lengths: list[int]) -> Collective:
        target = self._target("start_allgatherv", recv)
        if send is not None:
            self._checked("start_allgatherv", bytes_of(send), lengths[self.rank])
        source, place = arg(send), arg(recv)

        def steps() -> Steps:
            done = yield self._start_allgatherv(source, place, lengths)
            target.put(done)

        return self._begin(steps())

    def Iscatter(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Collective:
        """Starts a Scatter."""
        is_root = self._at(root, "start_scatter")
        send, recv = self._places("start_scatter", (sendbuf if is_root else None, self.size), (recvbuf, None))
        target = self._target("start_scatter", recv)
        block = bytes_of(send) // self.size if is_root else bytes_of(recv)
        if is_root and recv is not None:
            self._checked("start_scatter", block, bytes_of(recv))
        source, place = arg(send), arg(recv)

        def steps() -> Steps:
            done = yield self._start_scatter(source, None if is_root else place, block, root)
            target.put(done)

        return self._begin(steps())

    def Ialltoall(self, sendbuf: Any, recvbuf: Any) -> Collective:
        """Starts an Alltoall."""
        send, recv = self._places("start_alltoall", (sendbuf, self.size), (recvbuf, self.size))
        target = self._target("start_alltoall", recv)
        whole = recv if send is None else send
        total = bytes_of(whole)
        self._checked("start_alltoall", total, bytes_of(recv))
        source = arg(whole)

        def steps() -> Steps:
            done = yield self._start_alltoall(source, None, total)
            target.put(done)

        return self._begin(steps())

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any) -> Collective:
        """Starts an Alltoallv. Every rank gets all blocks, and keeps those for it."""
        send, recv = self._places(
            "start_allgatherv", (vector(sendbuf), self.size), (vector(recvbuf), self.size)
        )
        sent = recv if send is None else send
        return self._exchanged(sent, sent.lengths(), recv, recv.lengths())

    def Igatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Collective:
        """Starts a Gatherv. Every rank gets the blocks, and the others than the root forget them."""
        is_root = self._at(root, "start_allgatherv")
        many = vector(recvbuf) if is_root else None
        send, recv = self._places("start_allgatherv", (vector(sendbuf), None), (many, self.size))
        lengths = [0] * self.size
        if recv is not None:
            lengths = recv.lengths()
            lengths[root] = 0 if send is None else lengths[root]
        return self._exchanged(send, self._only(root, send), recv, lengths)

    def Iscatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Collective:
        """Starts a Scatterv. Every rank gets all blocks, and keeps its own."""
        is_root = self._at(root, "start_allgatherv")
        many = vector(sendbuf) if is_root else None
        send, recv = self._places("start_allgatherv", (many, self.size), (vector(recvbuf), None))
        lengths = [0] * self.size
        if send is not None:
            lengths = send.lengths()
        expected = self._only(root, recv)
        if is_root and recv is None:
            expected[root] = lengths[root]
        return self._exchanged(send, lengths, recv, expected)

    def _only(self, root: int, place: Place | None) -> list[int]:
        return [sum(place.lengths()) if place is not None and rank == root else 0 for rank in range(self.size)]

    def _exchanged(self, send: Place | None, sent: list[int], recv: Place | None, expected: list[int]) -> Collective:
        """First all lengths, in bytes, so that every rank finds the same mistakes; then all blocks."""
        target = self._target("start_allgatherv", recv)
        # Nothing, of the same type, where only the root sends.
        source: Any = b"" if send is None else send.whole()
        if send is None and recv is not None:
            source = (b"", recv.datatype.format, recv.datatype.width)
        kept = bytes_of(recv) - sum(expected)

        def steps() -> Steps:
            size, rank = self.size, self.rank
            done = yield self._start_allgatherv(array.array("Q", [*sent, *expected]), None, [16 * size] * size)
            table = memoryview(done).cast("Q")
            row = 2 * size
            for giver in range(size):
                for taker in range(size):
                    given, taken = table[giver * row + taker], table[taker * row + size + giver]
                    if given != taken:
                        text = f"rank {giver} sends {given} bytes to rank {taker}, which expects {taken}: both must be the same"
                        raise CountsDisagree(
                            text, operation="alltoallv", fatal=False, sender=giver, receiver=taker, sent=given, expected=taken
                        )
            totals = [sum(table[at * row : at * row + size]) for at in range(size)]
            done = yield self._start_allgatherv(source, None, totals)
            data, blocks, begins = memoryview(done), [], 0
            for giver in range(size):
                own = begins + sum(table[giver * row : giver * row + rank])
                blocks.append(data[own : own + expected[giver]])
                begins += totals[giver]
            if recv is not None and kept:
                # The root's own block, in place.
                lengths = recv.lengths()
                now = memoryview(recv.whole()[0])
                start = sum(lengths[:rank])
                blocks[rank] = now[start : start + lengths[rank]]
            target.put(b"".join(blocks))

        return self._begin(steps(), 2)
