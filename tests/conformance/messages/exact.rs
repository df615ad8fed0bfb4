//! What arrives is what was sent, in order, whole, and nothing else.

use anyhow::ensure;
use intranode::{Communicator, Error, Messages, Operation, Source, Tag};

use super::{EAGER, bytes, pair};
use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};

pub(super) fn rows() -> Vec<Scenario> {
    vec![
        row!(message_01_self_send_once),
        row!(message_02_long_self_send_without_a_receive),
        row!(message_03_lengths).ranks(&[2]),
        row!(message_03_one_gib).ranks(&[2]),
        row!(message_03_an_element_larger_than_a_stack).ranks(&[2]),
        row!(message_04_a_thousand_in_order_through_a_full_ring).ranks(&[2, 4]),
        row!(message_04_short_and_longer_ones_in_bursts).ranks(&[2]),
        row!(message_04_the_ring_goes_round_many_times).ranks(&[1]),
        row!(message_04_taking_turns_many_times).ranks(&[1, 2]),
        row!(message_04_answers_that_lie_while_hundreds_are_sent).ranks(&[2]),
        row!(message_05_long_then_short_in_order).ranks(&[2]),
        row!(message_10_a_short_buffer_keeps_the_message),
        row!(message_11_no_whole_number_of_elements),
        row!(message_21_bad_ranks),
    ]
}

fn message_01_self_send_once(comm: Communicator) -> Outcome {
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    messages.send(&[rank as u64, 7], rank, 1)?;
    let mut received = [0u64; 3];
    let envelope = messages.recv(&mut received, rank, 1)?;
    ensure!((envelope.source, envelope.tag, envelope.bytes) == (rank, 1, 16));
    ensure!(received == [rank as u64, 7, 0]);
    ensure!(messages.try_probe(Source::Any, Tag::Any)?.is_none(), "it came twice");
    comm.barrier()?;
    Ok(())
}

fn message_02_long_self_send_without_a_receive(comm: Communicator) -> Outcome {
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    let long = bytes(rank, EAGER + 1);
    let error = messages.send(&long, rank, 1).expect_err("nobody can receive it");
    ensure_matches!(error, Error::NoRoom { operation: Operation::Send, .. });
    ensure!(!error.is_fatal() && error.to_string().contains("start_send"), "{error}");
    // As long as there is room it is kept; then it is an error too.
    let full = (0..1000).find_map(|_| messages.send(&long[..EAGER], rank, 2).err());
    ensure_matches!(full, Some(Error::NoRoom { .. }));
    let mut received = vec![0; EAGER];
    while messages.try_probe(rank, 2)?.is_some() {
        messages.recv(&mut received, rank, 2)?;
        ensure!(received == long[..EAGER]);
    }
    // With a receive it is none.
    let mut received = vec![0; long.len()];
    let mut sending = messages.start_send(&long, rank, 3)?;
    messages.recv(&mut received, rank, 3)?;
    messages.wait(&mut sending)?;
    ensure!(received == long);
    still_works(&comm)
}

fn message_03_lengths(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    for len in [0, 1, 39, 40, 41, 4095, 4096, 4097, EAGER - 1, EAGER, EAGER + 1, (1 << 20) + 1, 40 << 20] {
        let data = bytes(len, len);
        if rank == 0 {
            messages.send(&data, other, len as u64)?;
            continue;
        }
        let mut received = vec![99; len + 1];
        let envelope = messages.recv(&mut received, other, len as u64)?;
        ensure!(envelope.bytes == len && received[..len] == data && received[len] == 99, "{len} bytes");
    }
    comm.barrier()?;
    Ok(())
}

fn message_03_one_gib(comm: Communicator) -> Outcome {
    const WORDS: usize = 1 << 27;
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 0 {
        let data: Vec<u64> = (0..WORDS as u64).collect();
        messages.send(&data, other, 1)?;
    } else {
        let (data, envelope) = messages.recv_vec::<u64>(other, 1)?;
        ensure!(envelope.bytes == 1 << 30 && data.iter().copied().eq(0..WORDS as u64));
    }
    comm.barrier()?;
    Ok(())
}

fn message_03_an_element_larger_than_a_stack(comm: Communicator) -> Outcome {
    // 8 MiB.
    type Element = [[[u8; 4096]; 1024]; 2];
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 0 {
        messages.send(&vec![7u8; size_of::<Element>()], other, 1)?;
    } else {
        let (data, _) = messages.recv_vec::<Element>(other, 1)?;
        ensure!(data.len() == 1 && data[0].as_flattened().as_flattened().iter().all(|byte| *byte == 7));
    }
    comm.barrier()?;
    Ok(())
}

