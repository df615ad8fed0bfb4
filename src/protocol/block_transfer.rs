//! The interface between a transfer of blocks and its caller.

use core::num::NonZeroU64;
use core::ops::Range;

use crate::copy::{Sink, Source};

/// An address in the memory of the rank that publishes it. `None`: no other rank can fetch from there.
pub type Address = Option<NonZeroU64>;

/// The bit of a [place](Lend::place) that some ranks may not have mapped any more: see [`super::offers`].
pub const OFFER: u64 = 1 << 63;

/// What a rank lends in a call, so that it does not go through staging, and what it has of the others'. Each rank decides for its own
/// block, or contribution.
pub trait Lend {
    /// Where all ranks have it mapped: a number that means the same to each of them.
    fn place(&self) -> Address;
    /// Where the others fetch it by single copy, if it has no place.
    fn address(&self) -> Address {
        None
    }
    /// Whether this rank has what another offers. If so, it keeps that until the call has ended.
    fn find(&mut self, place: NonZeroU64) -> bool;
    /// Whether all ranks have all that was offered. From then on [`place`](Self::place) offers nothing: what was offered is
    /// read in place, or goes through staging.
    fn settle(&mut self, found: bool);
    /// Some rank has failed to fetch a block, and all know. The call begins again, and fetches nothing.
    fn refused(&mut self) {}
}

/// The place and the address of this rank's block; `(None, None)`: it goes through staging.
#[inline]
pub(crate) fn whereabouts(lending: Option<&mut dyn Lend>) -> (Address, Address) {
    lending.map_or((None, None), |lending| (lending.place(), lending.address()))
}

/// The caller's side of a transfer: the blocks, in bytes.
pub trait BlockTransfer {
    /// The length of a rank's block, the same on every rank.
    fn length(&self, rank: usize) -> usize;
    /// Copies a chunk of this rank's own block into staging.
    fn put(&mut self, chunk: Range<usize>, staging: Sink<'_>);
    /// Copies a chunk of this rank's own block to where it is wanted, if that is elsewhere. No staging involved.
    fn copy_own_block(&mut self, chunk: Range<usize>);
    /// Whether this rank has something to read, or all others have. If not, it has nothing to do while a root reads.
    fn receives(&self) -> bool {
        true
    }
    /// Copies a chunk of another rank's block out of staging.
    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>);
    /// What this rank lends. `None`: its block goes through staging, and it finds nothing that others offer.
    fn lending(&mut self) -> Option<&mut dyn Lend> {
        None
    }
    /// Copies a chunk of another rank's block from that rank's memory, where the block begins at `from`. False: that was not
    /// possible.
    fn fetch(&mut self, rank: usize, chunk: Range<usize>, from: NonZeroU64) -> bool {
        let _ = (rank, chunk, from);
        false
    }
    /// Copies all of another rank's block from where this rank has it mapped.
    fn read_in_place(&mut self, rank: usize, place: NonZeroU64) {
        let _ = (rank, place);
    }
}
