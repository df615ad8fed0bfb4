//! Long messages from memory that all ranks map: the receiver copies them from where they lie.

use anyhow::ensure;
use intranode::{Cancelled, Communicator, Messages};

use super::refused::refuse_reading;
use super::{EAGER, bytes, pair};
use crate::scenario::{Outcome, Scenario, row};

pub(super) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(message_in_place_needs_neither_the_system_nor_the_sender).processes_only(),
        row!(message_in_place_of_any_part_and_length),
        row!(message_in_place_withdrawn_while_it_is_copied),
        row!(message_in_place_to_oneself_is_not),
        row!(message_in_place_forgotten_and_its_memory_given_back),
        row!(message_in_place_while_other_memory_is_given_back),
    ];
    rows.into_iter().map(|row| row.ranks(&[2])).collect()
}

/// More than one piece, and no whole number of them.
const LEN: usize = (3 << 20) + 5;

/// The receiver may not read the sender's memory by the system, and the sender takes no part in its messages.
fn message_in_place_needs_neither_the_system_nor_the_sender(comm: Communicator) -> Outcome {
    refuse_reading()?;
    let (mut messages, rank, other) = pair(&comm)?;
    let (mut object, mut buffer) = (comm.symmetric::<u8>(LEN)?.into_own()?, comm.buffer::<u8>(LEN)?);
    for turn in 0..3 {
        for (index, memory) in [&mut object[..], &mut buffer[..]].into_iter().enumerate() {
            let seed = 2 * turn + index;
            if rank == 0 {
                memory[..LEN].copy_from_slice(&bytes(seed, LEN));
                let mut sending = messages.start_send(&memory[..LEN], other, 1)?;
                comm.barrier()?;
                messages.wait(&mut sending)?;
            } else {
                ensure!(
                    messages.recv_vec::<u8>(other, 1)?.0 == bytes(seed, LEN),
                    "turn {turn}, memory {index}"
                );
                comm.barrier()?;
            }
        }
    }
    comm.barrier()?;
    Ok(())
}

fn message_in_place_of_any_part_and_length(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let (mut object, mut buffer) = (comm.symmetric::<u8>(LEN)?.into_own()?, comm.buffer::<u8>(LEN)?);
    for (seed, memory) in [&mut object[..], &mut buffer[..]].into_iter().enumerate() {
        memory.copy_from_slice(&bytes(seed, LEN));
        for (start, len) in [(0, EAGER + 1), (13, 1 << 20), (4095, (1 << 20) + 1), (LEN - EAGER - 1, EAGER + 1)]
        {
            if rank == 0 {
                messages.send(&memory[start..start + len], other, 1)?;
            } else {
                let received = messages.recv_vec::<u8>(other, 1)?.0;
                ensure!(received == memory[start..start + len], "{len} bytes from {start}");
            }
        }
    }
    comm.barrier()?;
    Ok(())
}

/// The memory of an object that was made before goes back to the system while the message is under way: its own is still found.
fn message_in_place_while_other_memory_is_given_back(comm: Communicator) -> Outcome {
    // Each is larger than those before, the channels among them, so that it has a segment of its own.
    let first = comm.symmetric::<u8>(64 << 10)?;
    let (mut messages, rank, other) = pair(&comm)?;
    let (mut sent, mut behind) =
        (comm.symmetric::<u8>(LEN)?.into_own()?, comm.symmetric::<u8>(8 * LEN)?.into_own()?);
    sent.copy_from_slice(&bytes(1, LEN));
    behind.fill(0xC);
    comm.barrier()?;
    let sending = if rank == 0 { Some(messages.start_send(&sent, other, 1)?) } else { None };
    first.free()?;
    if rank == 1 {
        ensure!(messages.recv_vec::<u8>(other, 1)?.0 == bytes(1, LEN));
    }
    if let Some(mut sending) = sending {
        messages.wait(&mut sending)?;
    }
    comm.barrier()?;
    Ok(())
}

/// It is the sender's memory again at once. What the receiver has copied by then is no message.
fn message_in_place_withdrawn_while_it_is_copied(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let mut buffer = comm.buffer::<u8>(LEN)?;
    for turn in 1..200u8 {
        comm.barrier()?;
        if rank == 0 {
            buffer.fill(turn);
            let mut sending = messages.start_send(&buffer, other, 1)?;
            for _ in 0..u32::from(turn) * 200 {
                std::hint::spin_loop();
            }
            let withdrawn = messages.cancel(&mut sending)? == Cancelled::Yes;
            drop(sending);
            buffer.fill(0xEE);
            messages.send(&[u8::from(withdrawn)], other, 2)?;
        } else {
            let mut data = vec![0; LEN];
            let mut receiving = messages.start_recv(&mut data, other, 1)?;
            while messages.test(&mut receiving)?.is_none() && messages.try_probe(other, 2)?.is_none() {}
            let withdrawn = is_withdrawn(&mut messages, other)?;
            if withdrawn {
                ensure!(
                    messages.cancel(&mut receiving)? == Cancelled::Yes,
                    "turn {turn}: a message that was taken back"
                );
            } else {
                messages.wait(&mut receiving)?;
                ensure!(data.iter().all(|byte| *byte == turn), "turn {turn}: other bytes");
            }
        }
    }
    // So that none leaves while the other still looks for its message.
    comm.barrier()?;
    Ok(())
}

fn is_withdrawn(messages: &mut Messages, other: usize) -> anyhow::Result<bool> {
    let mut withdrawn = [0u8];
    messages.recv(&mut withdrawn, other, 2)?;
    Ok(withdrawn == [1])
}

/// A message to oneself that was forgotten may come to where it was sent from.
fn message_in_place_to_oneself_is_not(comm: Communicator) -> Outcome {
    let (mut messages, rank, _) = pair(&comm)?;
    let (mut object, mut buffer) = (comm.symmetric::<u8>(LEN)?.into_own()?, comm.buffer::<u8>(LEN)?);
    for memory in [&mut object[..], &mut buffer[..]] {
        memory.copy_from_slice(&bytes(rank, LEN));
        std::mem::forget(messages.start_send(memory, rank, 1)?);
        messages.recv(memory, rank, 1)?;
        ensure!(memory == bytes(rank, LEN));
    }
    comm.barrier()?;
    Ok(())
}

/// The receiver gets what is there by then: no fault.
fn message_in_place_forgotten_and_its_memory_given_back(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    for _ in 0..3 {
        if rank == 0 {
            let buffer = comm.buffer::<u8>(LEN)?;
            std::mem::forget(messages.start_send(&buffer, other, 1)?);
            drop(buffer);
            comm.barrier()?;
        } else {
            comm.barrier()?;
            ensure!(messages.recv_vec::<u8>(other, 1)?.0.len() == LEN);
        }
        comm.barrier()?;
    }
    Ok(())
}
