//! Replies, which may lie in the buffers of what they answer.

use anyhow::ensure;
use intranode::Communicator;

use super::{EAGER, bytes, fill_channel, pair};
use crate::scenario::{Outcome, Scenario, row};

pub(super) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(message_replies_of_all_lengths),
        row!(message_replies_that_are_put_aside),
        row!(message_replies_leave_room),
        row!(message_replies_in_both_directions_at_once),
    ];
    rows.into_iter().map(|row| row.ranks(&[2])).collect()
}

/// Some in the cell, others in as many buffers as the message before, in fewer or in more.
const LENS: [usize; 10] = [40, 41, 1000, 4096, 5000, 8192, 32 << 10, 40_000, EAGER, 100];

fn message_replies_of_all_lengths(comm: Communicator) -> Outcome {
    let (mut messages, own, other) = pair(&comm)?;
    let mut received = vec![0; EAGER];
    for step in 0..60 * LENS.len() {
        let len = LENS[step / 3 % LENS.len()];
        if step % 2 == own {
            messages.send(&bytes(step, len), other, 1)?;
        } else {
            let envelope = messages.recv(&mut received, other, 1)?;
            ensure!(envelope.bytes == len && received[..len] == bytes(step, len), "step {step}");
        }
    }
    Ok(())
}

fn message_replies_that_are_put_aside(comm: Communicator) -> Outcome {
    let (mut messages, own, other) = pair(&comm)?;
    let mut received = vec![0; EAGER];
    for step in 0..20 * LENS.len() {
        let len = LENS[step / 4 % LENS.len()];
        if step % 2 == own {
            messages.send(&bytes(step, len), other, 1)?;
            // What comes behind the reply is received before it.
            messages.recv(&mut received, other, 3)?;
            let envelope = messages.recv(&mut received, other, 2)?;
            ensure!(envelope.bytes == len && received[..len] == bytes(step + 1, len), "step {step}");
        } else {
            let envelope = messages.recv(&mut received, other, 1)?;
            ensure!(envelope.bytes == len && received[..len] == bytes(step, len), "step {step}");
            messages.send(&bytes(step + 1, len), other, 2)?;
            messages.send(&[1u8], other, 3)?;
        }
    }
    Ok(())
}

/// None of the 64 buffers of a channel is lost with them. Some cells may not be known to be free.
fn message_replies_leave_room(comm: Communicator) -> Outcome {
    const LEN: usize = 10_000;
    let (mut messages, own, other) = pair(&comm)?;
    let mut received = vec![0; LEN];
    for round in 0..50 {
        for turn in [0, 1, 0, 1] {
            match turn == own {
                true => messages.send(&bytes(round, LEN), other, 1)?,
                false => _ = messages.recv(&mut received, other, 1)?,
            }
        }
        for sender in [0, 1] {
            if sender == own {
                let sent = fill_channel(&mut messages, other, LEN)?;
                ensure!((60..=64).contains(&sent), "round {round}: {sent}");
            }
            comm.barrier()?;
            let mut number = 0;
            while sender != own && messages.try_probe(other, 2)?.is_some() {
                messages.recv(&mut received, other, 2)?;
                ensure!(received == bytes(number, LEN), "round {round}, message {number}");
                number += 1;
            }
            comm.barrier()?;
        }
    }
    Ok(())
}

fn message_replies_in_both_directions_at_once(comm: Communicator) -> Outcome {
    let (mut messages, own, other) = pair(&comm)?;
    let mut received = vec![0; EAGER];
    for step in 0..30 * LENS.len() {
        let len = |rank: usize| LENS[(step / 3 + rank * (step / 30 % 2)) % LENS.len()];
        messages.send(&bytes(2 * step + own, len(own)), other, 1)?;
        let envelope = messages.recv(&mut received, other, 1)?;
        let expected = bytes(2 * step + other, len(other));
        ensure!(envelope.bytes == len(other) && received[..len(other)] == expected, "step {step}");
    }
    Ok(())
}
