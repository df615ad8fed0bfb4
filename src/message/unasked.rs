//! Long messages that come right behind their offers.
//!
//! A long message goes through buffers when its receiver has asked for it, which takes a message to it and one back. If it is likely to wait,
//! since it has read all before, and all of the message fits into half of the buffers, its sender does not wait to be asked. What comes so belongs
//! to the offer as what was asked for does: it is withdrawn with it, and thrown away by a receiver that reads the sender's memory instead.

use crate::message::arrivals::Staged;
use crate::message::core::Core;
use crate::message::outgoing::Outgoing;
use crate::protocol::Killed;
use crate::protocol::message::offer::Offer;
use crate::protocol::message::{Mask, buffers};
use crate::tuning::MESSAGE_PART_BYTES;

/// The attempt of what nobody has asked for.
const UNASKED: u8 = 0;

/// Numbers the attempts to get messages through buffers.
#[derive(Default)]
pub(super) struct Attempts(u8);

impl Attempts {
    pub(super) fn next(&mut self) -> u8 {
        self.0 = self.0.checked_add(1).unwrap_or(UNASKED + 1);
        self.0
    }
}

/// The length of a part: whole buffers of this length.
fn part_len(buffer_len: usize) -> usize {
    (MESSAGE_PART_BYTES / buffer_len).max(1) * buffer_len
}

impl Outgoing {
    /// Takes buffers for a message of this length, if it can be sent right behind the next offer, with this number.
    pub(super) fn reserve_unasked(
        &mut self,
        core: &Core,
        target: usize,
        number: u32,
        bytes: usize,
    ) -> Result<Option<Mask>, Killed> {
        let (post, channel, buffer_len) = (core.post(), core.to(target), core.layout.buffer_len);
        self.release_kept(core, target)?;
        let goes = core.prefers_buffers
            && target != core.rank()
            && bytes <= core.most_unasked()
            && self.is_flushed()
            && post.has_lease(&channel, number)
            && post.has_room_for(&channel, &mut self.outbox, 1 + bytes.div_ceil(part_len(buffer_len)))
            && post.has_read_all_but(&channel, 0);
        let reserved = if goes { self.reserve(core, target, bytes)? } else { None };
        Ok(reserved.map(|(mask, _)| mask))
    }

    /// Sends a message whose offer was published, through these buffers.
    pub(super) fn send_unasked(
        &mut self,
        core: &Core,
        target: usize,
        number: u32,
        mut mask: Mask,
        bytes: &[u8],
    ) -> Result<(), Killed> {
        let buffer_len = core.layout.buffer_len;
        for part in bytes.chunks(part_len(buffer_len)) {
            let of_part = buffers::lowest(mask, part.len().div_ceil(buffer_len)).unwrap_or(mask);
            self.publish_fragment(core, target, of_part, (number as u16, UNASKED), part)?;
            mask &= !of_part;
        }
        // The sender waits now, until all is received.
        self.prefetch_before_answer(core, target);
        Ok(())
    }
}

impl Staged {
    /// What comes of an offer without being asked for, if it does. More than can come so is not believed.
    pub(super) fn unasked(core: &Core, offer: &Offer) -> Option<Self> {
        let wanted =
            usize::try_from(offer.len).ok().filter(|len| offer.unasked && *len <= core.most_unasked())?;
        Some(Staged { attempt: UNASKED, received: 0, wanted, idle: 0 })
    }

    /// Whether nobody has asked for it, and all of it is there, or will be.
    pub(super) fn is_untouched(&self) -> bool {
        self.attempt == UNASKED && self.received == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nobody_has_asked_for_is_no_attempt() {
        let mut attempts = Attempts::default();
        assert!((0..1000).all(|_| attempts.next() != UNASKED));
    }

    #[test]
    fn parts_are_whole_buffers() {
        for buffer_len in [4 << 10, 5 << 12, 16 << 10, 32 << 10] {
            assert!(part_len(buffer_len) > 0 && part_len(buffer_len).is_multiple_of(buffer_len));
        }
    }
}
