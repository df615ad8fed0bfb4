//! Reduction in rank order, so that the result has the same bits on every rank and in every run.
//!
//! Element `i` of the result is `((x0[i] ∘ x1[i]) ∘ x2[i]) ∘ …`, always from rank 0 on and always one after the
//! other. No tree, no identity element. What differs with the size is only who computes what:
//!
//! | size | rounds | who folds |
//! | --- | --- | --- |
//! | fits into a header | 1 | every rank, everything, from the headers |
//! | small | 1 for each part | every rank, everything, from staging |
//! | large | 1 for each part, and 1 more | each rank its slice; then everyone copies the slices of the others |
//!
//! The last is the two-phase form (reduce-scatter, then allgather; Rabenseifner 2004) with the slices folded
//! straight from everybody's staging. A rank puts its finished slice into its buffer of the *other* parity, the one
//! that belongs to the next round: written over the contributions it would race with ranks that still fold. What it
//! contributes to the next part goes with it, so that a round ends the one phase of a part and the other of the next:
//!
//! ```text
//! round    g                 g + 1              g + 2
//!          contribute to A   fold A             collect A            what a rank does before the next round
//!                            contribute to B    fold B               collect B
//! staging  A, all of it      slices of A, B     slices of B
//! ```

use core::ops::Range;

use super::call::{HEAD, INLINE};
use super::partition::block;
use super::staging::STEP;
use super::{Call, Failure, Member, Payload, Platform, Staging};
use crate::copy::{Sink, Source, TERMS, Term};

