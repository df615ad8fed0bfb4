"""Requests of messages, datatypes and splits, as `intranode.MPI` has them: over processes."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import numpy
import pytest

import intranode
from intranode import Communicator
from job import Job, run


def some_complete(comm: Communicator) -> list[float]:
    """Requests of which one is complete on one side, and two are not, whose messages come in the other order."""
    from intranode import MPI

    world, found = MPI.COMM_WORLD, numpy.zeros(3)
    big = numpy.ones(1 << 20)
    if comm.rank == 0:
        both = world.Isendrecv(big, 1, 1, found[:1], 1, 5)
        others = [world.Irecv(found[place : place + 1], 1, 5 + place) for place in (1, 2)]
        world.Barrier()
        MPI.Request.Waitall([both, *others])
    else:
        world.Barrier()
        for value in (5.0, 7.0, 6.0):
            time.sleep(0.3)
            world.Send(numpy.array([value]), 0, int(value))
        world.Recv(big, 0, 1)
    return list(found)


def test_a_message_goes_to_its_own_request() -> None:
    assert run("test_requests:some_complete", 2)[0] == [5.0, 6.0, 7.0]


def twice(comm: Communicator) -> list[Any]:
    """A request twice in a list, and by two handles."""
    from intranode import MPI

    world, found = MPI.COMM_WORLD, numpy.zeros(2)
    total, maximum = numpy.zeros(1), numpy.zeros(1)
    if comm.rank == 0:
        first, second = (world.Irecv(found[place : place + 1], 1, place) for place in range(2))
        MPI.Request.Waitall([first, first])
        other = MPI.Request(second)
        other.Wait()
        assert not first and not second and not other
        text = MPI.Request(world.irecv(source=1)).wait()
    else:
        for place in range(2):
            time.sleep(0.1)
            world.Send(numpy.array([place + 1.0]), 0, place)
        text = "text"
        world.send(text, 0)
    started = [world.Iallreduce(numpy.full(1, comm.rank + 1.0), total), world.Iallreduce(numpy.ones(1), maximum, MPI.MAX)]
    MPI.Request(started[0]).Wait()
    MPI.Request.Waitall(started)
    return [*found, text, total[0], maximum[0]]


def test_a_request_may_be_there_twice() -> None:
    assert run("test_requests:twice", 2) == [[1.0, 2.0, "text", 3.0, 1.0], [0.0, 0.0, "text", 3.0, 1.0]]


def too_long(comm: Communicator) -> list[str]:
    """The message of one receive is too long: that is an error of this receive only."""
    from intranode import MPI

    world, found = MPI.COMM_WORLD, numpy.zeros(2)
    raised = []
    if comm.rank == 0:
        short, other = world.Irecv(found[:1], 1, 1), world.Irecv(found[1:], 1, 2)
        world.Probe(1, 3)
        for wait in (lambda: world.Send(found, 1), other.Wait, short.Wait):
            try:
                wait()
                raised.append("")
            except intranode.Truncated as error:
                raised.append(f"{error.rank} {error.bytes} {error.capacity}")
    else:
        world.Send(numpy.ones(2), 0, 1)
        world.Send(numpy.ones(1), 0, 3)
        world.Recv(found, 0)
        world.Send(numpy.ones(1), 0, 2)
    return raised


def test_an_error_is_that_of_its_request() -> None:
    assert run("test_requests:too_long", 2)[0] == ["", "", "1 16 8"]


def handles(comm: Communicator) -> str:
    """A handler of a signal that calls in the middle of a call."""
    from intranode import MPI

    if comm.rank == 1:
        try:
            MPI.COMM_WORLD.recv(source=0)
        except intranode.Interrupted as error:
            return f"{error.rank}"

    signal.signal(signal.SIGUSR1, lambda *_: MPI.COMM_WORLD.Iprobe())
    print("ready", flush=True)
    try:
        MPI.COMM_WORLD.recv(source=1)
    except RuntimeError as error:
        return str(error)
    return "no error"


def test_a_handler_cannot_call_in_the_middle_of_a_call() -> None:
    with Job("test_requests:handles", 2) as job:
        assert job.wait_for_line(0) == b"ready\n"
        time.sleep(0.2)
        job.ranks[0].send_signal(signal.SIGUSR1)
        first, second = job.results()
    assert first.startswith("a handler of a signal called") and second == "0"


def waits_for_a_thread(comm: Communicator) -> str:
    """Ctrl-C while a thread of this rank is in a call on the same messages."""
    import threading

    from intranode import MPI

    world = MPI.COMM_WORLD
    if comm.rank == 1:
        world.recv(source=0)
        return ""
    thread = threading.Thread(target=lambda: world.recv(source=1, tag=1), daemon=True)
    thread.start()
    time.sleep(0.2)
    print("ready", flush=True)
    try:
        world.Send(numpy.zeros(1), 1)
    except KeyboardInterrupt:
        os.kill(os.getpid(), signal.SIGKILL)
    return "sent"


def test_ctrl_c_ends_the_wait_for_another_thread() -> None:
    with Job("test_requests:waits_for_a_thread", 2) as job:
        assert job.wait_for_line(0) == b"ready\n"
        time.sleep(0.2)
        job.ranks[0].send_signal(signal.SIGINT)
        assert job.ranks[0].wait(10) == -signal.SIGKILL


def derived(comm: Communicator) -> list[Any]:
    """What MPICH says of the same: where it begins, its extent, and the values, of two elements or of one."""
    from intranode import MPI

    world, number = MPI.COMM_WORLD, MPI.DOUBLE
    inner = number.Create_indexed([1], [1])
    results = []
    for datatype, count in (
        (inner, 2),
        (number.Create_indexed_block(1, [2, 4]), 2),
        (inner.Create_vector(2, 1, 2), 1),
        (inner.Create_contiguous(2), 1),
        (number.Create_contiguous(0), 2),
        (number.Create_resized(-8, 16), 2),
    ):
        found, status = numpy.zeros(10), MPI.Status()
        request = world.Irecv(found, comm.rank)
        world.Send([numpy.arange(10.0), count, datatype], comm.rank)
        request.Wait(status)
        number_of = status.Get_count(number)
        results.append((datatype.Get_extent(), list(found[:number_of]), status.Get_elements(datatype)))
    world.Send(numpy.arange(2.0), comm.rank)
    with pytest.raises(BufferError, match="read-only"):
        world.Recv([bytes(80), 2, inner], comm.rank)
    world.Recv([found, 2, inner], comm.rank)
    assert list(found[:3]) == [0, 0, 1]
    with pytest.raises(ValueError, match="do not fit"):
        world.Send([numpy.arange(10.0), 1, number.Create_vector(2, 1, -1)], comm.rank)
    for derive, counts in (
        (number.Create_contiguous, (-1,)),
        (number.Create_vector, (-1, 1, 1)),
        (number.Create_vector, (2, -1, 1)),
        (number.Create_indexed, ([1, -1], [0, 0])),
        (number.Create_indexed_block, (-1, [0])),
    ):
        with pytest.raises(ValueError, match="cannot have -1"):
            derive(*counts)
    return results


def test_datatypes_begin_where_their_first_item_does() -> None:
    assert run("test_requests:derived", 1)[0] == [
        ((8, 8), [1.0, 2.0], 2),
        ((16, 24), [2.0, 4.0, 5.0, 7.0], 4),
        ((8, 24), [1.0, 3.0], 2),
        ((8, 16), [1.0, 2.0], 2),
        ((0, 0), [], 0),
        ((-8, 16), [0.0, 2.0], 2),
    ]


def parts(comm: Communicator) -> tuple[int, list[str]]:
    """Ranks without a color, where the color of others is the number of ranks; and wrong ones."""
    from intranode import MPI

    world = MPI.COMM_WORLD
    part = world.Split(comm.size if comm.rank else MPI.UNDEFINED)
    size = part.allreduce(1) if part else 0
    raised = []
    wrongs: list[Any] = [-1, "a", 1 << 70]
    for wrong in wrongs:
        try:
            world.Split(wrong if comm.rank == 1 else 0)
        except (ValueError, TypeError) as error:
            raised.append(type(error).__name__)
    return size, raised


def test_a_color_is_that_of_nobody_without_one() -> None:
    assert run("test_requests:parts", 3) == [
        (0, ["Refused"] * 3),
        (2, ["ValueError", "TypeError", "ValueError"]),
        (2, ["Refused"] * 3),
    ]


def nothing_comes(comm: Communicator) -> list[Any]:
    """Waits for one of several ends as other waits do: by the time-out, without using a processor until then."""
    from intranode import MPI

    world, raised = MPI.COMM_WORLD, []
    if comm.rank == 1:
        while not world.Iprobe(source=0):
            time.sleep(0.01)
        return []
    for wait in (MPI.Request.Waitany, MPI.Request.Waitsome):
        before = time.process_time()
        try:
            wait([world.irecv(source=1), world.Irecv(numpy.zeros(1), 1)])
        except intranode.TimedOut as error:
            raised.append((type(error).__name__, time.process_time() - before < 0.5))
    world.send(None, 1)
    return raised


def test_a_wait_for_one_of_several_times_out() -> None:
    assert run("test_requests:nothing_comes", 2, timeout=1.0)[0] == [("TimedOut", True)] * 2


def many(comm: Communicator) -> float:
    """The processor's time of a wait for many receives, which ends only with the first of them."""
    from intranode import MPI

    world, found, number = MPI.COMM_WORLD, numpy.zeros(3000), 3000
    if comm.rank == 1:
        world.Barrier()
        for place in reversed(range(number)):
            send = world.Ssend if place % 100 == 0 else world.Send
            send(numpy.full(1, place + 1.0), 0, place)
        return 0.0
    requests = [world.Irecv(found[place : place + 1], 1, place) for place in range(number)]
    world.Barrier()
    before = time.process_time()
    MPI.Request.Waitall(requests)
    assert list(found) == [place + 1 for place in range(number)]
    return time.process_time() - before


