"""Functions and scripts in processes of their own; and how else processes and threads become ranks."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
import types
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import intranode
from job import run as run_job


def total(factor: int, offset: int = 0) -> Any:
    comm = intranode.world()
    intranode.report(("started", comm.size))
    return comm.allreduce(comm.rank * factor) + offset


def fails(rank: int) -> None:
    comm = intranode.world()
    comm.barrier()
    if comm.rank == rank:
        raise LookupError("of this rank")
    comm.barrier()
    time.sleep(60)


def hangs(rank: int) -> None:
    if intranode.world().rank == rank:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def test_results_by_rank_and_progress() -> None:
    seen: list[Any] = []
    results = intranode.run(total, 3, (10,), {"offset": 1}, progress=lambda rank, value: seen.append((rank, value)))
    assert results == [31, 31, 31]
    assert sorted(seen) == [(rank, ("started", 3)) for rank in range(3)]
    captured = 5
    assert intranode.run(lambda: (intranode.world().rank, captured), 2) == [(0, 5), (1, 5)]


def test_the_first_failure_ends_the_rest() -> None:
    began = time.monotonic()
    with pytest.raises(LookupError, match="of this rank") as failed:
        intranode.run(fails, 3, (1,))
    assert any("on rank 1 of 3" in note for note in failed.value.__notes__)
    with pytest.raises(RuntimeError, match="rank 2 ended without a result: it was killed by SIGKILL"):
        intranode.run(hangs, 3, (2,))
    assert time.monotonic() - began < 30


def fails_by_a_class_of_its_own() -> None:
    plugin = types.ModuleType("plugin")
    exec("class Wrong(Exception): pass", plugin.__dict__)
    sys.modules["plugin"] = plugin
    raise plugin.Wrong("text")


def test_a_failure_is_told_where_its_class_is_missing() -> None:
    with pytest.raises(RuntimeError, match="Wrong: text") as failed:
        intranode.run(fails_by_a_class_of_its_own, 1)
    assert any("on rank 0 of 1" in note for note in failed.value.__notes__)
    assert any("fails_by_a_class_of_its_own" in note for note in failed.value.__notes__)


def fails_while_another_reports() -> None:
    if intranode.world().rank == 0:
        raise LookupError("of this rank")
    while True:
        intranode.report(0)


def test_ranks_that_report_without_end_are_ended() -> None:
    began = time.monotonic()
    with pytest.raises(LookupError, match="of this rank"):
        intranode.run(fails_while_another_reports, 2, progress=lambda *_: time.sleep(0.001))
    assert time.monotonic() - began < 30


def is_interrupted_in_a_report() -> None:
    def raises(*_: object) -> None:
        raise LookupError("in the middle")

    signal.signal(signal.SIGALRM, raises)
    intranode.report(os.getpid())
    intranode.report(bytes(8 << 20))
    time.sleep(30)


def test_a_report_that_is_interrupted_is_whole() -> None:
    # What came behind a part of a message was taken for the rest of it, so the exception was lost.
    seen: list[Any] = []

    def progress(_: int, value: Any) -> None:
        seen.append(value)
        if isinstance(value, int):
            # The pipe fills meanwhile.
            time.sleep(1.0)
            os.kill(value, signal.SIGALRM)

    with pytest.raises(LookupError, match="in the middle"):
        intranode.run(is_interrupted_in_a_report, 1, progress=progress)
    # On a loaded machine it may not have begun.
    assert seen[1:] in ([], [bytes(8 << 20)])


def is_killed_with_a_child(lives: str) -> None:
    if os.fork() == 0:
        until = time.monotonic() + 60
        while os.path.exists(lives) and time.monotonic() < until:
            time.sleep(0.05)
        os._exit(0)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_forked_child_does_not_keep_run_waiting(tmp_path: Path) -> None:
    lives = tmp_path / "lives"
    lives.touch()
    began = time.monotonic()
    try:
        with pytest.raises(RuntimeError, match="it was killed by SIGKILL"):
            intranode.run(is_killed_with_a_child, 1, (str(lives),))
        assert time.monotonic() - began < 30
    finally:
        lives.unlink()


SCRIPT = """
import numpy, intranode
class Pair:
    def __init__(self, rank): self.rank = rank
