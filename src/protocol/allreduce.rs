//! Reduction in rank order, so that the result has the same bits on every rank and in every run.
//!
//! Element `i` of the result is `((x0[i] ∘ x1[i]) ∘ x2[i]) ∘ …`, always from rank 0 on and always one after the
//! other. No tree, no identity element. What differs with the size is only who computes what:
//!
//! | size | rounds | who folds |
//! | --- | --- | --- |
//! | fits into a header | 1 | every rank, everything, from the headers |
//! | small | 1 for each chunk | every rank, everything, from staging |
//! | small, and in place | 1 for each chunk, and 1 more | every rank, everything, where it lies |
//! | large | 1 for each chunk, and 1 more | each rank its slice; then everyone copies the slices of the others |
//!
//! The last is the two-phase form (reduce-scatter, then allgather; Rabenseifner 2004) with the slices folded
//! straight from everybody's staging. A rank puts its finished slice into its *other* buffer, the one of the next
//! [turn](super::Turn): written over the contributions it would race with ranks that still fold. What it
//! contributes to the next chunk goes with it, so that a round ends the one phase of a chunk and the other of the next:
//!
//! ```text
//! round    g                 g + 1              g + 2
//!          contribute to A   fold A             collect A            what a rank does before the next round
//!                            contribute to B    fold B               collect B
//! staging  A, all of it      slices of A, B     slices of B
//! ```
//!
//! **In place.** What a rank contributes may lie in memory that all ranks map. Then it needs no staging: its rank publishes the place
//! with the first round, and the others read it there. No rank returns before all have folded: where they fold slices, these come
//! with a round after that, and elsewhere there is one more. Each rank decides for itself, but where ranks fold whole chunks one whose
//! result takes the place of its contribution stages it. Memory that not all ranks may have any more is offered first: see
//! [`super::offers`].
//!
//! The same rounds serve every reduction over all elements, see [`Shape`]: a rank that gets no result arrives and waits,
//! and folds its slice for those that do. In a scan no two ranks fold the same, so there are no slices. Of two ranks the one
//! contributes and the other folds: shorter chunks let them do so at the same time.

use core::ops::Range;

use super::block_transfer::{Address, Lend};
use super::call::INLINE;
use super::contributions::{HeaderTerms, StagedSource};
use super::offers::is_offer;
use super::partition::block;
use super::prefetch::Then;
use super::single_copy::write_status;
use super::staging::{STEP, Senders, TurnBuffers};
use super::{Call, Failure, Member, Payload, Platform, Staging};
use crate::copy::{Sink, Source, TERMS, Term};

/// Which ranks get a result, and of whose contributions: the same on every rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Every rank, of all ranks: allreduce.
    All,
    /// One rank, of all ranks: reduce.
    Root(usize),
    /// Every rank, of those up to itself: scan.
    Inclusive,
    /// Every rank, of those before itself: exscan. Rank 0 gets none, and its buffer is not written.
    Exclusive,
}

impl Shape {
    /// A rank's result is the fold of this many ranks' contributions, from rank 0 on.
    #[inline]
    pub(super) fn terms(self, rank: usize, size: usize) -> usize {
        match self {
            Shape::All => size,
            Shape::Root(root) => {
                if rank == root {
                    size
                } else {
                    0
                }
            }
            Shape::Inclusive => rank + 1,
            Shape::Exclusive => rank,
        }
    }

    /// Whether slices of a chunk can be folded for all that get a result.
    pub(crate) fn is_one_result(self) -> bool {
        matches!(self, Shape::All | Shape::Root(_))
    }

    /// Whether one rank contributes, and another one folds.
    pub(crate) fn is_streamed(self, size: usize) -> bool {
        matches!(self, Shape::Root(_)) && size == 2
    }

    /// Whether other ranks fold what a rank contributes, where ranks fold whole chunks.
    pub(crate) fn is_read_by_others(self, rank: usize, size: usize) -> bool {
        match self {
            Shape::All => size > 1,
            Shape::Root(root) => rank != root,
            Shape::Inclusive | Shape::Exclusive => rank + 1 < size,
        }
    }
}

