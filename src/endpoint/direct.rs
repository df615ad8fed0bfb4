//! Receiving straight from a channel: what is asked for and is the next in it need not be kept in between.
//!
//! That is so for most messages: a client's answers, and the calls that a server has. All others are [taken in](super::taking)
//! first.

use crate::endpoint::ended::Ended;
use crate::endpoint::error::EndpointError;
use crate::endpoint::link::{Link, Violation};
use crate::endpoint::peer::{Incoming, Peer};
use crate::endpoint::short::LONGEST;
use crate::endpoint::state::State;
use crate::protocol::message::{Envelope, Kind};
use crate::segment::unit::unstopped;
use crate::tuning::{ENDPOINT_DIRECT_POLLS, ENDPOINT_POLLS_PER_CALL};

/// What has come of it.
pub(super) enum Direct {
    Received(Incoming),
    /// Nothing has come, and nothing is kept.
    Nothing,
    /// What is asked for has to be looked for among what is kept.
    Kept,
}

impl Link {
    /// Whether what is next in the channel is the first that can be received, and nothing else is to be gone on with.
    #[inline]
    pub(super) fn is_direct(&self) -> bool {
        self.arrived.is_empty()
            && self.refused.is_none()
            && !self.calls.wants_room
            && !self.calls.has_requests()
    }

    /// Receives the next message of the channel, if it is the one that is asked for: one that is `EXPECTED` with this tag, or one that
    /// is not. Its tag and length. What is another, or is too long, is taken all the same. `waits`: until the side that it takes turns with
    /// may have answered.
    #[inline(always)]
    fn receive_next<const EXPECTED: bool>(
        &mut self,
        tag: u64,
        buffer: &mut [u8],
        waits: bool,
        another: &mut Option<Envelope>,
    ) -> Result<Option<(u64, usize)>, Violation> {
        let (post, channel) = (self.memory.post(&self.platform), self.memory.incoming());
        let takes_turns = waits && self.inbox.is_in_line();
        if takes_turns && self.first_poll.wait() {
            self.inbox.waits();
        }
        let mut word = post.arrived(&channel, &mut self.inbox);
        if takes_turns {
            self.first_poll.found(word.is_some());
            for _ in 0..ENDPOINT_DIRECT_POLLS {
                if word.is_some() {
                    break;
                }
                core::hint::spin_loop();
                word = post.arrived(&channel, &mut self.inbox);
            }
        }
        let Some(word) = word else { return Ok(None) };
        if let Some(slot) = post.read_slot(&channel, &self.inbox, word) {
            let is_asked_for = slot.is_expected == EXPECTED && (!EXPECTED || slot.tag == tag);
            let (inbox, outbox) = (&mut self.inbox, &mut self.outbox);
            unstopped(post.take_slot(&channel, inbox, outbox, self.memory.other(), word));
            if !is_asked_for || slot.len > buffer.len() {
                *another = Some(slot.into());
                return Ok(None);
            }
            slot.copy_to(buffer);
            return Ok(Some((slot.tag, slot.len)));
        }
        let received = post.take_cell(&channel, &mut self.inbox, &mut self.outbox, word, |cell| {
            let is_asked_for = if EXPECTED {
                cell.kind == Kind::Expected && cell.tag == tag
            } else {
                cell.kind == Kind::Message
            };
            let is_whole = cell.mask & cell.mask.wrapping_sub(1) == 0;
            if !is_asked_for || !is_whole || cell.len > buffer.len().min(LONGEST) {
                *another = Some(Envelope::of(&cell));
                return None;
            }
            if cell.mask == 0 {
                cell.inline.copy_few_to(&mut buffer[..cell.len]);
            }
            Some((cell.tag, cell.len, cell.mask))
        });
        let Some((tag, len, mask)) = received.map_err(|_| Violation)? else { return Ok(None) };
        if mask == 0 {
            unstopped(post.ring(self.memory.other()));
        } else {
            // It rings, for the cell too.
            self.read(mask, &mut buffer[..len]);
        }
        Ok(Some((tag, len)))
    }
}