OFFSET = 7
def helper(value): return value + OFFSET
def function(factor):
    comm = intranode.world()
    return Pair(comm.allreduce(helper(comm.rank) * factor))
print([pair.rank for pair in intranode.run(function, 2, (10,))])
"""


def test_a_script_needs_no_guard(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    # From a file, as a notebook's cells, and from standard input.
    for arguments, text in ([str(script)], None), (["-c", SCRIPT], None), (["-"], SCRIPT):
        done = subprocess.run(
            [sys.executable, *arguments], input=text, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.stdout == "[150, 150]\n", done.stderr


def launch(size: int, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    arguments = [sys.executable, "-m", "intranode", "-n", str(size), *command]
    return subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False, **options)


KINDS = """
import dataclasses, enum, intranode
@dataclasses.dataclass
class Point:
    x: int
    tags: list = dataclasses.field(default_factory=list, metadata={"unit": 1})
@dataclasses.dataclass
class Named(Point):
    name: str = "none"
class Color(enum.Enum):
    RED = 1
class Slotted:
    __slots__ = ("x",)
def function(point):
    again = dataclasses.replace(point, x=intranode.world().rank)
    return Named(**dataclasses.asdict(again)), [field.name for field in dataclasses.fields(Named)]
for named, names in intranode.run(function, 2, (Point(5, ["a"]),)):
    print(type(named) is Named, dataclasses.replace(named, name="b"), names, named.tags is not Point(1).tags)
for kind in Color, Slotted:
    try:
        intranode.run(lambda: kind, 1)
    except Exception as error:
        print(type(error).__name__, str(error).partition(",")[0])
"""


def test_dataclasses_go_by_value() -> None:
    # Without cloudpickle, whether it is installed or not.
    code = "import sys; sys.modules['cloudpickle'] = None; exec(sys.stdin.read())"
    done = subprocess.run([sys.executable, "-c", code], input=KINDS, capture_output=True, text=True, timeout=60, check=False)
    rows = [f"True Named(x={rank}, tags=['a'], name='b') ['x', 'tags', 'name'] True" for rank in range(2)]
    rows += [f"PicklingError {kind} of __main__ is an enumeration" for kind in ("Color", "Slotted")]
    assert done.stdout.splitlines() == rows, done.stderr


GLOBALS = """
import math, os.path, intranode
used, default, nested, in_comprehension, in_class, in_lambda = range(6)
written = loop = None
unpicklable = (each for each in ())
class Attributes:
    unpicklable = 9
def function(value=default):
    global written
    written = used
    class Inner:
        own = in_class
    def inner():
        return nested + sum(in_comprehension for _ in range(2)) + (lambda: in_lambda)()
    return [used, value, inner(), Inner.own, Attributes.unpicklable, math.floor(2.5), os.path.basename("a/b"), written, __name__]
print(intranode.run(function, 1)[0])
def names():
    return sorted(set(globals()) & {"used", "nested", "in_class", "in_lambda", "loop", "unpicklable", "names"})
