//! Which receive gets which message.

use anyhow::{Context, ensure};
use intranode::{Communicator, Error, Operation, Source, Tag};

use super::{EAGER, bytes, pair};
use crate::scenario::{Outcome, Scenario, ensure_matches, row};

pub(super) fn rows() -> Vec<Scenario> {
    vec![
        row!(message_06_another_tag_overtakes).ranks(&[2]),
        row!(message_07_any_source_is_fair).ranks(&[9]),
        row!(message_08_any_source_and_tag_tell_who_and_what).ranks(&[2, 4, 8]),
        row!(message_09_communicators_are_apart).ranks(&[2, 4]),
        row!(message_12_a_probe_tells_the_next_message).ranks(&[2, 4]),
        row!(message_12_receives_go_on_in_a_probe).ranks(&[2]),
        row!(message_13_what_is_taken_is_taken).ranks(&[2]),
        row!(message_15_an_unmatched_long_one_is_not_in_the_way).ranks(&[2]),
        row!(message_27_too_many_short_ones_that_nobody_receives).ranks(&[1]),
        row!(message_27_too_much_that_nobody_receives).ranks(&[2]),
    ]
}

fn message_06_another_tag_overtakes(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 0 {
        for tag in 0..200 {
            messages.send(&[tag; 10], other, tag)?;
        }
    } else {
        for tag in (0..200).rev() {
            let mut received = [0; 10];
            messages.recv(&mut received, other, tag)?;
            ensure!(received == [tag; 10]);
        }
    }
    comm.barrier()?;
    Ok(())
}

/// All channels are full before the receiver begins, so it alone decides.
fn message_07_any_source_is_fair(comm: Communicator) -> Outcome {
    let (mut messages, rank, size) = (comm.messages()?, comm.rank(), comm.size());
    if rank > 0 {
        while messages.try_send(&[rank], 0, 1)? {}
    }
    comm.barrier()?;
    if rank == 0 {
        let mut counts = vec![0; size];
        for _ in 0..32 * (size - 1) {
            let mut from = [0];
            let envelope = messages.recv(&mut from, Source::Any, 1)?;
            ensure!(from[0] == envelope.source);
            counts[from[0]] += 1;
        }
        let (least, most) = (counts[1..].iter().min(), counts[1..].iter().max());
        ensure!(most <= least.map(|least| 2 * least).as_ref(), "{counts:?}");
    }
    comm.barrier()?;
    Ok(())
}

fn message_08_any_source_and_tag_tell_who_and_what(comm: Communicator) -> Outcome {
    let (mut messages, rank, size) = (comm.messages()?, comm.rank(), comm.size());
    if rank == 0 {
        let mut next = vec![0u64; size];
        for _ in 0..50 * (size - 1) {
            let (data, envelope) = messages.recv_vec::<u8>(Source::Any, Tag::Any)?;
            let tag = next[envelope.source];
            ensure!(envelope.tag == 1000 * envelope.source as u64 + tag, "{envelope:?} is not the next");
            let len = tag as usize * 100;
            ensure!(envelope.bytes == len && data == bytes(envelope.source, len), "{envelope:?}");
            next[envelope.source] += 1;
        }
    } else {
        for number in 0..50 {
            messages.send(&bytes(rank, number * 100), 0, (1000 * rank + number) as u64)?;
        }
    }
    comm.barrier()?;
    Ok(())
}

fn message_09_communicators_are_apart(comm: Communicator) -> Outcome {
    let part = comm.split(0, 0)?;
    let (mut joined, mut split) = (comm.messages()?, part.messages()?);
    let mut again = comm.messages()?;
    let (rank, to) = (comm.rank(), (comm.rank() + 1) % comm.size());
    for (messages, value) in [(&mut joined, 1u8), (&mut split, 2), (&mut again, 3)] {
        messages.send(&[value], to, 7)?;
    }
    comm.barrier()?;
    for (messages, value) in [(&mut again, 3u8), (&mut split, 2), (&mut joined, 1)] {
        let mut received = [0];
        messages.recv(&mut received, Source::Any, Tag::Any)?;
        ensure!(received == [value], "rank {rank} got {received:?} instead of {value}");
        ensure!(messages.try_probe(Source::Any, Tag::Any)?.is_none());
    }
    comm.barrier()?;
    Ok(())
}

fn message_12_a_probe_tells_the_next_message(comm: Communicator) -> Outcome {
    let (mut messages, rank, size) = (comm.messages()?, comm.rank(), comm.size());
    if rank == 0 {
        for _ in 1..size {
            for number in 0..20 {
                let probed = messages.probe(Source::Any, number)?;
                let mut data = vec![0; probed.bytes];
                let received = messages.recv(&mut data, probed.source, probed.tag)?;
                ensure!(received == probed && data == bytes(probed.source, number as usize * 1000));
            }
        }
    } else {
        for number in 0..20 {
            messages.send(&bytes(rank, number * 1000), 0, number as u64)?;
        }
    }
    comm.barrier()?;
    Ok(())
}

