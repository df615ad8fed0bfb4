//! Requests that are forgotten, dropped, or taken back.

use anyhow::{Context, ensure};
use intranode::{Cancelled, Communicator, Error, Messages, Receiving, Request, Source, Tag};

use super::refused::refuse_reading;
use super::{bytes, pair};
use crate::scenario::{Outcome, Scenario, row};

pub(super) fn rows() -> Vec<Scenario> {
    vec![
        row!(message_16_any_of_several).ranks(&[2, 4]),
        row!(message_16_any_of_some_that_fail).ranks(&[1, 2]),
        row!(message_16_a_request_is_complete_when_it_is_sent).ranks(&[2]),
        row!(message_17_a_receiving_is_forgotten).ranks(&[2]),
        row!(message_17_a_receiving_is_forgotten_in_mid_fetch).ranks(&[2]),
        row!(message_17_a_receiving_is_dropped).ranks(&[2]),
        row!(message_17_a_receiving_is_dropped_in_mid_fetch).ranks(&[2]),
        row!(message_17_receivings_that_are_forgotten_leave_room).ranks(&[2]),
        row!(message_19_a_cancel_races_the_match).ranks(&[2]),
        row!(message_19_a_cancelled_send_is_not_received).ranks(&[2]),
        row!(message_19_a_receive_of_a_cancelled_send_is_cancelled).ranks(&[2]),
        row!(message_19_many_cancelled_sends_leave_room_for_others).ranks(&[2]),
    ]
}

fn message_16_any_of_several(comm: Communicator) -> Outcome {
    let (mut messages, rank, size) = (comm.messages()?, comm.rank(), comm.size());
    if rank > 0 {
        messages.send(&bytes(rank, 100_000 * (rank % 2) + 5), 0, rank as u64)?;
    } else {
        let mut data: Vec<Vec<u8>> = (1..size).map(|_| vec![0; 100_005]).collect();
        let mut receivings = Vec::new();
        for (source, data) in (1..size).zip(&mut data) {
            receivings.push(messages.start_recv(data, source, Tag::Any)?);
        }
        let mut seen = Vec::new();
        loop {
            let mut requests: Vec<_> =
                receivings.iter_mut().map(|request| request as &mut dyn intranode::Request).collect();
            let Some((place, envelope)) = messages.wait_any(&mut requests)? else { break };
            ensure!(envelope.source == place + 1 && envelope.tag == envelope.source as u64);
            seen.push(place);
        }
        seen.sort_unstable();
        ensure!(seen == (0..size - 1).collect::<Vec<_>>(), "{seen:?}");
    }
    comm.barrier()?;
    Ok(())
}

/// Each is reported once, also one whose message does not fit.
fn message_16_any_of_some_that_fail(comm: Communicator) -> Outcome {
    let (mut messages, rank) = (comm.messages()?, comm.rank());
    messages.send(&[1u8; 9], rank, 1)?;
    messages.send(&[2u8; 4], rank, 2)?;
    let (mut short, mut long) = ([0u8; 3], [0u8; 4]);
    let mut first = messages.start_recv(&mut short, rank, 1)?;
    let mut second = messages.start_recv(&mut long, rank, 2)?;
    let error = messages.wait_any(&mut [&mut first, &mut second]);
    ensure!(matches!(error, Err(Error::Truncated { bytes: 9, capacity: 3, .. })), "{error:?}");
    let second_place = messages.wait_any(&mut [&mut first, &mut second])?.map(|(place, _)| place);
    ensure!(second_place == Some(1), "{second_place:?}");
    ensure!(messages.wait_any(&mut [&mut first, &mut second])?.is_none());
    ensure!(matches!(messages.test(&mut first), Err(Error::Truncated { .. })));
    comm.barrier()?;
    Ok(())
}

/// Where there is no room in the channel, a short message is not complete before it is there; so none is lost if the sender
/// leaves when all are complete.
fn message_16_a_request_is_complete_when_it_is_sent(comm: Communicator) -> Outcome {
    const COUNT: u64 = 500;
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 0 {
        let data: Vec<u64> = (0..COUNT).collect();
        let mut sendings = Vec::new();
        for number in &data {
            sendings.push(messages.start_send(std::slice::from_ref(number), other, 1)?);
        }
        let last = messages.test(&mut sendings[COUNT as usize - 1])?;
        ensure!(last.is_none(), "the channel has no room for {COUNT}");
        // Taken back, it is not received.
        ensure!(messages.cancel(&mut sendings[COUNT as usize - 1])? == Cancelled::Yes);
        comm.barrier()?;
        let mut requests: Vec<_> = sendings.iter_mut().map(|request| request as &mut dyn Request).collect();
        messages.wait_all(&mut requests)?;
        return Ok(());
    }
    comm.barrier()?;
    for number in 0..COUNT - 1 {
        let mut received = [u64::MAX];
        messages.recv(&mut received, other, 1)?;
        ensure!(received == [number]);
    }
    ensure!(matches!(messages.recv(&mut [0u64], other, 1), Err(Error::RankLeft { rank: 0, .. })));
    Ok(())
}