/// The caller's side of a reduction. Ranges count elements.
pub trait Reduction {
    /// The number of elements, the same on every rank.
    fn elements(&self) -> usize;
    /// Bytes per element, the same on every rank.
    fn element_size(&self) -> usize;
    /// Copies a part of this rank's contribution into staging.
    fn contribute(&mut self, part: Range<usize>, staging: Sink<'_>);
    /// Whether what this rank contributed stays where it came from as long as the call lasts.
    fn keeps_contribution(&self) -> bool;
    /// Folds what ranks that follow one another have contributed, in this order, into a part of the result. If `begin`,
    /// the first of them is rank 0. If not, the part holds what the ranks before them have contributed, and
    /// [`Term::Own`] is only among them if it [is kept](Self::keeps_contribution). What comes out is put into `staging` too, if
    /// there is any.
    fn fold(&mut self, part: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>);
    /// Copies a finished part of the result out of staging.
    fn collect(&mut self, part: Range<usize>, staging: Source<'_>);
    /// Whether it pays to do both at a time.
    fn collects_and_contributes(&self) -> bool {
        false
    }
    /// [`collect`](Self::collect) for `part`, and [`contribute`](Self::contribute) for `next`, which comes after it in the
    /// data.
    fn collect_and_contribute(
        &mut self,
        part: Range<usize>,
        staging: Source<'_>,
        next: Range<usize>,
        place: Sink<'_>,
    ) {
        self.collect(part, staging);
        self.contribute(next, place);
    }
}

/// Where the contributions to a part are. Each kind has a fold of its own, so that the short one stays short.
trait ContributionSource: Copy {
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

/// In the headers of a parity.
#[derive(Clone, Copy)]
struct InlineSource(usize);

impl ContributionSource for InlineSource {
    #[inline(always)]
    fn place<'s, P: Platform>(self, member: &Member<'s, P>, rank: usize) -> (&'s impl Payload, usize) {
        (member.header(rank, self.0), HEAD)
    }
}

/// In the chunks of a parity, from a place on.
#[derive(Clone, Copy)]
struct StagedSource(usize, usize);

impl ContributionSource for StagedSource {
    #[inline(always)]
    fn place<'s, P: Platform>(self, member: &Member<'s, P>, rank: usize) -> (&'s impl Payload, usize) {
        (member.chunk(rank, self.0), self.1)
    }
}

/// How a reduction goes through staging, the same on every rank. In elements.
struct Plan {
    len: usize,
    /// The length of every part but the last.
    step: usize,
    /// Whether each rank folds a slice of each part.
    sliced: bool,
    /// How many bytes after contributions slices begin.
    slices: usize,
    /// How many bytes both take at most.
    bytes: usize,
}

/// What goes through staging in a round. Either may be nothing.
struct RoundContents {
    /// What all contribute to.
    part: Range<usize>,
    /// What has been folded in slices.
    folded: Range<usize>,
    /// Where contributions begin in everybody's staging. Slices come [after](Plan::slices) them.
    place: usize,
}

impl<P: Platform> Member<'_, P> {
    /// Reduces element by element, in rank order. ContributionSource `slices_from` bytes on, the same on every rank, a part is folded
    /// in slices.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    pub fn allreduce(
        &mut self,
        call: &Call,
        slices_from: usize,
        data: &mut impl Reduction,
    ) -> Result<(), Failure> {
        let (len, size) = (data.elements(), data.element_size());
        if len * size <= INLINE {
            let parity = self.begin_call(call, |header| data.contribute(0..len, header))?;
            self.prefetch_next_round(0);
            self.fold_all(0..len, InlineSource(parity), data, None);
            return Ok(());
        }
        let plan = self.plan(slices_from, data);
        let mut content = self.content(&plan, 0..0, 0);
        self.contribute(&plan, &content, data);
        let mut parity = self.begin_call(call, |_| ())?;
        loop {
            self.prefetch_next_round(content.part.len() * size);
            let folded = if plan.sliced { content.part.clone() } else { 0..0 };
            let next = self.content(&plan, folded, content.part.end);
            self.collect_and_contribute(&plan, &content, parity, &next, data);
            self.fold_part(&plan, &content, parity, &next, data);
            if next.part.is_empty() && next.folded.is_empty() {
                return Ok(());
            }
            content = next;
            parity = self.continue_call(call, || ())?;
        }
    }

    /// Parts of about the same length, and as few as there can be.
    fn plan(&self, slices_from: usize, data: &impl Reduction) -> Plan {
        let (len, size) = (data.elements(), data.element_size());
        let Staging { capacity, folded, .. } = self.segment.staging;
        let most = folded / size;
        let step = len.div_ceil(len.div_ceil(most)).next_multiple_of((STEP / size).max(1)).min(most).min(len);
        let (part, slices) = (step * size, (step * size).next_multiple_of(STEP));
        let both = slices + self.slice(&(0..step), 0).len() * size;
        let sliced = part >= slices_from && both <= capacity;
        Plan { len, step, sliced, slices, bytes: if sliced { both } else { part } }
    }

    /// What goes through staging in the next round: the slices of a part, and contributions to the one that begins with
    /// this element.
    fn content(&self, plan: &Plan, folded: Range<usize>, start: usize) -> RoundContents {
        let part = start..(start + plan.step).min(plan.len);
        RoundContents { part, folded, place: self.offset(plan.bytes) }
    }

    /// Puts this rank's part into staging, without the slice that only this rank folds.
    fn contribute<D: Reduction>(&self, plan: &Plan, content: &RoundContents, data: &mut D) {
        let Range { start, end } = content.part;
        let kept = self.keeps(plan, content, data).unwrap_or(end..end);
        for piece in [start..kept.start, kept.end..end].into_iter().filter(|piece| !piece.is_empty()) {
            self.put(content, piece, data.element_size(), |piece, staging| data.contribute(piece, staging));
        }
    }

    /// The slice that this rank does not put into staging, since only this rank folds it.
    fn keeps(&self, plan: &Plan, content: &RoundContents, data: &impl Reduction) -> Option<Range<usize>> {
        (plan.sliced && self.reads_own_in_place(data)).then(|| self.slice(&content.part, self.rank))
    }

    /// Puts a piece of this rank's part into staging.
    #[inline]
    fn put(
        &self,
        content: &RoundContents,
        piece: Range<usize>,
        size: usize,
        put: impl FnOnce(Range<usize>, Sink<'_>),
    ) {
        let place = content.place + (piece.start - content.part.start) * size;
        let own = self.chunk(self.rank, self.next_parity());
        own.write(|staging| put(piece, staging.after(place)));
    }

    /// Copies the slices of the others out of staging, and puts this rank's next part there, maybe at the same time: both
    /// wait for memory, each in its own way.
    fn collect_and_contribute<D: Reduction>(
        &self,
        plan: &Plan,
        content: &RoundContents,
        parity: usize,
        next: &RoundContents,
        data: &mut D,
    ) {
        if content.folded.is_empty() {
            return self.contribute(plan, next, data);
        }
        let both = !next.part.is_empty() && data.collects_and_contributes();
        let size = data.element_size();
        for rank in self.others() {
            let theirs = self.slice(&content.folded, rank);
            StagedSource(parity, content.place + plan.slices).look(self, rank, |staging| match both {
                true => self.put(next, self.slice(&next.part, rank), size, |ahead, place| {
                    data.collect_and_contribute(theirs, staging, ahead, place);
                }),
                false => data.collect(theirs, staging),
            });
        }
        if !both {
            self.contribute(plan, next, data);
        } else if self.keeps(plan, next, data).is_none() {
            let own = self.slice(&next.part, self.rank);
            self.put(next, own, size, |own, staging| data.contribute(own, staging));
        }
    }

    /// Folds a part: all of it, or this rank's slice, which goes with the next content.
    fn fold_part<D: Reduction>(
        &self,
        plan: &Plan,
        content: &RoundContents,
        parity: usize,
        next: &RoundContents,
        data: &mut D,
    ) {
        if content.part.is_empty() {
            return;
        }
        if !plan.sliced {
            return self.fold_all(content.part.clone(), StagedSource(parity, content.place), data, None);
        }
        let mine = self.slice(&content.part, self.rank);
        let from =
            StagedSource(parity, content.place + (mine.start - content.part.start) * data.element_size());
        self.chunk(self.rank, self.next_parity())
            .write(|staging| self.fold_all(mine, from, data, Some(staging.after(next.place + plan.slices))));
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
        from: impl ContributionSource,
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
        from: impl ContributionSource,
        ranks: Range<usize>,
        data: &mut D,
        staging: Option<Sink<'_>>,
    ) {
        let start = ranks.start;
        let own = if self.reads_own_in_place(data) { self.rank } else { usize::MAX };
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
    fn reads_own_in_place<D: Reduction>(&self, data: &D) -> bool {
        self.rank < TERMS || data.keeps_contribution()
    }
}

/// ContributionSource how many bytes on folding in slices pays for one more round. With two ranks it does late: each still reads as
/// much, though it folds half as much. With many it does early, since otherwise each reads what all have contributed.
pub fn slices_from(ranks: usize) -> usize {
    match ranks {
        ..=2 => 512 << 10,
        3..=8 => 8 << 10,
        _ => (128 << 10) / ranks,
    }
}
