//! Ranks that leave, die, or stop.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use intranode::{Communicator, Error, Messages, Operation, Request, Source, Tag};
use nix::sys::signal::{Signal, kill, raise};
use nix::unistd::Pid;

use super::refused::refuse_reading;
use super::{EAGER, await_stopped, bytes, pair};
use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};

/// Longer than a busy machine keeps a rank from a processor.
const TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn rows() -> Vec<Scenario> {
    vec![
        row!(message_20_head_to_head).ranks(&[2]).timeout(TIMEOUT),
        row!(message_20_nothing_comes).ranks(&[2, 4]).timeout(TIMEOUT),
        row!(message_22_send_then_leave).ranks(&[2, 4]),
        row!(message_22_others_go_on_after_a_rank_has_left).ranks(&[4]),
        row!(message_22_a_receiver_leaves_when_too_much_has_come).ranks(&[2]).timeout(Duration::from_secs(20)),
        row!(message_22_to_oneself_after_all_others_have_left).ranks(&[2, 3]),
        row!(message_22_to_oneself_after_all_others_have_left_where_memory_cannot_be_read).ranks(&[2, 3]),
        row!(message_22_without_communicators).ranks(&[2]).timeout(TIMEOUT),
        row!(message_23_who_stops_after_a_death_is_not_its_cause).ranks(&[3]).last_is_killed(),
        row!(message_23_send_then_die).ranks(&[2, 4]).last_is_killed(),
        row!(message_23_die_without_communicators).ranks(&[2, 4]).last_is_killed(),
        row!(message_23_die_after_another_has_left)
            .ranks(&[4])
            .processes_only()
            .ends(|rank, _| if rank == 2 { -9 } else { 0 }),
        row!(message_23_taken_then_die).ranks(&[2]).last_is_killed(),
        row!(message_23_behind_long_ones_that_are_lost).ranks(&[2, 3]).last_is_killed(),
        row!(message_23_probe_behind_many).ranks(&[2]).last_is_killed(),
        row!(message_23_test_behind_many).ranks(&[2]).last_is_killed(),
        row!(message_24_the_receiver_dies).ranks(&[2]).last_is_killed(),
        row!(message_25_the_sender_dies)
            .ranks(&[2])
            .processes_only()
            .ends(|rank, _| if rank == 0 { -9 } else { 0 }),
        row!(message_26_the_receiver_is_frozen).ranks(&[2]).processes_only().timeout(TIMEOUT),
    ]
}

/// Both send a long message, and none receives.
fn message_20_head_to_head(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let data = bytes(rank, 1 << 20);
    let error = messages.send(&data, other, 1).expect_err("nobody receives");
    ensure_matches!(error, Error::TimedOut { operation: Operation::Send, late, .. } if **late == [other]);
    ensure!(!error.is_fatal() && error.to_string().contains("did not receive"), "{error}");
    // The message was not sent, and the next one is.
    comm.barrier()?;
    messages.send(&[rank], other, 1)?;
    let mut received = [9];
    messages.recv(&mut received, other, 1)?;
    ensure!(received == [other]);
    still_works(&comm)
}

/// What a rank sends itself comes all the same.
fn message_22_to_oneself_after_all_others_have_left(comm: Communicator) -> Outcome {
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    if rank != 0 {
        drop(messages);
        return still_works(&comm);
    }
    for other in 1..comm.size() {
        let error = messages.recv(&mut [0u8], other, 9).expect_err("it has left");
        ensure_matches!(error, Error::RankLeft { rank, .. } if *rank == other);
        ensure!(!error.is_fatal() && error.to_string().contains("has dropped its messages"), "{error}");
    }
    for len in [8, EAGER, 8 << 20] {
        let (data, mut received) = (bytes(len, len), vec![0u8; len]);
        for source in [Source::Rank(0), Source::Any] {
            received.fill(0);
            messages.sendrecv(&data, 0, &mut received, source, 1)?;
            ensure!(received == data, "{len} bytes from {source:?}");
            received.fill(0);
            let mut sending = messages.start_send_synchronous(&data, 0, 2)?;
            let mut receiving = messages.start_recv(&mut received, source, 2)?;
            messages.wait_all(&mut [&mut sending, &mut receiving])?;
            drop(receiving);
            ensure!(received == data, "{len} bytes from {source:?}, started");
        }
    }
    // Another receive has got what this rank has sent itself.
    let mut first = [0u8];
    let mut receiving = messages.start_recv(&mut first, Source::Any, 1)?;
    messages.send(&[7u8], 0, 1)?;
    let error = messages.recv(&mut [0u8], Source::Any, 2).expect_err("nobody sends");
    ensure_matches!(error, Error::RankLeft { .. });
    messages.wait(&mut receiving)?;
    drop(receiving);
    ensure!(first == [7]);
    still_works(&comm)
}