def test_a_wait_for_many_does_not_compare_all_with_all() -> None:
    assert run("test_requests:many", 2, timeout=60.0)[0] < 1.5


def halves(comm: Communicator) -> list[Any]:
    """Waits for one of several of which some have nothing to receive, by lists and tuples."""
    from intranode import MPI

    world, big = MPI.COMM_WORLD, numpy.ones(1 << 20)
    if comm.rank == 1:
        world.Barrier()
        world.Recv(big, 0)
        return []
    both = world.Isendrecv(big, 1, 0, None, MPI.PROC_NULL)
    world.Barrier()
    found = [MPI.Request.Waitany([MPI.Request(), both]), MPI.Request.Waitany([both])]
    statuses = (MPI.Status(), MPI.Status())
    world.send("text", 0)
    MPI.Request.Waitall([world.irecv(source=0)], statuses)
    found.append(statuses[0].source)
    return found


def test_a_request_may_have_nothing_to_receive() -> None:
    assert run("test_requests:halves", 2)[0] == [1, -32766, 0]


def no_ranks(_: Communicator) -> None:
    """Numbers that are no ranks, and no tags."""
    from intranode import MPI

    world = MPI.COMM_WORLD
    for wrong in ((-5, 0), (0, -1), (0, 1 << 64)):
        for call in (world.send, world.Send):
            with pytest.raises(ValueError, match="is no (rank|tag)"):
                call(bytearray(1), *wrong)
    for source, tag in ((-5, 0), (0, -2)):
        with pytest.raises(ValueError, match="is no (rank|tag)"):
            world.irecv(None, source, tag)