print(intranode.run(names, 1)[0])
"""


def test_the_globals_that_a_function_uses_go_along() -> None:
    """Those of nested code too; not those whose names only attributes have."""
    code = "import sys; sys.modules['cloudpickle'] = None; exec(sys.stdin.read())"
    done = subprocess.run([sys.executable, "-c", code], input=GLOBALS, capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.splitlines() == ["[0, 1, 13, 4, 9, 2, 'b', 0, '__main__']", "['names']"], done.stderr


def leaves_a_program() -> int:
    """Its identifier: of one that inherits what it can."""
    with open(os.devnull, "w") as nothing:
        return subprocess.Popen(["sleep", "60"], close_fds=False, stdout=nothing, stderr=nothing).pid


def test_a_program_that_a_rank_has_left_is_not_waited_for() -> None:
    began = time.monotonic()
    (left,) = intranode.run(leaves_a_program, 1)
    os.kill(left, signal.SIGKILL)  # it was there
    assert time.monotonic() - began < 40


LEAVES = """
import os, sys, time
from intranode import MPI
world = MPI.COMM_WORLD
if world.rank == 0:
    world.send(os.getpid(), 1)
    world.Bsend(bytearray(1 << 20), 1)
    if sys.argv[1] == "fails":
        raise LookupError("of this rank")
else:
    program, end = f"/proc/{world.recv(source=0)}/exe", time.monotonic() + 1
    while os.path.exists(program) and time.monotonic() < end:  # until it has ended
        time.sleep(0.01)
    world.recv(source=0, tag=1) if sys.argv[1] == "fails" else world.Recv(bytearray(1 << 20), 0)
    print("received")
"""


def test_a_rank_leaves_when_what_it_has_buffered_is_received(tmp_path: Path) -> None:
    script = tmp_path / "leaves.py"
    script.write_text(LEAVES)
    done = launch(2, str(script), "ends")
    assert (done.returncode, done.stdout) == (0, "received\n"), done.stderr
    # After an exception it does not wait for the others, which may wait for it.
    began = time.monotonic()
    done = launch(2, str(script), "fails")
    assert done.returncode == 1 and "LookupError" in done.stderr and time.monotonic() - began < 40, done.stderr


LEAVES_ANY = """
import gc, os, sys, time
from intranode import MPI
world, big, way = MPI.COMM_WORLD, bytearray(1 << 20), sys.argv[1]
comm = {"world": lambda: world, "split": lambda: world.Split(0, world.rank)}.get(way, world.Dup)()
if world.rank == 0:
    for dest in 2, 2, 1:
        comm.Bsend(big, dest)
pids = world.allgather(os.getpid())
receives = [comm.Irecv(big, 0) for _ in range(2)] if world.rank == 2 else []
if way == "freed":
    comm.Free()
if world.rank == 0:
    comm = None
    gc.collect()
elif world.rank == 2:
    end = time.monotonic() + 1
    for rank in 1, 0:  # until they have ended
        while os.path.exists(f"/proc/{pids[rank]}/exe") and time.monotonic() < end:
            time.sleep(0.01)
    MPI.Request.Waitall(receives)
    print("received")
