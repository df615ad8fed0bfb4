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

use super::sequence::{HEAD, INLINE};
use super::{Call, Failure, Member, Payload, Platform};
use crate::distribute::block;
use crate::payload::{Sink, Source, TERMS, Term};

/// The caller's side of a reduction. Ranges count elements.
pub trait Reduction {
    /// The number of elements, the same on every rank.
    fn elements(&self) -> usize;
    /// Bytes per element, the same on every rank.
    fn element_size(&self) -> usize;
    /// Copies a part of this rank's contribution into staging.
    fn contribute(&mut self, part: Range<usize>, staging: Sink<'_>);
    /// Whether what this rank contributed stays where it came from as long as the call lasts.
    fn keeps_own(&self) -> bool;
    /// Folds what ranks that follow one another have contributed, in this order, into a part of the result. If `begin`,
    /// the first of them is rank 0. If not, the part holds what the ranks before them have contributed, and
    /// [`Term::Own`] is only among them if it [is kept](Self::keeps_own). What comes out is put into `staging` too, if
    /// there is any.
    fn fold(&mut self, part: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>);
    /// Copies a finished part of the result out of staging.
    fn collect(&mut self, part: Range<usize>, staging: Source<'_>);
}

/// Where the contributions to a part are. Each kind has a fold of its own, so that the short one stays short.
trait From: Copy {
    /// What a rank has contributed: the cell, and how far into it.
    fn place<'s, P: Platform>(self, member: &Member<'s, P>, rank: usize) -> (&'s impl Payload, usize);

    /// Looks at what a rank has contributed.
    #[inline(always)]
    fn look<P: Platform, R>(
        self,
        member: &Member<'_, P>,
        rank: usize,
        look: impl FnOnce(Source<'_>) -> R,
    ) -> R {
        let (cell, offset) = self.place(member, rank);
        cell.read(|view| look(view.after(offset)))
    }

    /// Looks at what a rank and the next have contributed.
    #[inline(always)]
    fn look_at_two<P: Platform, R>(
        self,
        member: &Member<'_, P>,
        rank: usize,
        look: impl FnOnce(Source<'_>, Source<'_>) -> R,
    ) -> R {
        self.look(member, rank, |a| self.look(member, rank + 1, |b| look(a, b)))
    }
}

/// In the notes of a parity.
#[derive(Clone, Copy)]
struct Notes(usize);

impl From for Notes {
    #[inline(always)]
    fn place<'s, P: Platform>(self, member: &Member<'s, P>, rank: usize) -> (&'s impl Payload, usize) {
        (member.note(rank, self.0), HEAD)
    }
}

/// In the chunks of a parity, from a place on.
#[derive(Clone, Copy)]
struct Chunks(usize, usize);

impl From for Chunks {
    #[inline(always)]
    fn place<'s, P: Platform>(self, member: &Member<'s, P>, rank: usize) -> (&'s impl Payload, usize) {
        (member.chunk(rank, self.0), self.1)
    }
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
            self.fold_all(0..len, Notes(parity), data, None);
            return Ok(());
        }
        let step = self.segment.staging.folded / size;
        let mut start = 0;
        while start < len {
            let part = start..(start + step).min(len);
            let place = self.place(part.len() * size);
            let sliced = part.len() * size >= slices_from;
            self.contribute(part.clone(), sliced, place, data);
            let parity = if start == 0 { self.open(call, |_| ())? } else { self.go_on(call, || ())? };
            self.expect_round(part.len() * size);
            if sliced {
                self.fold_slices(call, part, parity, place, data)?;
            } else {
                self.fold_all(part, Chunks(parity, place), data, None);
            }
            start += step;
        }
        Ok(())
    }

    /// Puts this rank's part into staging, without the slice that only this rank folds.
    fn contribute<D: Reduction>(&self, part: Range<usize>, sliced: bool, place: usize, data: &mut D) {
        let kept =
            if sliced && self.takes_own(data) { self.slice(&part, self.rank) } else { part.end..part.end };
        for piece in [part.start..kept.start, kept.end..part.end] {
            let offset = (piece.start - part.start) * data.element_size();
            self.chunk(self.rank, self.next_parity())
                .write(|staging| data.contribute(piece, staging.after(place + offset)));
        }
    }

    /// The slice of a part that a rank folds.
    fn slice(&self, part: &Range<usize>, rank: usize) -> Range<usize> {
        let slice = block(part.len(), self.size(), rank);
        part.start + slice.start..part.start + slice.end
    }

    /// Folds a part over all ranks, in rank order, and puts the result into `staging` too, if there is any.
    #[inline]
    fn fold_all<D: Reduction>(
        &self,
        part: Range<usize>,
        from: impl From,
        data: &mut D,
        mut staging: Option<Sink<'_>>,
    ) {
        for start in (0..self.size()).step_by(TERMS) {
            let terms = start..(start + TERMS).min(self.size());
            let staging = if terms.end == self.size() { staging.take() } else { None };
            self.fold_some(part.clone(), from, terms, data, staging);
        }
    }

    /// Folds what some ranks have contributed, all of it in view at a time.
    #[inline]
    fn fold_some<D: Reduction>(
        &self,
        part: Range<usize>,
        from: impl From,
        ranks: Range<usize>,
        data: &mut D,
        staging: Option<Sink<'_>>,
    ) {
        let start = ranks.start;
        let own = if self.takes_own(data) { self.rank } else { usize::MAX };
        let is_own = |index| start + index == own;
        let fold = |terms: &[Term<'_>]| data.fold(part, start == 0, terms, staging);
        match ranks.len() {
            1 => from.look(self, start, |a| fold(&[a.or_own(is_own(0))])),
            2 => from.look_at_two(self, start, |a, b| fold(&[a.or_own(is_own(0)), b.or_own(is_own(1))])),
            3 => from.look_at_two(self, start, |a, b| {
                from.look(self, start + 2, |c| {
                    fold(&[a.or_own(is_own(0)), b.or_own(is_own(1)), c.or_own(is_own(2))]);
                });
            }),
            _ => from.look_at_two(self, start, |a, b| {
                from.look_at_two(self, start + 2, |c, d| {
                    let (a, b) = (a.or_own(is_own(0)), b.or_own(is_own(1)));
                    fold(&[a, b, c.or_own(is_own(2)), d.or_own(is_own(3))]);
                });
            }),
        }
    }

    /// Whether this rank takes its own contribution from where it came from: as long as that is still there.
    #[inline]
    fn takes_own<D: Reduction>(&self, data: &D) -> bool {
        self.rank < TERMS || data.keeps_own()
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
        let size = data.element_size();
        let mine = self.slice(&part, self.rank);
        let offset = (mine.start - part.start) * size;
        let from = Chunks(parity, place + offset);
        let place = self.place(self.slice(&part, 0).len() * size);
        self.chunk(self.rank, self.next_parity())
            .write(|staging| self.fold_all(mine, from, data, Some(staging.after(place))));
        let parity = self.go_on(call, || ())?;
        for rank in self.others() {
            let theirs = self.slice(&part, rank);
            self.chunk(rank, parity).read(|staging| data.collect(theirs, staging.after(place)));
        }
        Ok(())
    }
}

/// From how many bytes on folding in slices pays for its second round. With two ranks it does late: each still reads as
/// much, though it folds half as much. With many it does early, since otherwise each reads what all have contributed.
pub fn slices_from(ranks: usize) -> usize {
    match ranks {
        ..=2 => 512 << 10,
        3..=8 => 8 << 10,
        _ => (128 << 10) / ranks,
    }
}