def test_wrong_ranks_and_tags_say_so() -> None:
    assert run("test_requests:no_ranks", 1) == [None]


def in_order(comm: Communicator) -> list[Any]:
    """Receives of objects that were started before their messages, of which the first are the longest."""
    from intranode import MPI

    world, results = MPI.COMM_WORLD, []
    lengths = [300_000, 3, 100_000, 0]
    for first in (False, True):
        if comm.rank == 0:
            requests = [world.irecv(source=1) for _ in lengths]
            last = numpy.zeros(1 << 17, "u1")
            requests.append(world.Irecv(last, 1))
            world.Barrier()
            if first:
                requests[-1].Wait()
            results.append([None if each is None else len(each) for each in MPI.Request.waitall(requests)] + [last[:2].tolist()])
        else:
            world.Barrier()
            for length in lengths:
                world.send("a" * length, 0)
            world.Send(numpy.full(2, 7, "u1"), 0)
    return results


def test_objects_come_in_the_order_of_their_receives() -> None:
    assert run("test_requests:in_order", 2)[0] == [[300_000, 3, 100_000, 0, None, [7, 7]]] * 2


def forgotten(comm: Communicator) -> list[int]:
    """Sends whose requests nobody keeps."""
    from intranode import MPI

    world, lengths = MPI.COMM_WORLD, [10, 100_000, 10_000_000]
    if comm.rank == 0:
        for length in lengths:
            world.isend("a" * length, 1)
        world.Isend(numpy.zeros(1_000_000), 1).Free()
        world.Barrier()
        world.Barrier()
        assert world.isend(None, 1).Test()
        assert world._kept == []
        return []
    world.Barrier()
    received = [len(world.recv(source=0)) for _ in lengths]
    world.Recv(numpy.ones(1_000_000), 0)
    world.Barrier()
    world.recv(source=0)
    return received