"""


@pytest.mark.parametrize("way", ["world", "split", "gone", "freed"])
def test_a_rank_leaves_when_what_any_communicator_has_buffered_is_received(way: str, tmp_path: Path) -> None:
    """Another receiver leaves before. The program may not name the communicator any more, or have freed it."""
    script = tmp_path / "leaves.py"
    script.write_text(LEAVES_ANY)
    done = launch(3, str(script), way)
    assert (done.returncode, done.stdout) == (0, "received\n"), done.stderr


def test_a_sub_interpreter_is_refused() -> None:
    code = (
        "try: import _interpreters as many\n"
        "except ImportError: import _xxsubinterpreters as many\n"
        "text = 'import intranode\\nintranode.world()'\n"
        "other = many.create()\n"
        "try: print((many.exec if hasattr(many, 'exec') else many.run_string)(other, text))\n"
        "except Exception as error: print(error)\n"
        "many.destroy(other)\n"
        "import intranode\n"
        "print(intranode.world().allgather(1))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    refused, works = done.stdout.splitlines()
    assert "ImportError" in refused and works == "[1]", done.stderr


def test_the_launcher(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    # A line in one write: `print` makes two where Python does not buffer, and those of several ranks mix.
    script.write_text(
        "import intranode, os, sys\ncomm = intranode.world()\nos.write(1, f'{comm.allgather(sys.argv[1:])}\\n'.encode())\n"
    )
    done = launch(2, str(script), "a", "-n")
    assert (done.returncode, done.stdout) == (0, "[['a', '-n'], ['a', '-n']]\n" * 2), done.stderr
    # What was chosen for another launcher does not make each rank a job of its own.
    done = launch(2, str(script), env=os.environ | {"INTRANODE_LAUNCHER": "none"})
    assert (done.returncode, done.stdout) == (0, "[[], []]\n" * 2), done.stderr
    script.write_text(
        "import intranode, sys, time\ncomm = intranode.world()\ncomm.barrier()\n"
        "if comm.rank == 1: sys.exit(9)\ntime.sleep(60)\n"
    )
    done = launch(3, str(script))
    assert done.returncode == 9 and "rank 1 exited with 9; the other ranks are ended" in done.stderr
    done = launch(2, "--", "/no/such/program")
    assert done.returncode == 127 and "/no/such/program" in done.stderr
    done = launch(0, str(script))
    assert done.returncode == 2 and "at least one rank" in done.stderr


@pytest.mark.parametrize("how", ["sys.exit(3)", "comm.abort(3)", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_the_launcher_reports_the_cause_and_not_what_others_got_of_it(how: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    # Rank 1 has left when rank 0 gets its error, and its process ends after that of rank 0.
    script.write_text(
        "import atexit, os, signal, sys, time\n"
        "if os.environ['INTRANODE_RANK'] == '1': atexit.register(time.sleep, 0.3)\n"
        "from intranode import MPI\ncomm = MPI.COMM_WORLD\ncomm.Barrier()\n"
        f"if comm.rank == 1: {how}\n"
        "comm.Barrier()\n"
    )
    done = launch(2, str(script))
    code = 3 if "3" in how else 128 + signal.SIGKILL
    assert done.returncode == code, done.stderr
    assert "rank 0 exited" not in done.stderr, done.stderr


def test_the_launcher_passes_options_to_a_module(tmp_path: Path) -> None:
    (tmp_path / "module.py").write_text("import os, sys\nos.write(1, f'{sys.argv[1:]}\\n'.encode())\n")
    for options in (["-n", "3", "--timeout", "none"], ["--help"], ["a", "-m", "b"], ["--", "-x"], []):
        done = launch(2, "-m", "module", *options, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"{options}\n" * 2), done.stderr
        done = launch(2, "--timeout", "5", "-mmodule", *options, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, f"{options}\n" * 2), done.stderr
    program = (tmp_path / "module.py").read_text()
    for script in ("module.py", "-"):
        done = launch(1, script, "a", "-mb", "-n", "3", cwd=tmp_path, input=program)
        assert (done.returncode, done.stdout) == (0, "['a', '-mb', '-n', '3']\n"), done.stderr
    done = launch(2, "-m")
    assert done.returncode == 2 and "script" in done.stderr


def test_a_signal_without_a_name(tmp_path: Path) -> None:
    number = signal.SIGRTMIN + 1
    script = tmp_path / "script.py"
    script.write_text(
        "import intranode, os, time\ncomm = intranode.world()\ncomm.barrier()\n"
        f"if comm.rank == 1: os.kill(os.getpid(), {number})\ntime.sleep(60)\n"
    )
    done = launch(2, str(script))
    assert done.returncode == 128 + number
    assert f"rank 1 was killed by signal {number}; the other ranks are ended" in done.stderr
    with pytest.raises(RuntimeError, match=f"rank 0 ended without a result: it was killed by signal {number}\n"):
        intranode.run(lambda: os.kill(os.getpid(), number), 1)


INTERRUPTED = """
import os, sys, intranode
before = len(os.listdir("/proc/self/fd"))
try:
    intranode.run(len, 2, (bytes(1 << 24),), env=os.environ | {"PYTHONPATH": sys.argv[1], "INTRANODE_TEST_STARTED": sys.argv[2]})
except KeyboardInterrupt:
    print("interrupted", len(os.listdir("/proc/self/fd")) - before)
