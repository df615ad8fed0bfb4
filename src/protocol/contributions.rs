//! Where a rank that folds finds what ranks have contributed to a reduction.

use super::block_transfer::Address;
use super::call::HEAD;
use super::staging::TurnBuffers;
use super::{Member, Payload, Platform, Slot};
use crate::copy::Source;
use crate::tuning::PREFETCH_CONTRIBUTIONS_BYTES;

/// The contributions to a chunk that came with the headers, of the ranks that a result is made of.
pub struct HeaderTerms<'s, P: Platform> {
    slots: &'s [[Slot<P>; 2]],
    parity: usize,
    ranks: usize,
    offset: usize,
    rank: usize,
    /// This rank's own. It is not read in its header, since others have taken its line: it would have to be brought back.
    own: Source<'s>,
}

impl<P: Platform> HeaderTerms<'_, P> {
    /// How many ranks these are, from rank 0 on.
    #[inline(always)]
    pub fn ranks(&self) -> usize {
        self.ranks
    }

    /// Reads that of a rank.
    #[inline(always)]
    pub fn look<R>(&self, rank: usize, look: impl FnOnce(Source<'_>) -> R) -> R {
        match rank == self.rank {
            true => look(self.own),
            false => {
                let Slot { header, .. } = &self.slots[rank][self.parity];
                header.read(|header| look(header.after(self.offset)))
            }
        }
    }
}

impl<P: Platform> Member<'_, P> {
    /// What came with the headers of a parity, `offset` bytes behind their beginning, of the first `ranks` ranks.
    #[inline(always)]
    pub(super) fn header_terms<'t>(
        &'t self,
        parity: usize,
        ranks: usize,
        offset: usize,
        own: Source<'t>,
    ) -> HeaderTerms<'t, P> {
        HeaderTerms { slots: self.slots, parity, ranks, offset: HEAD + offset, rank: self.rank, own }
    }
}

/// The contributions to a chunk: in one of each rank's two buffers, from a place on; or, by rank, in place.
#[derive(Clone, Copy)]
pub(super) struct StagedSource<'p> {
    pub(super) buffers: TurnBuffers,
    pub(super) offset: usize,
    /// Empty if none is in place.
    pub(super) places: &'p [Address],
}

impl<P: Platform> Member<'_, P> {
    /// Prefetches what the first `ranks` ranks have contributed, `bytes` each, or its beginning. To be called right after a round: while
    /// a processor waits for the last arrival word it executes what follows, but no more than some hundred instructions (its reorder
    /// buffer), and a fold begins behind these. So what is folded comes together with that word, and not one latency later.
    #[inline(always)]
    pub(super) fn prefetch_contributions(&self, source: StagedSource<'_>, ranks: usize, bytes: usize) {
        let each = bytes.min(PREFETCH_CONTRIBUTIONS_BYTES / self.size());
        for rank in (0..ranks).filter(|rank| *rank != self.rank) {
            source.look(self, rank, |contribution| contribution.prefetch(each));
        }
    }
}

impl StagedSource<'_> {
    /// Reads what a rank has contributed.
    #[inline(always)]
    pub(super) fn look<P: Platform, R>(
        self,
        member: &Member<'_, P>,
        rank: usize,
        look: impl FnOnce(Source<'_>) -> R,
    ) -> R {
        member.buffer(rank, self.buffers).read(|staging| look(staging.after(self.offset)))
    }

    /// Reads what a rank and the next have contributed.
    #[inline(always)]
    pub(super) fn look_at_two<P: Platform, R>(
        self,
        member: &Member<'_, P>,
        rank: usize,
        look: impl FnOnce(Source<'_>, Source<'_>) -> R,
    ) -> R {
        self.look(member, rank, |a| self.look(member, rank + 1, |b| look(a, b)))
    }
}