fn message_22_to_oneself_after_all_others_have_left_where_memory_cannot_be_read(comm: Communicator) -> Outcome {
    refuse_reading()?;
    message_22_to_oneself_after_all_others_have_left(comm)
}

fn message_20_nothing_comes(comm: Communicator) -> Outcome {
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    let other = (rank + 1) % comm.size();
    let error = messages.recv(&mut [0u8], other, 1).expect_err("nobody sends");
    ensure_matches!(error, Error::TimedOut { operation: Operation::Recv, late, .. } if **late == [other]);
    let error = messages.probe(Source::Any, Tag::Any).expect_err("nobody sends");
    ensure_matches!(error, Error::TimedOut { operation: Operation::Probe, late, .. } if late.len() == comm.size() - 1);
    ensure!(!error.is_fatal() && error.to_string().contains("no message"), "{error}");
    // Each rank is named once, in order.
    let others: Vec<usize> = (0..comm.size()).filter(|other| *other != rank).collect();
    let mut buffers = vec![[0u8]; 2 * others.len()];
    let mut receivings = Vec::new();
    for (buffer, from) in buffers.iter_mut().zip(others.iter().rev().chain(&others)) {
        receivings.push(messages.start_recv(buffer, *from, 1)?);
    }
    let mut requests: Vec<_> = receivings.iter_mut().map(|one| one as &mut dyn Request).collect();
    let error = messages.wait_all(&mut requests).expect_err("nobody sends");
    ensure_matches!(error, Error::TimedOut { operation: Operation::Recv, late, .. } if **late == others);
    let error = messages.probe_with(other, 2, &mut requests).expect_err("nobody sends");
    ensure_matches!(error, Error::TimedOut { operation: Operation::Probe, late, .. } if **late == [other]);
    still_works(&comm)
}

/// The last rank leaves. The others know afterwards.
fn message_22_send_then_leave(comm: Communicator) -> Outcome {
    let (mut messages, rank, last) = (comm.messages()?, comm.rank(), comm.size() - 1);
    if rank == last {
        for to in 0..last {
            messages.send(&bytes(to, 3000), to, 1)?;
            messages.send(&[to], to, 2)?;
        }
        drop(messages);
        return Ok(comm.leave()?);
    }
    // Only now, so that the sender has gone.
    while comm.barrier().is_ok() {}
    ensure!(messages.recv_vec::<u8>(last, 1)?.0 == bytes(rank, 3000));
    ensure!(messages.recv_vec::<usize>(Source::Any, 2)?.0 == [rank]);
    ensure_matches!(messages.recv(&mut [0u8], last, Tag::Any), Err(Error::RankLeft { rank, .. }) if *rank == last);
    ensure_matches!(messages.send(&[0u8], last, 1), Err(Error::RankLeft { rank, .. }) if *rank == last);
    Ok(())
}

fn message_22_others_go_on_after_a_rank_has_left(comm: Communicator) -> Outcome {
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    if rank == 3 {
        return Ok(());
    }
    while comm.barrier().is_ok() {}
    for turn in 0..100 {
        let mut received = vec![0; 100_000];
        let (next, previous) = ((rank + 1) % 3, (rank + 2) % 3);
        messages.sendrecv(&bytes(rank + turn, 100_000), next, &mut received, previous, 1)?;
        ensure!(received == bytes(previous + turn, 100_000));
    }
    Ok(())
}

