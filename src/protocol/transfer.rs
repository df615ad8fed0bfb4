//! Blocks of any length from some ranks to all: allgatherv, and broadcast, in which one block is not empty.
//!
//! Blocks stream through staging in chunks, one round a chunk, unless they need no staging: see [`super::single_copy`].
//!
//! ```text
//! round   g        g + 1      g + 2
//! parity  even     odd        even
//!         write 0  write 1    write 2          every rank, its own buffer of that parity
//!         ─round─  ─round─    ─round─
//!         read 0   read 1     read 2           every rank, everybody's buffers of that parity
//! ```
//!
//! Between two rounds a rank reads one chunk and writes the next, in buffers of different parities, so it may do both at a
//! time ([`BlockTransfer::get_and_put`]).
//!
//! Two buffers a rank are enough. A rank that writes chunk 2 has completed round g + 1, in which every rank had
//! arrived, each after it had read chunk 0. The buffer follows the parity of the *round*, which goes on from call
//! to call; if it followed the chunk's index, two calls of one chunk each would share a buffer in a row. Every
//! rank waits for all ranks in every round, even those whose blocks have ended: without that a root could run
//! ahead of its readers.

use core::ops::Range;

use super::block_transfer::BlockTransfer;
use super::call::INLINE;
use super::{Call, Failure, Member, Payload, Platform};

impl<P: Platform> Member<'_, P> {
    /// Brings every rank's block to every other rank.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    pub fn transfer(&mut self, call: &Call, blocks: &mut impl BlockTransfer) -> Result<(), Failure> {
        let longest = (0..self.size()).map(|rank| blocks.length(rank)).max().unwrap_or(0);
        if longest <= INLINE {
            return self.transfer_inline(call, blocks);
        }
        if blocks.by_single_copy() {
            if self.transfer_by_single_copy(call, blocks)? {
                return Ok(());
            }
            blocks.refused();
        }
        let senders = (0..self.size()).filter(|rank| blocks.length(*rank) > 0).take(2).count();
        let step = self.segment.staging.chunk_len(longest, senders);
        let part = |start: usize, len: usize| start.min(len)..(start + step).min(len);
        let own = blocks.length(self.rank);
        let mut start = 0;
        let mut place = self.offset(part(0, longest).len());
        self.stage(part(0, own), place, blocks);
        while start < longest {
            let keep = || blocks.copy_own_block(part(start, own));
            let parity = if start == 0 {
                self.begin_call_while(call, |_| (), keep)?
            } else {
                self.continue_call(call, keep)?
            };
            self.prefetch_next_round(part(start, longest).len());
            let (here, next) = (place, start + step);
            if next < longest {
                place = self.offset(part(next, longest).len());
            }
            // It is written while something else is read: both wait for memory, each in its own way.
            let mut ahead = Some(part(next, own)).filter(|ahead| !ahead.is_empty());
            for rank in self.others() {
                let theirs = part(start, blocks.length(rank));
                if theirs.is_empty() {
                    continue;
                }
                self.chunk(rank, parity).read(|staging| {
                    let staging = staging.after(here);
                    match ahead.take() {
                        None => blocks.get(rank, theirs, staging),
                        Some(ahead) => self.chunk(self.rank, self.next_parity()).write(|own| {
                            blocks.get_and_put(rank, theirs, staging, ahead, own.after(place));
                        }),
                    }
                });
            }
            self.stage(ahead.unwrap_or_default(), place, blocks);
            start = next;
        }
        Ok(())
    }

    /// Writes a part of this rank's block, if there is any, for the next round.
    #[inline]
    fn stage(&self, part: Range<usize>, place: usize, blocks: &mut impl BlockTransfer) {
        if !part.is_empty() {
            self.chunk(self.rank, self.next_parity()).write(|staging| blocks.put(part, staging.after(place)));
        }
    }

    /// The same for blocks that fit into the headers: one round.
    #[inline]
    fn transfer_inline(&mut self, call: &Call, blocks: &mut impl BlockTransfer) -> Result<(), Failure> {
        let own = blocks.length(self.rank);
        let parity = self.begin_call(call, |header| {
            if own > 0 {
                blocks.put(0..own, header)
            }
        })?;
        self.prefetch_next_round(0);
        blocks.copy_own_block(0..own);
        for rank in self.others() {
            let len = blocks.length(rank);
            if len > 0 {
                self.inline(rank, parity, |header| blocks.get(rank, 0..len, header));
            }
        }
        Ok(())
    }
}