/// The forgotten receive takes the message that it would have got, and the next receive the next.
fn message_17_a_receiving_is_forgotten(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    for len in [8, 5000, 200_000] {
        if rank == 0 {
            let (first, second) = (bytes(1, len), bytes(2, len));
            let sending = messages.start_send(&first, other, 1)?;
            messages.send(&second, other, 1)?;
            comm.barrier()?;
            drop(sending);
        } else {
            {
                let mut gone = vec![0u8; len];
                std::mem::forget(messages.start_recv(&mut gone, other, 1)?);
            }
            let mut received = vec![0; len];
            messages.recv(&mut received, other, 1)?;
            ensure!(received == bytes(2, len));
            comm.barrier()?;
        }
    }
    comm.barrier()?;
    Ok(())
}

fn message_17_a_receiving_is_dropped(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    for len in [8, 5000, 200_000] {
        comm.barrier()?;
        if rank == 0 {
            messages.send(&bytes(1, len), other, 1)?;
        } else {
            let mut unused = vec![0u8; len];
            drop(messages.start_recv(&mut unused, other, 1)?);
            messages.probe(other, 1)?;
            drop(messages.start_recv(&mut unused, other, 1)?);
            ensure!(messages.recv_vec::<u8>(other, 1)?.0 == bytes(1, len));
            ensure!(unused.iter().all(|byte| *byte == 0), "a receive that was dropped was written to");
        }
    }
    comm.barrier()?;
    Ok(())
}

/// After its request is forgotten, nothing refers to the buffer of a receive, of which a part has come.
fn message_17_a_receiving_is_forgotten_in_mid_fetch(comm: Communicator) -> Outcome {
    given_up_in_mid_fetch(&comm, |receiving| std::mem::forget(receiving), |_, _, _| Ok(()))
}

/// The same, and the message is there for another receive.
fn message_17_a_receiving_is_dropped_in_mid_fetch(comm: Communicator) -> Outcome {
    given_up_in_mid_fetch(
        &comm,
        |receiving| drop(receiving),
        |messages, other, len| {
            ensure!(messages.recv_vec::<u8>(other, 1)?.0 == bytes(1, len), "it was dropped, and not kept");
            Ok(())
        },
    )
}