/// What has come and was not received does not keep a send from its error.
fn message_22_a_receiver_leaves_when_too_much_has_come(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 1 {
        // Until the other one takes nothing in any more.
        let mut sent = Instant::now();
        while sent.elapsed() < Duration::from_millis(200) {
            if messages.try_send(&[0u8; 10], other, 2)? {
                sent = Instant::now();
            }
        }
        drop(messages);
        return Ok(());
    }
    let error = messages.send(&bytes(1, 1 << 20), other, 1).expect_err("nobody receives");
    ensure_matches!(error, Error::RankLeft { rank: 1, .. });
    Ok(())
}

/// All ranks have dropped their communicators: messages go on, and time out.
fn message_22_without_communicators(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    comm.leave()?;
    let error = messages.recv(&mut [0u8], other, 1).expect_err("nobody sends");
    ensure_matches!(error, Error::TimedOut { late, .. } if **late == [other]);
    let (data, mut received) = (bytes(rank, 100_000), vec![0; 100_000]);
    messages.sendrecv(&data, other, &mut received, other, 2)?;
    ensure!(received == bytes(other, 100_000));
    Ok(())
}

/// Who has the error first drops its messages. Another rank finds that before it finds the error.
fn message_23_who_stops_after_a_death_is_not_its_cause(comm: Communicator) -> Outcome {
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    let others = comm.split(usize::from(rank == 2), rank)?;
    match rank {
        0 => {
            others.barrier()?;
            ensure_matches!(messages.recv(&mut [0u8], 1, 1), Err(Error::RankDied { rank: 2, .. }));
        }
        1 => {
            ensure_matches!(messages.recv(&mut [0u8], 2, 1), Err(Error::RankDied { rank: 2, .. }));
            drop(messages);
            others.barrier()?;
        }
        _ => die()?,
    }
    Ok(())
}

fn die() -> Outcome {
    raise(Signal::SIGKILL)?;
    unreachable!("it cannot be caught")
}

fn message_23_send_then_die(comm: Communicator) -> Outcome {
    let (mut messages, rank, last) = (comm.messages()?, comm.rank(), comm.size() - 1);
    if rank == last {
        for to in 0..last {
            messages.send(&bytes(to, 3000), to, 1)?;
            messages.send(&[to], to, 2)?;
        }
        return die();
    }
    ensure!(messages.recv_vec::<u8>(last, 1)?.0 == bytes(rank, 3000));
    ensure!(messages.recv_vec::<usize>(Source::Any, 2)?.0 == [rank]);
    let started = Instant::now();
    let error = messages.recv(&mut [0u8], last, Tag::Any).expect_err("it has died");
    ensure_matches!(error, Error::RankDied { rank, .. } if *rank == last);
    // 50 ms on a machine of one's own.
    ensure!(started.elapsed() < Duration::from_secs(1), "it took {:?}", started.elapsed());
    Ok(())
}

/// A death is noticed also where nobody has a communicator any more.
fn message_23_die_without_communicators(comm: Communicator) -> Outcome {
    let (mut messages, rank, last) = (comm.messages()?, comm.rank(), comm.size() - 1);
    comm.leave()?;
    if rank == last {
        for to in 0..last {
            messages.send(&[to], to, 1)?;
        }
        return die();
    }
    ensure!(messages.recv_vec::<usize>(last, 1)?.0 == [rank]);
    let error = messages.recv(&mut [0u8], last, Tag::Any).expect_err("it has died");
    ensure_matches!(error, Error::RankDied { rank, .. } if *rank == last);
    Ok(())
}

/// One rank leaves, and another dies: it ends the waits of all, also for those who are there.
fn message_23_die_after_another_has_left(comm: Communicator) -> Outcome {
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    if rank == 3 {
        return Ok(());
    }
    while comm.barrier().is_ok() {}
    if rank == 2 {
        messages.recv(&mut [0u8], 0, 1)?;
        messages.recv(&mut [0u8], 1, 1)?;
        return die();
    }
    messages.send(&[0u8], 2, 1)?;
    // Rank 0 may leave before rank 1 knows.
    let source = if rank == 0 { Source::Any } else { Source::Rank(1) };
    let error = messages.recv(&mut [0u8], source, 2).expect_err("a rank has died");
    ensure_matches!(error, Error::RankDied { rank: 2, .. });
    Ok(())
}