def test_a_send_goes_on_without_its_request() -> None:
    assert run("test_requests:forgotten", 2)[1] == [10, 100_000, 10_000_000]


def looked_for(comm: Communicator, way: str) -> list[Any]:
    """Rank 1 sends what is looked for when a receive that was started has received."""
    from intranode import MPI

    world, big, status = MPI.COMM_WORLD, numpy.ones(1 << 17), MPI.Status()
    if comm.rank == 1:
        world.Send(big, 0, 1)
        world.Send(big[:3], 0, 2)
        return []
    found = numpy.zeros(1 << 17)
    receiving = world.Irecv(found, 1, 1)
    if way == "Probe":
        world.Probe(1, 2, status)
    else:
        end = time.monotonic() + 20
        while not world.Iprobe(1, 2, status) and time.monotonic() < end:
            time.sleep(0)
    results = [status.tag, status.Get_count(MPI.DOUBLE), bool(receiving.Test()), float(found.sum())]
    world.Recv(found, 1, 2)
    return results


@pytest.mark.parametrize("way", ["Probe", "Iprobe"])
def test_receives_go_on_in_a_probe(way: str) -> None:
    assert run("test_requests:looked_for", 2, way, timeout=5.0)[0] == [2, 3, True, float(1 << 17)]


def found_nothing(comm: Communicator) -> list[Any]:
    """A probe ends by the time-out, and without using a processor until then, also where a receive goes on."""
    from intranode import MPI

    world, raised = MPI.COMM_WORLD, []
    if comm.rank == 1:
        while not world.Iprobe(source=0):
            time.sleep(0.01)
        return []
    receiving = world.Irecv(numpy.zeros(1), 1, 1)
    before = time.process_time()
    try:
        world.Probe(1, 2)
    except intranode.TimedOut as error:
        raised.append((error.late, time.process_time() - before < 0.5))
    world.send(None, 1)
    receiving.Cancel()
    return raised