/// The caller's side of a reduction. Ranges count elements.
pub trait Reduction {
    /// The number of elements, the same on every rank.
    fn elements(&self) -> usize;
    /// Bytes per element, the same on every rank.
    fn element_size(&self) -> usize;
    /// Copies a chunk of this rank's contribution into staging.
    fn contribute(&mut self, chunk: Range<usize>, staging: Sink<'_>);
    /// Whether what this rank contributed stays where it came from as long as the call lasts.
    fn keeps_contribution(&self) -> bool;
    /// What this rank lends, at a place. `None`: what it contributes goes through staging, and it finds nothing that others offer.
    fn lending(&mut self) -> Option<&mut dyn Lend> {
        None
    }
    /// Folds what ranks that follow one another have contributed, in this order, into a chunk of the result. If `begin`,
    /// the first of them is rank 0. If not, the chunk holds what the ranks before them have contributed, and
    /// [`Term::Own`] is only among them if it [is kept](Self::keeps_contribution). What comes out is put into `staging` too,
    /// if there is any.
    fn fold(&mut self, chunk: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>);
    /// Folds what ranks have contributed to a chunk that is in the headers, from rank 0 on, into the result.
    #[inline]
    fn fold_inline(&mut self, chunk: Range<usize>, terms: &HeaderTerms<'_, impl Platform>) {
        for rank in 0..terms.ranks() {
            terms.look(rank, |term| self.fold(chunk.clone(), rank == 0, &[Term::Staged(term)], None));
        }
    }
    /// As [`fold`](Self::fold) where contributions are in place. `places`: by term, where all of that rank's contribution begins.
    /// The terms of these are not to be read.
    fn fold_in_place(
        &mut self,
        chunk: Range<usize>,
        begin: bool,
        (terms, places): (&[Term<'_>], &[Address]),
        staging: Option<Sink<'_>>,
    ) {
        debug_assert!(places.iter().all(Option::is_none), "a reduction that is in place nowhere");
        self.fold(chunk, begin, terms, staging);
    }
    /// Copies a finished part of the result out of staging.
    fn collect(&mut self, chunk: Range<usize>, staging: Source<'_>);
}

/// How a reduction goes through staging, the same on every rank. In elements.
pub(super) struct Plan {
    len: usize,
    /// Bytes per element.
    element_size: usize,
    /// The length of every chunk but the last.
    chunk_len: usize,
    /// Whether each rank folds a slice of each chunk.
    sliced: bool,
    /// This rank's result is the fold of this many ranks' contributions.
    terms: usize,
    /// Whether no other rank reads this rank's contributions.
    unread: bool,
    /// Where they are read, if they are in place.
    place: Address,
    /// By rank, where those of others are. Empty if no rank has any in place: the same on every rank.
    places: Vec<Address>,
    /// Whether some rank's may be staged: the same on every rank.
    contributions_are_staged: bool,
}

impl Plan {
    fn then(&self) -> Then {
        // With slices not all rounds bring as much.
        let staged = !self.sliced && !self.unread && self.place.is_none();
        Then::of(staged, self.terms > 0)
    }
}

/// What goes through staging in a round. Either may be nothing.
pub(super) struct RoundContents {
    /// What all contribute to.
    chunk: Range<usize>,
    /// What has been folded in slices.
    folded: Range<usize>,
    /// Where contributions begin in everybody's staging.
    offset: usize,
    /// How many bytes after that slices begin.
    slices: usize,
}

impl<P: Platform> Member<'_, P> {
    /// Reduces element by element, in rank order. From `slices_from` bytes on, the same on every rank, a chunk
    /// is folded in slices.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    #[inline]
    pub fn reduction(
        &mut self,
        call: &Call,
        shape: Shape,
        slices_from: usize,
        data: &mut impl Reduction,
    ) -> Result<(), Failure> {
        let (len, size) = (data.elements(), data.element_size());
        if len * size <= INLINE {
            let mut own = [0; INLINE];
            data.contribute(0..len, Sink::of(&mut own));
            return self.reduction_inline(call, shape, &own[..len * size], |terms| {
                data.fold_inline(0..len, terms);
            });
        }
        if self.staging.is_short(len * size) && len * size < slices_from {
            return self.reduction_short(call, shape, data);
        }
        self.reduction_in_chunks(call, shape, slices_from, data, true)
    }

    /// A reduction of what is longer. `may_offer`: no offer was settled in this call.
    fn reduction_in_chunks(
        &mut self,
        call: &Call,
        shape: Shape,
        slices_from: usize,
        data: &mut impl Reduction,
        may_offer: bool,
    ) -> Result<(), Failure> {
        let mut plan = self.plan(shape, slices_from, data);
        let mut round = self.round_contents(&plan, 0..0, 0);
        self.contribute(&plan, &round, data);
        let parity = self.begin_call(call, |header| write_status(header, plan.place))?;
        let places = self.all_places(parity, plan.place);
        if may_offer && is_offer(places) {
            let found = self.all_find(call, parity, data.lending())?;
            // What this rank has not published nobody has looked for.
            if let Some(lending) = data.lending().filter(|_| is_offer(plan.place)) {
                lending.settle(found);
            }
            return self.reduction_in_chunks(call, shape, slices_from, data, false);
        }
        if places.is_some() {
            self.note_places(&mut plan, shape, parity);
            round = self.round_contents(&plan, 0..0, 0);
        }
        let mut buffers = self.end_turn_if(plan.contributions_are_staged);
        loop {
            self.prefetch_next_round((plan.chunk_len * plan.element_size, Senders::Several), plan.then());
            let Some(next) = self.next_round(&plan, &round, buffers, data) else { break };
            round = next;
            self.continue_call(call, || ())?;
            buffers = self.end_turn();
        }
        if !plan.sliced && !plan.places.is_empty() {
            // All have folded.
            self.continue_call(call, || ())?;
        }
        Ok(())
    }

    /// A reduction of what fits into a header: one round. `own`: what this rank contributes. `fold` gets what its result is made of,
    /// in rank order.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    #[inline]
    pub fn reduction_inline(
        &mut self,
        call: &Call,
        shape: Shape,
        own: &[u8],
        fold: impl FnOnce(&HeaderTerms<'_, P>),
    ) -> Result<(), Failure> {
        let parity = self.begin_call(call, |mut header| header.put(0, own))?;
        self.prefetch_next_slot();
        fold(&self.header_terms(parity, shape.terms(self.rank, self.size()), 0, Source::of(own)));
        Ok(())
    }

    /// A reduction of what is [short](Staging::short), and folded by every rank that gets a result: one round.
    #[inline]
    fn reduction_short(&mut self, call: &Call, shape: Shape, data: &mut impl Reduction) -> Result<(), Failure> {
        let (len, bytes) = (data.elements(), data.elements() * data.element_size());
        let turn = self.turn();
        let offset = self.offset(bytes, Senders::Several);
        let staged = !self.reads_own_in_place(data) || shape.is_read_by_others(self.rank, self.size());
        if staged {
            let buffer = self.buffer(self.rank, turn.buffers());
            buffer.write(|staging| data.contribute(0..len, staging.after(offset)));
        }
        self.begin_call(call, |_| ())?;
        self.end(turn);
        let source = StagedSource { buffers: turn.buffers(), offset, places: &[] };
        let terms = shape.terms(self.rank, self.size());
        self.prefetch_contributions(source, terms, bytes);
        self.prefetch_next_round((bytes, Senders::Several), Then::of(staged, terms > 0));
        self.fold_all(0..len, source, terms, data, None);
        Ok(())
    }

    /// Reads what is in these buffers after a round, and writes what comes with the next. `None`: that was the last.
    pub(super) fn next_round<D: Reduction>(
        &self,
        plan: &Plan,
        round: &RoundContents,
        buffers: TurnBuffers,
        data: &mut D,
    ) -> Option<RoundContents> {
        let Range { start, end } = round.chunk;
        if !plan.sliced {
            let next = (end < plan.len).then(|| self.round_contents(plan, 0..0, end));
            if let Some(next) = &next {
                self.contribute(plan, next, data);
            }
            let source = StagedSource { buffers, offset: round.offset, places: &plan.places };
            self.fold_all(start..end, source, plan.terms, data, None);
            return next;
        }
        let next = self.round_contents(plan, start..end, end);
        self.collect(plan, round, buffers, data);
        self.contribute(plan, &next, data);
        self.fold_slice(plan, round, buffers, &next, data);
        let is_last = next.chunk.is_empty() && next.folded.is_empty();
        (!is_last).then_some(next)
    }

    /// Chunks of about the same length, and as few as there can be.
    pub(super) fn plan(&self, shape: Shape, slices_from: usize, data: &mut impl Reduction) -> Plan {
        let (len, size) = (data.elements(), data.element_size());
        let Staging { capacity, folded, .. } = *self.staging;
        let streamed = shape.is_streamed(self.size()) && len * size < slices_from;
        // One element at least, for which there is room: longer ones than `folded` are not reduced here.
        let most = if streamed { self.staging.streamed_len(len * size).max(size) } else { folded } / size;
        let chunk_len = match len <= most {
            true => len,
            false => len.div_ceil(len.div_ceil(most)).next_multiple_of((STEP / size).max(1)).min(most),
        };
        let bytes = chunk_len * size;
        let both = || bytes.next_multiple_of(STEP) + self.slice_bytes(chunk_len, size);
        let sliced = bytes >= slices_from && shape.is_one_result() && both() <= capacity;
        let terms = shape.terms(self.rank, self.size());
        let unread = !sliced && !shape.is_read_by_others(self.rank, self.size());
        let is_lent = sliced || !unread && data.keeps_contribution();
        let place = data.lending().filter(|_| is_lent).and_then(|lending| lending.place());
        Plan {
            len,
            element_size: size,
            chunk_len,
            sliced,
            terms,
            unread,
            place,
            places: Vec::new(),
            contributions_are_staged: true,
        }
    }

    /// Notes where contributions are, and whether any is staged. Some rank has published with this round where its own is.
    #[cold]
    fn note_places(&self, plan: &mut Plan, shape: Shape, parity: usize) {
        let place = |rank| if rank == self.rank { None } else { self.status(rank, parity) };
        plan.places = (0..self.size()).map(place).collect();
        let is_in_place =
            |rank: usize| plan.places[rank].is_some() || rank == self.rank && plan.place.is_some();
        // A rank from `TERMS` on may stage its own for itself: its first fold writes over it.
        let is_unread = |rank| rank < TERMS && !plan.sliced && !shape.is_read_by_others(rank, self.size());
        let mut ranks = 0..self.size();
        let all =
            (!plan.sliced || self.size() <= TERMS) && ranks.all(|rank| is_in_place(rank) || is_unread(rank));
        plan.contributions_are_staged = !all;
        if all && !plan.sliced {
            // Not as short as where one rank contributes while another folds; but a round for each, by which those that wait see that it goes on.
            plan.chunk_len = plan.len.min(self.staging.folded / plan.element_size);
        }
    }

    /// What goes through staging in the next round: the slices of a chunk, and contributions to the one that begins with
    /// this element.
    pub(super) fn round_contents(&self, plan: &Plan, folded: Range<usize>, start: usize) -> RoundContents {
        let chunk = start..(start + plan.chunk_len).min(plan.len);
        let are_staged = plan.contributions_are_staged && !chunk.is_empty();
        let contributions = if are_staged { plan.chunk_len * plan.element_size } else { 0 };
        let slices = contributions.next_multiple_of(STEP);
        let bytes = match folded.is_empty() {
            true => contributions,
            false => slices + self.slice_bytes(plan.chunk_len, plan.element_size),
        };
        RoundContents { chunk, folded, offset: self.offset(bytes, Senders::Several), slices }
    }

    /// Puts this rank's chunk into staging, without what is read where it lies.
    pub(super) fn contribute<D: Reduction>(&self, plan: &Plan, round: &RoundContents, data: &mut D) {
        let Range { start, end } = round.chunk;
        let slice = || self.slice(&round.chunk, self.rank);
        let staged = match (self.reads_own_in_place(data), plan) {
            (true, Plan { place: Some(_), .. } | Plan { unread: true, .. }) => [start..start, end..end],
            (false, Plan { place: Some(_), .. }) => [slice(), end..end],
            (true, Plan { sliced: true, .. }) => [start..slice().start, slice().end..end],
            _ => [start..end, end..end],
        };
        let buffer = self.next_buffer();
        for range in staged.into_iter().filter(|range| !range.is_empty()) {
            let offset = round.offset + (range.start - start) * data.element_size();
            buffer.write(|staging| data.contribute(range, staging.after(offset)));
        }
    }

    /// Copies the slices of the others out of staging.
    fn collect<D: Reduction>(&self, plan: &Plan, round: &RoundContents, buffers: TurnBuffers, data: &mut D) {
        if round.folded.is_empty() || plan.terms == 0 {
            return;
        }
        let source = StagedSource { buffers, offset: round.offset + round.slices, places: &[] };
        for rank in self.others() {
            let theirs = self.slice(&round.folded, rank);
            source.look(self, rank, |staging| data.collect(theirs, staging));
        }
    }

    /// Folds this rank's slice of a chunk, which goes with the next content.
    fn fold_slice<D: Reduction>(
        &self,
        plan: &Plan,
        round: &RoundContents,
        buffers: TurnBuffers,
        next: &RoundContents,
        data: &mut D,
    ) {
        if round.chunk.is_empty() {
            return;
        }
        let mine = self.slice(&round.chunk, self.rank);
        let offset = match plan.contributions_are_staged {
            true => round.offset + (mine.start - round.chunk.start) * data.element_size(),
            // Nothing is read there, and where slices alone rotate there may be no room for a chunk.
            false => 0,
        };
        let from = StagedSource { buffers, offset, places: &plan.places };
        self.next_buffer().write(|staging| {
            let staging = staging.after(next.offset + next.slices);
            self.fold_all(mine, from, self.size(), data, Some(staging));
        });
    }

    /// The slice of a chunk that a rank folds.
    fn slice(&self, chunk: &Range<usize>, rank: usize) -> Range<usize> {
        let slice = block(chunk.len(), self.size(), rank);
        chunk.start + slice.start..chunk.start + slice.end
    }

    /// The bytes of the longest slice of a chunk.
    fn slice_bytes(&self, chunk_len: usize, element_size: usize) -> usize {
        self.slice(&(0..chunk_len), 0).len() * element_size
    }

    /// Folds a chunk of what came with the headers of the first `ranks` ranks, in rank order.
    #[inline]
    pub(super) fn fold_inline<D: Reduction>(
        &self,
        chunk: Range<usize>,
        parity: usize,
        ranks: usize,
        data: &mut D,
    ) {
        let mut own = [0; INLINE];
        data.contribute(chunk.clone(), Sink::of(&mut own));
        let offset = chunk.start * data.element_size();
        data.fold_inline(chunk, &self.header_terms(parity, ranks, offset, Source::of(&own)));
    }

    /// Folds a chunk over the first `ranks` ranks, in rank order, and puts the result into `staging` too, if there is any.
    #[inline]
    pub(super) fn fold_all<D: Reduction>(
        &self,
        chunk: Range<usize>,
        from: StagedSource<'_>,
        ranks: usize,
        data: &mut D,
        mut staging: Option<Sink<'_>>,
    ) {
        for start in (0..ranks).step_by(TERMS) {
            let terms = start..(start + TERMS).min(ranks);
            let staging = if terms.end == ranks { staging.take() } else { None };
            self.fold_some(chunk.clone(), from, terms, data, staging);
        }
    }

    /// Folds what some ranks have contributed, all of it in view at a time.
    #[inline]
    fn fold_some<D: Reduction>(
        &self,
        chunk: Range<usize>,
        from: StagedSource<'_>,
        ranks: Range<usize>,
        data: &mut D,
        staging: Option<Sink<'_>>,
    ) {
        let (start, count) = (ranks.start, ranks.len());
        let own = if self.reads_own_in_place(data) { self.rank } else { usize::MAX };
        let is_own = |index| start + index == own;
        let fold = |terms: &[Term<'_>]| match from.places {
            [] => data.fold(chunk, start == 0, terms, staging),
            places => data.fold_in_place(chunk, start == 0, (terms, &places[ranks]), staging),
        };
        match count {
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
    pub(super) fn reads_own_in_place<D: Reduction>(&self, data: &D) -> bool {
        self.rank < TERMS || data.keeps_contribution()
    }
}
