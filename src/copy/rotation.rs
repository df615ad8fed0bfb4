//! Which buffers the parts of what is long take: the lowest that are free, or those behind the last.
//!
//! The lowest stay in the caches, those of the receiver too. Where processors share a last-level cache, an RFO for a line that a neighbour's
//! second-level cache holds may take longer than one for a line that has left it, so it is measured.

use crate::tuning::{
    MESSAGE_ASKED_MEASURE_BYTES, MESSAGE_ASKED_ROTATE_IN_BYTES, MESSAGE_ASKED_ROTATE_LEAST_BYTES,
    MESSAGE_ASKED_ROTATE_MOST_BYTES,
};

/// Whether it can pay in a channel with this many bytes of buffers.
pub(crate) fn pays_in(bytes: usize) -> bool {
    bytes >= MESSAGE_ASKED_ROTATE_IN_BYTES
}

pub(crate) struct Rotation {
    /// The bytes that are still to go behind the last.
    left: usize,
    /// How many go there the next time that the lowest are dear.
    phase: usize,
    /// The bytes that have gone to the lowest since.
    lowest: usize,
}

impl Default for Rotation {
    fn default() -> Self {
        Rotation { left: 0, phase: MESSAGE_ASKED_ROTATE_LEAST_BYTES, lowest: 0 }
    }
}

impl Rotation {
    /// Whether the next part takes the buffers behind the last. `is_dear`: cached stores to lines that the receiver has read.
    ///
    /// While buffers rotate that is not seen, or says nothing of the lowest. So the lowest are tried again, at first soon: ranks may have moved.
    pub(crate) fn takes_next(&mut self, is_dear: bool) -> bool {
        if self.left == 0 && self.lowest >= MESSAGE_ASKED_MEASURE_BYTES && is_dear {
            self.left = self.phase;
            self.phase = (2 * self.phase).min(MESSAGE_ASKED_ROTATE_MOST_BYTES);
        }
        self.left > 0
    }

    /// A part of `len` bytes has taken its buffers.
    pub(crate) fn took(&mut self, len: usize) {
        if self.left > 0 {
            (self.left, self.lowest) = (self.left.saturating_sub(len), 0);
            return;
        }
        self.lowest = self.lowest.saturating_add(len);
        if self.lowest >= MESSAGE_ASKED_ROTATE_LEAST_BYTES {
            self.phase = MESSAGE_ASKED_ROTATE_LEAST_BYTES;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PART: usize = 128 << 10;

    fn take(rotation: &mut Rotation, is_dear: bool) -> bool {
        let takes_next = rotation.takes_next(is_dear);
        rotation.took(PART);
        takes_next
    }

    /// How many of `parts` parts rotate if the lowest buffers are known to be dear after four parts in them.
    fn near(rotation: &mut Rotation, parts: usize) -> usize {
        let (mut lowest, mut rotated) = (0, 0);
        for _ in 0..parts {
            if take(rotation, lowest > 3) {
                (lowest, rotated) = (0, rotated + 1);
            } else {
                lowest += 1;
            }
        }
        rotated
    }

    #[test]
    fn parts_rotate_where_the_lowest_buffers_are_dear() {
        let rotation = &mut Rotation::default();
        let first = MESSAGE_ASKED_ROTATE_LEAST_BYTES / PART;
        assert_eq!(near(rotation, first), first - 4);
        // From then on the lowest are tried less and less often.
        let parts = 16 * MESSAGE_ASKED_ROTATE_MOST_BYTES / PART;
        let rotated = near(rotation, parts);
        assert!(parts - rotated < parts / 100, "{rotated} of {parts}");
    }

    #[test]
    fn parts_take_the_lowest_buffers_again_when_ranks_have_moved() {
        let rotation = &mut Rotation::default();
        let most = MESSAGE_ASKED_ROTATE_MOST_BYTES / PART;
        near(rotation, 16 * most);
        assert!((0..=most).any(|_| !take(rotation, false)));
        assert!((0..1000).all(|_| !take(rotation, false)));
        // And if they move back, they are tried soon again: what was dear while parts rotated says nothing about them.
        let [first, measured] =
            [MESSAGE_ASKED_ROTATE_LEAST_BYTES, MESSAGE_ASKED_MEASURE_BYTES].map(|bytes| bytes / PART);
        assert!((0..first).all(|_| take(rotation, true)));
        assert!((0..measured).all(|_| !take(rotation, true)));
        assert!(take(rotation, true));
    }
}