def test_a_probe_times_out_while_receives_go_on() -> None:
    assert run("test_requests:found_nothing", 2, timeout=1.0)[0] == [([1], True)]


def beside_one_that_left(comm: Communicator) -> list[Any]:
    """Rank 2 has left, for which a receive of rank 0 waits: an error of this receive only."""
    from intranode import MPI

    world, found, results = MPI.COMM_WORLD, numpy.zeros(2), list[Any]()
    part = world.Dup()
    if comm.rank == 2:
        # Of messages: the others know at once, and go on.
        part._mail = None
    if comm.rank == 1:
        part.Recv(found[:1], 0)
        part.Send(found[:1] + 1, 0, 2)
        part.Probe(0, 3)
        part.Send(found[:1] + 2, 0, 3)
        part.Recv(found[:1], 0, 3)
    if comm.rank == 0:
        lost = part.Irecv(found[:1], 2)
        while not results:
            try:
                lost.Get_status()
            except intranode.RankLeft as error:
                results.append(error.rank)
        kept = part.Irecv(found[:1], 2)
        other = part.Irecv(found[1:], 1, 2)
        part.Send(numpy.ones(1), 1)
        other.Wait()
        results.append(found[1])
        part.Send(found[:1], 1, 3)
        part.Probe(1, 3)
        MPI.Request.Waitany([part.Irecv(found[1:], 1, 3)])
        results.append(found[1])
        try:
            kept.Wait()
        except intranode.RankLeft as error:
            results.append(error.rank)
    comm.barrier()
    return results


def test_a_rank_that_left_is_an_error_of_its_receives() -> None:
    assert run("test_requests:beside_one_that_left", 3)[0] == [2, 2.0, 3.0, 2]


def sent_to_one_that_left(comm: Communicator) -> list[Any]:
    """What `Bsend` could not send is in the way of no other send."""
    from intranode import MPI

    world, found = MPI.COMM_WORLD, numpy.zeros(1)
    part = world.Dup()
    if comm.rank == 0:
        part.Bsend(numpy.zeros(1 << 20), 2)
    world.Barrier()
    if comm.rank == 2:
        part._mail = None
    world.Barrier()
    if comm.rank == 0:
        for _ in range(2):
            part.Isend(numpy.ones(1), 1).Wait()
    if comm.rank == 1:
        for _ in range(2):
            part.Recv(found, 0)
    world.Barrier()
    return [found[0], len(part._kept)]


def test_a_send_to_one_that_left_is_no_error_of_another() -> None:
    assert run("test_requests:sent_to_one_that_left", 3)[:2] == [[0.0, 0], [1.0, 0]]


def again(_: Communicator) -> list[Any]:
    """A persistent request that was cancelled once."""
    from intranode import MPI

    world, found, status, results = MPI.COMM_WORLD, numpy.zeros(1), MPI.Status(), list[Any]()
    request = world.Recv_init(found, 0)
    for value in range(3):
        request.Start()
        if value == 1:
            request.Cancel()
        else:
            world.Send(numpy.full(1, value + 1.0), 0)
        request.Wait(status)
        results.append((status.Is_cancelled(), found[0]))
    return results


def test_a_request_is_cancelled_until_it_is_started_again() -> None:
    assert run("test_requests:again", 1) == [[(False, 1.0), (True, 1.0), (False, 3.0)]]


def started_twice(_: Communicator) -> list[Any]:
    """Persistent requests that are active, freed and null; what was started before is not lost."""
    from intranode import MPI

    world, found, errors = MPI.COMM_WORLD, numpy.zeros(1), list[str]()

    def start(request: MPI.Prequest) -> None:
        with pytest.raises(intranode.InvalidArgument) as raised:
            request.Start()
        errors.append(str(raised.value))

    request = world.Recv_init(found, 0)
    request.Start()
    start(request)
    world.Send(numpy.full(1, 7.0), 0)
    request.Wait()
    request.Start()
    world.Send(numpy.full(1, found[0] + 1), 0)
    request.Wait()
    request.Free()
    start(request)
    start(MPI.Prequest())
    return [found[0], *errors]


