"""Jobs that are ended completely: a mark in the environment identifies all processes of a job."""

import contextlib
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

MARK = "INTRANODE_RACE"


def tell(progress):
    """Shows the current step on the terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{progress}", end="", file=sys.stderr, flush=True)


def row(operation, ranks, times):
    """The row of an operation without a size, from some times in microseconds."""
    times = sorted(times)
    median = times[len(times) // 2]
    return {"op": operation, "bytes": 0, "ranks": ranks, "median_us": median, "min_us": times[0], "max_us": times[-1]}


def end_when_told():
    """SIGTERM ends this program by an exception, so that the job that is running ends with it."""
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))


class Failed(Exception):
    """The job has failed; the message contains its output."""


class Job:
    """A command with all processes that it starts."""

    def __init__(self, command, environment, **options):
        self.mark = f"{MARK}={uuid.uuid4()}".encode()
        name, value = self.mark.decode().split("=")
        environment = environment | {name: value}
        self.process = subprocess.Popen(command, env=environment, start_new_session=True, **options)

    def pids(self):
        """The live processes of the job, without zombies."""
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit():
                # It may have ended meanwhile, or belong to another user.
                with contextlib.suppress(OSError):
                    if self.mark in (entry / "environ").read_bytes().split(b"\0"):
                        found.append(int(entry.name))
        return found

    def end(self):
        """Kills the remaining processes."""
        deadline = time.monotonic() + 10
        while (left := self.pids()) and time.monotonic() < deadline:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)
        self.process.wait()
        if left:
            raise Failed(f"processes {left} do not end")


def run(command, environment, timeout):
    """The lines that a job prints."""
    job = Job(command, environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        out, error = job.process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        raise Failed(f"not done after {timeout} s") from None
    finally:
        job.end()
    if job.process.returncode != 0:
        raise Failed(f"status {job.process.returncode}: {error.strip()[-500:]}")
    return out.splitlines()
