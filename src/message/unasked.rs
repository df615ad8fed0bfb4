//! Long messages that come right behind their offers.
//!
//! A long message goes through buffers when its receiver has asked for it, which takes a message to it and one back. If it is likely to wait,
//! since it has read all before, and all of the message fits into half of the buffers, its sender does not wait to be asked. What comes so belongs
//! to the offer as what was asked for does: it is withdrawn with it, and thrown away by a receiver that reads the sender's memory instead.

use crate::message::arrivals::Staged;
use crate::message::core::Core;
use crate::message::outgoing::Outgoing;
use crate::protocol::Killed;
use crate::protocol::message::offer::{Offer, Part, Want};
use crate::protocol::message::{Mask, buffers};
use crate::tuning::MESSAGE_PART_BYTES;

/// The attempt of what nobody has asked for.
const UNASKED: u16 = 0;

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
        let mut start = 0;
        for part in bytes.chunks(part_len(buffer_len)) {
            let count = part.len().div_ceil(buffer_len);
            let of_part = buffers::lowest(mask, count).unwrap_or(mask);
            let place = Part { number: number as u16, attempt: UNASKED, start };
            self.publish_fragment(core, target, of_part, place, part)?;
            mask &= !of_part;
            start += count as u32;
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
        Some(Staged { attempt: UNASKED, received: 0, wanted, idle: 0, is_new: false })
    }

    /// Whether nobody has asked for it, and all of it is there, or will be.
    fn is_untouched(&self) -> bool {
        self.attempt == UNASKED && self.received == 0
    }

    /// Whether a receive has asked for something, or has got it.
    pub(super) fn is_touched(&self) -> bool {
        !self.is_new && !self.is_untouched()
    }

    /// For another receive: what was asked for was for the one before.
    pub(super) fn for_another(self) -> Self {
        match self.is_untouched() || self.is_new {
            true => self,
            false => Staged { attempt: self.next_attempt(), ..Staged::default() },
        }
    }

    /// What has come since the last that was copied comes once more, if anything was asked for.
    pub(super) fn starts_over(&mut self) {
        if self.asked_bytes() > 0 {
            (self.attempt, self.wanted) = (self.next_attempt(), self.received);
        }
    }

    fn next_attempt(&self) -> u16 {
        if self.attempt < Want::ATTEMPT { self.attempt + 1 } else { UNASKED + 1 }
    }
}

impl Default for Staged {
    /// Of what nobody has asked for, and what does not come without that.
    fn default() -> Self {
        Staged { attempt: UNASKED + 1, received: 0, wanted: 0, idle: 0, is_new: true }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_starts_over_is_another_attempt() {
        let mut staged = Staged { wanted: 10, ..Staged::default() };
        for attempt in (UNASKED + 1..=Want::ATTEMPT).chain(UNASKED + 1..3) {
            assert_eq!(staged.attempt, attempt);
            staged.starts_over();
            let next = staged.attempt;
            assert!(next != attempt && next != UNASKED && staged.wanted == 0);
            // Nothing was asked for since.
            staged.starts_over();
            assert_eq!(staged.attempt, next);
            staged.wanted = 10;
        }
    }

    #[test]
    fn what_was_begun_is_begun_anew_for_another_receive() {
        let unasked = Staged { attempt: UNASKED, received: 0, wanted: 100, idle: 7, is_new: false };
        assert!(!unasked.is_touched() && unasked.for_another() == unasked);
        let touched = Staged { received: 1, ..unasked };
        assert!(touched.is_touched() && !touched.for_another().is_touched());
        assert_eq!(touched.for_another().attempt, UNASKED + 1);
        let asked = Staged { wanted: 100, is_new: false, ..Staged::default() };
        let another = asked.for_another();
        assert!(asked.is_touched() && another.is_new && another.attempt == asked.attempt + 1);
        assert_eq!(another.for_another(), another);
    }

    #[test]
    fn parts_are_whole_buffers() {
        for buffer_len in [4 << 10, 5 << 12, 16 << 10, 32 << 10] {
            assert!(part_len(buffer_len) > 0 && part_len(buffer_len).is_multiple_of(buffer_len));
        }
    }
}