/// Their sender does not wait for a receiver.
const LENGTHS: [usize; 3] = [10, 41_185, EAGER];

/// Messages that were taken before their sender has died, and some that were not, are received whole afterwards.
fn message_23_taken_then_die(comm: Communicator) -> Outcome {
    const WAYS: usize = 3;
    let (mut messages, rank, other) = pair(&comm)?;
    let numbered = || (0..).zip((0..WAYS).flat_map(|way| LENGTHS.map(|len| (way, len))));
    // The second half is for `recv`.
    let behind = (WAYS * LENGTHS.len()) as u64;
    if rank == 1 {
        for (tag, (way, len)) in numbered().chain(numbered().map(|(tag, sent)| (tag + behind, sent))) {
            let data = bytes(tag as usize, len);
            match way {
                0 => messages.send(&data, other, tag)?,
                1 => ensure!(messages.try_send(&data, other, tag)?, "there is room"),
                _ => {
                    let mut sending = messages.start_send(&data, other, tag)?;
                    ensure!(messages.test(&mut sending)?.is_some(), "there is room");
                }
            }
        }
        messages.recv(&mut [0u8], other, 100)?;
        return die();
    }
    let mut taken = Vec::new();
    for (tag, _) in numbered() {
        taken.push(loop {
            if let Some(message) = messages.take(other, tag)? {
                break message;
            }
        });
    }
    messages.send(&[0u8], other, 100)?;
    let error = messages.recv(&mut [0u8], other, 101).expect_err("it has died");
    ensure_matches!(error, Error::RankDied { rank: 1, .. });
    for ((tag, (way, len)), message) in numbered().zip(taken) {
        let mut received = vec![0; len];
        let envelope = messages.recv_taken(message, &mut received)?;
        ensure!((envelope.tag, envelope.bytes) == (tag, len));
        ensure!(received == bytes(tag as usize, len), "{len} bytes, sent in way {way}");
    }
    for (tag, (way, len)) in numbered().map(|(tag, sent)| (tag + behind, sent)) {
        let received = messages.recv_vec::<u8>(other, tag)?.0;
        ensure!(received == bytes(tag as usize, len), "{len} bytes, sent in way {way}");
    }
    Ok(())
}

/// A long message that dies with its sender is not in the way of what that has sent behind it.
fn message_23_behind_long_ones_that_are_lost(comm: Communicator) -> Outcome {
    let mut messages = comm.messages()?;
    let (rank, last) = (comm.rank(), comm.size() - 1);
    if rank == last {
        for (tag, to) in (0..4).flat_map(|tag| (0..last).map(move |to| (tag, to))) {
            std::mem::forget(messages.start_send(&bytes(0, 1 << 20), to, 9)?);
            messages.send(&[tag as u8; 10], to, tag)?;
        }
        return die();
    }
    while comm.barrier().is_ok() {}
    // A process that ends can be read until its memory is torn down.
    refuse_reading()?;
    let mut received = vec![0u8; 1 << 20];
    let envelope = messages.recv(&mut received, last, Tag::Any)?;
    ensure!((envelope.tag, &received[..10]) == (0, &[0; 10][..]));
    let (received_vec, envelope) = messages.recv_vec::<u8>(Source::Any, Tag::Any)?;
    ensure!((envelope.tag, &received_vec[..]) == (1, &[1; 10][..]));
    let mut receiving = messages.start_recv(&mut received, Source::Any, Tag::Any)?;
    let envelopes = messages.wait_all(&mut [&mut receiving])?;
    ensure!(envelopes[0].tag == 2);
    let taken = messages.take(Source::Any, Tag::Any)?.context("it has come")?;
    ensure!(taken.envelope().tag == 9);
    ensure_matches!(messages.recv_taken(taken, &mut received), Err(Error::RankDied { rank, .. }) if *rank == last);
    let taken = messages.take(Source::Any, Tag::Any)?.context("it has come")?;
    ensure!(taken.envelope().tag == 3);
    messages.recv_taken(taken, &mut received)?;
    for _ in 0..2 {
        let gone = messages.recv(&mut received, Source::Any, Tag::Any);
        ensure_matches!(gone, Err(Error::RankDied { rank, .. }) if *rank == last);
    }
    ensure_matches!(messages.try_probe(last, 9), Err(Error::RankDied { .. }));
    Ok(())
}

