"""Collectives that do not block: those that the library has, and others made of these, one step after the other."""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Any

from .._calls import arg, bytes_of, folded, length, numbers, vector
from .._message import IN_PLACE, Place
from .._op import SUM, Op
from ..errors import called
from .messages import Messages
from .started import Collective, Queue, Steps
from .target import Target


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
        with self._checking(operation):
            if sent != needed:
                raise ValueError(f"{called(operation)}: {sent} bytes are sent where {needed} are received")

    def _bytes_of(self, operation: str, place: Any) -> int:
        with self._checking(operation):
            return bytes_of(place)

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
        send, given = arg(place), self._bytes_of("start_broadcast", place)

        def steps() -> Steps:
            done = yield self._start_bcast(send, None, given, root)
            target.put(done)

        return self._begin(steps())

    def _target(self, operation: str, place: Any) -> Target:
        with self._checking(operation):
            return Target(place)

    def _target_of(self, operation: str, send: Any, recv: Any) -> Target:
        """Of a call that receives as much as it sends."""
        target = self._target(operation, recv)
        if send is not None and recv is not None:
            self._checked(operation, self._bytes_of(operation, send), bytes_of(recv))
        return target

    # Reductions.

    def Iallreduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Collective:
        """Starts an Allreduce."""
        code = self._code(op, "start_allreduce")
        send, recv = self._places("start_allreduce", (sendbuf, None), (recvbuf, None))
        if code is None:
            return self._folding(send, recv, op, slice(0, self.size))
        target = self._target_of("start_allreduce", send, recv)
        source, place = arg(send), arg(recv)

        def steps() -> Steps:
            done = yield self._start_allreduce(source, place, code)
            target.put(done)

        return self._begin(steps())

    def Ireduce(self, sendbuf: Any, recvbuf: Any, op: Op = SUM, root: int = 0) -> Collective:
        """Starts a Reduce."""
        code = self._code(op, "start_reduce")
        operation = "start_reduce" if code is not None else "start_allgatherv"
        is_root = self._at(root, operation)
        send, recv = self._places(operation, (sendbuf, None), (recvbuf if is_root else None, None))
        if code is None:
            return self._folding(send, recv, op, slice(0, self.size))
        target = self._target_of(operation, send, recv)
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
        operation = "start_exscan" if is_exclusive else "start_scan"
        code = self._code(op, operation)
        if code is None:
            send, recv = self._places("start_allgatherv", (sendbuf, None), (recvbuf, None))
            return self._folding(send, recv, op, slice(0, self.rank + (not is_exclusive)))
        send, recv = self._places(operation, (sendbuf, None), (recvbuf, None))
        target = self._target_of(operation, send, recv)
        source, place = arg(send), arg(recv)

        def steps() -> Steps:
            done = yield self._start_scan(source, place, code, is_exclusive)
            if self.rank or not is_exclusive:
                target.put(done)

        return self._begin(steps())

    def _folding(self, send: Any, recv: Any, op: Op, whose: slice) -> Collective:
        """Combines the contributions of these ranks here, in their order, by an own operation."""
        with self._checking("start_allgatherv"):
            if op.function is None:
                raise ValueError("OP_NULL does not combine anything")
        # Its owner may free it before the call is complete.
        op = Op(op)
        target = self._target("start_allgatherv", recv)
        source = arg(recv if send is None else send)
        own = self._bytes_of("start_allgatherv", recv if send is None else send)
        if recv is not None:
            self._checked("start_allgatherv", own, self._bytes_of("start_allgatherv", recv))

        def steps() -> Steps:
            done = yield self._start_allgatherv(source, None, [own] * self.size)
            everything = memoryview(done)
            all_ = [bytearray(everything[at * own : (at + 1) * own]) for at in range(self.size)][whose]
            if recv is not None and all_:
                folded(op, all_, recv)

        return self._begin(steps())

    def Ireduce_scatter_block(self, sendbuf: Any, recvbuf: Any, op: Op = SUM) -> Collective:
        """Starts a Reduce_scatter_block."""
        blocks = self.size if sendbuf is None or sendbuf is IN_PLACE else None
        send, recv = self._places("start_reduce_scatter", (sendbuf, self.size), (recvbuf, blocks))
        with self._checking("start_reduce_scatter"):
            one = length(recv if send is None else send) // self.size
        return self._scattered(send, recv, [one] * self.size, op)

    def Ireduce_scatter(
        self, sendbuf: Any, recvbuf: Any, recvcounts: Sequence[int] | None = None, op: Op = SUM
    ) -> Collective:
        """Starts a Reduce_scatter."""
        send, recv = self._places("start_reduce_scatter", (sendbuf, None), (recvbuf, None))
        with self._checking("start_reduce_scatter"):
            counts = None if recvcounts is None else numbers(recvcounts)
        return self._scattered(send, recv, counts, op)

    def _scattered(self, send: Any, recv: Any, counts: list[int] | None, op: Op) -> Collective:
        code = self._known(op, "start_reduce_scatter")
        target = self._target("start_reduce_scatter", recv)
        source, place = arg(send), arg(recv)
        with self._checking("start_reduce_scatter"):
            own = length(recv)

        def steps() -> Steps:
            lengths = counts
            if lengths is None:
                done = yield self._start_allgatherv(array.array("Q", [own]), None, [8] * self.size)
                lengths = list(memoryview(done).cast("Q"))
            done = yield self._start_reduce_scatter(source, place, lengths, code)
            target.put(done)

        return self._begin(steps(), 2 if counts is None else 1)

    # Movements.

    def Iallgather(self, sendbuf: Any, recvbuf: Any) -> Collective:
        """Starts an Allgather."""
        send, recv = self._places("start_allgatherv", (sendbuf, None), (recvbuf, self.size))
        return self._gathered(send, recv, [self._bytes_of("start_allgatherv", recv) // self.size] * self.size)

    def Iallgatherv(self, sendbuf: Any, recvbuf: Any) -> Collective:
        """Starts an Allgatherv."""
        send, recv = self._places("start_allgatherv", (sendbuf, None), (vector(recvbuf), self.size))
        with self._checking("start_allgatherv"):
            if recv is None:
                raise TypeError("every rank needs a receive buffer")
        return self._gathered(send, recv, recv.lengths())

    def Igather(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Collective:
        """Starts a Gather."""
        is_root = self._at(root, "start_gather")
        send, recv = self._places("start_gather", (sendbuf, None), (recvbuf if is_root else None, self.size))
        target = self._target("start_gather", recv)
        sent = self._bytes_of("start_gather", send)
        block = bytes_of(recv) // self.size if is_root else sent
        if send is not None:
            self._checked("start_gather", sent, block)
        source, place = arg(send), arg(recv)

        def steps() -> Steps:
            done = yield self._start_gather(source, place, block, root)
            target.put(done)

        return self._begin(steps())

    def _gathered(self, send: Any, recv: Any, lengths: list[int]) -> Collective:
        target = self._target("start_allgatherv", recv)
        if send is not None:
            self._checked("start_allgatherv", self._bytes_of("start_allgatherv", send), lengths[self.rank])
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
        block = self._bytes_of("start_scatter", send) // self.size if is_root else bytes_of(recv)
        if is_root and recv is not None:
            self._checked("start_scatter", block, bytes_of(recv))
        source, place = arg(send), arg(recv)

        def steps() -> Steps:
            done = yield self._start_scatter(source, place, block, root)
            target.put(done)

        return self._begin(steps())

    def Ialltoall(self, sendbuf: Any, recvbuf: Any) -> Collective:
        """Starts an Alltoall."""
        send, recv = self._places("start_alltoall", (sendbuf, self.size), (recvbuf, self.size))
        target = self._target("start_alltoall", recv)
        total = self._bytes_of("start_alltoall", recv if send is None else send)
        self._checked("start_alltoall", total, bytes_of(recv))
        source, place = arg(send), arg(recv)

        def steps() -> Steps:
            done = yield self._start_alltoall(source, place, total)
            target.put(done)

        return self._begin(steps())

    def Ialltoallv(self, sendbuf: Any, recvbuf: Any) -> Collective:
        """Starts an Alltoallv."""
        operation = "start_alltoallv"
        send, recv = self._places(operation, (vector(sendbuf), self.size), (vector(recvbuf), self.size))
        with self._checking(operation):
            if recv is None:
                raise TypeError("every rank needs the description of a receive buffer")
        lengths = (recv if send is None else send).lengths()
        return self._exchanged(send, (lengths, starts(lengths)), recv, (recv.lengths(), starts(recv.lengths())))

    def Igatherv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Collective:
        """Starts a Gatherv."""
        operation = "start_alltoallv"
        is_root = self._at(root, operation)
        many = vector(recvbuf) if is_root else None
        send, recv = self._places(operation, (vector(sendbuf), None), (many, self.size))
        lengths = [0] * self.size if recv is None else recv.lengths()
        # In place the root's own block stays where it is.
        expected = [0 if rank == root and send is None else each for rank, each in enumerate(lengths)]
        return self._exchanged(send, self._only(root, send), recv, (expected, starts(lengths)))

    def Iscatterv(self, sendbuf: Any, recvbuf: Any, root: int = 0) -> Collective:
        """Starts a Scatterv."""
        operation = "start_alltoallv"
        is_root = self._at(root, operation)
        many = vector(sendbuf) if is_root else None
        send, recv = self._places(operation, (many, self.size), (vector(recvbuf), None))
        lengths = [0] * self.size if send is None else send.lengths()
        sent = [0 if rank == root and recv is None else each for rank, each in enumerate(lengths)]
        return self._exchanged(send, (sent, starts(lengths)), recv, self._only(root, recv))

    def _only(self, root: int, place: Place | None) -> tuple[list[int], list[int]]:
        length = 0 if place is None else sum(place.lengths())
        return [length if rank == root else 0 for rank in range(self.size)], [0] * self.size

    def _exchanged(
        self,
        send: Place | None,
        sent: tuple[list[int], list[int]],
        recv: Place | None,
        received: tuple[list[int], list[int]],
    ) -> Collective:
        """An alltoallv of blocks of these lengths and beginnings in what is packed, in bytes."""
        target = self._target("start_alltoallv", recv)
        source, place = arg(send), arg(recv)

        def steps() -> Steps:
            done = yield self._start_alltoallv(source, place, sent, received)
            target.put(done)

        return self._begin(steps())


def starts(lengths: list[int]) -> list[int]:
    """Where blocks of these lengths begin that follow one another."""
    return [sum(lengths[:rank]) for rank in range(len(lengths))]
