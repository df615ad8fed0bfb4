//! Long messages: in one copy, and through buffers where the system allows nothing else.

use anyhow::ensure;
use intranode::{Communicator, Error, Request, Source};

use super::refused::refuse_reading;
use super::{EAGER, bytes, fill_channel, pair};
use crate::scenario::{Outcome, Scenario, ensure_matches, row};

pub(super) fn rows() -> Vec<Scenario> {
    vec![
        row!(message_in_parts_for_who_waits_and_for_who_does_not).ranks(&[2]),
        row!(message_in_a_buffer_begins_elsewhere_in_each_lap).ranks(&[2, 3]),
        row!(message_14_sendrecv_around_a_ring),
        row!(message_14_sendrecv_around_a_ring_where_memory_cannot_be_read),
        row!(message_16_started_received_in_reverse).ranks(&[2]),
        row!(message_16_started_received_in_reverse_where_memory_cannot_be_read).ranks(&[2]),
        row!(message_16_started_sends_do_not_block_others_where_memory_cannot_be_read).ranks(&[2, 4, 10]),
        row!(message_18_a_sending_is_dropped).ranks(&[2]),
        row!(message_16_started_receives_leave_room_for_others_where_memory_cannot_be_read).ranks(&[2, 9]),
        row!(message_18_a_sending_is_dropped_where_memory_cannot_be_read).ranks(&[2]),
        row!(message_behind_all_that_there_is_room_for_where_memory_cannot_be_read).ranks(&[2, 4, 8]),
    ]
}

/// A message that is published in parts: received while it comes, after it has come, after another one, and into too short a buffer.
fn message_in_parts_for_who_waits_and_for_who_does_not(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let short = [(3 << 10) - 1, 3 << 10, 5_000, 8 << 10, 12_000];
    let long = [EAGER / 4, EAGER / 4 + 1, EAGER / 2, EAGER / 4 * 3 - 1, EAGER];
    let lens = [short, long];
    let mut received = vec![0; EAGER];
    for (turn, len) in (0..400).flat_map(|turn| lens[turn / 8 % 2].map(|len| (turn, len))) {
        let sent = bytes(turn + len, len);
        if rank == turn % 2 {
            messages.recv(&mut [0u8; 0], other, 3)?;
            messages.send(&sent, other, 1)?;
            messages.send(&[7u8], other, 2)?;
            continue;
        }
        received.fill(0);
        messages.send(&[0u8; 0], other, 3)?;
        match turn / 2 % 4 {
            0 => {}
            1 => _ = messages.probe(other, 2)?,
            2 => _ = messages.recv(&mut [0u8], other, 2)?,
            _ => {
                let error = messages.recv(&mut received[..len - 1], other, 1).expect_err("one byte is missing");
                ensure_matches!(error, Error::Truncated { .. });
                ensure!(received.iter().all(|byte| *byte == 0));
            }
        }
        let envelope = messages.recv(&mut received, other, 1)?;
        ensure!(envelope.bytes == len && received[..len] == sent, "turn {turn}, {len} bytes");
        ensure!(received[len..].iter().all(|byte| *byte == 0), "bytes behind the message");
        if turn / 2 % 4 != 2 {
            messages.recv(&mut received, other, 2)?;
        }
    }
    Ok(())
}

/// Messages of less than half a buffer do not always begin with it. Received in order, in reverse, and after most of them had to be moved
/// out of the channel.
fn message_in_a_buffer_begins_elsewhere_in_each_lap(comm: Communicator) -> Outcome {
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    let len = |number: usize| (8 << 10) + number * 97 % (8 << 10);
    for [count, order] in [[20, 0], [20, 1], [150, 2], [90, 1]].into_iter().cycle().take(40) {
        if rank == 0 {
            for number in 0..count {
                messages.send(&bytes(number, len(number)), 1, number as u64)?;
            }
            messages.recv(&mut [0u8; 0], 1, 0)?;
        }
        if rank == 1 {
            if order == 2 {
                // All others come before it.
                messages.probe(0, count as u64 - 1)?;
            }
            for number in 0..count {
                let number = if order == 1 { count - 1 - number } else { number };
                let (received, envelope) = messages.recv_vec::<u8>(0, number as u64)?;
                ensure!(envelope.bytes == len(number) && received == bytes(number, len(number)), "{number}");
            }
            messages.send(&[0u8; 0], 0, 0)?;
        }
    }
    comm.barrier()?;
    Ok(())
}