fn message_04_a_thousand_in_order_through_a_full_ring(comm: Communicator) -> Outcome {
    let (mut messages, rank, size) = (comm.messages()?, comm.rank(), comm.size());
    if rank == 0 {
        for source in 1..size {
            for number in 0..1000usize {
                let (received, _) = messages.recv_vec::<u8>(source, 1)?;
                ensure!(received == bytes(number, number % 5000), "message {number} of rank {source}");
            }
        }
    } else {
        for number in 0..1000usize {
            messages.send(&bytes(number, number % 5000), 0, 1)?;
        }
    }
    comm.barrier()?;
    Ok(())
}

/// Several short messages share a line where no answer comes in between, if their tags are not too long.
fn message_04_short_and_longer_ones_in_bursts(comm: Communicator) -> Outcome {
    const LENGTHS: [usize; 12] = [0, 1, 7, 8, 8, 8, 8, 8, 9, 40, 41, 300];
    const TAGS: [u64; 6] = [0, 1, 1, (1 << 36) - 1, 1 << 36, u64::MAX];
    let (mut messages, _, other) = pair(&comm)?;
    // The same choices on both ranks.
    let mut random = fastrand::Rng::with_seed(39);
    for burst in 0..3000 {
        let of_burst: Vec<_> = (0..random.usize(1..=if burst % 100 == 0 { 60 } else { 9 }))
            .map(|number| (bytes(burst + number, LENGTHS[random.usize(..12)]), TAGS[random.usize(..6)]))
            .collect();
        for (data, tag) in &of_burst {
            messages.send(data, other, *tag)?;
        }
        for (data, tag) in &of_burst {
            if random.u8(..20) == 0 && !data.is_empty() {
                let short = messages.recv(&mut vec![0u8; data.len() - 1], other, *tag);
                ensure_matches!(short, Err(Error::Truncated { bytes, .. }) if *bytes == data.len());
            }
            let mut received = vec![99; data.len() + 1];
            let source = if random.bool() { Source::Any } else { other.into() };
            let envelope = messages.recv(&mut received, source, *tag)?;
            ensure!((envelope.source, envelope.tag, envelope.bytes) == (other, *tag, data.len()));
            ensure!(received.starts_with(data) && received.ends_with(&[99]), "burst {burst}: {received:?}");
        }
    }
    comm.barrier()?;
    Ok(())
}

/// So often that the turn of a cell comes round to what it was: after 2¹⁶ laps of 64 cells.
fn message_04_the_ring_goes_round_many_times(comm: Communicator) -> Outcome {
    let mut messages = comm.messages()?;
    let mut received = [0u64; 2];
    for number in 0..(1u64 << 22) + 1000 {
        messages.send(&[number, !number], 0, 1)?;
        messages.recv(&mut received, 0, 1)?;
        ensure!(received == [number, !number], "{received:?} instead of {number}");
    }
    Ok(())
}

/// So often that the turn of the line of the pair comes round, and now and then several in a row, or a longer one.
fn message_04_taking_turns_many_times(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = (comm.messages()?, comm.rank(), comm.size() - 1 - comm.rank());
    for round in 0..(1u64 << 17) + 1000 {
        let in_a_row = if round % 1000 == 999 { 1 + round / 1000 % 7 } else { 1 };
        let longer = [round; 4];
        let data = if round % 777 == 776 { &longer[..] } else { &longer[..1] };
        let send = |messages: &mut Messages| {
            (0..in_a_row).try_for_each(|number| messages.send(data, other, round + number))
        };
        if rank <= other {
            send(&mut messages)?;
        }
        for number in 0..in_a_row {
            let mut received = [0; 4];
            let envelope = messages.recv(&mut received, other, Tag::Any)?;
            ensure!(envelope.tag == round + number, "{envelope:?} instead of {round}, {number}");
            ensure!(received.starts_with(data), "{received:?} instead of {data:?}");
        }
        if rank > other {
            send(&mut messages)?;
        }
    }
    comm.barrier()?;
    Ok(())
}

