//! What a message that was taken back, and a receive that was, leave to the others.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::Duration;

use anyhow::{Context, ensure};
use intranode::{Cancelled, Communicator, Error, Messages, Request, Source, Tag};

use super::{bytes, pair};
use crate::scenario::{Outcome, Scenario, row};

/// More than a channel has offers.
const MANY: u64 = 300;

/// So long that it is offered.
const LONG: usize = 100_000;

pub(super) fn rows() -> Vec<Scenario> {
    vec![
        row!(message_15_a_cancelled_send_does_not_block_later_ones).ranks(&[2]),
        row!(message_15_a_send_that_nobody_receives_does_not_block_later_ones).ranks(&[2]),
        row!(message_16_long_messages_in_reverse_order).ranks(&[2]),
        row!(message_19_a_receive_takes_the_message_of_a_later_one).ranks(&[1]),
        row!(message_19_messages_do_not_overtake_that_of_a_dropped_receive).ranks(&[1]),
        row!(message_19_a_taken_message_is_taken_back).ranks(&[1]),
        row!(message_19_a_receive_of_any_length_goes_on_to_the_next).ranks(&[2]),
        row!(message_19_started_receives_of_any_length_keep_their_order).ranks(&[2]),
        row!(message_19_a_cancelled_request_stays_cancelled).ranks(&[2]),
        row!(message_19_what_a_probe_has_found_is_taken_back).ranks(&[1]),
        row!(message_19_requests_of_other_messages_are_not_cancelled).ranks(&[1]),
        row!(message_17_another_thread_drops_a_receive).ranks(&[2]),
    ]
}

fn message_15_a_cancelled_send_does_not_block_later_ones(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let long = bytes(1, LONG);
    for number in 0..MANY {
        if rank == 0 {
            // At all distances to the one that is taken back.
            let mut sending = messages.start_send(&long, other, MANY)?;
            ensure!(messages.cancel(&mut sending)? == Cancelled::Yes);
            messages.send(&long, other, number)?;
        } else {
            ensure!(messages.recv_vec::<u8>(other, number)?.0 == long);
        }
    }
    comm.barrier()?;
    ensure!(messages.try_probe(other, Tag::Any)?.is_none());
    comm.barrier()?;
    Ok(())
}

fn message_15_a_send_that_nobody_receives_does_not_block_later_ones(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let long = bytes(2, LONG);
    if rank == 0 {
        let mut open = messages.start_send_synchronous(&[1u8], other, MANY)?;
        for number in 0..2 * MANY {
            messages.send(&long, other, number % MANY)?;
        }
        messages.wait(&mut open)?;
    } else {
        for number in 0..2 * MANY {
            ensure!(messages.recv_vec::<u8>(other, number % MANY)?.0 == long, "{number}");
        }
        ensure!(messages.recv_vec::<u8>(other, MANY)?.0 == [1]);
    }
    comm.barrier()?;
    Ok(())
}

/// More than a channel has buffers, or cells.
fn message_16_long_messages_in_reverse_order(comm: Communicator) -> Outcome {
    const COUNT: u64 = 200;
    let (mut messages, rank, other) = pair(&comm)?;
    let long = bytes(8, LONG);
    if rank == 0 {
        let mut sendings = Vec::new();
        for number in 0..COUNT {
            sendings.push(messages.start_send(&long[number as usize..], other, number)?);
        }
        let mut requests: Vec<_> = sendings.iter_mut().map(|sending| sending as &mut dyn Request).collect();
        messages.wait_all(&mut requests)?;
    } else {
        for number in (0..COUNT).rev() {
            ensure!(messages.recv_vec::<u8>(other, number)?.0 == long[number as usize..], "{number}");
        }
    }
    comm.barrier()?;
    Ok(())
}

/// Takes in all that has come.
fn take_in(messages: &mut Messages, rank: usize) -> Outcome {
    ensure!(messages.try_probe(rank, MANY)?.is_none());
    Ok(())
}

fn message_19_a_receive_takes_the_message_of_a_later_one(comm: Communicator) -> Outcome {
    let (mut messages, rank, long) = (comm.messages()?, comm.rank(), bytes(3, LONG));
    let (mut first, mut second) = (vec![0u8; LONG], vec![0u8; LONG]);
    let mut receivings =
        [messages.start_recv(&mut first, rank, 1)?, messages.start_recv(&mut second, rank, 1)?];
    let sending = messages.start_send(&long, rank, 1)?;
    messages.send(&[1u8], rank, 1)?;
    take_in(&mut messages, rank)?;
    drop(sending);
    messages.send(&[2u8, 2], rank, 1)?;
    for (receiving, bytes) in receivings.iter_mut().zip([1, 2]) {
        ensure!(messages.wait(receiving)?.bytes == bytes);
    }
    Ok(())
}

fn message_19_messages_do_not_overtake_that_of_a_dropped_receive(comm: Communicator) -> Outcome {
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    let mut buffers = [[0u8; 2]; 3];
    let mut receivings = Vec::new();
    for buffer in &mut buffers {
        receivings.push(messages.start_recv(buffer, rank, 1)?);
    }
    messages.send(&[1u8], rank, 1)?;
    messages.send(&[2u8, 2], rank, 1)?;
    take_in(&mut messages, rank)?;
    drop(receivings.remove(0));
    for (receiving, bytes) in receivings.iter_mut().zip([1, 2]) {
        ensure!(messages.wait(receiving)?.bytes == bytes);
    }
    Ok(())
}