/// More than is taken in at once stands before the last message of a rank that has died: `find` finds that message, and not the error.
fn behind_many(comm: Communicator, find: impl FnOnce(&mut Messages) -> Outcome) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 1 {
        for tag in (0..60).map(|number| if number < 59 { 2 } else { 1 }) {
            messages.send(&[7u8; 10], other, tag)?;
        }
        return die();
    }
    while comm.barrier().is_ok() {}
    find(&mut messages)?;
    ensure_matches!(messages.try_probe(other, 3), Err(Error::RankDied { rank: 1, .. }));
    Ok(())
}

fn message_23_probe_behind_many(comm: Communicator) -> Outcome {
    behind_many(comm, |messages| {
        let found = messages.try_probe(1, 1)?;
        ensure!(found.is_some_and(|envelope| envelope.bytes == 10));
        Ok(())
    })
}

fn message_23_test_behind_many(comm: Communicator) -> Outcome {
    behind_many(comm, |messages| {
        let mut received = [0u8; 10];
        let mut receiving = messages.start_recv(&mut received, Source::Any, 1)?;
        ensure!(messages.test(&mut receiving)?.is_some());
        ensure!(received == [7; 10]);
        Ok(())
    })
}

/// Kills this process a while after it has begun.
fn die_soon() {
    let pause = Duration::from_micros(fastrand::u64(0..20_000));
    std::thread::spawn(move || {
        std::thread::sleep(pause);
        // An error is found by the exit status.
        let _ = die();
    });
}

fn message_24_the_receiver_dies(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    comm.barrier()?;
    if rank == 1 {
        die_soon();
        let mut received = vec![0u8; 16 << 20];
        loop {
            messages.recv(&mut received, other, 1)?;
        }
    }
    let data = bytes(0, 16 << 20);
    let error = loop {
        if let Err(error) = messages.send(&data, other, 1) {
            break error;
        }
    };
    ensure_matches!(error, Error::RankDied { rank: 1, .. });
    Ok(())
}

/// What is received is whole, however the sender ends.
fn message_25_the_sender_dies(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let data = bytes(0, 16 << 20);
    comm.barrier()?;
    if rank == 0 {
        die_soon();
        loop {
            messages.send(&data, other, 1)?;
        }
    }
    let mut received = vec![0u8; 16 << 20];
    let error = loop {
        received.fill(0);
        match messages.recv(&mut received, other, 1) {
            Ok(_) => ensure!(received == data, "a part of a message came as a whole one"),
            Err(error) => break error,
        }
    };
    ensure_matches!(error, Error::RankDied { rank: 0, .. });
    Ok(())
}

fn message_26_the_receiver_is_frozen(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 1 {
        messages.send(&[std::process::id()], other, 1)?;
        raise(Signal::SIGSTOP)?;
        messages.recv(&mut [0u8], other, 3)?;
        ensure!(messages.try_probe(other, 2)?.is_none(), "the message that was given up");
    } else {
        let mut process = [0u32];
        messages.recv(&mut process, other, 1)?;
        await_stopped(i32::try_from(process[0])?)?;
        let error = messages.send(&bytes(1, 1 << 20), other, 2).expect_err("it is frozen");
        ensure_matches!(error, Error::TimedOut { late, .. } if **late == [1]);
        ensure!(!error.is_fatal());
        kill(Pid::from_raw(i32::try_from(process[0])?), Signal::SIGCONT).context("it is there")?;
        messages.send(&[1u8], other, 3)?;
    }
    still_works(&comm)
}
