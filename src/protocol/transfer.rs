//! Blocks of any length from some ranks to all: allgatherv, and broadcast, in which one block is not empty.
//!
//! Blocks stream through staging in chunks, one round a chunk, unless they need no staging: see [`super::single_copy`].
//!
//! ```text
//! turn    t        t + 1      t + 2
//! buffer  even     odd        even
//!         write 0  write 1    write 2          every rank, its own buffer of that turn
//!         ─round─  ─round─    ─round─
//!         read 0   read 1     read 2           every rank, everybody's buffers of that turn
//! ```
//!
//! Two buffers a rank are enough. A rank that writes chunk 2 has completed the round of turn t + 1, in which every rank had
//! arrived, each after it had read chunk 0. The buffer follows the number of the [*turn*](super::Turn), which goes on from call
//! to call; if it followed the chunk's index, two calls of one chunk each would share a buffer in a row. Every
//! rank waits for all ranks in every round, even those whose blocks have ended: without that a root could run
//! ahead of its readers.
//!
//! **In place.** A block that lies in memory which all ranks map does not need staging: its rank publishes the place with the
//! first round, and the others read it there before they arrive at the next. So there is a second round, if it was not
//! needed anyway, and no rank returns before all have read. Each rank decides for its own block. Memory that not all ranks may
//! have any more is offered first: see [`super::offers`].

use core::ops::Range;

use super::block_transfer::{Address, BlockTransfer};
use super::call::INLINE;
use super::offers::is_offer;
use super::single_copy::write_status;
use super::{Call, Failure, Member, Payload, Platform};
use crate::copy::{Sink, Source};

