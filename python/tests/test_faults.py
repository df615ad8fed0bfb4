"""What fails raises, on every rank, with fields: over processes."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy
import pytest

import intranode
from intranode import Communicator, errors
from job import LIMIT, Job, run


def _fails(call: Any) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("no exception")


def killed(comm: Communicator) -> Any:
    comm.Barrier()
    if comm.rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return _fails(comm.Barrier), _fails(comm.Barrier)


def test_a_death_names_the_rank_and_its_process() -> None:
    with Job("test_faults:killed", 3) as job:
        pid = job.ranks[1].pid
        results = job.results()
    assert results[1] == -signal.SIGKILL
    for first, second in (results[0], results[2]):
        for error in (first, second):
            assert type(error) is intranode.RankDied and isinstance(error, ConnectionError)
            assert (error.rank, error.pid, error.operation, error.fatal) == (1, pid, "barrier", True)


def late(comm: Communicator) -> Any:
    if comm.rank == 1:
        time.sleep(1.5)
    return _fails(comm.Barrier)


def test_a_rank_that_does_not_come_is_late() -> None:
    error, other = run("test_faults:late", 2, timeout=0.3)
    assert isinstance(error, intranode.TimedOut) and isinstance(error, TimeoutError)
    assert (error.late, error.timeout, len(error.pids)) == ([1], 0.3, 1)
    assert isinstance(other, intranode.TimedOut) or isinstance(other, intranode.RankLeft)


def different(comm: Communicator) -> Any:
    error = _fails(comm.Barrier if comm.rank == 0 else lambda: comm.Bcast(numpy.zeros(7)))
    comm.Barrier()
    return error


def test_different_calls_are_named() -> None:
    for error in run("test_faults:different", 2):
        assert isinstance(error, intranode.Mismatch) and isinstance(error, ValueError) and not error.fatal
        assert error.calls == ["rank 0 called barrier", "rank 1 called bcast(7 × f64, root 0)"]


def named(_: Communicator) -> list[tuple[str, str]]:
    """The operation and the text of calls with a root that does not exist, and of objects that rank 1 cannot pickle."""
    from intranode import MPI

    world, buffer = MPI.COMM_WORLD, numpy.zeros(2)
    wrong = (lambda: None) if world.rank == 1 else None
    calls = [
        lambda: world.Bcast(buffer, 9),
        lambda: world.bcast(buffer, 9),
        lambda: world.Ibcast(buffer, 9),
        lambda: world.Ireduce(buffer, buffer, root=9),
        lambda: world.gather(None, 9),
        lambda: world.Ibarrier().Wait() if wrong else world.Ialltoall(buffer, buffer.copy()).Wait(),
        lambda: world.allgather(wrong),
        lambda: world.region(2).publish() if wrong else world.region(2).distribute(),
    ]
    errors = [_fails(call) for call in calls]
    return [(getattr(error, "operation", ""), str(error)) for error in errors]


def test_calls_have_the_names_of_python() -> None:
    found, _ = run("test_faults:named", 2)
    names = ["bcast", "bcast", "Ibcast", "Ireduce", "gather", "Ialltoall", "allgather"]
    assert [operation for operation, _ in found[:-1]] == names
    for name, (_, text) in zip(names, found, strict=False):
        assert text.startswith((f"{name}: ", f"{name}, ")) or "rank 1 called Ibarrier" in text
        assert not any(other in text for other in ("start_", "_vec", "broadcast"))
    assert found[-1][0] == "distribute" and "rank 1 called publish" in found[-1][1]
    # Only in errors of calls: elsewhere it may be a name of the user's.
    text = "the job /broadcast-1"
    assert str(intranode.InitializationFailed(text, operation="init")) == str(intranode.Error(text)) == text


def forked(comm: Communicator) -> str:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        error = _fails(comm.Barrier)
        os.write(write, type(error).__name__.encode())
        os._exit(0)
    os.waitpid(child, 0)
    comm.Barrier()
    return os.read(read, 100).decode()


def test_the_text_of_an_error_of_the_program_stays_as_it_is() -> None:
    text = "the job /broadcast-1"
    assert str(pickle.loads(pickle.dumps(intranode.Error(text)))) == text


def test_a_forked_child_is_no_rank() -> None:
    assert run("test_faults:forked", 2) == ["Forked", "Forked"]


def interrupted(comm: Communicator, handler: bool) -> Any:
    if handler:

        def ends(*_: Any) -> None:
            raise LookupError("of the handler")

        signal.signal(signal.SIGUSR1, ends)
    print("ready", flush=True)
    comm.Barrier()
    if comm.rank == 0:
        # The others are in a call for which this one never comes.
        time.sleep(30)
    try:
        comm.allgather(1)
    except BaseException as error:
        return type(error).__name__, getattr(error, "rank", None), time.monotonic()
    return None


@pytest.mark.parametrize("handler", [False, True])
def test_ctrl_c_ends_a_wait_within_100_ms(handler: bool) -> None:
    # Where other programs have the processors it may take longer; not each time.
    for _ in range(5):
        longest = _interrupted_within(handler)
        if longest < 0.1:
            return
    raise AssertionError(f"the last of five took {longest} s")


def _interrupted_within(handler: bool) -> float:
    with Job("test_faults:interrupted", 3, handler, timeout=60) as job:
        for rank in range(3):
            assert job.wait_for_line(rank) == b"ready\n"
        time.sleep(0.5)  # they poll first, then they sleep: any moment is a valid one
        sent = time.monotonic()
        job.ranks[1].send_signal(signal.SIGUSR1 if handler else signal.SIGINT)
        results = []
        for rank in (1, 2):
            out, _ = job.ranks[rank].communicate(timeout=20)
            results.append(pickle.loads(bytes.fromhex(out.rpartition(b"\0")[2].decode())))
    (own, _, own_time), (other, rank, other_time) = results
    assert own == ("LookupError" if handler else "KeyboardInterrupt")
    assert (other, rank) == ("Interrupted", 1)
    longest: float = max(own_time, other_time) - sent
    return longest


def test_ctrl_c_while_joining() -> None:
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            intranode.join(f"/intranode-alone-{os.getpid()}", 1, 2)
        except KeyboardInterrupt:
            os._exit(7)
        finally:
            os._exit(1)
    time.sleep(0.5)
    os.kill(child, signal.SIGINT)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


def test_settings_and_missing_ranks() -> None:
    with pytest.raises(intranode.InvalidConfiguration) as bad:
        intranode.join("/job", 4, 4)
    assert (bad.value.setting, bad.value.value, bad.value.fatal) == ("rank", "4", True)
    with pytest.raises(intranode.InitializationFailed) as failed:
        intranode.join(f"/intranode-missing-{os.getpid()}", 1, 2, join_timeout=0.05)
    assert failed.value.missing == [0]


@pytest.mark.parametrize(
    ("setting", "numbers", "allowed"),
    [
        ("rank", (-1, 2), "0 to 1, since size is 2"),
        ("rank", (1 << 70, 2), "0 to 1, since size is 2"),
        ("size", (0, -1), "1 to 65536"),
        ("size", (0, 1 << 70), "1 to 65536"),
    ],
)
def test_numbers_that_no_rank_has(setting: str, numbers: tuple[int, int], allowed: str) -> None:
    with pytest.raises(intranode.InvalidConfiguration) as bad:
        intranode.join("/job", *numbers)
    value = str(numbers[setting == "size"])
    assert (bad.value.setting, bad.value.value, bad.value.allowed) == (setting, value, allowed)
    assert str(bad.value) == f'{setting} is "{value}"; allowed is {allowed}'


@pytest.mark.parametrize("time_out", [-1.0, 0.0, 1e-12, 1e300, float("inf"), float("nan")])
def test_time_outs_that_none_can_be(time_out: float) -> None:
    for setting in ("timeout", "join_timeout"):
        with pytest.raises(intranode.InvalidConfiguration) as bad:
            intranode.join("/job", 0, 1, **{setting: time_out})
        assert (bad.value.setting, bad.value.allowed) == (setting, "a positive number of seconds up to 1e19, or None")
        assert len(bad.value.value or "") <= 6


def test_a_code_that_no_exit_has() -> None:
    with intranode.join(f"/intranode-code-{os.getpid()}", 0, 1) as comm:
        for code in (1 << 40, -(1 << 40)):
            with pytest.raises(ValueError, match=f"{code} is no exit code"):
                comm.abort(code)


def advised(_: Communicator) -> list[str]:
    """What the errors of messages advise."""
    from intranode import MPI

    world = MPI.COMM_WORLD
    world.Send(numpy.zeros(10), 0)
    calls = [lambda: world.Recv(numpy.zeros(2), 0), lambda: world.Send(numpy.zeros(100_000), 0)]
    return [str(_fails(call)) for call in calls]


def test_errors_advise_what_python_has() -> None:
    truncated, no_room = run("test_faults:advised", 1)[0]
    assert "recv_vec" not in truncated and "Probe" in truncated
    assert "start_send" not in no_room and "Isend" in no_room


def short_of_memory(comm: Communicator) -> list[str]:
    """Rank 0 has no memory for private copies of a buffer."""
    from intranode import MPI

    world, buffer = MPI.COMM_WORLD, numpy.zeros(1 << 28, "u1")
    alone = [
        lambda: world.Isend(buffer, comm.rank),
        lambda: world.Irecv(buffer, comm.rank),
        lambda: world.Recv(buffer, comm.rank),
    ]
    together = [
        lambda: world.Ibcast(buffer).Wait(),
        lambda: world.Iallreduce(MPI.IN_PLACE, buffer).Wait(),
        lambda: world.Ialltoall(MPI.IN_PLACE, buffer).Wait(),
    ]
    limits = resource.getrlimit(resource.RLIMIT_AS)
    if comm.rank == 0:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (1 << 27), limits[1]))
    found = [type(_fails(call)).__name__ for call in (together if comm.rank else alone + together)]
    resource.setrlimit(resource.RLIMIT_AS, limits)
    world.Barrier()
    return found


def test_too_little_memory_for_private_copies_is_an_error() -> None:
    assert run("test_faults:short_of_memory", 2) == [["AllocationFailed"] * 6, ["Refused"] * 3]


def test_ranks_on_several_nodes_are_told_what_python_has() -> None:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("INTRANODE_")}
    variables |= {f"OMPI_COMM_WORLD_{name}": value for name, value in (("RANK", "0"), ("SIZE", "4"), ("LOCAL_RANK", "0"))}
    variables |= {"OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "job", "PMIX_SERVER_URI41": "here"}
    command = [sys.executable, "-c", "import intranode; intranode.world()"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=LIMIT, check=False)
    last = done.stderr.splitlines()[-1]
    assert done.returncode == 1 and "INTRANODE_SCOPE=node" in last and "intranode_mpi" not in last, done.stderr


def test_errors_are_pickled_with_their_fields() -> None:
    for name in errors.__all__:
        error = getattr(errors, name)("a text", rank=3, fatal=False)
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.rank, again.fatal) == (type(error), "a text", 3, False)


def refusals(comm: Communicator) -> list[tuple[str, str]]:
    """On rank 0 an argument is wrong, in ways that are found before the compiled part."""
    from intranode import MPI

    world, size, is_wrong = MPI.COMM_WORLD, comm.size, comm.rank == 0
    one, many, wide = numpy.ones(1), numpy.ones(size), numpy.ones(size * size)
    own = MPI.Op.Create(lambda a, b, datatype: None)

    def given(wrong: Any, right: Any) -> Any:
        return wrong if is_wrong else right

    calls: dict[str, Any] = {
        "Allreduce: op": lambda: world.Allreduce(many, many.copy(), given(max, MPI.SUM)),
        "Reduce: op": lambda: world.Reduce(many, many.copy(), given(max, MPI.SUM)),
        "Scan: op": lambda: world.Scan(many, many.copy(), given(max, MPI.SUM)),
        "Exscan: op": lambda: world.Exscan(many, many.copy(), given(max, MPI.SUM)),
        "Reduce: root": lambda: world.Reduce(many, many.copy(), MPI.SUM, given("0", 0)),
        "Bcast: root": lambda: world.Bcast(many, given("0", 0)),
        "bcast: root": lambda: world.bcast(1, given("0", 0)),
        "bcast: negative root": lambda: world.bcast(1, given(-1, 0)),
        "gather: root": lambda: world.gather(1, given(None, 0)),
        "Allgatherv: nothing": lambda: world.Allgatherv(many, given(None, [wide, [size] * size])),
        "Allgatherv: counts": lambda: world.Allgatherv(many, wide, given(3, [size] * size)),
        "Allgatherv: counts twice": lambda: world.Allgatherv(many, given([wide, [size] * size], wide), [size] * size),
        "Alltoallv: nothing": lambda: world.Alltoallv(
            given(MPI.IN_PLACE, [many, [1] * size]), given(None, [many.copy(), [1] * size])
        ),
        "Reduce_scatter: buffer": lambda: world.Reduce_scatter(many, given(5, one)),
        "Reduce_scatter: counts": lambda: world.Reduce_scatter(many, one, given(5, [1] * size)),
        "Reduce_scatter: op": lambda: world.Reduce_scatter(many, one, [1] * size, given(own, MPI.SUM)),
        "split": lambda: comm.split(given(-1, 0)),
        "region": lambda: comm.region(given(1 << 70, 4)),
        "Ibcast: buffer": lambda: world.Ibcast(given(5, many)).Wait(),
        "Iallreduce: op": lambda: world.Iallreduce(many, many.copy(), given(max, MPI.SUM)).Wait(),
        "Iallreduce: length": lambda: world.Iallreduce(many, given(one, many.copy())).Wait(),
        "Ireduce_scatter: counts": lambda: world.Ireduce_scatter(many, one, given([-1] * size, [1] * size)).Wait(),
        "Ireduce_scatter: length": lambda: world.Ireduce_scatter(many, given(one[:0], one), [1] * size).Wait(),
        "Ireduce_scatter: type": lambda: world.Ireduce_scatter(many, given(numpy.ones(1, "i8"), one), [1] * size).Wait(),
        "Ireduce_scatter_block: buffer": lambda: world.Ireduce_scatter_block(given(5, many), one).Wait(),
        "Iallgather: buffer": lambda: world.Iallgather(given(5, many), wide).Wait(),
        "Iallgatherv: nothing": lambda: world.Iallgatherv(many, given(None, [wide, [size] * size])).Wait(),
        "Ialltoall: buffer": lambda: world.Ialltoall(given(5, many), many.copy()).Wait(),
        "Ialltoall: type": lambda: world.Ialltoall(many, given(numpy.ones(size, "i8"), many.copy())).Wait(),
        "Ialltoallv: nothing": lambda: world.Ialltoallv([many, [1] * size], given(None, [many.copy(), [1] * size])).Wait(),
        "Igather: buffer": lambda: world.Igather(given(5, many), wide).Wait(),
        "Iscatter: buffer": lambda: world.Iscatter(given(5, many), one).Wait(),
        "Iscatter: type": lambda: world.Iscatter(many, given(numpy.ones(1, "i8"), one)).Wait(),
    }
    seen = []
    for name, call in calls.items():
        error = _fails(call)
        seen.append((name, "Refused" if type(error) is intranode.Refused else "own"))
        comm.Barrier()
    return seen


def test_every_wrong_argument_is_refused_on_all_ranks() -> None:
    own, other = run("test_faults:refusals", 2)
    assert [each for each in own if each[1] != "own"] == [] and len(own) == 33
    assert [each for each in other if each[1] != "Refused"] == []
