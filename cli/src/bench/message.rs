//! Messages, with payloads whose result is known: ranks in pairs, 0 with 1, 2 with 3 and so on. A last rank without a partner
//! has nothing to do; one that is alone sends to itself.
//!
//! `benches/race/mpi_bench.c` in the repository does the same over MPI, and must be changed together with this file.

use std::time::{Duration, Instant};

use intranode::{Communicator, Error, Messages};
use nix::time::{ClockId, clock_gettime};

use super::collective::{Calls, Collective, fill, first_value, is_filled};
use super::payload::{Memory, Payload};

const TAG: u64 = 1;

/// Who sends in which call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// The ranks of a pair take turns: a call is half a round trip.
    There,
    /// Always the first of a pair: a call is one of many messages.
    Onwards,
}

/// One message of each pair.
pub(crate) struct Pair<'a> {
    comm: &'a Communicator,
    messages: Messages,
    partner: Option<usize>,
    direction: Direction,
    send: Payload,
    recv: Vec<f64>,
    /// That of the payload.
    number: u64,
    /// How many calls there were.
    turns: u64,
    /// The number of the payload that was received last; the partner's has the same.
    received: Option<u64>,
}

impl<'a> Pair<'a> {
    pub(crate) fn new(
        direction: Direction,
        elements: usize,
        memory: Memory,
        comm: &'a Communicator,
    ) -> Result<Self, Error> {
        let (rank, size) = (comm.rank(), comm.size());
        let partner = if size == 1 { Some(0) } else { Some(rank ^ 1).filter(|partner| *partner < size) };
        let (send, recv) = (Payload::new(memory, elements, elements, comm)?, vec![0.0; elements]);
        Ok(Pair {
            comm,
            messages: comm.messages()?,
            partner,
            direction,
            send,
            recv,
            number: 0,
            turns: 0,
            received: None,
        })
    }

    /// Whether this rank sends in the next call.
    fn sends(&self) -> bool {
        let turn = match self.direction {
            Direction::There => self.turns % 2,
            Direction::Onwards => 0,
        };
        self.comm.rank() as u64 % 2 == turn
    }

    fn pass_on(&mut self) -> Result<(), Error> {
        let sends = self.sends();
        self.turns += 1;
        let Pair { comm, messages, partner, send, recv, .. } = self;
        match *partner {
            Some(own) if own == comm.rank() => drop(messages.sendrecv(send, own, recv, own, TAG)?),
            Some(partner) if sends => return messages.send(send, partner, TAG),
            Some(partner) => drop(messages.recv(recv, partner, TAG)?),
            None => return Ok(()),
        }
        self.received = Some(self.number);
        Ok(())
    }
}

impl Collective for Pair<'_> {
    fn prepare(&mut self, number: u64, step: usize) {
        self.number = number;
        fill(&mut self.send, first_value(number, self.comm.rank(), self.comm.size()), step);
    }

    fn call(&mut self, _comm: &Communicator) -> Result<(), Error> {
        self.pass_on()
    }

    fn is_right(&self, calls: Calls) -> bool {
        let (Some(partner), Some(last)) = (self.partner, self.received) else { return true };
        if last < calls.first {
            return true;
        }
        let value = |number| first_value(number, partner, self.comm.size());
        is_filled(&self.recv, (value(calls.first), value(last)), 1.0)
    }
}

/// Longer than any rank polls by default.
const PAUSE: Duration = Duration::from_millis(8);

/// From the sender's call until a receiver goes on that was asleep. The message carries the clock, which both read.
pub(crate) struct WakeUp<'a> {
    pair: Pair<'a>,
    took: Duration,
}

impl<'a> WakeUp<'a> {
    pub(crate) fn new(comm: &'a Communicator) -> Result<Self, Error> {
        Ok(WakeUp { pair: Pair::new(Direction::Onwards, 2, Memory::Private, comm)?, took: Duration::ZERO })
    }
}

/// In nanoseconds.
fn clock() -> f64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC).expect("Linux has this clock");
    Duration::from(now).as_nanos() as f64
}

impl Collective for WakeUp<'_> {
    fn prepare(&mut self, number: u64, step: usize) {
        self.pair.prepare(number, step);
    }

    fn call(&mut self, _comm: &Communicator) -> Result<(), Error> {
        if self.pair.sends() {
            // It does not sleep, so that only one processor has to wake up.
            let begin = Instant::now();
            while begin.elapsed() < PAUSE {
                std::hint::spin_loop();
            }
            self.pair.send[1] = clock();
        }
        self.pair.pass_on()?;
        let received = self.pair.recv[1];
        self.took =
            if received > 0.0 { Duration::from_nanos((clock() - received) as u64) } else { Duration::ZERO };
        Ok(())
    }

    fn is_right(&self, calls: Calls) -> bool {
        let Pair { comm, partner, recv, received, .. } = &self.pair;
        let Some(partner) = partner.filter(|_| received.is_some()) else { return true };
        *received == Some(calls.last) && recv[0] == first_value(calls.last, partner, comm.size())
    }

    fn took(&self) -> Option<Duration> {
        Some(self.took)
    }
}