impl<P: Platform> Member<'_, P> {
    /// Brings every rank's block to every other rank.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    pub fn transfer<B: BlockTransfer>(&mut self, call: &Call, blocks: &mut B) -> Result<(), Failure> {
        let longest = (0..self.size()).map(|rank| blocks.length(rank)).max().unwrap_or(0);
        if self.segment.staging.is_short(longest) {
            return self.transfer_short(call, longest, blocks);
        }
        if blocks.by_single_copy() {
            if self.transfer_by_single_copy(call, blocks)? {
                return Ok(());
            }
            blocks.refused();
        }
        let senders = self.senders(blocks);
        let chunk_len = self.segment.staging.chunk_len(longest, senders, self.size());
        let chunk = |start: usize, len: usize| start.min(len)..(start + chunk_len).min(len);
        let (own, place) = (blocks.length(self.rank), blocks.place());
        let staged = if place.is_some() { 0 } else { own };
        let mut offset = self.offset(chunk(0, longest).len(), senders);
        self.stage(chunk(0, staged), offset, blocks);
        // All of it if it is in place: the rounds may end before the chunks do. An offer makes the call begin again.
        let first = match place {
            Some(_) if is_offer(place) => 0..0,
            Some(_) => 0..own,
            None => chunk(0, own),
        };
        let publish = |header: Sink<'_>| write_status(header, place);
        let parity = self.begin_call_while(call, publish, || blocks.copy_own_block(first))?;
        let places = self.all_places(parity, place);
        if is_offer(places) {
            let found = self.all_find(call, parity, |place| blocks.find(place))?;
            blocks.settle(found);
            return self.transfer(call, blocks);
        }
        self.prefetch_next_round(chunk(0, longest).len());
        let in_place = if places.is_some() { self.read_in_place(parity, place, blocks) } else { Vec::new() };
        let length = |blocks: &B, rank| if in_place.contains(&rank) { 0 } else { blocks.length(rank) };
        let longest = match places {
            Some(_) => (0..self.size()).map(|rank| length(blocks, rank)).max().unwrap_or(0),
            None => longest,
        };
        let mut buffer = self.end_turn_if(longest > 0);
        let mut start = 0;
        loop {
            for rank in self.others() {
                let theirs = chunk(start, length(blocks, rank));
                if !theirs.is_empty() {
                    let staging = self.buffer(rank, buffer);
                    staging.read(|staging| blocks.get(rank, theirs, staging.after(offset)));
                }
            }
            start += chunk_len;
            if start >= longest {
                break;
            }
            offset = self.offset(chunk(start, longest).len(), senders);
            self.stage(chunk(start, staged), offset, blocks);
            self.continue_call(call, || blocks.copy_own_block(chunk(start, staged)))?;
            buffer = self.end_turn();
            self.prefetch_next_round(chunk(start, longest).len());
        }
        if start == chunk_len && !in_place.is_empty() {
            self.continue_call(call, || ())?;
        }
        Ok(())
    }

    /// Reads the blocks that are in place. Returns their ranks: the same on every rank.
    fn read_in_place(&self, parity: usize, own: Address, blocks: &mut impl BlockTransfer) -> Vec<usize> {
        let mut in_place = Vec::new();
        if own.is_some() {
            in_place.push(self.rank);
        }
        for rank in self.others() {
            if let Some(place) = self.status(rank, parity) {
                blocks.read_in_place(rank, place);
                in_place.push(rank);
            }
        }
        in_place
    }

    /// Writes a chunk of this rank's block, if it has one, for the next round.
    #[inline]
    pub(super) fn stage(&self, chunk: Range<usize>, offset: usize, blocks: &mut impl BlockTransfer) {
        if !chunk.is_empty() {
            self.next_buffer().write(|staging| blocks.put(chunk, staging.after(offset)));
        }
    }

    /// One round: `publish` writes this rank's data, and `read` is called with what each other rank has written. `own` copies what
    /// stays on this rank. All get `data`. `longest`: how many bytes a rank writes at most. They go with the headers if they fit, or else
    /// through staging: then they are to be [short](super::Staging::short), and `senders` is how many ranks write any. Both are the
    /// same on every rank.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    #[inline]
    pub fn exchange<D: ?Sized>(
        &mut self,
        call: &Call,
        (longest, senders): (usize, usize),
        data: &mut D,
        publish: impl FnOnce(&mut D, Sink<'_>),
        own: impl FnOnce(&mut D),
        mut read: impl FnMut(&mut D, usize, Source<'_>),
    ) -> Result<(), Failure> {
        if longest <= INLINE {
            let parity = self.begin_call(call, |header| publish(data, header))?;
            self.prefetch_next_round(0);
            for rank in self.others() {
                self.inline(rank, parity, |header| read(data, rank, header));
            }
            own(data);
            return Ok(());
        }
        let turn = self.turn();
        let offset = self.segment.staging.offset(longest, senders, turn);
        self.buffer(self.rank, turn.buffer()).write(|staging| publish(data, staging.after(offset)));
        self.begin_call_while(call, |_| (), || own(data))?;
        self.end(turn);
        self.prefetch_next_round(longest);
        for rank in self.others() {
            self.buffer(rank, turn.buffer()).read(|staging| read(data, rank, staging.after(offset)));
        }
        Ok(())
    }

    /// The same for short blocks.
    #[inline]
    fn transfer_short(
        &mut self,
        call: &Call,
        longest: usize,
        blocks: &mut impl BlockTransfer,
    ) -> Result<(), Failure> {
        let own = blocks.length(self.rank);
        let senders = if longest > INLINE { self.senders(blocks) } else { 0 };
        self.exchange(
            call,
            (longest, senders),
            blocks,
            |blocks, staging| {
                if own > 0 {
                    blocks.put(0..own, staging);
                }
            },
            |blocks| blocks.copy_own_block(0..own),
            |blocks, rank, staging| {
                let len = blocks.length(rank);
                if len > 0 {
                    blocks.get(rank, 0..len, staging);
                }
            },
        )
    }

    /// The number of ranks whose blocks are not empty, up to two.
    #[inline]
    fn senders(&self, blocks: &impl BlockTransfer) -> usize {
        (0..self.size()).filter(|rank| blocks.length(*rank) > 0).take(2).count()
    }
}
