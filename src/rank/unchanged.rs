//! Whether a program sends a block again without having written it, by samples of the blocks that it sent last.
//!
//! Lines that others have read cost more to write than their copy through staging. A block that stays as it is has no such cost,
//! so it pays to read it in place, or to fetch it, also where it is short. A wrong guess costs time only: what is sent is the block as it is.

use crate::tuning::{UNCHANGED_BLOCKS, UNCHANGED_SAMPLES, UNCHANGED_TIMES};

/// The blocks of some memory that were sent last.
#[derive(Debug, Default)]
pub(crate) struct SentBlocks {
    blocks: Vec<SentBlock>,
    /// The one that gives way to the next.
    oldest: usize,
}

#[derive(Debug)]
struct SentBlock {
    /// Where it lies, for this list.
    place: u64,
    len: usize,
    sample: u64,
    /// How often in a row it was found as it was.
    unchanged: usize,
}

impl SentBlocks {
    /// Records that a block is sent. Reports whether it was sent some times before, and is still the same as far as one can see.
    pub(crate) fn is_unchanged(&mut self, place: u64, bytes: &[u8]) -> bool {
        let (len, sample) = (bytes.len(), sample(bytes));
        let mut known = self.blocks.iter_mut();
        if let Some(block) = known.find(|block| (block.place, block.len) == (place, len)) {
            block.unchanged = if block.sample == sample { block.unchanged + 1 } else { 0 };
            block.sample = sample;
            return block.unchanged >= UNCHANGED_TIMES;
        }
        let block = SentBlock { place, len, sample, unchanged: 0 };
        if self.blocks.len() < UNCHANGED_BLOCKS {
            self.blocks.push(block);
        } else {
            self.blocks[self.oldest] = block;
            self.oldest = (self.oldest + 1) % UNCHANGED_BLOCKS;
        }
        false
    }
}

/// A number that follows from words between the ends of equal parts.
fn sample(bytes: &[u8]) -> u64 {
    let part = bytes.len() / UNCHANGED_SAMPLES;
    bytes.chunks_exact(part.max(1)).fold(0, |sum, part| {
        let word = part[part.len() / 2..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word));
        (sum.rotate_left(7) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_unchanged_when_it_was_sent_some_times_as_it_is() {
        let mut sent = SentBlocks::default();
        let mut bytes = vec![0; 16 << 10];
        for value in 7..10 {
            bytes.fill(value);
            for _ in 0..UNCHANGED_TIMES {
                assert!(!sent.is_unchanged(128, &bytes));
            }
            assert!(sent.is_unchanged(128, &bytes) && sent.is_unchanged(128, &bytes));
        }
    }

    #[test]
    fn blocks_are_told_apart_by_offset_and_length() {
        let mut sent = SentBlocks::default();
        let bytes = vec![7; 16 << 10];
        let other = (0..UNCHANGED_TIMES).map(|_| {
            sent.is_unchanged(0, &bytes) || sent.is_unchanged(128, &bytes) || sent.is_unchanged(0, &bytes[8..])
        });
        assert!(!other.fold(false, |any, unchanged| any | unchanged));
        assert!(sent.is_unchanged(0, &bytes));
        // Others take its place.
        for offset in 1..=UNCHANGED_BLOCKS {
            assert!(!sent.is_unchanged(128 * (offset as u64 + 1), &bytes[1..]));
        }
        assert!(!sent.is_unchanged(0, &bytes));
        assert!(!sent.is_unchanged(0, &[]));
    }
}
