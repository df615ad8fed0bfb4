//! Where a call sends from and receives into, in bytes: slices, or buffers that other threads may write meanwhile.

use std::ops::Range;

use crate::copy::policy::{StorePolicy, Stores};
use crate::copy::raw::{RawSource, RawTarget};
use crate::copy::{Sink, Source};
use crate::protocol::block_transfer::Address;
use crate::rank::rank_state::RankState;

/// What a call sends.
pub(super) trait SendBytes: Copy {
    /// Its length.
    fn bytes(&self) -> usize;

    /// Some of it.
    fn part(self, range: Range<usize>) -> Self;

    /// Copies it to the beginning of staging.
    fn publish(self, staging: &mut Sink<'_>);

    /// Copies it behind others.
    fn append_to(self, bytes: &mut Vec<u8>);

    /// Where all ranks find it, if they read it in place: see [`RankState::lend_from`].
    fn lend_from(self, rank_state: &RankState, from_bytes: usize) -> Address;
}

/// Where a call receives that sends from an `S`.
pub(super) trait RecvBytes<S> {
    /// Its length.
    fn bytes(&self) -> usize;

    /// Copies the beginning of a view of shared memory to this range.
    fn fetch(&mut self, range: Range<usize>, from: &Source<'_>, stores: &StorePolicy);

    /// Copies this rank's own block.
    fn copy(&mut self, range: Range<usize>, from: S, stores: &StorePolicy);

    /// Copies what came in a header.
    fn store(&mut self, range: Range<usize>, bytes: &[u8]);
}

impl SendBytes for &[u8] {
    #[inline]
    fn bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn part(self, range: Range<usize>) -> Self {
        &self[range]
    }

    #[inline]
    fn publish(self, staging: &mut Sink<'_>) {
        staging.publish(self);
    }

    fn append_to(self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self);
    }

    fn lend_from(self, rank_state: &RankState, from_bytes: usize) -> Address {
        rank_state.lend_from(self, from_bytes)
    }
}

impl<'s> RecvBytes<&'s [u8]> for &mut [u8] {
    #[inline]
    fn bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn fetch(&mut self, range: Range<usize>, from: &Source<'_>, stores: &StorePolicy) {
        stores.fetch(from, &mut self[range]);
    }

    #[inline]
    fn copy(&mut self, range: Range<usize>, from: &'s [u8], stores: &StorePolicy) {
        stores.copy(from, &mut self[range]);
    }

    fn store(&mut self, range: Range<usize>, bytes: &[u8]) {
        self[range].copy_from_slice(bytes);
    }
}

impl SendBytes for RawSource<'_, u8> {
    #[inline]
    fn bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn part(self, range: Range<usize>) -> Self {
        RawSource::part(self, range)
    }

    #[inline]
    fn publish(self, staging: &mut Sink<'_>) {
        staging.publish_raw(self);
    }

    fn append_to(self, bytes: &mut Vec<u8>) {
        let end = bytes.len();
        bytes.resize(end + self.len(), 0);
        RawTarget::from(&mut bytes[end..]).copy_from(self, Stores::Cached);
    }

    /// It is never read in place: what its pages belong to is not known to this library.
    fn lend_from(self, _: &RankState, _: usize) -> Address {
        None
    }
}

impl<'s> RecvBytes<RawSource<'s, u8>> for RawTarget<'_, u8> {
    #[inline]
    fn bytes(&self) -> usize {
        self.len()
    }

    #[inline]
    fn fetch(&mut self, range: Range<usize>, from: &Source<'_>, stores: &StorePolicy) {
        self.part(range).fetch(from, stores.receive());
    }

    #[inline]
    fn copy(&mut self, range: Range<usize>, from: RawSource<'s, u8>, stores: &StorePolicy) {
        self.part(range).copy_from(from, stores.receive());
    }

    fn store(&mut self, range: Range<usize>, bytes: &[u8]) {
        self.part(range).copy_from(RawSource::from(bytes), Stores::Cached);
    }
}