impl State {
    /// Receives from a peer that is awake, without keeping the message: one that is expected from this peer with this tag, or one that
    /// is not expected, of the peer whose turn it is. Counts as this number of polls of those after which it looks at all; `None`: all
    /// was taken in. `waits`: see [`Link::receive_next`].
    #[inline(always)]
    pub(super) fn receive_directly(
        &mut self,
        polls: Option<u32>,
        expected: Option<(Peer, u64)>,
        buffer: &mut [u8],
        waits: bool,
    ) -> Result<Direct, EndpointError> {
        let Some(polls) = polls else { return Ok(Direct::Kept) };
        self.check()?;
        if self.is_due(polls) || !self.unexpected.is_empty() {
            return Ok(Direct::Kept);
        }
        let received = match expected {
            Some((from, tag)) if self.awake.contains(&from) => self.receive_expected(from, tag, buffer, waits),
            None if !self.awake.is_empty() => self.receive_unexpected(buffer, waits),
            _ => Direct::Kept,
        };
        match received {
            // What the others have sent is to be taken in, too.
            Direct::Nothing if expected.is_some() && self.awake.len() > 1 => return Ok(Direct::Kept),
            Direct::Kept => {}
            Direct::Nothing => self.polls += polls,
            Direct::Received(_) => {
                self.polls += polls;
                self.is_busy = true;
            }
        }
        Ok(received)
    }

    /// The same for a call that goes on otherwise if there is none.
    ///
    /// In line, and apart from the attempts that follow: the message comes back in registers. Through memory it would be loaded by wider
    /// loads than the stores were, and wait for these (a store-forwarding stall).
    #[inline(always)]
    pub(super) fn receive_at_once(
        &mut self,
        expected: Option<(Peer, u64)>,
        buffer: &mut [u8],
    ) -> Result<Option<Incoming>, EndpointError> {
        let waits = expected.is_some() || self.awake.len() == 1;
        let Direct::Received(message) = self.receive_directly(Some(0), expected, buffer, waits)? else {
            return Ok(None);
        };
        self.polls += ENDPOINT_POLLS_PER_CALL;
        Ok(Some(message))
    }

    #[inline(always)]
    fn receive_expected(&mut self, from: Peer, tag: u64, buffer: &mut [u8], waits: bool) -> Direct {
        let Some(link) = self.links.get(from) else { return Direct::Kept };
        // Receives that were started before have the first ones.
        if !link.is_direct() || link.postings.of(tag) > 0 {
            return Direct::Kept;
        }
        self.receive_from::<true>(from, tag, buffer, waits)
    }

    #[inline(always)]
    fn receive_unexpected(&mut self, buffer: &mut [u8], waits: bool) -> Direct {
        for _ in 0..self.awake.len() {
            self.turn = if self.turn + 1 < self.awake.len() { self.turn + 1 } else { 0 };
            let peer = self.awake[self.turn];
            if !self.links.get(peer).is_some_and(|link| link.is_direct()) {
                return Direct::Kept;
            }
            match self.receive_from::<false>(peer, 0, buffer, waits) {
                Direct::Nothing => {}
                found => return found,
            }
        }
        Direct::Nothing
    }

    #[inline(always)]
    fn receive_from<const EXPECTED: bool>(
        &mut self,
        peer: Peer,
        tag: u64,
        buffer: &mut [u8],
        waits: bool,
    ) -> Direct {
        let Some(link) = self.links.get(peer) else { return Direct::Kept };
        let mut another = None;
        match link.receive_next::<EXPECTED>(tag, buffer, waits, &mut another) {
            Ok(Some((tag, bytes))) => return Direct::Received(Incoming { peer, tag, bytes }),
            Ok(None) if another.is_none() => return Direct::Nothing,
            Ok(None) => another.into_iter().for_each(|cell| self.keep(peer, cell)),
            Err(Violation) => self.end(peer, Ended::Violated),
        }
        Direct::Kept
    }
}
