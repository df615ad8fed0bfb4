//! What a rank writes down: each receive that it starts, with what it asks for, and how it has ended. What a receive gets is checked at
//! once against the plan: such a message was sent, to this rank, was asked for, and was not received before.

use anyhow::{Context, bail, ensure};
use intranode::{Envelope, Error};

use super::plan::{Asked, Plan, Planned};
use super::{is_unchanged, starts_with};
use crate::scenario::Outcome;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Open,
    Got(usize),
    Cancelled,
    Dropped,
    Truncated,
}

/// A receive, as it was started and has ended.
#[derive(Debug)]
pub(super) struct Noted {
    pub(super) asked: Asked,
    pub(super) end: End,
    /// How many had ended then.
    pub(super) at: usize,
}

/// What the sender knows of a message that it has taken back, or has tried to.
pub(super) const TAKEN_BACK: u8 = 1;
pub(super) const TOO_LATE: u8 = 2;

pub(super) struct Notes<'p> {
    plan: &'p Plan,
    rank: usize,
    /// In the order in which they were started.
    pub(super) receives: Vec<Noted>,
    ended: usize,
    /// By message: whether this rank has received it.
    received: Vec<bool>,
}

impl<'p> Notes<'p> {
    pub(super) fn new(plan: &'p Plan, rank: usize) -> Self {
        Notes { plan, rank, receives: Vec::new(), ended: 0, received: vec![false; plan.messages.len()] }
    }

    /// A receive is started.
    pub(super) fn start(&mut self, asked: Asked) -> usize {
        self.receives.push(Noted { asked, end: End::Open, at: 0 });
        self.receives.len() - 1
    }

    pub(super) fn end(&mut self, note: usize, end: End) {
        self.ended += 1;
        (self.receives[note].end, self.receives[note].at) = (end, self.ended);
    }

    /// A receive has got a message.
    pub(super) fn got(&mut self, note: usize, envelope: Envelope) -> anyhow::Result<Planned> {
        let Envelope { source, tag, bytes, .. } = envelope;
        let known = self.plan.known.get(&(source, self.rank, tag, bytes)).copied();
        let number =
            known.with_context(|| format!("nobody has sent {bytes} bytes from {source}, tag {tag}"))?;
        let message = self.plan.messages[number];
        ensure!(self.receives[note].asked.matches(&message), "{:?} got {message:?}", self.receives[note]);
        ensure!(!std::mem::replace(&mut self.received[number], true), "{message:?} was received twice");
        self.end(note, End::Got(number));
        Ok(message)
    }

    /// The only error of a receive is that its buffer is too short.
    pub(super) fn failed(&mut self, note: usize, error: Error) -> Outcome {
        let Error::Truncated { rank, bytes, capacity, .. } = error else { bail!(error) };
        let Noted { asked, .. } = self.receives[note];
        let is_sent = |message: &Planned| {
            (message.from, message.to, message.len) == (rank, self.rank, bytes) && asked.matches(message)
        };
        ensure!(bytes > capacity && self.plan.messages.iter().any(is_sent), "{error}");
        self.end(note, End::Truncated);
        Ok(())
    }

    /// What a receive of this buffer has given.
    pub(super) fn gave(&mut self, note: usize, result: Result<Envelope, Error>, buffer: &[u8]) -> Outcome {
        match result {
            Ok(envelope) => {
                let message = self.got(note, envelope)?;
                ensure!(starts_with(buffer, message.bytes()), "{message:?}: other bytes");
                Ok(())
            }
            Err(error) => self.failed(note, error),
        }
    }

    pub(super) fn has_received(&self, number: usize) -> bool {
        self.received[number]
    }

    pub(super) fn has_received_all(&self, numbers: &[usize]) -> bool {
        numbers.iter().all(|number| self.received[*number])
    }

    /// The messages to this rank that it has not received.
    pub(super) fn missing(&self) -> impl Iterator<Item = usize> {
        let is_missing =
            |number: &usize| self.plan.messages[*number].to == self.rank && !self.received[*number];
        (0..self.received.len()).filter(is_missing)
    }

    /// The buffer of a receive has its message and nothing else.
    pub(super) fn check_buffer(&self, note: usize, buffer: &[u8]) -> Outcome {
        let noted = &self.receives[note];
        let len = match noted.end {
            End::Got(number) => {
                let message = &self.plan.messages[number];
                ensure!(starts_with(buffer, message.bytes()), "{noted:?}: other bytes");
                message.len
            }
            End::Truncated => 0,
            _ => return Ok(()),
        };
        // A message that was taken back may have left bytes.
        ensure!(self.plan.withdraws || is_unchanged(&buffer[len..]), "{noted:?}: bytes behind it");
        Ok(())
    }

    /// What was taken back was not received, and all else was. The list is by rank, then by message.
    pub(super) fn check_taken_back(&self, all: &[u8]) -> Outcome {
        let messages = self.plan.messages.iter().enumerate();
        for (number, message) in messages.filter(|(_, message)| message.to == self.rank) {
            let (received, known) = (self.received[number], all[message.from * self.received.len() + number]);
            ensure!(
                if received { known != TAKEN_BACK } else { !message.is_certain() && known != TOO_LATE },
                "message {number}, {message:?}: received is {received}, taken back {known}"
            );
        }
        Ok(())
    }
}