"""


@pytest.mark.parametrize("child", ["waits", "ends"])
def test_ctrl_c_while_a_rank_is_told_what_to_run(child: str, tmp_path: Path) -> None:
    """The rank does not read, or Ctrl-C ends it too, as at a terminal. It is ended, and the interruption is raised."""
    started = tmp_path / "started"
    (tmp_path / "sitecustomize.py").write_text(
        "import os, time\nname = os.environ.get('INTRANODE_TEST_STARTED')\n"
        "if name:\n    with open(name + '~', 'w') as file: file.write(str(os.getpid()))\n"
        "    os.rename(name + '~', name)\n    time.sleep(60)\n"
    )
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path), str(started)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as caller:
        try:
            end = time.monotonic() + 30
            while not started.exists() and time.monotonic() < end:
                time.sleep(0.01)
            rank = int(started.read_text())
            if child == "ends":
                os.kill(caller.pid, signal.SIGSTOP)
                os.kill(rank, signal.SIGKILL)
                os.kill(caller.pid, signal.SIGINT)
                os.kill(caller.pid, signal.SIGCONT)
            else:
                os.kill(caller.pid, signal.SIGINT)
            output, errors = caller.communicate(timeout=20)
        except BaseException:
            caller.kill()
            raise
    assert output == "interrupted 0\n", errors
    with pytest.raises(ProcessLookupError):
        os.kill(rank, 0)


def test_a_process_that_is_not_started_leaves_no_descriptors() -> None:
    before = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(ValueError, match="null"):
            intranode.run(total, 2, (1,), env=os.environ | {"NAME": "\0"})
    assert os.listdir("/proc/self/fd") == before


def test_the_launcher_passes_signals_on(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import intranode, os\ncomm = intranode.world()\ncomm.barrier()\nos.write(1, b'ready\\n')\n"
        "while True: comm.barrier()\n"
    )
    command = [sys.executable, "-m", "intranode", "-n", "2", str(script)]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as launcher:
        assert launcher.stdout is not None
        try:
            assert [launcher.stdout.readline() for _ in range(2)] == [b"ready\n"] * 2
        except BaseException:
            launcher.terminate()
            raise
        launcher.send_signal(signal.SIGTERM)
        _, errors = launcher.communicate(timeout=30)
    assert launcher.returncode == 128 + signal.SIGTERM, errors


def member(name: str, rank: int, size: int) -> int:
    with intranode.join(name, rank, size) as comm:
        result = comm.allreduce(rank)
        comm.barrier()
    assert isinstance(result, int)
    return result


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_processes_of_multiprocessing_can_join(method: str) -> None:
    name = f"/intranode-{method}-{os.getpid()}"
    context: Any = multiprocessing.get_context(method)
    processes = [context.Process(target=member, args=(name, rank, 3)) for rank in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    with ProcessPoolExecutor(2, mp_context=context) as pool:
        futures = [pool.submit(member, name, rank, 2) for rank in range(2)]
        assert [future.result(60) for future in futures] == [1, 1]


POOL = """
import multiprocessing, os, sys
from intranode import MPI
def square(x):
    return x * x, MPI.COMM_WORLD.size
if __name__ == "__main__":
    squares = None
    if MPI.COMM_WORLD.rank == 0:
        with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
            squares = pool.map(square, range(3))
    os.write(1, f"{MPI.COMM_WORLD.bcast(squares)}\\n".encode())
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_of_a_rank_are_alone(method: str, tmp_path: Path) -> None:
    # They import the script, which joins, with the variables of the rank. They waited for the ranks of a job that had begun.
    script = tmp_path / "pool.py"
    script.write_text(POOL)
    done = launch(2, str(script), method)
    assert (done.returncode, done.stdout) == (0, "[(0, 1), (1, 1), (4, 1)]\n" * 2), done.stderr