/// A word says how many messages were taken modulo 512, and a sender may have published more since the one that it takes next: it is not to
/// take an old count for a new one.
fn message_04_answers_that_lie_while_hundreds_are_sent(comm: Communicator) -> Outcome {
    const ANSWERS: u64 = 8;
    const WRAP: u64 = 512;
    let (mut messages, rank, other) = pair(&comm)?;
    let receive = |messages: &mut Messages, range: std::ops::RangeInclusive<u64>| -> Outcome {
        for sent in range {
            let mut received = [0];
            messages.recv(&mut received, other, 0)?;
            ensure!(received == [sent], "{received:?} in place of {sent}");
        }
        Ok(())
    };
    for number in 1..=ANSWERS {
        match rank {
            0 => messages.send(&[number], other, 0)?,
            _ => {
                receive(&mut messages, number..=number)?;
                messages.send(&[number], other, 0)?;
            }
        }
    }
    for start in (ANSWERS + 1..=WRAP).step_by(8) {
        match rank {
            0 => (start..start + 8).try_for_each(|number| messages.send(&[number], other, 0))?,
            _ => receive(&mut messages, start..=start + 7)?,
        }
        comm.barrier()?;
    }
    for number in 1..=ANSWERS {
        if rank == 0 {
            messages.send(&[WRAP + number], other, 0)?;
            receive(&mut messages, number..=number)?;
        }
    }
    comm.barrier()?;
    if rank == 1 {
        receive(&mut messages, WRAP + 1..=WRAP + ANSWERS)?;
    }
    Ok(())
}

fn message_05_long_then_short_in_order(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    for _ in 0..20 {
        if rank == 0 {
            let (long, short) = (bytes(1, 300_000), bytes(2, 3));
            let mut sending = messages.start_send(&long, other, 1)?;
            messages.send(&short, other, 1)?;
            messages.wait(&mut sending)?;
        } else {
            ensure!(messages.recv_vec::<u8>(Source::Any, 1)?.0 == bytes(1, 300_000), "the long one was first");
            ensure!(messages.recv_vec::<u8>(Source::Any, 1)?.0 == bytes(2, 3));
        }
    }
    comm.barrier()?;
    Ok(())
}

fn message_10_a_short_buffer_keeps_the_message(comm: Communicator) -> Outcome {
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    let to = (rank + 1) % comm.size();
    let from = (rank + comm.size() - 1) % comm.size();
    for len in [17, 4096, 200_000] {
        let data = bytes(rank, len);
        let mut sending = messages.start_send(&data, to, 1)?;
        let mut short = vec![55u8; len];
        let error = messages.recv(&mut short[..16], from, 1).expect_err("too short");
        ensure_matches!(error, Error::Truncated { bytes, capacity: 16, .. } if *bytes == len);
        ensure!(!error.is_fatal() && short.iter().all(|byte| *byte == 55), "it was written to");
        messages.recv(&mut short, from, 1)?;
        ensure!(short == bytes(from, len), "it was not kept");
        messages.wait(&mut sending)?;
    }
    comm.barrier()?;
    Ok(())
}

fn message_11_no_whole_number_of_elements(comm: Communicator) -> Outcome {
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    messages.send(&[1u8, 2, 3, 4, 5], rank, 1)?;
    let error = messages.recv(&mut [0u32; 4], rank, 1).expect_err("five bytes");
    ensure_matches!(error, Error::NotWhole { bytes: 5, element: 4, .. });
    ensure_matches!(messages.recv_vec::<u64>(rank, 1), Err(Error::NotWhole { bytes: 5, element: 8, .. }));
    ensure!(!error.is_fatal() && messages.recv_vec::<u8>(rank, 1)?.0 == [1, 2, 3, 4, 5]);
    comm.barrier()?;
    Ok(())
}

fn message_21_bad_ranks(comm: Communicator) -> Outcome {
    let (mut messages, rank, size) = (comm.messages()?, comm.rank(), comm.size());
    for bad in [size, size + 1, usize::MAX] {
        for error in [
            messages.send(&[1u8], bad, 1).err(),
            messages.try_send(&[1u8], bad, 1).err(),
            messages.recv(&mut [1u8], bad, 1).err(),
            messages.probe(bad, 1).err(),
            messages.start_recv(&mut [1u8], bad, 1).map(drop).err(),
            messages.start_send(&[1u8], bad, 1).map(drop).err(),
            messages.sendrecv(&[1u8], rank, &mut [1u8], bad, 1).err(),
        ] {
            ensure_matches!(error, Some(Error::InvalidRank { rank, .. }) if *rank == bad);
        }
    }
    // All tags are good.
    for tag in [0, 1, u64::MAX] {
        messages.send(&[1u8], rank, tag)?;
        ensure!(messages.recv(&mut [0u8], rank, tag)?.tag == tag);
    }
    still_works(&comm)
}
