//! Long messages that come right behind their offers, without being asked for.

use std::time::Duration;

use anyhow::ensure;
use intranode::{Communicator, Error};

use super::refused::refuse_reading;
use super::{EAGER, bytes, fill_channel, pair};
use crate::scenario::{Outcome, Scenario, ensure_matches, row};

const TIMEOUT: Duration = Duration::from_secs(2);

pub(super) fn rows() -> Vec<Scenario> {
    vec![
        row!(message_unasked_for_who_waits_and_for_who_does_not).ranks(&[2, 4]),
        row!(message_unasked_where_memory_cannot_be_read).ranks(&[2, 4]),
        row!(message_unasked_that_is_given_up_leaves_room).ranks(&[2]).timeout(TIMEOUT),
        row!(message_unasked_to_a_receive_that_is_dropped).ranks(&[2]),
    ]
}

/// More than a channel's buffers hold, with two ranks or with four.
const MOST: usize = (2 << 20) + 1;

/// Received while it comes, after it has come, after another one, and into too short a buffer. The ranks play in pairs.
fn message_unasked_for_who_waits_and_for_who_does_not(comm: Communicator) -> Outcome {
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    let other = rank ^ 1;
    let short = [EAGER + 1, 100_000, 4 * EAGER, (512 << 10) - 1];
    let long = [512 << 10, (512 << 10) + 1, 1 << 20, (1 << 20) + 1, MOST];
    let mut received = vec![0; MOST];
    for turn in 0..24 {
        // Messages that are in the channel's buffers when it is sent: none, or some.
        let before = turn / 8 * 20;
        for len in short.into_iter().chain(long) {
            let sent = bytes(turn + len, len);
            if rank % 2 == turn % 2 {
                messages.recv(&mut [0u8; 0], other, 3)?;
                for number in 0..before {
                    messages.send(&bytes(number, EAGER / 2), other, 2)?;
                }
                messages.send(&sent, other, 1)?;
                continue;
            }
            received.fill(0);
            messages.send(&[0u8; 0], other, 3)?;
            match turn / 2 % 4 {
                0 => {}
                1 => _ = messages.probe(other, 1)?,
                2 => ensure!(messages.try_probe(other, 9)?.is_none()),
                _ => {
                    let error =
                        messages.recv(&mut received[..len - 1], other, 1).expect_err("one byte is missing");
                    ensure_matches!(error, Error::Truncated { .. });
                    ensure!(received.iter().all(|byte| *byte == 0));
                }
            }
            let envelope = messages.recv(&mut received, other, 1)?;
            ensure!(envelope.bytes == len && received[..len] == sent, "turn {turn}, {len} bytes");
            ensure!(received[len..].iter().all(|byte| *byte == 0), "bytes behind the message");
            for number in 0..before {
                ensure!(messages.recv_vec::<u8>(other, 2)?.0 == bytes(number, EAGER / 2));
            }
        }
    }
    comm.barrier()?;
    Ok(())
}

fn message_unasked_where_memory_cannot_be_read(comm: Communicator) -> Outcome {
    refuse_reading()?;
    message_unasked_for_who_waits_and_for_who_does_not(comm)
}

/// Both send one, and nobody receives in time. What has come of it is thrown away when the next message is received.
fn message_unasked_that_is_given_up_leaves_room(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let data = bytes(rank, 1 << 20);
    let mut rooms = Vec::new();
    for turn in 0..3 {
        comm.barrier()?;
        rooms.push(fill_channel(&mut messages, other, EAGER)?);
        comm.barrier()?;
        let mut number = 0;
        while messages.try_probe(other, 2)?.is_some() {
            ensure!(messages.recv_vec::<u8>(other, 2)?.0 == bytes(number, EAGER));
            number += 1;
        }
        comm.barrier()?;
        let error = messages.send(&data, other, 1).expect_err("nobody receives");
        ensure_matches!(error, Error::TimedOut { .. });
        comm.barrier()?;
        messages.send(&[turn], other, 1)?;
        ensure!(messages.recv_vec::<i32>(other, 1)?.0 == [turn], "the message that was given up");
    }
    ensure!(rooms.iter().all(|room| *room == rooms[0]), "room for {rooms:?}");
    comm.barrier()?;
    Ok(())
}

/// What has come for a receive that is dropped is there for the next one.
fn message_unasked_to_a_receive_that_is_dropped(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    for turn in 0..100 {
        let len = EAGER + 1 + turn * 9_000;
        if rank == 0 {
            messages.recv(&mut [0u8; 0], other, 3)?;
            messages.send(&bytes(turn, len), other, 1)?;
            continue;
        }
        let mut unused = vec![0u8; len];
        let mut receiving = messages.start_recv(&mut unused, other, 1)?;
        messages.send(&[0u8; 0], other, 3)?;
        for _ in 0..turn % 10 {
            if messages.test(&mut receiving)?.is_some() {
                break;
            }
        }
        let done = messages.test(&mut receiving)?.is_some();
        drop(receiving);
        let received = if done { unused } else { messages.recv_vec::<u8>(other, 1)?.0 };
        ensure!(received == bytes(turn, len), "turn {turn}");
    }
    comm.barrier()?;
    Ok(())
}
