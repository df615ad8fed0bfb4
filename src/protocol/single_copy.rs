//! Single copy: each block is copied once, from the sender's memory to the receiver's, by the system (CMA: cross memory
//! attach, Yeoh 2010; [`BlockTransfer::fetch`]).
//!
//! 1. Each rank publishes the address of its block, if it has one: one round.
//! 2. Each rank fetches what it wants of the blocks of the others.
//! 3. Each rank publishes its status: one more round. No rank returns before it, so no sender's memory changes.
//!
//! If one rank has failed to fetch a block, all see its status, and the call starts again through staging.
//!
//! A rank that gives the call up, because another is late, returns, and may change its memory while a third still fetches
//! from it. The bytes that one gets do not matter: its call fails too.

use crate::tuning::SINGLE_COPY_PIECE_BYTES;
use core::num::NonZeroU64;
use core::ops::Range;

use super::block_transfer::{Address, BlockTransfer};
use super::call::HEAD;
use super::generation::POISON;
use super::{Call, Failure, Member, Ordering, Payload, Platform};
use crate::copy::Sink;
use Ordering::Relaxed;

/// The status of a rank that has done what was to be done.
const DONE: Address = NonZeroU64::new(1);

impl<P: Platform> Member<'_, P> {
    /// [`transfer`](Member::transfer) without staging. False: some rank has failed to fetch a block, and all know.
    pub(super) fn transfer_by_single_copy(
        &mut self,
        call: &Call,
        blocks: &mut impl BlockTransfer,
    ) -> Result<bool, Failure> {
        let (own, address) = (blocks.length(self.rank), blocks.address());
        let parity = self.begin_call_while(
            call,
            |header| write_status(header, address),
            || blocks.copy_own_block(0..own),
        )?;
        let fetched = (own == 0 || address.is_some())
            && self.others().all(|rank| {
                let len = blocks.length(rank);
                let from = self.status(rank, parity);
                len == 0 || from.is_some_and(|from| self.fetch(rank, 0..len, from, blocks))
            });
        self.all_done(call, fetched)
    }

    /// Whether all ranks have done what was to be done: one round.
    pub(super) fn all_done(&mut self, call: &Call, own: bool) -> Result<bool, Failure> {
        let done = DONE.filter(|_| own);
        self.header(self.rank, self.next_parity()).write(|header| write_status(header.after(HEAD), done));
        let parity = self.continue_call(call, || ())?;
        Ok(own && self.others().all(|rank| self.status(rank, parity).is_some()))
    }

    /// Fetches a rank's block piece by piece, until the communicator is poisoned.
    fn fetch(
        &self,
        rank: usize,
        block: Range<usize>,
        from: NonZeroU64,
        blocks: &mut impl BlockTransfer,
    ) -> bool {
        let word = &self.segment.slots[self.rank][self.completed.parity()].state;
        block.clone().step_by(SINGLE_COPY_PIECE_BYTES).all(|start| {
            let ended = self.platform.load("poll-poison", word, Relaxed) & POISON != 0;
            !ended && blocks.fetch(rank, start..(start + SINGLE_COPY_PIECE_BYTES).min(block.end), from)
        })
    }

    /// What a rank has published: the address of its block, or its status.
    pub(super) fn status(&self, rank: usize, parity: usize) -> Address {
        NonZeroU64::new(self.inline(rank, parity, |header| u64::from_ne_bytes(header.array(0))))
    }
}

pub(super) fn write_status(mut header: Sink<'_>, status: Address) {
    header.put(0, &status.map_or(0, NonZeroU64::get).to_ne_bytes());
}
