//! The buffers of a call, with a table of counts and displacements for each.

use std::ops::Range;

use super::block_table::BlockTable;
use super::memory::{RecvBytes, SendBytes};
use super::parts;
use crate::copy::policy::StorePolicy;

/// The caller's buffers, in bytes.
pub(super) struct VectorBuffers<'a, S, R> {
    pub(super) send: S,
    pub(super) send_table: BlockTable<'a>,
    pub(super) recv: R,
    pub(super) recv_table: BlockTable<'a>,
    /// The size of an element.
    pub(super) width: usize,
    pub(super) rank: usize,
    /// The number of ranks.
    pub(super) size: usize,
    pub(super) stores: StorePolicy,
}

impl<S: SendBytes, R: RecvBytes<S>> VectorBuffers<'_, S, R> {
    /// What this rank sends to each other rank, in the order of the receivers.
    #[inline]
    pub(super) fn parts(&self) -> impl Iterator<Item = S> {
        parts::receivers(self.rank, self.size).map(|rank| self.send.part(self.send_table.range(rank)))
    }

    /// As many bytes as a sender has for this rank, from an element on.
    #[inline]
    pub(super) fn range_from(&self, sender: usize, element: usize) -> Range<usize> {
        let start = element.saturating_mul(self.width);
        start..start.saturating_add(self.recv_table.len(sender))
    }

    #[inline]
    pub(super) fn copy_own_block(&mut self) {
        let (from, to) = (self.send_table.range(self.rank), self.recv_table.range(self.rank));
        self.recv.copy(to, self.send.part(from), &self.stores);
    }
}
