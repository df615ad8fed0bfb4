//! Parts of a message that are published before it is complete.
//!
//! A message that needs no receiver is copied twice. Its sender says now and then how much of it is in the buffers, and a receiver that
//! waits for it copies that while the sender goes on.
//!
//! What counts is the message's own cell, which comes behind its parts. So a receiver that does not wait passes over the parts, one that
//! has waited too long for the rest gives up what it has copied, and a sender that dies in between has sent nothing.

use crate::error::{Error, Operation};
use crate::message::core::Core;
use crate::message::envelope::Envelope;
use crate::message::outgoing::Outgoing;
use crate::message::state::State;
use crate::protocol::Killed;
use crate::protocol::message::channel::INLINE;
use crate::protocol::message::{self, Kind, buffers};
use crate::tuning::{MESSAGE_EARLY_PART_BYTES, MESSAGE_IDLE_POLLS};

impl Outgoing {
    /// Fills the buffers of a message but for its last part, and publishes after each part how much is there. Returns that. If the ring
    /// has no room for all parts, nothing is done.
    pub(super) fn publish_parts(
        &mut self,
        core: &Core,
        target: usize,
        whole: &message::Envelope,
        bytes: &[u8],
    ) -> Result<usize, Killed> {
        let (post, channel) = (core.post(), core.to(target));
        let parts = bytes.len().saturating_sub(1) / MESSAGE_EARLY_PART_BYTES;
        if parts == 0 || !post.has_room_for(&channel, &mut self.outbox, parts + 1) {
            return Ok(0);
        }
        let mut filled = 0;
        for part in bytes.chunks(MESSAGE_EARLY_PART_BYTES).take(parts) {
            buffers::fill_from(&channel, whole.mask, filled, part);
            filled += part.len();
            let mut inline = [0; INLINE];
            inline[..8].copy_from_slice(&(filled as u64).to_ne_bytes());
            let cell = message::Envelope { kind: Kind::Part, inline, ..*whole };
            post.publish(&channel, &mut self.outbox, target, &cell)?;
        }
        Ok(filled)
    }
}

/// How many bytes of its message are there.
fn filled(part: &message::Envelope) -> usize {
    part.inline.first_chunk().map_or(0, |word| u64::from_ne_bytes(*word) as usize)
}

impl State {
    /// Receives a message that is asked for and of which a part has come, while the rest comes. `None`: the rest has not come soon; then
    /// all of it is received in the usual way.
    #[inline(never)]
    pub(super) fn receive_parts(
        &mut self,
        core: &Core,
        source: usize,
        first: &message::Envelope,
        target: &mut [u8],
    ) -> Result<Option<Envelope>, Error> {
        let (post, channel) = (core.post(), core.from(source));
        let message::Envelope { len, tag, mask, .. } = *first;
        let (mut cell, mut copied) = (*first, 0);
        loop {
            let there = match cell.kind {
                _ if (cell.len, cell.tag, cell.mask) != (len, tag, mask) => None,
                Kind::Part => Some(filled(&cell)).filter(|filled| (copied..len).contains(filled)),
                Kind::Message => Some(len),
                _ => None,
            };
            let Some(there) = there else {
                // Another process's mistake.
                return self.receive_other(core, source, &cell, None);
            };
            buffers::read_from(&channel, mask, copied, &mut target[copied..there]);
            copied = there;
            if cell.kind == Kind::Message {
                let released = post.release(&channel, mask, source);
                released.map_err(|killed| core.failed(Operation::Recv, killed.into()))?;
                return Ok(Some(Envelope { source, tag, bytes: len }));
            }
            let mut polls = MESSAGE_IDLE_POLLS;
            cell = loop {
                let taken = post.take(&channel, &mut self.peers[source].inbox, source);
                match taken.map_err(|failure| core.failed(Operation::Recv, failure))? {
                    Some(next) => break next,
                    None if polls == 0 => return Ok(None),
                    None => polls -= 1,
                }
                core::hint::spin_loop();
            };
        }
    }
}
