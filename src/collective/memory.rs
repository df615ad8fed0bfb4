//! Where a call sends from and receives into, in bytes: slices, or buffers that other threads may write meanwhile.

use std::iter;
use std::num::NonZeroU64;
use std::ops::{Range, RangeBounds};

use crate::copy::policy::{StorePolicy, Stores};
use crate::copy::raw::{RawSource, RawTarget};
use crate::copy::{Sink, Source};
use crate::protocol::block_transfer::Address;
use crate::rank::cma_peers;
use crate::rank::rank_state::RankState;
use crate::tuning::{InPlaceFrom, RAW_SINGLE_COPY_BYTES};

/// What a call sends.
pub(super) trait SendBytes: Copy {
    /// Its length.
    fn bytes(&self) -> usize;

    /// Some of it.
    fn part(self, range: Range<usize>) -> Self;

    /// Copies it to the beginning of staging.
    fn publish(self, staging: &mut Sink<'_>);

    /// Copies it to memory of the same length.
    fn copy_to(self, bytes: &mut [u8]);

    /// Where all ranks find it, if they read it in place: see [`RankState::lend_from`].
    fn lend_from(self, rank_state: &RankState, from: InPlaceFrom) -> Address;

    /// Where the system finds it for other ranks.
    fn address(self) -> Address;

    /// The same if it has not changed: see [`RankState::address_of_unchanged`].
    fn address_of_unchanged(
        self,
        rank_state: &RankState,
        len: usize,
        pays_for: &impl RangeBounds<usize>,
    ) -> Address;
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

    /// Fills this range by calls to `read`, each for the bytes from an offset in the range on. False: that was not possible.
    fn fill(
        &mut self,
        range: Range<usize>,
        stores: &StorePolicy,
        read: impl FnMut(usize, &mut [u8]) -> bool,
    ) -> bool;
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

    fn copy_to(self, bytes: &mut [u8]) {
        bytes.copy_from_slice(self);
    }

    fn lend_from(self, rank_state: &RankState, from: InPlaceFrom) -> Address {
        rank_state.lend_from(self, from)
    }

    fn address(self) -> Address {
        cma_peers::address(self)
    }

    fn address_of_unchanged(
        self,
        rank_state: &RankState,
        len: usize,
        pays_for: &impl RangeBounds<usize>,
    ) -> Address {
        rank_state.address_of_unchanged(self, (len, pays_for), iter::once(self.len()))
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

    fn fill(
        &mut self,
        range: Range<usize>,
        _: &StorePolicy,
        mut read: impl FnMut(usize, &mut [u8]) -> bool,
    ) -> bool {
        read(0, &mut self[range])
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

    fn copy_to(self, bytes: &mut [u8]) {
        RawTarget::from(bytes).copy_from(self, Stores::Cached);
    }

    /// It is never read in place: what its pages belong to is not known to this library.
    fn lend_from(self, _: &RankState, _: InPlaceFrom) -> Address {
        None
    }

    fn address(self) -> Address {
        NonZeroU64::new(self.start().expose_provenance() as u64)
    }

    /// Others may write it at any time.
    fn address_of_unchanged(self, _: &RankState, _: usize, _: &impl RangeBounds<usize>) -> Address {
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

    /// By way of private memory: the system is only asked to write to that.
    fn fill(
        &mut self,
        range: Range<usize>,
        stores: &StorePolicy,
        mut read: impl FnMut(usize, &mut [u8]) -> bool,
    ) -> bool {
        let mut private = vec![0; RAW_SINGLE_COPY_BYTES.min(range.len())];
        range.clone().step_by(RAW_SINGLE_COPY_BYTES).all(|start| {
            let piece = start..range.end.min(start + RAW_SINGLE_COPY_BYTES);
            let private = &mut private[..piece.len()];
            let is_read = read(start - range.start, private);
            if is_read {
                self.part(piece).copy_from(RawSource::from(&*private), stores.receive());
            }
            is_read
        })
    }
}