def _as_torchrun(rank: int) -> dict[str, str]:
    places = {"RANK": rank, "WORLD_SIZE": 2, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": 2, "MASTER_PORT": 29500}
    return {name: str(place) for name, place in places.items()} | {"TORCHELASTIC_RUN_ID": "none"}


def _as_mpiexec(rank: int) -> dict[str, str]:
    places = {"RANK": rank, "SIZE": 2, "LOCAL_RANK": rank, "LOCAL_SIZE": 2}
    variables = {f"OMPI_COMM_WORLD_{name}": str(place) for name, place in places.items()}
    return variables | {"PMIX_NAMESPACE": f"python-{os.getpid()}@1"}


@pytest.mark.parametrize("variables", [_as_torchrun, _as_mpiexec])
def test_workers_of_a_rank_of_another_launcher_are_alone(variables: Any, tmp_path: Path) -> None:
    # Their parent is the server of forks, not the rank. Each took the rank's variables, failed, and was replaced by another one.
    script = tmp_path / "pool.py"
    script.write_text(POOL)
    command = [sys.executable, str(script), "forkserver"]
    own = {name: value for name, value in os.environ.items() if not name.startswith(("INTRANODE_", "OMPI_", "PMI", "SLURM_", "TORCH"))}
    settings: Any = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "start_new_session": True}
    ranks = [subprocess.Popen(command, env=own | variables(rank), **settings) for rank in range(2)]
    try:
        done = [rank.communicate(timeout=60) for rank in ranks]
    finally:
        for rank in ranks:
            # With its workers.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()
    assert [out for out, _ in done] == [b"[(0, 1), (1, 1), (4, 1)]\n"] * 2, done


def test_a_rank_starts_another_job(tmp_path: Path) -> None:
    script = tmp_path / "outer.py"
    inner = "import os; from intranode import MPI; os.write(1, b'%d ' % MPI.COMM_WORLD.size)"
    command = f"[sys.executable, '-m', 'intranode', '-n', '3', '--', sys.executable, '-c', {inner!r}]"
    script.write_text(f"import subprocess, sys\nfrom intranode import MPI\nsubprocess.run({command}, check=True)\n")
    done = launch(1, str(script))
    assert (done.returncode, done.stdout) == (0, "3 " * 3), done.stderr


def test_threads_can_join() -> None:
    results: list[int] = []
    name = f"/intranode-threads-{os.getpid()}"
    threads = [threading.Thread(target=lambda r=rank: results.append(member(name, r, 3))) for rank in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert results == [3, 3, 3]


def overlapping(comm: intranode.Communicator) -> list[str]:
    """Two calls at once, one of which waits: an error for both, and for the other rank."""
    seen: list[str] = []

    def call() -> None:
        try:
            comm.barrier()
        except intranode.Error as error:
            seen.append(type(error).__name__)

    if comm.rank == 1:
        while not seen:
            # Rank 0 has ended the communicator, or will.
            time.sleep(0.5)
            call()
        return seen
    threads = [threading.Thread(target=call) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return sorted(seen)


def test_threads_of_a_rank_may_not_overlap() -> None:
    assert run_job("test_run:overlapping", 2) == [["ConcurrentUse", "Poisoned"], ["Poisoned"]]


def test_the_launcher_is_called_as_mpiexec_is(tmp_path: Path) -> None:
    script = tmp_path / "size.py"
    script.write_text("import os, intranode; os.write(1, b'%d ' % intranode.world().size)")
    command = [sys.executable, "-m", "intranode", "-np", "2"]
    done = subprocess.run([*command, str(script)], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "2 2 "), done.stderr
    for rest in ([str(script), "-n", "1"], ["-m", "this", "-np", "1"]):
        assert subprocess.run([*command, *rest], capture_output=True, timeout=60, check=False).returncode == 0
    # A program, where the script stands.
    done = subprocess.run([*command, "python", "a b.py"], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2 and "there is no script python; a program is started by -n 2 -- python 'a b.py'" in done.stderr
