"""Collectives that were started: their requests, and the order in which a communicator completes them."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

from .. import _core, errors
from .constants import NOTHING
from .request import Request

if TYPE_CHECKING:
    from .messages import Messages

Steps = Generator[_core.Begun, _core.Begun, None]


class Collective(Request):
    """The request of a collective. It goes on when it is tested or waited for, and in every collective of its communicator."""

    is_collective = True

    def __init__(self, request: Request | None = None) -> None:
        self._queue: Queue | None = None
        self._steps: Steps | None = None
        """None: it is complete, or has failed."""
        self._now: _core.Begun | None = None
        self._left = 0
        self._failed: BaseException | None = None
        super().__init__(request)

    def _next(self, done: _core.Begun | None) -> bool:
        """Begins its next step. Whether there is none."""
        assert self._steps is not None
        try:
            self._now = self._steps.send(done)  # type: ignore[arg-type]
            self._left -= 1
            return False
        except StopIteration:
            self._known, self._steps = NOTHING, None
        except errors.Error as error:
            self._fail(error)
        except BaseException as error:
            self._fail(error)
            raise
        return True

    def _go_through(self, wait: bool) -> bool:
        """Goes on with its steps. Whether it is complete, or has failed."""
        if self._steps is None or (self._now is None and self._next(None)):
            return True
        while True:
            assert self._now is not None
            if not wait and not self._now.test():
                return False
            try:
                self._now.wait()
            except errors.Error as error:
                self._fail(error)
                return True
            except BaseException as error:
                self._fail(error)
                raise
            if self._next(self._now):
                return True

    def _fail(self, error: BaseException) -> None:
        self._failed, self._left, self._steps = error, 0, None

    def _is_over(self) -> bool:
        if self._failed is not None:
            failed, self._failed, self._known = self._failed, None, NOTHING
            self._release()
            raise failed
        return self._known is not None

    def _try(self) -> bool:
        return self._becomes_over(wait=False)

    def _await(self) -> None:
        self._becomes_over(wait=True)

    def _becomes_over(self, wait: bool) -> bool:
        if self._known is None and self._failed is None and self._queue is not None:
            try:
                self._queue.go_on(self, wait)
            except BaseException:
                # If it is its own error, that was raised with this.
                self._is_over()
                raise
        return self._is_over()

    def _wait_some(self, _: Sequence[Request]) -> None:
        """Those of a communicator complete in their order: waits for the first."""
        assert self._queue is not None
        self._queue.complete_first()

    def Cancel(self) -> None:
        """Not possible, as in MPI: the other ranks need it."""
        raise NotImplementedError("a collective cannot be taken back: the other ranks need it")

    cancel = Cancel

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Request) and not self._active and not other._active:
            return True
        return self is other if isinstance(other, Request) else NotImplemented

    def __hash__(self) -> int:
        return id(self)


class Queue:
    """The collectives of a communicator that were started and are not complete, in their order.

    A step begins only when all steps of the calls before it have begun. So the library sees the same calls in the same order on
    every rank, whenever each rank goes on.
    """

    def __init__(self, comm: Messages) -> None:
        self._comm = comm
        self._calls: deque[Collective] = deque()

    def add(self, comm: Any, steps: Steps, number: int) -> Collective:
        """A call of this number of steps."""
        call = Collective()
        call._comm, call._queue, call._steps, call._left, call._active = comm, self, steps, number, True
        while self._calls and self._calls[0]._steps is None:
            self._calls.popleft()
        if all(each._left == 0 for each in self._calls):
            call._next(None)
        self._calls.append(call)
        if call._left:
            self._comm._defer(self.complete)
        return call

    def go_on(self, until: Collective, wait: bool) -> None:
        """Goes on, with `wait` until this call is complete."""
        while self._calls and self._calls[0]._go_through(wait):
            done = self._calls.popleft()
            self._begin()
            if done is until:
                return
        if self._calls and self._calls[-1]._left:
            self._comm._defer(self.complete)

    def _begin(self) -> None:
        """Begins the calls that a step to come has held back."""
        for call in self._calls:
            if call._now is None and call._steps is not None:
                call._next(None)
            if call._left:
                return

    def complete_first(self) -> None:
        """Waits until the first is complete. Its error stays with its request."""
        if self._calls:
            self.go_on(self._calls[0], wait=True)

    def complete(self) -> None:
        """Before a call that blocks: completes all. Their errors stay with their requests."""
        while self._calls:
            self.go_on(self._calls[-1], wait=True)
