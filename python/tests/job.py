"""Starts ranks as processes, each of which runs a function of a test's file: with a time limit, and nothing is left."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
LIMIT = 60.0

_numbers = itertools.count()


class Job:
    """The ranks of a job. `results()` waits for them."""

    def __init__(self, where: str, size: int, *args: Any, timeout: float = 30.0) -> None:
        """`where`: `module:function`, of this folder; it is called with the communicator and `args`."""
        name = f"/intranode-python-test-{os.getpid()}-{next(_numbers)}"
        self.outputs = [tempfile.TemporaryFile() for _ in range(size)]
        self.ranks = []
        for rank in range(size):
            variables = {
                "INTRANODE_NAME": name,
                "INTRANODE_RANK": str(rank),
                "INTRANODE_SIZE": str(size),
                "INTRANODE_TIMEOUT": str(timeout),
            }
            self.ranks.append(
                subprocess.Popen(
                    [sys.executable, str(HERE / "job.py"), where, pickle.dumps(args).hex()],
                    env=os.environ | variables,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=self.outputs[rank],
                )
            )

    def __enter__(self) -> Job:
        return self

    def __exit__(self, *_: object) -> None:
        for rank in self.ranks:
            rank.kill()
            rank.wait()
            assert rank.stdout is not None
            rank.stdout.close()
        for output in self.outputs:
            output.close()

    def wait_for_line(self, rank: int) -> bytes:
        """The next line that a rank prints."""
        stdout = self.ranks[rank].stdout
        assert stdout is not None
        return stdout.readline()

    def results(self) -> list[Any]:
        """What each rank returned; of a rank that was killed, the signal, negative."""
        results = []
        for number, rank in enumerate(self.ranks):
            try:
                out, _ = rank.communicate(timeout=LIMIT)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"rank {number} has not ended after {LIMIT} s") from None
            if rank.returncode == 0 and b"\0" in out:
                results.append(pickle.loads(bytes.fromhex(out.rpartition(b"\0")[2].decode())))
            elif rank.returncode < 0:
                results.append(rank.returncode)
            else:
                self.outputs[number].seek(0)
                raise AssertionError(f"rank {number} ended with {rank.returncode}:\n{self.outputs[number].read().decode()}")
        return results


def run(where: str, size: int, *args: Any, **settings: Any) -> list[Any]:
    """Runs a function on each of `size` ranks, and returns their results."""
    with Job(where, size, *args, **settings) as job:
        return job.results()


def _main() -> None:
    signal.alarm(int(LIMIT) + 10)  # whatever becomes of the one that started it
    where, args = sys.argv[1], pickle.loads(bytes.fromhex(sys.argv[2]))
    module, _, function = where.partition(":")
    sys.path.insert(0, str(HERE))
    import importlib

    import intranode

    result = getattr(importlib.import_module(module), function)(intranode.world(), *args)
    print("\0" + pickle.dumps(result).hex(), end="")


if __name__ == "__main__":
    _main()