/// Rank 1 gives a receive up whose message comes in parts, after one part more in each turn; and in every other turn, when the
/// next part is on its way.
fn given_up_in_mid_fetch(
    comm: &Communicator,
    give_up: fn(Receiving<'_>),
    then: fn(&mut Messages, usize, usize) -> Outcome,
) -> Outcome {
    const PARTS: usize = 8;
    // What is asked for at once: three quarters of 64 buffers of 32 KiB.
    const LEN: usize = PARTS * 48 * (32 << 10);
    const CANARY: u8 = 0xC3;
    refuse_reading()?;
    for (parts, on_its_way) in (0..PARTS).flat_map(|parts| [(parts, false), (parts, true)]) {
        let (mut messages, rank, other) = pair(comm)?;
        if rank == 0 {
            let data = bytes(1, LEN);
            let mut sending = messages.start_send(&data, other, 1)?;
            comm.barrier()?;
            for _ in 0..parts + usize::from(on_its_way) {
                comm.barrier()?;
                // Sends the part that the receiver wants.
                messages.test(&mut sending)?;
                comm.barrier()?;
            }
            while messages.try_probe(other, 2)?.is_none() {
                messages.test(&mut sending)?;
            }
            messages.send(&bytes(2, 5000), other, 3)?;
            comm.barrier()?;
            continue;
        }
        let mut buffer = vec![0u8; LEN];
        let mut receiving = messages.start_recv(&mut buffer, other, 1)?;
        comm.barrier()?;
        for _ in 0..parts + usize::from(on_its_way) {
            ensure!(messages.test(&mut receiving)?.is_none(), "it is complete after some of {PARTS} parts");
            comm.barrier()?;
            comm.barrier()?;
        }
        if !on_its_way {
            ensure!(messages.test(&mut receiving)?.is_none(), "it is complete after {parts} of {PARTS} parts");
        }
        give_up(receiving);
        let received = buffer.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        ensure!(received.abs_diff(parts * LEN / PARTS) < 3, "{received} bytes, and not {parts} parts");
        buffer.fill(CANARY);
        then(&mut messages, other, LEN)?;
        messages.send(&[0u8], other, 2)?;
        ensure!(messages.recv_vec::<u8>(other, 3)?.0 == bytes(2, 5000));
        ensure!(buffer.iter().all(|byte| *byte == CANARY), "{parts} parts: it was written to");
        comm.barrier()?;
    }
    Ok(())
}

/// Parts of messages that nobody gets any more are in buffers, but not in all: a short message comes, and a long one too.
fn message_17_receivings_that_are_forgotten_leave_room(comm: Communicator) -> Outcome {
    const LEN: usize = 1 << 20;
    const FORGOTTEN: usize = 3;
    refuse_reading()?;
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 0 {
        let data: Vec<Vec<u8>> = (0..=FORGOTTEN).map(|tag| bytes(tag, LEN)).collect();
        let mut sendings = Vec::new();
        for (tag, data) in data.iter().enumerate() {
            sendings.push(messages.start_send(data, other, tag as u64)?);
        }
        messages.probe(other, 9)?;
        for sending in &mut sendings {
            // Sends what the receiver has asked for, if there is room.
            messages.test(sending)?;
        }
        messages.send(&bytes(7, 60_000), other, 7)?;
        messages.wait(&mut sendings[FORGOTTEN])?;
        comm.barrier()?;
        return Ok(());
    }
    for tag in 0..FORGOTTEN {
        let mut unused = vec![0u8; LEN];
        messages.probe(other, tag as u64)?;
        let mut receiving = messages.start_recv(&mut unused, other, tag as u64)?;
        ensure!(messages.test(&mut receiving)?.is_none(), "it came without being asked for");
        std::mem::forget(receiving);
    }
    messages.send(&[0u8], other, 9)?;
    ensure!(messages.recv_vec::<u8>(other, 7)?.0 == bytes(7, 60_000));
    ensure!(messages.recv_vec::<u8>(other, FORGOTTEN as u64)?.0 == bytes(FORGOTTEN, LEN));
    comm.barrier()?;
    Ok(())
}

/// Each message is received once, by the receive that was to be taken back or by the next.
fn message_19_a_cancel_races_the_match(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let (mut early, mut late) = (0, 0);
    for turn in 0..300u64 {
        comm.barrier()?;
        if rank == 0 {
            for _ in 0..turn * 10 {
                std::hint::spin_loop();
            }
            messages.send(&[turn; 700], other, turn)?;
            continue;
        }
        let mut data = [u64::MAX; 700];
        let mut receiving = messages.start_recv(&mut data, Source::Any, Tag::Any)?;
        match messages.cancel(&mut receiving)? {
            Cancelled::Yes => {
                early += 1;
                messages.recv(&mut data, other, turn)?;
            }
            Cancelled::TooLate(envelope) => {
                late += 1;
                ensure!((envelope.source, envelope.tag, envelope.bytes) == (other, turn, 5600));
            }
        }
        ensure!(data == [turn; 700], "turn {turn}");
        ensure!(messages.try_probe(Source::Any, Tag::Any)?.is_none(), "it came twice");
    }
    ensure!(rank == 0 || early + late == 300);
    comm.barrier()?;
    Ok(())
}

fn message_19_a_cancelled_send_is_not_received(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let data = bytes(1, 300_000);
    for turn in 0..100u64 {
        comm.barrier()?;
        if rank == 0 {
            let mut sending = messages.start_send(&data, other, turn)?;
            for _ in 0..turn * 20 {
                std::hint::spin_loop();
            }
            let sent = match messages.cancel(&mut sending)? {
                Cancelled::Yes => 0,
                Cancelled::TooLate(_) => 1,
            };
            messages.send(&[sent], other, 1000)?;
        } else {
            let mut received = vec![0u8; data.len()];
            let mut receiving = messages.start_recv(&mut received, other, turn)?;
            let mut sent = [9];
            while messages.try_probe(other, 1000)?.is_none() {
                messages.test(&mut receiving)?;
            }
            messages.recv(&mut sent, other, 1000)?;
            let got = messages.test(&mut receiving)?;
            ensure!(got.is_some() == (sent[0] == 1), "turn {turn}: sent {sent:?}, received {got:?}");
            drop(receiving);
            ensure!(sent[0] == 0 || received == data);
        }
    }
    comm.barrier().context("at the end")?;
    Ok(())
}

/// The receive has got the message, which was withdrawn: it is not too late.
fn message_19_a_receive_of_a_cancelled_send_is_cancelled(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let mut data = bytes(1, 300_000);
    if rank == 0 {
        let mut sending = messages.start_send(&data, other, 1)?;
        comm.barrier()?;
        comm.barrier()?;
        ensure!(messages.cancel(&mut sending)? == Cancelled::Yes, "nobody has asked for it");
        comm.barrier()?;
    } else {
        comm.barrier()?;
        ensure!(messages.try_probe(other, 1)?.is_some(), "it was published before the barrier");
        comm.barrier()?;
        comm.barrier()?;
        let mut receiving = messages.start_recv(&mut data, other, 1)?;
        ensure!(messages.cancel(&mut receiving)? == Cancelled::Yes, "there is no message");
    }
    comm.barrier()?;
    Ok(())
}

/// Of messages that nobody asks for, and that are taken back, nothing is left.
fn message_19_many_cancelled_sends_leave_room_for_others(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    let data = bytes(1, 300_000);
    if rank == 0 {
        for tag in 0..200 {
            let mut sending = messages.start_send(&data, other, tag)?;
            ensure!(messages.cancel(&mut sending)? == Cancelled::Yes, "nobody asks for message {tag}");
        }
        messages.send(&data, other, 1000)?;
    } else {
        ensure!(messages.recv_vec::<u8>(other, 1000)?.0 == data);
    }
    comm.barrier()?;
    Ok(())
}