/// The sender waits for receives that were started before it sends what is looked for; one of them has too short a buffer.
fn message_12_receives_go_on_in_a_probe(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 0 {
        let (mut long, mut short) = (vec![0; 2 << 20], [0u8; 1]);
        let mut receiving = messages.start_recv(&mut long, other, 1)?;
        let mut truncated = messages.start_recv(&mut short, other, 3)?;
        let probed = messages.probe_with(other, 2, &mut [&mut truncated, &mut receiving])?;
        ensure!(probed.bytes == 5 && messages.test(&mut receiving)?.is_some());
        ensure_matches!(messages.test(&mut truncated), Err(Error::Truncated { .. }));
        // What is there is found at once, and nothing goes on.
        ensure!(messages.probe_with(Source::Any, 2, &mut [])? == probed);
        drop(truncated);
        ensure!(messages.recv(&mut [0u8; 2], other, 3)?.bytes == 2);
        ensure!(long == bytes(other, 2 << 20));
    } else {
        messages.send(&[1u8; 2], other, 3)?;
        messages.send(&bytes(rank, 2 << 20), other, 1)?;
        messages.send(&[2u8; 5], other, 2)?;
    }
    comm.barrier()?;
    Ok(())
}

fn message_13_what_is_taken_is_taken(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 0 {
        messages.send(&[1u8], other, 1)?;
        messages.send(&[2u8], other, 1)?;
        comm.barrier()?;
    } else {
        comm.barrier()?;
        let first = messages.take(other, 1)?.context("it was sent")?;
        let mut data = [0u8];
        messages.recv(&mut data, other, 1)?;
        ensure!(data == [2], "what was taken was received: {data:?}");
        ensure!(messages.take(other, 1)?.is_none());
        // Dropped, it is there again.
        drop(first);
        let first = messages.take(other, 1)?.context("it was dropped")?;
        messages.recv_taken(first, &mut data)?;
        ensure!(data == [1]);
    }
    comm.barrier()?;
    Ok(())
}

fn message_15_an_unmatched_long_one_is_not_in_the_way(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let long = bytes(1, 1 << 20);
    if rank == 0 {
        let mut sending = messages.start_send(&long, other, 1)?;
        for number in 0..200u64 {
            messages.send(&[number], other, 2)?;
        }
        let mut received = [0u8];
        messages.recv(&mut received, other, 3)?;
        ensure!(messages.test(&mut sending)?.is_none(), "nobody has received it");
        messages.send(&[0u8], other, 4)?;
        messages.wait(&mut sending)?;
    } else {
        for number in 0..200u64 {
            let mut received = [0];
            messages.recv(&mut received, other, 2)?;
            ensure!(received == [number]);
        }
        messages.send(&[1u8], other, 3)?;
        messages.recv(&mut [0u8], other, 4)?;
        ensure!(messages.recv_vec::<u8>(other, 1)?.0 == long);
    }
    comm.barrier()?;
    Ok(())
}

/// What is noted of each counts, too: behind 13 MiB of long ones, to oneself, there is no room for 100,000 of them.
fn message_27_too_many_short_ones_that_nobody_receives(comm: Communicator) -> Outcome {
    let (mut messages, rank, long) = (comm.messages()?, comm.rank(), bytes(0, EAGER));
    for _ in 0..13 << 20 >> 16 {
        messages.send(&long, rank, 1)?;
        ensure!(messages.try_probe(rank, 3)?.is_none());
    }
    let mut sent = 0u64;
    let error = loop {
        ensure!(sent < 100_000, "there is room for {sent}");
        while messages.try_send(&[sent], rank, 2)? {
            sent += 1;
        }
        if let Err(error) = messages.try_probe(rank, 3) {
            break error;
        }
    };
    ensure_matches!(
        error,
        Error::TooManyUnreceived { operation: Operation::Probe, bytes } if (16 << 20..17 << 20).contains(bytes)
    );
    for _ in 0..13 << 20 >> 16 {
        ensure!(messages.recv_vec::<u8>(rank, 1)?.0 == long);
    }
    for number in 0..sent {
        ensure!(messages.recv_vec::<u64>(rank, 2)?.0 == [number]);
    }
    Ok(())
}

/// 400 messages of 64 KiB are 25 MiB: more than is kept.
fn message_27_too_much_that_nobody_receives(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 0 {
        for number in 0..400 {
            messages.send(&bytes(number, EAGER), other, 1)?;
        }
        messages.send(&[1u8], other, 2)?;
    } else {
        let error = messages.recv(&mut [0u8], other, 2).expect_err("there is no room up to that message");
        ensure_matches!(
            error,
            Error::TooManyUnreceived { operation: Operation::Recv, bytes } if (15 << 20..=16 << 20).contains(bytes)
        );
        ensure!(!error.is_fatal());
        for number in 0..400 {
            ensure!(messages.recv_vec::<u8>(other, 1)?.0 == bytes(number, EAGER), "message {number}");
        }
        messages.recv(&mut [0u8], other, 2)?;
    }
    comm.barrier()?;
    Ok(())
}