fn message_19_a_taken_message_is_taken_back(comm: Communicator) -> Outcome {
    let (mut messages, rank, long) = (comm.messages()?, comm.rank(), bytes(4, LONG));
    let sending = messages.start_send(&long, rank, 1)?;
    let Some(taken) = messages.take(rank, 1)? else { anyhow::bail!("it was sent") };
    drop(sending);
    messages.send(&[1u8], rank, 1)?;
    let received = messages.recv_taken(taken, &mut vec![0u8; LONG]);
    ensure!(matches!(received, Err(Error::Withdrawn { rank: 0, .. })), "{received:?}");
    ensure!(messages.recv_vec::<u8>(rank, 1)?.0 == [1]);
    Ok(())
}

/// Its sender takes messages back all the time, at whichever moment.
fn message_19_a_receive_of_any_length_goes_on_to_the_next(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let long = bytes(5, 3_000_000);
    for turn in 0..100usize {
        if rank == 0 {
            let sending = messages.start_send(&long, other, turn as u64)?;
            for _ in 0..turn * 100 {
                std::hint::spin_loop();
            }
            drop(sending);
            messages.send(&long[..turn], other, turn as u64)?;
            messages.recv(&mut [0u8], other, 0)?;
            continue;
        }
        let (mut received, envelope) = messages.recv_vec::<u8>(Source::Any, turn as u64)?;
        ensure!(received.len() == envelope.bytes && received == long[..envelope.bytes]);
        if received.len() > turn {
            received = messages.recv_vec(other, turn as u64)?.0;
        }
        ensure!(received == long[..turn]);
        messages.send(&[0u8], other, 0)?;
    }
    Ok(())
}

fn message_19_started_receives_of_any_length_keep_their_order(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let lengths = [LONG, 3, 20 * LONG, 0, 9];
    for turn in 0..20usize {
        if rank == 0 {
            comm.barrier()?;
            let sent = lengths.map(|length| bytes(length + turn, length));
            let mut sending = Vec::new();
            for data in &sent {
                sending.push(messages.start_send(data, other, 1)?);
            }
            let mut all: Vec<&mut dyn Request> = Vec::new();
            all.extend(sending.iter_mut().map(|sending| sending as &mut dyn Request));
            messages.wait_all(&mut all)?;
        } else {
            let mut receiving = Vec::new();
            for _ in lengths {
                receiving.push(messages.start_recv_bytes(other, 1)?);
            }
            comm.barrier()?;
            // The last ones are asked for first.
            for receiving in receiving.iter_mut().rev() {
                messages.wait(receiving)?;
            }
            for (receiving, length) in receiving.into_iter().zip(lengths) {
                ensure!(receiving.into_bytes() == bytes(length + turn, length));
            }
        }
        comm.barrier()?;
    }
    Ok(())
}

fn message_19_a_cancelled_request_stays_cancelled(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 0 {
        let long = bytes(6, LONG);
        let mut sending = messages.start_send(&long, other, 1)?;
        let mut buffer = [0u8; 8];
        let mut receiving = messages.start_recv(&mut buffer, other, 1)?;
        for _ in 0..2 {
            ensure!(messages.cancel(&mut sending)? == Cancelled::Yes);
            ensure!(messages.cancel(&mut receiving)? == Cancelled::Yes);
        }
    }
    comm.barrier()?;
    Ok(())
}

/// Then neither a probe nor a take finds it, but what was sent behind it.
fn message_19_what_a_probe_has_found_is_taken_back(comm: Communicator) -> Outcome {
    let (mut messages, rank, long) = (comm.messages()?, comm.rank(), bytes(7, LONG));
    for takes in [false, true] {
        let mut sending = messages.start_send(&long, rank, 1)?;
        messages.send(&[7u8], rank, 1)?;
        ensure!(messages.try_probe(rank, 1)?.is_some_and(|envelope| envelope.bytes == LONG));
        ensure!(messages.cancel(&mut sending)? == Cancelled::Yes);
        let mut buffer = [0u8; 1];
        let envelope = match takes {
            true => {
                let message = messages.take(rank, 1)?;
                messages.recv_taken(message.context("nothing to take")?, &mut buffer)?
            }
            false => {
                ensure!(messages.try_probe(rank, 1)?.is_some_and(|envelope| envelope.bytes == 1));
                messages.recv(&mut buffer, rank, 1)?
            }
        };
        ensure!(envelope.bytes == 1 && buffer == [7]);
        ensure!(messages.try_probe(rank, 1)?.is_none());
    }
    Ok(())
}

fn message_19_requests_of_other_messages_are_not_cancelled(comm: Communicator) -> Outcome {
    let (mut messages, mut others, rank) = (comm.messages()?, comm.messages()?, comm.rank());
    let long = bytes(7, LONG);
    let mut buffer = vec![0u8; LONG];
    let mut sending = messages.start_send(&long, rank, 1)?;
    let mut receiving = messages.start_recv(&mut buffer, rank, 1)?;
    ensure!(catch_unwind(AssertUnwindSafe(|| others.cancel(&mut sending))).is_err());
    ensure!(catch_unwind(AssertUnwindSafe(|| others.cancel(&mut receiving))).is_err());
    messages.wait(&mut receiving)?;
    messages.wait(&mut sending)?;
    Ok(())
}

fn message_17_another_thread_drops_a_receive(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 0 {
        comm.barrier()?;
        messages.send(&[1u8], other, 1)?;
        return Ok(());
    }
    let (mut first, mut second) = ([0u8], [0u8]);
    let receiving = messages.start_recv(&mut first, other, 1)?;
    let mut waits = messages.start_recv(&mut second, other, 1)?;
    let comm = &comm;
    thread::scope(|scope| {
        let dropped = scope.spawn(move || {
            // The other thread most likely waits then.
            thread::sleep(Duration::from_millis(20));
            drop(receiving);
            comm.barrier()
        });
        messages.wait(&mut waits)?;
        Ok(dropped.join().expect("no panic")?)
    })
}
