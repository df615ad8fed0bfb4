//! Receiving straight from a channel: what is asked for and is the next in it need not be kept in between.
//!
//! That is so for most messages where one peer is awake: a client's answers, and the calls that a server of one client has. All
//! others are [taken in](super::taking) first.

use crate::endpoint::ended::Ended;
use crate::endpoint::error::EndpointError;
use crate::endpoint::link::{Link, Violation};
use crate::endpoint::peer::{Incoming, Peer};
use crate::endpoint::state::State;
use crate::protocol::message::{Envelope, Kind};
use crate::segment::unit::unstopped;
use crate::tuning::{ENDPOINT_CALLS_OF_CHANNELS, ENDPOINT_POLLS_PER_CALL};

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
    fn is_direct(&self) -> bool {
        self.arrived.is_empty() && !self.wants_room && !self.calls.wants_room && !self.calls.has_requests()
    }

    /// Receives the next message of the channel, if it is the one that is asked for: one that is `EXPECTED` with this tag, or one that
    /// is not. Its tag and length. What is another, or is too long, is taken all the same.
    #[inline(always)]
    fn receive_next<const EXPECTED: bool>(
        &mut self,
        tag: u64,
        buffer: &mut [u8],
        another: &mut Option<Envelope>,
    ) -> Result<Option<(u64, usize)>, Violation> {
        let (post, channel) = (self.memory.post(&self.platform), self.memory.incoming());
        let received = post.take_with(&channel, &mut self.inbox, |cell| {
            let is_asked_for = if EXPECTED {
                cell.kind == Kind::Expected && cell.tag == tag
            } else {
                cell.kind == Kind::Message
            };
            let is_whole = cell.mask & cell.mask.wrapping_sub(1) == 0;
            if !is_asked_for || !is_whole || cell.len > buffer.len() {
                *another = Some(Envelope::of(&cell));
                return None;
            }
            if cell.mask == 0 {
                cell.inline.get(0, &mut buffer[..cell.len]);
            }
            Some((cell.tag, cell.len, cell.mask))
        });
        let Some((tag, len, mask)) = received.map_err(|_| Violation)?.flatten() else { return Ok(None) };
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
    /// Receives from the only peer that is awake, without keeping the message: one that is expected from this peer with this tag, or
    /// one that is not expected. Counts as this number of polls of those after which it looks at all.
    #[inline(always)]
    pub(super) fn receive_directly(
        &mut self,
        polls: u32,
        expected: Option<(Peer, u64)>,
        buffer: &mut [u8],
    ) -> Result<Direct, EndpointError> {
        self.check()?;
        let polls = self.polls + polls;
        let [peer] = self.awake[..] else { return Ok(Direct::Kept) };
        if polls >= ENDPOINT_CALLS_OF_CHANNELS * ENDPOINT_POLLS_PER_CALL || !self.unexpected.is_empty() {
            return Ok(Direct::Kept);
        }
        let Some(link) = self.links.get(peer).filter(|link| link.is_direct()) else { return Ok(Direct::Kept) };
        if let Some((from, tag)) = expected
            // Receives that were started before have the first ones.
            && (from != peer || link.postings.of(tag) > 0)
        {
            return Ok(Direct::Kept);
        }
        let mut another = None;
        let next = match expected {
            Some((_, tag)) => link.receive_next::<true>(tag, buffer, &mut another),
            None => link.receive_next::<false>(0, buffer, &mut another),
        };
        match next {
            Ok(Some((tag, bytes))) => {
                self.polls = polls;
                return Ok(Direct::Received(Incoming { peer, tag, bytes }));
            }
            Ok(None) if another.is_none() => {
                self.polls = polls;
                return Ok(Direct::Nothing);
            }
            Ok(None) => another.into_iter().for_each(|cell| self.keep(peer, cell)),
            Err(Violation) => self.end(peer, Ended::Violated),
        }
        Ok(Direct::Kept)
    }
}
