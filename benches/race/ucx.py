"""UCX from PyPI, by its own `ucx_perftest`: messages between two processes, each bound to a core.

It sends the same bytes again and again, "unchanged", and does not look at what it receives. Where its package cannot be installed, it is
left out.
"""

import os
import socket
import subprocess
import time
from pathlib import Path

import jobs
import peers

NAME = "ucx"
# The test for each operation: tag matching, as in MPI.
TESTS = {"ping-pong": "tag_lat", "stream": "tag_bw"}
OPERATIONS = frozenset(TESTS)


def peer(work):
    """The installed library; `jobs.Failed` where it cannot be."""
    try:
        home = peers.install(NAME, ["libucx-cu12"], work)
        bench = next(home.glob("lib/python*/site-packages/libucx/bin/ucx_perftest"))
        version = peers.version_of(home, "libucx-cu12")
    except (subprocess.CalledProcessError, StopIteration) as error:
        raise jobs.Failed(f"its package from PyPI cannot be used: {error}") from None
    about = "ucx_perftest, transports posix and cma, bound to cores"
    return peers.Peer(
        NAME,
        version,
        about,
        lambda ranks, fit: ([], {}),
        frozenset([True]),
        home,
        bench,
        operations=OPERATIONS,
        measure=measure,
    )


def listens(port):
    """Whether a process of this machine waits for connections to this port."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return any(line.split()[3] == "0A" and line.split()[1].endswith(f":{port:04X}") for line in lines)


def measure(peer, operation, sizes, ranks, cores, seconds):
    """The rows of one operation: between two processes only."""
    if ranks != 2:
        return []
    return [one(peer, operation, size, seconds) for size in sizes]


def one(peer, operation, size, seconds):
    libraries = peer.bench.parent.parent / "lib"
    environment = dict(os.environ) | {
        "LD_LIBRARY_PATH": str(libraries),
        "UCX_MODULE_DIR": str(libraries / "ucx"),
        "UCX_TLS": "posix,cma,self",
    }
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    first, second = sorted(os.sched_getaffinity(0))[:2]
    # About as many as fit, of messages that take 5 GB/s or 0.2 µs.
    count = max(10, int(seconds / max(2e-7, size / 5e9)))
    options = ["-p", str(port), "-t", TESTS[operation], "-s", str(size), "-n", str(count), "-w", str(count // 10 + 1), "-f", "-v"]
    nowhere = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    server = jobs.Job(["taskset", "-c", str(first), peer.bench, "-p", str(port)], environment, **nowhere)
    try:
        deadline = time.monotonic() + 20
        while not listens(port):
            if time.monotonic() > deadline or server.process.poll() is not None:
                raise jobs.Failed("ucx_perftest does not listen")
            time.sleep(0.01)
        client = ["taskset", "-c", str(second), str(peer.bench), "127.0.0.1", *options]
        lines = jobs.run(client, environment, timeout=60 + 20 * seconds)
    finally:
        server.end()
    median = float(lines[-1].split(",")[1])
    # In a stream nothing else is measured of the others.
    buffers = "renewed" if operation == "stream" else "unchanged"
    return {"op": operation, "bytes": size, "ranks": 2, "buffers": buffers, "median_us": median, "repetitions": count}
