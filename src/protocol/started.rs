//! Calls that are started now and completed later: rounds for which a rank need not wait.
//!
//! ```text
//!  start              test                  test                       wait
//!  publish, arrive    all arrived? no       all arrived? yes:          wait, read
//!                                           read, publish, arrive
//! ```
//!
//! A call is what a rank does between its rounds ([`Steps`]), and where it stands ([`Started`]), which is a number: the
//! call that has the rank's place in the rounds next can go on with it. The rounds are those of [`super::barrier`], so what was
//! published stays until this rank arrives at the round after the next, however long it does something else.
//!
//! A rank that has started a call has arrived, and others may go ahead of it by one round. A further round needs it again. So
//! a rank that never goes on is late like one that never calls: the others give it up after the time-out.

use core::ops::Range;

use super::allreduce::{Plan, Reduction, RoundContents, Shape};
use super::block_transfer::BlockTransfer;
use super::call::INLINE;
use super::reduce_scatter::{Window, Windows};
use super::staging::Senders;
use super::{Call, Failure, Generation, Member, Ordering, Payload, Platform};
use crate::copy::Sink;
use Ordering::Acquire;

/// What a rank does between the rounds of a call.
pub trait Steps<P: Platform> {
    /// Publishes for the first round, in the header or in staging.
    fn first(&mut self, member: &Member<'_, P>, header: Sink<'_>);

    /// Reads what the others have published for a round of this parity, and publishes for the next. False: there is no
    /// further round, on any rank.
    fn next(&mut self, member: &Member<'_, P>, parity: usize) -> bool;
}

/// A call whose current round this rank has arrived at: the one after the last that it has completed.
#[derive(Debug)]
pub struct Started {
    call: Call,
    /// Whether the calls are still to be compared.
    first: bool,
    /// The number of other ranks that are known to have arrived at the current round: the first ones behind this rank.
    arrived: usize,
}

impl<P: Platform> Member<'_, P> {
    /// Arrives at the first round of a call, and does not wait. This rank's next round is that one, whatever it calls: the call
    /// has to be brought to its end before.
    ///
    /// # Errors
    /// [`Failure::Dead`] when the round will not complete on any rank.
    pub fn start(&mut self, call: &Call, steps: &mut (impl Steps<P> + ?Sized)) -> Result<Started, Failure> {
        self.write_header(call, |header| steps.first(self, header));
        self.arrive()?;
        Ok(Started { call: *call, first: true, arrived: 0 })
    }

