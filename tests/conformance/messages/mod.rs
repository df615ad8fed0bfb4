//! Messages between ranks: the cases 1 to 28 of their design, a page for each kind. Case 28, all of them over threads, is that
//! rows run over threads.

mod endings;
mod exact;
mod in_place;
mod long;
mod matching;
mod notifier;
mod random;
mod refused;
mod requests;
mod returned;
mod unasked;
mod withdrawn;

use intranode::{Communicator, Messages};

use crate::scenario::Scenario;

pub(crate) fn rows() -> Vec<Scenario> {
    [
        exact::rows(),
        matching::rows(),
        long::rows(),
        in_place::rows(),
        requests::rows(),
        endings::rows(),
        notifier::rows(),
        random::rows(),
        refused::rows(),
        returned::rows(),
        unasked::rows(),
        withdrawn::rows(),
    ]
    .concat()
}

/// Bytes that show where they come from.
fn bytes(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|index| (seed * 31 + index * 7 + (index >> 8) * 13) as u8).collect()
}

/// This rank's messages, its rank and the other one's, of two.
fn pair(comm: &Communicator) -> anyhow::Result<(Messages, usize, usize)> {
    Ok((comm.messages()?, comm.rank(), 1 - comm.rank()))
}

/// Sends messages of this length until there is no room for another, and says how many. The receiver does nothing.
fn fill_channel(messages: &mut Messages, to: usize, len: usize) -> anyhow::Result<usize> {
    let mut sent = 0;
    while messages.try_send(&bytes(sent, len), to, 2)? {
        sent += 1;
    }
    Ok(sent)
}

/// Waits until a process is stopped.
fn await_stopped(process: i32) -> anyhow::Result<()> {
    let state = format!("/proc/{process}/stat");
    while !std::fs::read_to_string(&state)?.contains(") T ") {
        std::thread::yield_now();
    }
    Ok(())
}

/// The longest message that is sent without its receiver, where there are few ranks.
const EAGER: usize = 64 << 10;