def test_a_request_that_is_active_or_freed_is_not_started() -> None:
    active, freed = "Start: the request is active: wait for it before", "Start: the request is null, or was freed"
    assert run("test_requests:started_twice", 1) == [[8.0, active, freed, freed]]


def beside_a_wait(comm: Communicator, path: str) -> list[Any]:
    """A thread waits for two requests, one of which is complete, and another thread takes what that has received."""
    from threading import Thread

    from intranode import MPI

    world = MPI.COMM_WORLD
    if comm.rank == 1:
        world.send("text", 0, 1)
        while not Path(path).exists():
            time.sleep(0.01)
        world.send("end", 0, 2)
        return []
    post = world._post
    done, open_ = post.start_recv_bytes(1, 1), post.start_recv_bytes(1, 2)
    done.wait()
    thread = Thread(target=lambda: post.wait_any([done, open_]))
    thread.start()
    received = []
    for _ in range(30):  # it waits in most of these
        time.sleep(0.01)
        received.append(done.received())
    Path(path).touch()
    thread.join()
    return [len(set(received)), open_.test() is not None]


def test_a_complete_request_is_not_locked_by_a_wait(tmp_path: Path) -> None:
    assert run("test_requests:beside_a_wait", 2, str(tmp_path / "taken"), timeout=5.0)[0] == [1, True]


def matched(_: Communicator) -> None:
    """A message that was found by a matched probe is that of its receive alone."""
    from intranode import MPI

    world = MPI.COMM_WORLD
    other = 1 - world.rank
    for length in (1, 300_000):
        sends = [world.Isend(numpy.full(length, float(turn)), other, 5) for turn in range(3)]
        status, found = MPI.Status(), numpy.zeros(length)
        first = world.Mprobe(MPI.ANY_SOURCE, MPI.ANY_TAG, status)
        assert (status.source, status.tag, status.Get_count(MPI.DOUBLE)) == (other, 5, length)
        second = MPI.Message.Probe(world, other, 5)
        world.Recv(found, other, 5)
        assert (found == 2).all() and not world.Iprobe(other, 5) and world.Improbe(other, 5) is None
        # One that is longer is kept. What is not received is there again.
        try:
            second.Recv(numpy.zeros(0))
            raise AssertionError("it is longer")
        except intranode.Truncated as short:
            assert (short.rank, short.bytes, short.capacity) == (other, 8 * length, 0)
        assert second
        del second
        world.Recv(found, other, 5, status)
        assert (found == 1).all() and not world.Iprobe(other, 5)
        # Into every second place, of a request that is not waited for at once.
        spread = numpy.zeros(2 * length - 1)
        receiving = first.Irecv([spread, 1, MPI.DOUBLE.Create_vector(length, 1, 2)])
        assert not first
        spread[:] = 7
        receiving.Wait(status)
        assert (spread[::2] == 0).all() and (spread[1::2] == 7).all() and status.tag == 5
        assert MPI.Request.Get_status_all(sends) or length > 1
        MPI.Request.Waitall(sends)
        assert MPI.Request.Get_status_all(sends) and MPI.Request.Get_status_some(sends) is None
        with pytest.raises(ValueError, match="null"):
            first.Recv(found)
    sending = world.isend({"from": world.rank}, other, 6)
    message = world.mprobe(other, 6)
    both = [message.irecv(), sending]
    while not MPI.Request.Get_status_all(both):
        place, flag = MPI.Request.Get_status_any(both)
        assert flag == (place != MPI.UNDEFINED)
    assert MPI.Request.Get_status_some(both) == [0, 1]
    assert MPI.Request.waitall(both)[0] == {"from": other}


def test_a_message_that_was_matched_is_that_of_its_receive() -> None:
    assert run("test_requests:matched", 2) == [None, None]