    /// Goes on as far as that takes no waiting. Whether the call is complete.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    pub fn test(
        &mut self,
        started: &mut Started,
        steps: &mut (impl Steps<P> + ?Sized),
    ) -> Result<bool, Failure> {
        while self.missing(started)?.is_none() {
            if !self.go_on(started, steps)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Goes on to the end of the call.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    pub fn finish(
        &mut self,
        started: &mut Started,
        steps: &mut (impl Steps<P> + ?Sized),
    ) -> Result<(), Failure> {
        loop {
            let generation = self.completed.next();
            if let Some(here) = self.platform.processor() {
                self.yield_to_co_located(here, generation);
            }
            self.others().skip(started.arrived).try_for_each(|rank| self.wait_for(rank, generation))?;
            if !self.go_on(started, steps)? {
                return Ok(());
            }
        }
    }

    /// Gives up the rank that the call waits for, because it has not arrived in time. Nothing happens if it has.
    ///
    /// # Errors
    /// As [`Member::begin_call`].
    pub fn expire(&mut self, started: &mut Started) -> Result<(), Failure> {
        match self.missing(started)? {
            Some(rank) => self.give_up(rank, self.completed.next()),
            None => Ok(()),
        }
    }

    /// A rank that has not arrived at the current round.
    fn missing(&self, started: &mut Started) -> Result<Option<usize>, Failure> {
        let generation = self.completed.next();
        for rank in self.others().skip(started.arrived) {
            let state = &self.slots[rank][generation.parity()].state;
            let seen = self.platform.load("poll-arrival", state, Acquire);
            if !generation.is_decided()(seen) {
                return Ok(Some(rank));
            }
            if Generation::of_word(seen) != generation {
                return Err(self.failure());
            }
            started.arrived += 1;
        }
        Ok(None)
    }

    /// Completes a round at which all ranks have arrived, and arrives at the next. False: it was the last.
    fn go_on(&mut self, started: &mut Started, steps: &mut (impl Steps<P> + ?Sized)) -> Result<bool, Failure> {
        let parity = self.complete(self.completed.next())?;
        if started.first {
            self.check_calls(&started.call, parity)?;
        }
        if !steps.next(self, parity) {
            return Ok(false);
        }
        self.name_operation(&started.call);
        self.arrive()?;
        *started = Started { first: false, arrived: 0, ..*started };
        Ok(true)
    }
}

/// A barrier, or a refusal: nothing but a round.
impl<P: Platform> Steps<P> for () {
    fn first(&mut self, _: &Member<'_, P>, _: Sink<'_>) {}

    fn next(&mut self, _: &Member<'_, P>, _: usize) -> bool {
        false
    }
}

/// A transfer, in the header or through staging: see [`super::transfer`].
#[derive(Debug)]
pub struct TransferSteps<B> {
    /// The caller's side.
    pub blocks: B,
    longest: usize,
    is_inline: bool,
    /// How many ranks send: none, one, or two for more.
    senders: Senders,
    chunk_len: usize,
    /// Where the current chunk begins in each block.
    start: usize,
    /// Where the current chunk begins in staging.
    offset: usize,
}

impl<B: BlockTransfer> TransferSteps<B> {
    /// Of these blocks.
    pub fn new(blocks: B) -> Self {
        TransferSteps {
            blocks,
            longest: 0,
            is_inline: false,
            senders: Senders::One,
            chunk_len: 0,
            start: 0,
            offset: 0,
        }
    }

    fn chunk(&self, len: usize) -> Range<usize> {
        self.start.min(len)..(self.start + self.chunk_len).min(len)
    }

    /// Publishes the first chunk, through staging.
    fn stage_first<P: Platform>(&mut self, member: &Member<'_, P>) {
        self.senders = Senders::of(member.size(), |rank| self.blocks.length(rank));
        self.chunk_len = member.staging.chunk_len(self.longest, self.senders, member.size());
        self.stage(member);
    }

    fn stage<P: Platform>(&mut self, member: &Member<'_, P>) {
        self.offset = member.offset(self.chunk(self.longest).len(), self.senders);
        let own = self.chunk(self.blocks.length(member.rank));
        member.stage(own, self.offset, &mut self.blocks);
    }
}

impl<P: Platform, B: BlockTransfer> Steps<P> for TransferSteps<B> {
    fn first(&mut self, member: &Member<'_, P>, header: Sink<'_>) {
        self.longest = longest(&self.blocks, member.size());
        self.is_inline = self.longest <= INLINE;
        let own = self.blocks.length(member.rank);
        if !self.is_inline {
            self.stage_first(member);
        } else if own > 0 {
            self.blocks.put(0..own, header);
        }
    }

    fn next(&mut self, member: &Member<'_, P>, parity: usize) -> bool {
        let buffers = if self.is_inline { None } else { Some(member.end_turn()) };
        for rank in member.others() {
            let len = self.blocks.length(rank);
            let chunk = if self.is_inline { 0..len } else { self.chunk(len) };
            if chunk.is_empty() {
                continue;
            }
            let TransferSteps { blocks, offset, .. } = self;
            match buffers {
                None => member.inline(rank, parity, |header| blocks.get(rank, chunk, header)),
                Some(buffers) => {
                    let staging = member.buffer(rank, buffers);
                    staging.read(|staging| blocks.get(rank, chunk, staging.after(*offset)));
                }
            }
        }
        self.start += self.chunk_len;
        if self.is_inline || self.start >= self.longest {
            return false;
        }
        self.stage(member);
        true
    }
}

fn longest(blocks: &impl BlockTransfer, ranks: usize) -> usize {
    (0..ranks).map(|rank| blocks.length(rank)).max().unwrap_or(0)
}

/// What follows from a transfer.
pub trait Link<A> {
    /// Another transfer.
    type Next: BlockTransfer;

    /// That which follows from what has come: on every rank, or, with `None`, on none.
    fn link(&mut self, first: A) -> Option<Self::Next>;
}

/// Two transfers, of which the second follows from the first: blocks whose lengths ranks tell each other before.
pub struct ChainedSteps<A, L: Link<A>> {
    first: Option<TransferSteps<A>>,
    /// What the second is made of.
    pub link: L,
    /// The caller's side of the second, once it is made.
    pub second: Option<TransferSteps<L::Next>>,
}

impl<A: BlockTransfer, L: Link<A>> ChainedSteps<A, L> {
    /// Of these blocks, and what follows from them.
    pub fn new(first: A, link: L) -> Self {
        ChainedSteps { first: Some(TransferSteps::new(first)), link, second: None }
    }
}

impl<P: Platform, A: BlockTransfer, L: Link<A>> Steps<P> for ChainedSteps<A, L> {
    fn first(&mut self, member: &Member<'_, P>, header: Sink<'_>) {
        if let Some(first) = &mut self.first {
            first.first(member, header);
        }
    }

    fn next(&mut self, member: &Member<'_, P>, parity: usize) -> bool {
        if let Some(second) = &mut self.second {
            return second.next(member, parity);
        }
        if self.first.as_mut().is_some_and(|first| first.next(member, parity)) {
            return true;
        }
        let Some(blocks) = self.first.take().and_then(|first| self.link.link(first.blocks)) else {
            return false;
        };
        let second = self.second.insert(TransferSteps::new(blocks));
        second.longest = longest(&second.blocks, member.size());
        if second.longest == 0 {
            return false;
        }
        // The header was written at the start of the call.
        second.stage_first(member);
        true
    }
}

/// A reduction over all elements: see [`super::allreduce`].
pub struct ReductionSteps<D> {
    /// The caller's side.
    pub data: D,
    shape: Shape,
    slices_from: usize,
    /// What goes through staging in the current round. `None`: everything is in the headers.
    staged: Option<(Plan, RoundContents)>,
}

impl<D: Reduction> ReductionSteps<D> {
    /// Of these elements. `slices_from`: as of [`Member::reduction`].
    pub fn new(data: D, shape: Shape, slices_from: usize) -> Self {
        ReductionSteps { data, shape, slices_from, staged: None }
    }
}

impl<P: Platform, D: Reduction> Steps<P> for ReductionSteps<D> {
    fn first(&mut self, member: &Member<'_, P>, header: Sink<'_>) {
        let ReductionSteps { data, shape, slices_from, staged } = self;
        let (len, size) = (data.elements(), data.element_size());
        if len * size <= INLINE {
            return data.contribute(0..len, header);
        }
        let plan = member.plan(*shape, *slices_from, data);
        let round = member.round_contents(&plan, 0..0, 0);
        member.contribute(&plan, &round, data);
        *staged = Some((plan, round));
    }

    fn next(&mut self, member: &Member<'_, P>, parity: usize) -> bool {
        let ReductionSteps { data, shape, staged, .. } = self;
        let Some((plan, round)) = staged else {
            let (all, terms) = (0..data.elements(), shape.terms(member.rank, member.size()));
            if terms > 0 {
                member.fold_inline(all, parity, terms, data);
            }
            return false;
        };
        match member.next_round(plan, round, member.end_turn(), data) {
            Some(next) => *round = next,
            None => return false,
        }
        true
    }
}

/// A reduction of which each rank gets one block: see [`super::reduce_scatter`].
pub struct ReduceScatterSteps<D> {
    /// The caller's side.
    pub data: D,
    /// By rank, the range of its block in every rank's contribution.
    blocks: Box<[Range<usize>]>,
    /// What goes through staging in the current round. `None`: everything is in the headers.
    staged: Option<(Windows, Window)>,
}

impl<D: Reduction> ReduceScatterSteps<D> {
    /// Of these elements, in these blocks.
    pub fn new(data: D, blocks: Box<[Range<usize>]>) -> Self {
        ReduceScatterSteps { data, blocks, staged: None }
    }
}

impl<P: Platform, D: Reduction> Steps<P> for ReduceScatterSteps<D> {
    fn first(&mut self, member: &Member<'_, P>, header: Sink<'_>) {
        let ReduceScatterSteps { data, blocks, staged } = self;
        let (len, size) = (data.elements(), data.element_size());
        if len * size <= INLINE {
            return data.contribute(0..len, header);
        }
        *staged = Some(member.first_window(&|rank: usize| blocks[rank].clone(), data));
    }

    fn next(&mut self, member: &Member<'_, P>, parity: usize) -> bool {
        let ReduceScatterSteps { data, blocks, staged } = self;
        let blocks = |rank: usize| blocks[rank].clone();
        let Some((windows, window)) = staged else {
            let own = blocks(member.rank);
            if !own.is_empty() {
                member.fold_inline(own, parity, member.size(), data);
            }
            return false;
        };
        match member.next_window(windows, window, member.end_turn(), &blocks, data) {
            Some(next) => *window = next,
            None => return false,
        }
        true
    }
}
