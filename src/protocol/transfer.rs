//! Blocks of any length from some ranks to all: allgatherv, and broadcast, in which one block is not empty.
//!
//! Blocks stream through staging in chunks, one round a chunk, unless they need no staging.
//!
//! ```text
//! turn    t        t + 1      t + 2
//! buffer  even     odd        even
//!         write 0  write 1    write 2          every rank, its buffer of that turn
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
//!
//! **By single copy.** In the same way a rank publishes the address of its block, from which the system copies it for the others: see
//! [`super::single_copy`].

use core::ops::Range;

use super::block_transfer::{Address, BlockTransfer, whereabouts};
use super::call::INLINE;
use super::offers::is_offer;
use super::prefetch::Then;
use super::single_copy::write_whereabouts;
use super::staging::Senders;
use super::{Call, Failure, Member, Payload, Platform};
use crate::copy::{Sink, Source};

impl<P: Platform> Member<'_, P> {
    /// Brings every rank's block to every other rank.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    pub fn transfer<B: BlockTransfer>(&mut self, call: &Call, blocks: &mut B) -> Result<(), Failure> {
        self.transfer_or_fetch(call, blocks, true, true)
    }

    /// `may_offer`: no offer was settled in this call. `may_fetch`: no rank has failed to do so.
    fn transfer_or_fetch<B: BlockTransfer>(
        &mut self,
        call: &Call,
        blocks: &mut B,
        may_offer: bool,
        may_fetch: bool,
    ) -> Result<(), Failure> {
        let longest = (0..self.size()).map(|rank| blocks.length(rank)).max().unwrap_or(0);
        if self.staging.is_short(longest) {
            return self.transfer_short(call, longest, blocks);
        }
        let senders = self.senders(blocks);
        let chunk_len = self.staging.chunk_len(longest, senders, self.size());
        let chunk = |start: usize, len: usize| start.min(len)..(start + chunk_len).min(len);
        let own = blocks.length(self.rank);
        let (place, address) = whereabouts(blocks.lending());
        let address = address.filter(|_| may_fetch && place.is_none() && own > 0);
        let is_staged = place.or(address).is_none();
        let staged = if is_staged { own } else { 0 };
        let then = Then::of(staged > 0, blocks.receives());
        let mut offset = self.offset(chunk(0, longest).len(), senders);
        self.stage(chunk(0, staged), offset, blocks);
        // All of it if it is not staged: the rounds may end before the chunks do. An offer makes the call begin again.
        let first = match place {
            Some(_) if is_offer(place) => 0..0,
            _ if is_staged => chunk(0, own),
            _ => 0..own,
        };
        let publish = |header: Sink<'_>| write_whereabouts(header, (place, address));
        let parity = self.begin_call_while(call, publish, || blocks.copy_own_block(first))?;
        if may_offer && is_offer(self.all_places(parity, place)) {
            let found = self.all_find(call, parity, blocks.lending())?;
            if let Some(lending) = blocks.lending() {
                lending.settle(found);
            }
            return self.transfer_or_fetch(call, blocks, false, may_fetch);
        }
        // What is written next: the next chunk, or the first of a call like this one.
        let next = |start: usize| match chunk(start + chunk_len, longest).len() {
            0 => chunk(0, longest).len(),
            next => next,
        };
        let (unstaged, fetched) = self.get_unstaged(parity, (place, address), blocks);
        let length = |blocks: &B, rank| if unstaged.contains(&rank) { 0 } else { blocks.length(rank) };
        let longest_staged = match unstaged[..] {
            [] => longest,
            _ => (0..self.size()).map(|rank| length(blocks, rank)).max().unwrap_or(0),
        };
        let mut buffers = self.end_turn_if(longest_staged > 0);
        self.prefetch_next_round((next(0), senders), then);
        let mut start = 0;
        loop {
            for rank in self.others() {
                let theirs = chunk(start, length(blocks, rank));
                if !theirs.is_empty() {
                    let staging = self.buffer(rank, buffers);
                    staging.read(|staging| blocks.get(rank, theirs, staging.after(offset)));
                }
            }
            start += chunk_len;
            if start >= longest_staged {
                break;
            }
            offset = self.offset(chunk(start, longest_staged).len(), senders);
            self.stage(chunk(start, staged), offset, blocks);
            self.continue_call(call, || blocks.copy_own_block(chunk(start, staged)))?;
            buffers = self.end_turn();
            self.prefetch_next_round((next(start), senders), then);
        }
        match fetched {
            Some(own) if !self.all_done(call, own)? => {
                if let Some(lending) = blocks.lending() {
                    lending.refused();
                }
                return self.transfer_or_fetch(call, blocks, may_offer, false);
            }
            None if start == chunk_len && !unstaged.is_empty() => _ = self.continue_call(call, || ())?,
            _ => {}
        }
        Ok(())
    }

    /// Gets the blocks that do not go through staging. Returns their ranks, which are the same on every rank, and whether this rank has
    /// fetched all that had an address; `None`: no block of any rank had one. `own`: the place of this rank's block, and its address.
    fn get_unstaged(
        &self,
        parity: usize,
        own: (Address, Address),
        blocks: &mut impl BlockTransfer,
    ) -> (Vec<usize>, Option<bool>) {
        let (mut unstaged, mut fetched) = (Vec::new(), own.1.map(|_| true));
        if own.0.or(own.1).is_some() {
            unstaged.push(self.rank);
        }
        for rank in self.others() {
            if let Some(place) = self.status(rank, parity) {
                blocks.read_in_place(rank, place);
            } else if let Some(from) = self.address(rank, parity) {
                fetched = Some(fetched != Some(false) && self.fetch(rank, from, blocks));
            } else {
                continue;
            }
            unstaged.push(rank);
        }
        (unstaged, fetched)
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
    /// through staging: then they are to be [short](super::Staging::short), and `senders` says how many ranks write any. Both are the
    /// same on every rank. `then`: what this one does behind the round.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    #[inline]
    pub fn exchange<D: ?Sized>(
        &mut self,
        call: &Call,
        (longest, senders, then): (usize, Senders, Then),
        data: &mut D,
        publish: impl FnOnce(&mut D, Sink<'_>),
        own: impl FnOnce(&mut D),
        mut read: impl FnMut(&mut D, usize, Source<'_>),
    ) -> Result<(), Failure> {
        if longest <= INLINE {
            let parity = self.begin_call(call, |header| publish(data, header))?;
            self.prefetch_next_slot();
            for rank in self.others() {
                self.inline(rank, parity, |header| read(data, rank, header));
            }
            own(data);
            return Ok(());
        }
        let turn = self.turn();
        let offset = self.offset(longest, senders);
        self.buffer(self.rank, turn.buffers()).write(|staging| publish(data, staging.after(offset)));
        self.begin_call_while(call, |_| (), || own(data))?;
        self.end(turn);
        self.prefetch_next_round((longest, senders), then);
        for rank in self.others() {
            self.buffer(rank, turn.buffers()).read(|staging| read(data, rank, staging.after(offset)));
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
        let senders = if longest > INLINE { self.senders(blocks) } else { Senders::One };
        self.exchange(
            call,
            (longest, senders, Then::of(own > 0, blocks.receives())),
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

    #[inline]
    fn senders(&self, blocks: &impl BlockTransfer) -> Senders {
        Senders::of(self.size(), |rank| blocks.length(rank))
    }
}
