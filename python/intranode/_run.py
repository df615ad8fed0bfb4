"""Functions in processes of their own."""

from __future__ import annotations

import _thread
import contextlib
import itertools
import os
import pickle
import select
import selectors
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from . import _pickle
from .errors import Error

_jobs = itertools.count()
_GRACE = 1.0
"""How long the other ranks have to end by themselves when one has failed, in seconds."""

_LENGTH = struct.Struct("<Q")
_reports: int | None = None
"""In a rank: the descriptor that `report` writes to."""
_saying = threading.RLock()
"""Long messages of several threads would mix in the pipe."""


def run(
    function: Callable[..., Any],
    size: int,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    progress: Callable[[int, Any], None] | None = None,
    timeout: float | None = 60.0,
    env: Mapping[str, str] | None = None,
) -> list[Any]:
    """Calls `function(*args, **kwargs)` in `size` new processes, the ranks of a job. Returns the results, by rank.

    In the function `intranode.world()` is the communicator. The processes are new interpreters, as of multiprocessing's spawn, but
    `__main__` is not run again: a script needs no `if __name__ == "__main__":`, and functions of a notebook or a prompt can be run.
    What they use of `__main__` goes with them, as values of this moment.

    The first rank that fails ends the rest: they get an error that names it, and are killed after a second. Its exception is
    raised here, with a note that says the rank and where it was raised. A rank that ends without a result is a RuntimeError.

    `progress(rank, value)` is called here for each `intranode.report(value)` of a rank. `timeout`: seconds without progress after
    which a call of the ranks fails. Standard output and error are those of this process, standard input is empty. In a notebook
    what ranks print goes to the server's terminal: return it, or report it.
    """
    if size < 1:
        raise ValueError(f"{size} ranks: at least one is needed")
    payload = _pickle.dumps((function, tuple(args), dict(kwargs or {})))
    name = f"/intranode-run-{os.getpid()}-{next(_jobs)}-{time.monotonic_ns() % 1_000_000}"
    variables = dict(os.environ if env is None else env)
    variables["INTRANODE_NAME"], variables["INTRANODE_SIZE"] = name, str(size)
    variables["INTRANODE_TIMEOUT"] = "none" if timeout is None else str(timeout)
    variables.pop("INTRANODE_LAUNCHER", None)
    ranks: list[_Rank] = []
    try:
        for rank in range(size):
            ranks.append(_Rank(rank, variables))
            ranks[-1].tell(payload)
        return _results(ranks, progress)
    finally:
        for each in ranks:
            each.end()


