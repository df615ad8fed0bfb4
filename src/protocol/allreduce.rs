//! Reduction in rank order, so that the result has the same bits on every rank and in every run.
//!
//! Element `i` of the result is `((x0[i] ∘ x1[i]) ∘ x2[i]) ∘ …`, always from rank 0 on and always one after the
//! other. No tree, no identity element. What differs with the size is only who computes what:
//!
//! | size | rounds | who folds |
//! | --- | --- | --- |
//! | fits into a note | 1 | every rank, everything, from the notes |
//! | small | 1 for each chunk | every rank, everything, from staging |
//! | large | 2 for each chunk | each rank its slice; then everyone copies the slices of the others |
//!
//! The last is the two-phase form (reduce-scatter, then allgather; Rabenseifner 2004) with the slices folded
//! straight from everybody's staging. A rank puts its finished slice into its buffer of the *other* parity, the one
//! that belongs to the second round: written over the contributions it would race with ranks that still fold.

use core::ops::Range;

use super::sequence::INLINE;
use super::{Call, Failure, Member, Payload, Platform};
use crate::distribute::block;
use crate::payload::{Sink, Source};

/// The caller's side of a reduction. Ranges count elements.
pub trait Reduction {
    /// The number of elements, the same on every rank.
    fn elements(&self) -> usize;
    /// Bytes per element, the same on every rank.
    fn element_size(&self) -> usize;
    /// Copies a part of this rank's contribution into staging.
    fn contribute(&mut self, part: Range<usize>, staging: Sink<'_>);
    /// Starts a part of the result with what rank 0 contributed.
    fn start(&mut self, part: Range<usize>, staging: Source<'_>);
    /// Continues a part of the result with what the next rank contributed.
    fn fold(&mut self, part: Range<usize>, staging: Source<'_>);
    /// Does what `start` (if `first`) or `fold` would do with this rank's own contribution, from where it came from:
    /// staging was filled past the cache. False if it is not there any more.
    fn take_own(&mut self, part: Range<usize>, first: bool) -> bool {
        let _ = (part, first);
        false
    }
    /// Starts a part of the result with what ranks 0 and 1 contributed, in one go: in two, the result would be written
    /// and read once more. One of them is this rank (0, if `first`), whose contribution is taken from where it came
    /// from; the other's is in staging.
    fn start_pair(&mut self, part: Range<usize>, first: bool, staging: Source<'_>);
    /// Copies a finished part of the result into staging.
    fn publish(&mut self, part: Range<usize>, staging: Sink<'_>);
    /// Copies a finished part of the result out of staging.
    fn collect(&mut self, part: Range<usize>, staging: Source<'_>);
}

/// Where the contributions to a part are, by parity: in the notes, or in the chunks from a place on.
#[derive(Clone, Copy)]
enum From {
    Notes(usize),
    Chunks(usize, usize),
}

impl<P: Platform> Member<'_, P> {
    /// Reduces element by element, in rank order. From `slices_from` bytes on, the same on every rank, a part is folded
    /// in slices.
    ///
    /// # Errors
    /// As [`Member::open`].
    pub fn allreduce(
        &mut self,
        call: &Call,
        slices_from: usize,
        data: &mut impl Reduction,
    ) -> Result<(), Failure> {
        let (len, size) = (data.elements(), data.element_size());
        if len * size <= INLINE {
            let parity = self.open(call, |note| data.contribute(0..len, note))?;
            self.expect_round(0);
            self.fold_all(0..len, From::Notes(parity), data);
            return Ok(());
        }
        let step = self.segment.staging.part / size;
        let mut start = 0;
        while start < len {
            let part = start..(start + step).min(len);
            let place = self.place(part.len() * size);
            self.chunk(self.rank, self.next_parity())
                .write(|staging| data.contribute(part.clone(), staging.after(place)));
            let parity = if start == 0 { self.open(call, |_| ())? } else { self.go_on(call, || ())? };
            self.expect_round(part.len() * size);
            if part.len() * size < slices_from {
                self.fold_all(part, From::Chunks(parity, place), data);
            } else {
                self.fold_slices(call, part, parity, place, data)?;
            }
            start += step;
        }
        Ok(())
    }

    /// Folds a part over all ranks, in rank order.
    #[inline]
    fn fold_all<D: Reduction>(&self, part: Range<usize>, from: From, data: &mut D) {
        let paired = self.rank < 2 && self.size() > 1;
        if paired {
            let part = part.clone();
            self.look(1 - self.rank, from, |staging| data.start_pair(part, self.rank == 0, staging));
        }
        for rank in if paired { 2 } else { 0 }..self.size() {
            let part = part.clone();
            if rank == self.rank && data.take_own(part.clone(), rank == 0) {
                continue;
            }
            self.look(rank, from, |staging| match rank {
                0 => data.start(part, staging),
                _ => data.fold(part, staging),
            });
        }
    }

    /// Looks at what a rank has contributed.
    #[inline]
    fn look<R>(&self, rank: usize, from: From, look: impl FnOnce(Source<'_>) -> R) -> R {
        match from {
            From::Notes(parity) => self.inline(rank, parity, look),
            From::Chunks(parity, place) => self.chunk(rank, parity).read(|staging| look(staging.after(place))),
        }
    }

    /// Folds this rank's slice of a part, and exchanges the slices in one more round.
    fn fold_slices<D: Reduction>(
        &mut self,
        call: &Call,
        part: Range<usize>,
        parity: usize,
        place: usize,
        data: &mut D,
    ) -> Result<(), Failure> {
        let (ranks, size) = (self.size(), data.element_size());
        let slice = |rank: usize| {
            let slice = block(part.len(), ranks, rank);
            part.start + slice.start..part.start + slice.end
        };
        let offset = |slice: &Range<usize>| (slice.start - part.start) * size;

        let mine = slice(self.rank);
        self.fold_all(mine.clone(), From::Chunks(parity, place + offset(&mine)), data);
        let place = self.place(slice(0).len() * size);
        self.chunk(self.rank, self.next_parity())
            .write(|staging| data.publish(mine.clone(), staging.after(place)));
        let parity = self.go_on(call, || ())?;
        for rank in self.others() {
            let theirs = slice(rank);
            self.chunk(rank, parity).read(|staging| data.collect(theirs, staging.after(place)));
        }
        Ok(())
    }
}

/// From how many bytes on folding in slices pays for its second round. With two ranks it never does: each would
/// still read and write as much. With many it does early, since otherwise each reads what all have contributed.
pub fn slices_from(ranks: usize) -> usize {
    match ranks {
        ..=2 => usize::MAX,
        3..=8 => 16 << 10,
        _ => (128 << 10) / ranks,
    }
}
