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
use crate::message::in_buffers::InBuffers;
use crate::message::outgoing::{LINE, Outgoing};
use crate::message::state::State;
use crate::protocol::Killed;
use crate::protocol::message::channel::shifted;
use crate::protocol::message::{self, Kind, buffers};
use crate::segment::message_memory::MappedChannel;
use crate::tuning::{
    MESSAGE_EARLY_PART_BYTES, MESSAGE_IDLE_POLLS, MESSAGE_PARTS, MESSAGE_PARTS_FROM_BYTES,
    MESSAGE_SHORT_PART_BYTES,
};

/// The length of the parts of a message of this length, at least [`MESSAGE_PARTS_FROM_BYTES`].
fn part_len(bytes: usize) -> usize {
    let short = (bytes / 2).min(MESSAGE_SHORT_PART_BYTES);
    (bytes / MESSAGE_PARTS).clamp(short, MESSAGE_EARLY_PART_BYTES).next_multiple_of(LINE)
}

impl Outgoing {
    /// Fills the buffers of a message but for its last part, and publishes after each part how much is there. Returns that. If the ring
    /// has no room for all parts, nothing is done.
    pub(super) fn publish_parts(
        &mut self,
        core: &Core,
        target: usize,
        (whole, buffers): (&message::Envelope, &MappedChannel<'_>),
        bytes: &[u8],
    ) -> Result<usize, Killed> {
        if bytes.len() < MESSAGE_PARTS_FROM_BYTES {
            return Ok(0);
        }
        let (post, channel) = (core.post(), core.to(target));
        let (part_len, start) = (part_len(bytes.len()), whole.start());
        // The last part is in the message's own cell.
        let parts = bytes.len().div_ceil(part_len) - 1;
        if !post.has_room_for(&channel, &mut self.outbox, parts + 1) {
            return Ok(0);
        }
        let kind = if whole.kind.is_returned() { Kind::ReturnedPart } else { Kind::Part };
        let mut filled = 0;
        for part in bytes.chunks(part_len).take(parts) {
            buffers::fill_from(buffers, whole.mask, start + filled, part);
            filled += part.len();
            let cell = message::Envelope { kind, inline: shifted(start, filled), ..*whole };
            post.publish(&channel, &mut self.outbox, target, &cell)?;
        }
        Ok(filled)
    }
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
        let (message::Envelope { len, tag, .. }, place) = (*first, InBuffers::of(first));
        let (mut cell, mut copied) = (*first, 0);
        loop {
            let there = match cell.kind {
                _ if (cell.len, cell.tag, InBuffers::of(&cell)) != (len, tag, place) => None,
                Kind::Part | Kind::ReturnedPart => {
                    Some(cell.filled()).filter(|filled| (copied..len).contains(filled))
                }
                Kind::Message | Kind::Shifted | Kind::Returned => Some(len),
                _ => None,
            };
            let Some(there) = there else {
                // Another process's mistake.
                return self.receive_other(core, source, &cell, None);
            };
            place.behind(copied).read(core, source, &mut target[copied..there]);
            copied = there;
            if !matches!(cell.kind, Kind::Part | Kind::ReturnedPart) {
                let read = self.has_read(core, source, place);
                read.map_err(|killed| core.failed(Operation::Recv, killed.into()))?;
                return Ok(Some(Envelope { source, tag, bytes: len }));
            }
            let mut polls = MESSAGE_IDLE_POLLS;
            cell = loop {
                let taken = self.peers[source].take(post, &channel, source);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_halves_of_short_messages_and_quarters_of_longer_ones() {
        let lens = [3 << 10, 4 << 10, 8 << 10, 16 << 10, 24 << 10, 64 << 10, 1 << 20].map(part_len);
        assert_eq!(lens, [1536, 2 << 10, 4 << 10, 4 << 10, 6 << 10, 16 << 10, 16 << 10]);
        let lens = MESSAGE_PARTS_FROM_BYTES..100_000;
        assert!(lens.into_iter().all(|bytes| part_len(bytes) > 0 && part_len(bytes).is_multiple_of(LINE)));
    }
}
