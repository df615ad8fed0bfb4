//! Blocks of any length from some ranks to all: allgatherv, and broadcast, in which one block is not empty.
//!
//! Blocks stream through staging in chunks, one round a chunk:
//!
//! ```text
//! round   g        g + 1      g + 2
//! parity  even     odd        even
//!         write 0  write 1    write 2          every rank, its own buffer of that parity
//!         ─round─  ─round─    ─round─
//!         read 0   read 1     read 2           every rank, everybody's buffers of that parity
//! ```
//!
//! Two buffers a rank are enough. A rank that writes chunk 2 has completed round g + 1, in which every rank had
//! arrived, each after it had read chunk 0. The buffer follows the parity of the *round*, which goes on from call
//! to call; if it followed the chunk's index, two calls of one chunk each would share a buffer in a row. Every
//! rank waits for all ranks in every round, even those whose blocks have ended: without that a root could run
//! ahead of its readers.

use core::ops::Range;

use super::sequence::INLINE;
use super::{Call, Failure, Member, Payload, Platform};
use crate::payload::{Sink, Source};

/// The caller's side of a transfer: the blocks, in bytes.
pub trait Exchange {
    /// The length of a rank's block, the same on every rank.
    fn length(&self, rank: usize) -> usize;
    /// Copies a part of this rank's own block into staging.
    fn put(&mut self, part: Range<usize>, staging: Sink<'_>);
    /// Copies a part of this rank's own block to where it is wanted, if that is elsewhere. No staging involved.
    fn keep(&mut self, part: Range<usize>);
    /// Copies a part of another rank's block out of staging.
    fn get(&mut self, rank: usize, part: Range<usize>, staging: Source<'_>);
}

impl<P: Platform> Member<'_, P> {
    /// Brings every rank's block to every other rank.
    ///
    /// # Errors
    /// As [`Member::open`].
    pub fn transfer(&mut self, call: &Call, blocks: &mut impl Exchange) -> Result<(), Failure> {
        let longest = (0..self.size()).map(|rank| blocks.length(rank)).max().unwrap_or(0);
        if longest <= INLINE {
            return self.transfer_inline(call, blocks);
        }
        let step = self.segment.staging.part;
        let mut start = 0;
        while start < longest {
            let part = |len: usize| start.min(len)..(start + step).min(len);
            let mine = part(blocks.length(self.rank));
            let place = self.place(part(longest).len());
            if !mine.is_empty() {
                let parity = self.next_parity();
                self.chunk(self.rank, parity).write(|staging| blocks.put(mine.clone(), staging.after(place)));
            }
            let keep = || blocks.keep(mine);
            let parity =
                if start == 0 { self.open_while(call, |_| (), keep)? } else { self.go_on(call, keep)? };
            self.expect_round(part(longest).len());
            for rank in self.others() {
                let theirs = part(blocks.length(rank));
                if !theirs.is_empty() {
                    self.chunk(rank, parity).read(|staging| blocks.get(rank, theirs, staging.after(place)));
                }
            }
            start += step;
        }
        Ok(())
    }

    /// The same for blocks that fit into the notes: one round.
    #[inline]
    fn transfer_inline(&mut self, call: &Call, blocks: &mut impl Exchange) -> Result<(), Failure> {
        let own = blocks.length(self.rank);
        let parity = self.open(call, |note| {
            if own > 0 {
                blocks.put(0..own, note)
            }
        })?;
        self.expect_round(0);
        blocks.keep(0..own);
        for rank in self.others() {
            let len = blocks.length(rank);
            if len > 0 {
                self.inline(rank, parity, |note| blocks.get(rank, 0..len, note));
            }
        }
        Ok(())
    }
}
