//! Where in a staging buffer the parts of a message lie.
//!
//! Before a core writes a line that another has read, it has to take it back, which takes three times as long as
//! reading it. So buffers are larger than what goes through them in a round, and parts move on from round to round:
//! when a place comes round again, other lines have pushed its lines out of the caches of those that read them.
//!
//! ```text
//! round             2n          6          4          2
//! buffer   | rest | part | … | part     | part     | part     |     the other parity's buffer likewise
//! ```
//!
//! They move towards the beginning. Whoever reads a part reads it upwards, and its processor fetches some of the lines
//! that follow, unasked: downwards these are of the part before, which has been read, and upwards they would be of the
//! part to come, which its owner would have to take back.
//!
//! This is about speed alone. What keeps a part from being overwritten too early is its round's parity.

use super::generation::Generation;
use crate::tuning::{
    CHUNK_BYTES, CHUNKS_OF_ONE_SENDER, FOLDED_CHUNK_BYTES, LEAST_CHUNK_BYTES, ROTATION_BYTES,
    ROTATION_FROM_BYTES,
};

/// How calls use the staging buffers: the same on every rank.
#[derive(Clone, Copy, Debug)]
pub struct Staging {
    /// The size of a buffer in bytes.
    pub capacity: usize,
    /// The most that goes through it in one round of a transfer.
    pub part: usize,
    /// The same of contributions to a reduction; a multiple of the size of what is reduced.
    pub folded: usize,
    /// Parts shorter than this do not move on: for so few lines the way to memory is longer.
    pub rotation_from: usize,
    /// They move through so many bytes.
    pub rotation: usize,
}

/// A multiple of the size of whatever is reduced.
const UNIT: usize = 64;

/// Places begin with a line, if lines have up to so many bytes.
pub(super) const STEP: usize = 128;

impl Staging {
    /// What suits buffers of this size, which is a multiple of the size of what is reduced, for so many ranks.
    pub fn of(capacity: usize, ranks: usize) -> Self {
        // With the slices of the part before it, which are half as much at most, a part of a reduction fills the buffer.
        let most = capacity / 3 * 2;
        let most = if most < UNIT { capacity } else { most - most % UNIT };
        Staging {
            capacity,
            part: most.min(CHUNK_BYTES),
            folded: most.min(FOLDED_CHUNK_BYTES),
            rotation_from: ROTATION_FROM_BYTES,
            rotation: capacity.min(ROTATION_BYTES / 2 / ranks.max(1)),
        }
    }

    /// How many bytes of each block go through staging in one round of a transfer, if the longest has `len`. While the only
    /// sender writes its first part nobody else has anything to do, nor does it while the last is read, so these are short.
    pub(super) fn chunk_len(self, len: usize, senders: usize) -> usize {
        let some = if senders == 1 {
            (len / CHUNKS_OF_ONE_SENDER).clamp(LEAST_CHUNK_BYTES, CHUNK_BYTES)
        } else {
            CHUNK_BYTES
        };
        some.next_multiple_of(STEP).min(self.part)
    }

    /// Where in its buffer each rank's part of a round begins, if the longest has `len` bytes.
    pub(super) fn offset(self, len: usize, round: Generation) -> usize {
        if len < self.rotation_from {
            return 0;
        }
        let stride = len.max(1).next_multiple_of(STEP);
        let Some(last) = (self.rotation / stride).checked_sub(1) else { return 0 };
        let turn = (round.number() / 2) as usize;
        (last - turn % (last + 1)) * stride
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The places of a part of `len` bytes in consecutive rounds of one parity.
    fn places(staging: Staging, len: usize, rounds: u32) -> Vec<usize> {
        (0..rounds).map(|turn| staging.offset(len, Generation::new(2 * turn))).collect()
    }

    #[test]
    fn parts_move_through_the_whole_buffer_and_stay_inside() {
        let staging = Staging { capacity: 4096, part: 1024, folded: 1024, rotation_from: 100, rotation: 4096 };
        assert_eq!(places(staging, 1024, 5), [3072, 2048, 1024, 0, 3072]);
        assert_eq!(places(staging, 600, 7), [3200, 2560, 1920, 1280, 640, 0, 3200]);
        assert_eq!(places(staging, 99, 3), [0, 0, 0]);
        for capacity in [64, 192, 4096, 5000] {
            for len in 0..=capacity {
                let staging = Staging {
                    capacity,
                    part: capacity,
                    folded: capacity,
                    rotation_from: 0,
                    rotation: capacity,
                };
                assert!(places(staging, len, 100).iter().all(|place| place + len <= capacity));
            }
        }
    }

    #[test]
    fn a_single_sender_s_message_goes_in_shorter_parts() {
        let staging = Staging::of(1 << 20, 2);
        assert_eq!(staging.chunk_len(1 << 20, 2), CHUNK_BYTES);
        assert_eq!(
            [1, 1 << 20, 1 << 30].map(|len| staging.chunk_len(len, 1)),
            [LEAST_CHUNK_BYTES, 128 << 10, CHUNK_BYTES]
        );
        assert!((0..1 << 20).step_by(1000).all(|len| staging.chunk_len(len, 1).is_multiple_of(STEP)));
        assert_eq!(Staging::of(192, 2).chunk_len(1 << 20, 1), 128);
    }

    #[test]
    fn both_rounds_of_a_pair_have_the_same_place() {
        let staging = Staging { capacity: 4096, part: 1024, folded: 1024, rotation_from: 0, rotation: 4096 };
        for round in (0..10).step_by(2) {
            assert_eq!(
                staging.offset(1024, Generation::new(round)),
                staging.offset(1024, Generation::new(round + 1))
            );
        }
    }
}
