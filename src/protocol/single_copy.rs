//! Single copy: each block is copied once, from the sender's memory to the receiver's, by the system (CMA: cross memory
//! attach, Yeoh 2010; [`BlockTransfer::fetch`]).
//!
//! 1. Each rank publishes the address of its block, if it has one: one round. Where its block lies in memory which all ranks map, it
//!    publishes that place instead (see [`super::transfer`]); one that is only offered makes the call begin again.
//! 2. Each rank fetches what it wants of the blocks of the others, or reads it in place.
//! 3. Each rank publishes its status: one more round. No rank returns before it, so no sender's memory changes.
//!
//! If one rank has failed to fetch a block, all see its status, and the call starts again through staging.
//!
//! A rank that gives the call up, because another is late, returns, and may change its memory while a third still fetches
//! from it. The bytes that one gets do not matter: its call fails too.

use crate::tuning::SINGLE_COPY_PIECE_BYTES;
use core::num::NonZeroU64;

use super::block_transfer::{Address, BlockTransfer};
use super::call::HEAD;
use super::generation::POISON;
use super::offers::is_offer;
use super::{Call, Failure, Member, Ordering, Payload, Platform};
use crate::copy::Sink;
use Ordering::Relaxed;

/// The offset of the address, in bytes: behind the place.
const ADDRESS: usize = 8;

/// The status of a rank that has done what was to be done.
const DONE: Address = NonZeroU64::new(1);

impl<P: Platform> Member<'_, P> {
    /// [`transfer`](Member::transfer) without staging. False: some rank has failed to fetch a block, and all know.
    pub(super) fn transfer_by_single_copy(
        &mut self,
        call: &Call,
        blocks: &mut impl BlockTransfer,
    ) -> Result<bool, Failure> {
        let (own, place) = (blocks.length(self.rank), blocks.place());
        let address = if place.is_some() { None } else { blocks.address() };
        let first = if is_offer(place) { 0..0 } else { 0..own };
        let publish = |mut header: Sink<'_>| {
            header.put(ADDRESS, &bytes_of(address));
            write_status(header, place);
        };
        let parity = self.begin_call_while(call, publish, || blocks.copy_own_block(first))?;
        if is_offer(self.all_places(parity, place)) {
            let found = self.all_find(call, parity, |place| blocks.find(place))?;
            blocks.settle(found);
            return self.transfer_by_single_copy(call, blocks);
        }
        let has_block = own == 0 || place.is_some() || address.is_some();
        let fetched = has_block && self.others().all(|rank| self.fetch(rank, parity, blocks));
        self.all_done(call, fetched)
    }

    /// Whether all ranks have done what was to be done: one round.
    pub(super) fn all_done(&mut self, call: &Call, own: bool) -> Result<bool, Failure> {
        let done = DONE.filter(|_| own);
        self.header(self.rank, self.next_parity()).write(|header| write_status(header.after(HEAD), done));
        let parity = self.continue_call(call, || ())?;
        Ok(own && self.others().all(|rank| self.status(rank, parity).is_some()))
    }

    /// Gets a rank's block, piece by piece, until the communicator is poisoned. False: that was not possible.
    fn fetch(&self, rank: usize, parity: usize, blocks: &mut impl BlockTransfer) -> bool {
        let len = blocks.length(rank);
        if len == 0 {
            return true;
        }
        if let Some(place) = self.status(rank, parity) {
            blocks.read_in_place(rank, place);
            return true;
        }
        let address = self.inline(rank, parity, |header| u64::from_ne_bytes(header.array(ADDRESS)));
        let Some(from) = NonZeroU64::new(address) else { return false };
        let word = &self.segment.slots[self.rank][self.completed.parity()].state;
        (0..len).step_by(SINGLE_COPY_PIECE_BYTES).all(|start| {
            let ended = self.platform.load("poll-poison", word, Relaxed) & POISON != 0;
            !ended && blocks.fetch(rank, start..(start + SINGLE_COPY_PIECE_BYTES).min(len), from)
        })
    }

    /// What a rank has published: the place of its block, or its status.
    pub(super) fn status(&self, rank: usize, parity: usize) -> Address {
        NonZeroU64::new(self.inline(rank, parity, |header| u64::from_ne_bytes(header.array(0))))
    }
}

pub(super) fn write_status(mut header: Sink<'_>, status: Address) {
    header.put(0, &bytes_of(status));
}

fn bytes_of(status: Address) -> [u8; 8] {
    status.map_or(0, NonZeroU64::get).to_ne_bytes()
}
