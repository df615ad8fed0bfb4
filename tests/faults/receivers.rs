//! Row 35: a rank is killed that receives messages.

use anyhow::{Result, ensure};
use libtest_mimic::Completion;

use super::senders::{data, killed_at_a_step, killed_in_a_fetch, length, messages, without_reading};
use super::stepping;
use super::{Program, Test, rank};

pub(crate) const TESTS: &[Test] = &[
    ("row_35_killed_at_a_step_of_receiving_8_bytes", || killed_at_a_step_of_receiving("8")),
    ("row_35_killed_at_a_step_of_receiving_5000_bytes", || killed_at_a_step_of_receiving("5000")),
    ("row_35_killed_at_a_step_of_receiving_300_kb", || killed_at_a_step_of_receiving("300000")),
    ("row_35_killed_while_it_fetches", || killed_in_a_fetch(0, |_| ())),
    ("row_35_killed_while_it_is_sent_parts", || killed_in_a_fetch(0, without_reading)),
];

pub(crate) const PROGRAMS: &[Program] =
    &[("sends to one in steps", sends_to_one_in_steps), ("receives in steps", receives_in_steps)];

/// The longest message that is sent without its receiver.
const LONGEST: usize = 64 << 10;

/// The messages of up to 8 bytes that share a cell, which is free again when all of them are received.
const IN_A_CELL: usize = 4;

/// Of those that nobody answers, how many are in the line of the pair, before the others are in cells.
const IN_LINE: usize = 2;

/// How many messages of this length fill the cells or the buffers of a channel, and one more. A long one needs none.
fn count(len: usize) -> usize {
    match len {
        0..=8 => IN_LINE + 64 * IN_A_CELL + 1,
        9..=40 => 64 + 1,
        // The first is published in two parts, of which each has a cell.
        3_072..8_192 => 63 + 1,
        41..=LONGEST => 64 / len.div_ceil(32 << 10) + 1,
        _ => 1,
    }
}

/// The sender of one message too many, or of a long one, waits for a receiver that is killed somewhere on its way.
fn killed_at_a_step_of_receiving(len: &str) -> Result<Completion> {
    killed_at_a_step(len, ["sends to one in steps", "receives in steps"], ["not sent", "sent"])
}

fn sends_to_one_in_steps() -> Result<()> {
    let (_comm, mut messages) = messages()?;
    let data = data(1, length()?);
    for _ in 1..count(data.len()) {
        messages.send(&data, 1, 1)?;
    }
    // A long one is offered before the receiver begins.
    let mut offered = if data.len() > LONGEST { Some(messages.start_send(&data, 1, 1)?) } else { None };
    rank::send("waits")?;
    let sent = match &mut offered {
        Some(sending) => messages.wait(sending).map(drop),
        None => messages.send(&data, 1, 1),
    };
    let error = match sent {
        Ok(()) => {
            rank::send("sent")?;
            messages.recv(&mut [0u8], 1, 1).expect_err("nothing is sent")
        }
        Err(error) => {
            rank::send("not sent")?;
            error
        }
    };
    rank::report(&error)
}

fn receives_in_steps() -> Result<()> {
    let (_comm, mut messages) = messages()?;
    let mut received = vec![0; length()?];
    rank::receive()?;
    if received.len() <= 8 {
        (1..IN_LINE + IN_A_CELL).try_for_each(|_| messages.recv(&mut received, 0, 1).map(drop))?;
    }
    stepping::begin()?;
    messages.recv(&mut received, 0, 1)?;
    stepping::stop()?;
    ensure!(received == data(1, length()?), rank::WRONG_DATA);
    Ok(())
}