fn message_14_sendrecv_around_a_ring(comm: Communicator) -> Outcome {
    let (mut messages, rank, size) = (comm.messages()?, comm.rank(), comm.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    for turn in 0..5 {
        let mut received = vec![0; 1 << 20];
        let own = bytes(rank + turn, 1 << 20);
        let envelope = messages.sendrecv(&own, next, &mut received, previous, turn as u64)?;
        ensure!(envelope.source == previous && received == bytes(previous + turn, 1 << 20));
    }
    comm.barrier()?;
    Ok(())
}

fn message_14_sendrecv_around_a_ring_where_memory_cannot_be_read(comm: Communicator) -> Outcome {
    refuse_reading()?;
    message_14_sendrecv_around_a_ring(comm)
}

fn message_16_started_received_in_reverse(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let lens = [10, 100_000, 0, 65_537, 4096, 1 << 20, 41, 70_000];
    for _ in 0..3 {
        if rank == 0 {
            let data: Vec<Vec<u8>> = lens.iter().map(|len| bytes(*len, *len)).collect();
            let mut sendings = Vec::new();
            for data in &data {
                sendings.push(messages.start_send(data, other, 1)?);
            }
            for sending in sendings.iter_mut().rev() {
                messages.wait(sending)?;
            }
        } else {
            let mut data: Vec<Vec<u8>> = lens.iter().map(|_| vec![0; 1 << 20]).collect();
            let mut receivings = Vec::new();
            for data in &mut data {
                receivings.push(messages.start_recv(data, Source::Any, 1)?);
            }
            for (receiving, len) in receivings.iter_mut().zip(lens).rev() {
                ensure!(messages.wait(receiving)?.bytes == len, "a receive got another's message");
            }
            drop(receivings);
            for (data, len) in data.iter().zip(lens) {
                ensure!(data[..len] == bytes(len, len), "{len} bytes");
            }
        }
    }
    comm.barrier()?;
    Ok(())
}

fn message_16_started_received_in_reverse_where_memory_cannot_be_read(comm: Communicator) -> Outcome {
    refuse_reading()?;
    message_16_started_received_in_reverse(comm)
}

/// The receiver has asked for those that were started first, and waits for all at once; their sender waits for the last one.
fn message_16_started_sends_do_not_block_others_where_memory_cannot_be_read(comm: Communicator) -> Outcome {
    const LEN: usize = 5 << 20;
    refuse_reading()?;
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    let (other, all) = (rank ^ 1, [1, 2, 3].map(|tag| bytes(tag, LEN)));
    if rank % 2 == 0 {
        let mut first = messages.start_send(&all[0], other, 1)?;
        let mut second = messages.start_send(&all[1], other, 2)?;
        messages.probe(other, 4)?;
        messages.send(&all[2], other, 3)?;
        messages.wait_all(&mut [&mut first, &mut second])?;
    } else {
        let mut received = [1, 2, 3].map(|_| vec![0u8; LEN]);
        let mut receivings = Vec::new();
        for (buffer, tag) in received.iter_mut().zip(1..) {
            receivings.push(messages.start_recv(buffer, other, tag)?);
        }
        // Once they have come it asks for them.
        messages.send(&[0u8], other, 4)?;
        messages.wait_all(&mut receivings.iter_mut().map(|one| one as &mut dyn Request).collect::<Vec<_>>())?;
        drop(receivings);
        ensure!(received == all);
    }
    comm.barrier()?;
    Ok(())
}

/// What the receiver has asked for, and does not look at, leaves room for the longest message that is not asked for.
fn message_16_started_receives_leave_room_for_others_where_memory_cannot_be_read(
    comm: Communicator,
) -> Outcome {
    const LEN: usize = 1 << 20;
    refuse_reading()?;
    let mut messages = comm.messages()?;
    let all = [1, 2].map(|tag| bytes(tag, LEN));
    match comm.rank() {
        0 => {
            let mut sendings = Vec::new();
            for data in &all {
                sendings.push(messages.start_send(data, 1, 1)?);
            }
            comm.barrier()?;
            comm.barrier()?;
            for sending in &mut sendings {
                messages.test(sending)?;
            }
            messages.send(&all[0][..EAGER], 1, 2)?;
            messages
                .wait_all(&mut sendings.iter_mut().map(|one| one as &mut dyn Request).collect::<Vec<_>>())?;
        }
        1 => {
            let (mut received, mut short) = ([1, 2].map(|_| vec![0u8; LEN]), vec![0u8; EAGER]);
            let mut receivings = Vec::new();
            for buffer in &mut received {
                receivings.push(messages.start_recv(buffer, 0, 1)?);
            }
            comm.barrier()?;
            for receiving in &mut receivings {
                messages.test(receiving)?;
            }
            comm.barrier()?;
            messages.recv(&mut short, 0, 2)?;
            messages
                .wait_all(&mut receivings.iter_mut().map(|one| one as &mut dyn Request).collect::<Vec<_>>())?;
            drop(receivings);
            ensure!(short == all[0][..EAGER] && received == all);
        }
        _ => (0..2).try_for_each(|_| comm.barrier())?,
    }
    comm.barrier()?;
    Ok(())
}

/// Whether the receiver is in the middle of it or not: it gets the message as it was offered, or the next one.
fn message_18_a_sending_is_dropped(comm: Communicator) -> Outcome {
    const LEN: usize = 2 << 20;
    let (mut messages, rank, other) = pair(&comm)?;
    for turn in 0..30 {
        comm.barrier()?;
        if rank == 0 {
            let mut data = bytes(turn, LEN);
            let mut sending = messages.start_send(&data, other, 1)?;
            for _ in 0..turn * 50 {
                let _ = messages.test(&mut sending)?;
                std::hint::spin_loop();
            }
            drop(sending);
            data.fill(0xEE);
            messages.send(&[turn as u8], other, 1)?;
        } else {
            let mut received = vec![0; LEN];
            let envelope = messages.recv(&mut received, other, 1)?;
            if envelope.bytes == LEN {
                ensure!(received == bytes(turn, LEN), "turn {turn}: changed after it was withdrawn");
                messages.recv(&mut received, other, 1)?;
            }
            ensure!(received[0] == turn as u8);
        }
    }
    Ok(())
}

fn message_18_a_sending_is_dropped_where_memory_cannot_be_read(comm: Communicator) -> Outcome {
    refuse_reading()?;
    message_18_a_sending_is_dropped(comm)
}

/// The sender has filled the channel's buffers with messages that are received last. There is room for each part of the long one all the same.
fn message_behind_all_that_there_is_room_for_where_memory_cannot_be_read(comm: Communicator) -> Outcome {
    refuse_reading()?;
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    let other = rank ^ 1;
    // One buffer each, or some.
    for (turn, len) in [(0, 2_000), (1, 30_000), (2, EAGER)] {
        comm.barrier()?;
        if rank % 2 == turn % 2 {
            let before = fill_channel(&mut messages, other, len)?;
            comm.barrier()?;
            messages.send(&bytes(turn, 3 << 20), other, 1)?;
            messages.send(&[before], other, 3)?;
            continue;
        }
        // A receiver that takes in what comes makes room all the time.
        comm.barrier()?;
        let received = messages.recv_vec::<u8>(other, 1)?.0;
        ensure!(received == bytes(turn, 3 << 20), "behind messages of {len} bytes");
        let before = messages.recv_vec::<usize>(other, 3)?.0[0];
        ensure!(before > 0);
        for number in 0..before {
            ensure!(
                messages.recv_vec::<u8>(other, 2)?.0 == bytes(number, len),
                "message {number} of {len} bytes"
            );
        }
    }
    comm.barrier()?;
    Ok(())
}
