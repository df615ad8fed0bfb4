//! Single copy: a block is copied once, from the sender's memory to the receiver's, by the system (CMA: cross memory
//! attach, Yeoh 2010; [`BlockTransfer::fetch`]).
//!
//! 1. A rank publishes the address of its block with the first round of a [transfer](super::transfer). Each decides for its own block.
//! 2. The others fetch from there what they want.
//! 3. Each rank publishes its status with the last round. No rank returns before it, so no sender's memory changes.
//!
//! If one rank has failed to fetch a block, all see its status, and the call begins again, without addresses.
//!
//! A rank that gives the call up, because another is late, returns, and may change its memory while a third still fetches
//! from it. The bytes that one gets do not matter: its call fails too.

use crate::tuning::SINGLE_COPY_PIECE_BYTES;
use core::num::NonZeroU64;

use super::block_transfer::{Address, BlockTransfer};
use super::call::HEAD;
use super::generation::POISON;
use super::{Call, Failure, Member, Ordering, Payload, Platform};
use crate::copy::Sink;
use Ordering::Relaxed;

/// The offset of the address, in bytes: behind the status.
const ADDRESS: usize = 8;

/// The status of a rank that has done what was to be done.
const DONE: Address = NonZeroU64::new(1);

impl<P: Platform> Member<'_, P> {
    /// Whether all ranks have done what was to be done: one round.
    pub(super) fn all_done(&mut self, call: &Call, own: bool) -> Result<bool, Failure> {
        let done = DONE.filter(|_| own);
        self.header(self.rank, self.next_parity()).write(|header| write_status(header.after(HEAD), done));
        let parity = self.continue_call(call, || ())?;
        Ok(own && self.others().all(|rank| self.status(rank, parity).is_some()))
    }

    /// Gets a rank's block, piece by piece, until the communicator is poisoned. False: that was not possible.
    pub(super) fn fetch(&self, rank: usize, from: NonZeroU64, blocks: &mut impl BlockTransfer) -> bool {
        let len = blocks.length(rank);
        let word = &self.slots[self.rank][self.completed.parity()].state;
        (0..len).step_by(SINGLE_COPY_PIECE_BYTES).all(|start| {
            let ended = self.platform.load("poll-poison", word, Relaxed) & POISON != 0;
            !ended && blocks.fetch(rank, start..(start + SINGLE_COPY_PIECE_BYTES).min(len), from)
        })
    }

    /// What a rank has published: the place of its block, or its status.
    pub(super) fn status(&self, rank: usize, parity: usize) -> Address {
        NonZeroU64::new(self.inline(rank, parity, |header| u64::from_ne_bytes(header.array(0))))
    }

    /// The address that a rank has published beside its place.
    pub(super) fn address(&self, rank: usize, parity: usize) -> Address {
        NonZeroU64::new(self.inline(rank, parity, |header| u64::from_ne_bytes(header.array(ADDRESS))))
    }
}

pub(super) fn write_status(mut header: Sink<'_>, status: Address) {
    header.put(0, &bytes_of(status));
}

/// Where a rank's block is; `(None, None)`: it comes through staging.
pub(super) fn write_whereabouts(mut header: Sink<'_>, (place, address): (Address, Address)) {
    header.put(ADDRESS, &bytes_of(address));
    write_status(header, place);
}

fn bytes_of(status: Address) -> [u8; 8] {
    status.map_or(0, NonZeroU64::get).to_ne_bytes()
}
