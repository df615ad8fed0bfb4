//! Two endpoints do at random what a program may do, and a model says what has to come of it: each message comes once, in its order, is reported
//! once, and wakes an endpoint that is armed.

use std::collections::VecDeque;
use std::os::fd::AsFd;

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use intranode::{Armed, Ended, Endpoint, EndpointError, Event, Peer};
use libtest_mimic::Completion;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::messages::pattern;
use super::{Test, pair, repeats};

pub(super) const TESTS: &[Test] = &[("messages_at_random_come_as_a_model_says", at_random)];

const TAGS: u64 = 3;

/// As long as fewer are not received, all that comes is taken in.
const TAKEN_IN: usize = 120;

/// A message that was sent, and was not received.
struct Sent {
    expected: bool,
    tag: u64,
    number: usize,
    len: usize,
    is_reported: bool,
}

struct Side {
    endpoint: Endpoint,
    other: Peer,
    /// Since nothing was asked of it, and nothing was there.
    is_armed: bool,
    /// What the other side has sent.
    sent: VecDeque<Sent>,
    /// For how many of its messages there was no room without that it was told of room.
    refused: usize,
    /// Since there was no room.
    waits: bool,
    /// That the other side is gone was reported.
    is_alone: bool,
}

impl Side {
    fn new(endpoint: Endpoint, other: Peer) -> Self {
        Side {
            endpoint,
            other,
            is_armed: false,
            sent: VecDeque::new(),
            refused: 0,
            waits: false,
            is_alone: false,
        }
    }

    fn is_readable(&self) -> Result<bool> {
        Ok(poll(&mut [PollFd::new(self.endpoint.as_fd(), PollFlags::POLLIN)], PollTimeout::ZERO)? > 0)
    }

    /// The first that a receive can have.
    fn first(&self, expected: bool, tag: u64) -> Option<usize> {
        let is_asked_for = |sent: &Sent| sent.expected == expected && (!expected || sent.tag == tag);
        self.sent.iter().position(is_asked_for)
    }

    /// Receives, with a buffer that may be too short. Returns whether it has received.
    fn receives(&mut self, random: &mut Rng) -> Result<bool> {
        let (expected, tag) = (random.bool(), random.u64(..TAGS));
        let mut buffer =
            vec![0; if random.u8(..8) == 0 { random.usize(..100) } else { Endpoint::MAX_MESSAGE_BYTES }];
        self.is_armed = false;
        let received = if expected {
            self.endpoint.try_recv_expected(self.other, tag, &mut buffer)
        } else {
            let received = self.endpoint.try_recv_unexpected(&mut buffer);
            received.map(|message| message.map(|message| message.bytes))
        };
        let first = self.first(expected, tag);
        match received {
            // It may not have been looked for.
            Ok(None) => Ok(false),
            Ok(Some(bytes)) => {
                let sent = first.and_then(|first| self.sent.remove(first)).context("nothing was sent")?;
                ensure!(buffer[..bytes] == pattern(sent.number, sent.len), "another message came");
                Ok(true)
            }
            Err(EndpointError::Truncated { bytes, room, .. }) => {
                let sent = &self.sent[first.context("nothing was sent")?];
                ensure!(room == buffer.len() && bytes == sent.len && bytes > room, "{bytes} into {room}");
                Ok(false)
            }
            Err(EndpointError::PeerGone { ended: Ended::Left, .. }) if first.is_none() => Ok(false),
            Err(error) => bail!(error),
        }
    }

    /// The next that has happened, if anything has.
    fn polls(&mut self) -> Result<Option<Event>> {
        self.is_armed = false;
        let event = self.endpoint.poll()?;
        match event {
            Some(Event::Message { expected, tag, bytes, .. }) => {
                let sent = self.sent.iter_mut().find(|sent| !sent.is_reported).context("nothing was sent")?;
                ensure!((sent.expected, sent.tag, sent.len) == (expected, tag, bytes), "{event:?}");
                sent.is_reported = true;
            }
            Some(Event::Room { .. }) => {
                self.refused = self.refused.checked_sub(1).context("room, and none was missing")?;
                self.waits = false;
            }
            Some(Event::Closed { .. }) => {
                ensure!(self.sent.iter().all(|sent| sent.is_reported), "{event:?} before its messages");
                self.is_alone = true;
            }
            _ => {}
        }
        Ok(event)
    }

    fn receives_all(&mut self, random: &mut Rng) -> Result<()> {
        while !self.sent.is_empty() {
            self.arms()?;
            let mut has_come = false;
            for _ in 0..1000 {
                has_come |= self.receives(random)?;
            }
            ensure!(has_come, "{} are lost", self.sent.len());
        }
        Ok(())
    }

    fn arms(&mut self) -> Result<()> {
        loop {
            while self.polls()?.is_some() {}
            if self.endpoint.arm()? == Armed::Sleep {
                ensure!(!self.is_readable()?, "readable, and nothing is there");
                self.is_armed = true;
                return Ok(());
            }
        }
    }
}

/// Sends, if there is room.
fn sends(from: &mut Side, to: &mut Side, number: usize, random: &mut Rng) -> Result<()> {
    let (expected, tag) = (random.bool(), random.u64(..TAGS));
    let len = [0, 40, 41, 4096, random.usize(..40), random.usize(..4096)][random.usize(..6)];
    let data = pattern(number, len);
    let is_sent = if expected {
        from.endpoint.try_send_expected(from.other, tag, &data)?
    } else {
        from.endpoint.try_send_unexpected(from.other, tag, &data)?
    };
    if !is_sent {
        // It has to look for room itself.
        (from.refused, from.waits, from.is_armed) = (from.refused + 1, true, false);
        return Ok(());
    }
    to.sent.push_back(Sent { expected, tag, number, len, is_reported: false });
    let is_woken = !to.is_armed || to.sent.len() > TAKEN_IN || to.is_readable()?;
    ensure!(is_woken, "armed, and message {number} of {len} bytes does not wake it");
    Ok(())
}

fn at_random() -> Result<Completion> {
    for _ in 0..repeats(30) {
        let seed = fastrand::u64(..);
        goes_on(&mut Rng::with_seed(seed)).with_context(|| format!("seed {seed}"))?;
    }
    Ok(Completion::Completed)
}

fn goes_on(random: &mut Rng) -> Result<()> {
    let (client, to_server, server, to_client) = pair()?;
    let (mut own, mut other) = (Side::new(client, to_server), Side::new(server, to_client));
    for number in 0..2000 {
        std::mem::swap(&mut own, &mut other);
        match random.u8(..20) {
            0 => {
                for more in 0..random.usize(..100) {
                    sends(&mut own, &mut other, 2000 + more, random)?;
                }
            }
            1..8 => sends(&mut own, &mut other, number, random)?,
            8 => {
                for _ in 0..200 {
                    own.receives(random)?;
                }
            }
            9..15 => drop(own.receives(random)?),
            15..18 => own.arms()?,
            _ => drop(own.polls()?),
        }
    }
    other.receives_all(random)?;
    own.arms()?;
    ensure!(!own.waits, "there is room, and that was not reported");
    own.receives_all(random)?;
    // What was sent before the end comes, and then the end.
    for number in 0..50 {
        sends(&mut own, &mut other, number, random)?;
    }
    drop(own.endpoint);
    ensure!(!other.is_armed || other.is_readable()?, "armed, and the end does not wake it");
    other.receives_all(random)?;
    other.arms()?;
    ensure!(other.is_alone, "the end was not reported");
    Ok(())
}
