//! Requests that are forgotten, dropped, or taken back.

use anyhow::{Context, ensure};
use intranode::{Cancelled, Communicator, Source, Tag};

use super::{bytes, pair};
use crate::scenario::{Outcome, Scenario, row};

pub(super) fn rows() -> Vec<Scenario> {
    vec![
        row!(message_16_any_of_several).ranks(&[2, 4]),
        row!(message_17_a_receiving_is_forgotten).ranks(&[2]),
        row!(message_17_a_receiving_is_dropped).ranks(&[2]),
        row!(message_19_a_cancel_races_the_match).ranks(&[2]),
        row!(message_19_a_cancelled_send_is_not_received).ranks(&[2]),
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