class _Rank:
    """A process: what it is told, and what it says."""

    def __init__(self, rank: int, variables: dict[str, str]) -> None:
        self.rank = rank
        self.said = bytearray()
        self.result: tuple[bool, Any] | None = None
        told, telling = os.pipe()
        # Without a buffer: to close it must not write what an interruption has left.
        self.telling = os.fdopen(telling, "wb", buffering=0)
        self.saying, says = os.pipe()
        try:
            self.process = subprocess.Popen(
                [sys.executable, "-c", f"from intranode._run import _rank; _rank({told}, {says})"],
                env=variables | {"INTRANODE_RANK": str(rank)},
                stdin=subprocess.DEVNULL,
                pass_fds=(told, says),
            )
        except BaseException:
            self.telling.close()
            os.close(self.saying)
            raise
        finally:
            os.close(told)
            os.close(says)

    def tell(self, payload: bytes) -> None:
        """Says what it has to do."""
        # The path first: the payload may name modules that this process has found by it.
        path = pickle.dumps(sys.path)
        with contextlib.suppress(BrokenPipeError), self.telling as pipe:
            _write(pipe.fileno(), _LENGTH.pack(len(path)) + path + payload)

    def messages(self) -> tuple[list[Any], bool]:
        """What has come, and whether the rank has ended."""
        data = os.read(self.saying, 1 << 20)
        self.said += data
        found = []
        while len(self.said) >= _LENGTH.size:
            end = _LENGTH.size + _LENGTH.unpack_from(self.said)[0]
            if len(self.said) < end:
                break
            found.append(pickle.loads(self.said[_LENGTH.size : end]))
            del self.said[:end]
        return found, not data

    def end(self) -> None:
        """Kills the process if it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.telling.close()
        os.close(self.saying)


def _results(ranks: list[_Rank], progress: Callable[[int, Any], None] | None) -> list[Any]:
    first: list[tuple[_Rank, BaseException]] = []
    deadline: float | None = None
    with selectors.DefaultSelector() as selector:
        for rank in ranks:
            selector.register(rank.saying, selectors.EVENT_READ, rank)
        while selector.get_map():
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            for key, _ in selector.select(left):
                rank = key.data
                found, ended = rank.messages()
                for kind, value in found:
                    if kind == "report":
                        if progress is not None:
                            progress(rank.rank, value)
                    elif kind == "result":
                        rank.result = (True, value)
                    else:
                        first.append((rank, _error(*value)))
                if ended:
                    selector.unregister(key.fileobj)
                    code = rank.process.wait()
                    if rank.result is None and not any(each is rank for each, _ in first):
                        first.append((rank, RuntimeError(f"rank {rank.rank} ended without a result: it {how(code)}")))
            if left == 0.0:
                break
            if first and deadline is None:
                deadline = time.monotonic() + _GRACE
    if first:
        # The cause, not what the others have got of it.
        rank, error = next((each for each in first if not isinstance(each[1], Error)), first[0])
        error.add_note(f"on rank {rank.rank} of {len(ranks)}")
        raise error
    return [rank.result[1] for rank in ranks if rank.result is not None]


def _error(data: bytes, text: str, trace: str) -> BaseException:
    """What a rank has raised; its text where it cannot be pickled, or has a class that this process does not have."""
    with contextlib.suppress(Exception):
        error = pickle.loads(data)
        if isinstance(error, BaseException):
            return error
    error = RuntimeError(text)
    error.add_note(trace)
    return error


def how(code: int) -> str:
    """How a process has ended."""
    if code >= 0:
        return f"exited with {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        # Of real-time signals only the first and the last have names.
        return f"was killed by signal {-code}"


def report(value: Any) -> None:
    """In a function that `run` has started: passes `value`, pickled, to its `progress`. Elsewhere it does nothing."""
    if _reports is not None:
        _say(_reports, ("report", value))


def _say(descriptor: int, message: Any) -> None:
    data = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    data = _LENGTH.pack(len(data)) + data
    failed: list[OSError] = []
    done = threading.Lock()
    done.acquire()

    def write() -> None:
        try:
            with _saying:
                _write(descriptor, data)
        except OSError as error:
            failed.append(error)
        finally:
            done.release()

    if len(data) <= select.PIPE_BUF or threading.current_thread() is not threading.main_thread():
        write()
    else:
        # A handler of a signal may raise in this thread, when a part of a long message is in the pipe. It goes on in another one;
        # not a `Thread`, whose start such an exception breaks.
        _thread.start_new_thread(write, ())
        done.acquire()
    if failed:
        raise failed[0]


def _write(descriptor: int, data: bytes) -> None:
    """All of it; an interruption ends that."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


def _rank(told: int, says: int) -> NoReturn:
    """What a rank's process runs."""
    global _reports
    import traceback

    ends_with_parent()
    # A program that the function starts may outlive it: `run` waits until the pipe has no more writers.
    os.set_inheritable(told, False)
    os.set_inheritable(says, False)
    _reports = says
    os.register_at_fork(after_in_child=lambda: _forget(says))
    code = 1
    try:
        with os.fdopen(told, "rb") as pipe:
            (length,) = _LENGTH.unpack(pipe.read(_LENGTH.size))
            sys.path[:] = pickle.loads(pipe.read(length))
            function, args, kwargs = _pickle.loads(pipe.read())
        _say(says, ("result", function(*args, **kwargs)))
        code = 0
    except BaseException as error:
        trace = "".join(traceback.format_exception(error)).rstrip()
        error.add_note(trace)
        data = b""
        with contextlib.suppress(Exception):
            data = pickle.dumps(error)
        _say(says, ("error", (data, f"{type(error).__name__}: {error}", trace)))
    sys.stdout.flush()
    sys.exit(code)


def _forget(says: int) -> None:
    """A forked child is no rank: with the pipe it would keep `run` waiting when the rank has been killed."""
    global _reports
    _reports = None
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, says, inheritable=False)
    os.close(nothing)


def ends_with_parent() -> None:
    """Asks the system to kill this process when the one that started it ends (Linux)."""
    import ctypes

    with contextlib.suppress(Exception):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)
