//! What all reductions have in common: the call, the check of the operation, and the caller's buffers as a [`Reduction`].

use std::marker::PhantomData;
use std::ops::Range;

use bytemuck::Pod;
use bytemuck::allocation::zeroed_vec;

use crate::communicator::{Communicator, call};
use crate::copy::policy::Stores;
use crate::copy::{self, Sink, Source, Term};
use crate::element::{ReduceOp, Reducible, sealed::Folder};
use crate::error::{Error, Operation};
use crate::protocol::allreduce::{Reduction, Shape};
use crate::protocol::block_transfer::{Address, Lend, whereabouts};
use crate::protocol::call::INLINE;
use crate::protocol::contributions::HeaderTerms;
use crate::protocol::{Call, Platform};
use crate::rank::choices::{Choice, Path};
use crate::rank::lending::Lending;
use crate::rank::rank_state::RankState;
use crate::tuning::{REDUCE_IN_PLACE_FROM, REDUCE_WHOLE_IN_PLACE_FROM, fold_slices_from_bytes};

/// The header of a reduction.
pub(crate) fn reduction<T: Reducible>(operation: Operation, length: usize, op: ReduceOp) -> Call {
    Call { reduction: op as u8, length: length as u64, ..call::<T>(operation) }
}

/// Checks that the operation is defined for the type.
pub(crate) fn check_op<T: Reducible>(operation: Operation, op: ReduceOp) -> Result<(), Error> {
    match T::has(op) {
        true => Ok(()),
        false => {
            let element = std::any::type_name::<T>();
            Err(Error::InvalidReduction { operation, reduction: op, element })
        }
    }
}

/// Checks that a buffer has the length that is needed.
pub(crate) fn check_len(operation: Operation, expected: usize, actual: usize) -> Result<(), Error> {
    if expected == actual { Ok(()) } else { Err(Error::InvalidBufferSize { operation, expected, actual }) }
}

/// From how many bytes on ranks fold in slices.
pub(super) fn slices_from(shape: Shape, ranks: usize) -> usize {
    // What the other of two ranks folds would go through staging like what it contributes.
    if shape.is_streamed(ranks) { usize::MAX } else { fold_slices_from_bytes(ranks) }
}

impl Communicator {
    /// Runs a reduction over all elements whose arguments were checked.
    #[inline]
    pub(super) fn run_reduction<'a, T: Pod, O: Operator<T>>(
        &'a self,
        operation: Operation,
        call: &Call,
        shape: Shape,
        data: ReduceBuffers<'a, T, O>,
    ) -> Result<(), Error> {
        match data.elements() * size_of::<T>() <= INLINE {
            true => self.run_inline(operation, call, shape, data),
            false => self.run_long(operation, call, shape, data),
        }
    }

    /// One of what fits into a header: nothing of what longer data need.
    #[inline]
    fn run_inline<T: Pod, O: Operator<T>>(
        &self,
        operation: Operation,
        call: &Call,
        shape: Shape,
        data: ReduceBuffers<'_, T, O>,
    ) -> Result<(), Error> {
        let ReduceBuffers { send, target, op, .. } = data;
        let target = match target {
            Target::Recv(recv, _) => recv,
            Target::Scratch(_) => &mut [],
        };
        let mut copy = [0; INLINE];
        let own: &[u8] = match send {
            Some(send) => bytemuck::cast_slice(send),
            None => {
                let own = &mut copy[..size_of_val(target)];
                own.copy_from_slice(bytemuck::cast_slice(target));
                own
            }
        };
        let choice = Choice { operation, path: Path::Inline, receive: Stores::Cached };
        self.rank_state.chosen(own.len(), move || choice);
        self.rank_state.collective(operation, |member| {
            member.reduction_inline(call, shape, own, |terms| fold_inline(&op, target, terms))
        })
    }

    #[inline(never)]
    fn run_long<'a, T: Pod, O: Operator<T>>(
        &'a self,
        operation: Operation,
        call: &Call,
        shape: Shape,
        mut data: ReduceBuffers<'a, T, O>,
    ) -> Result<(), Error> {
        let slices_from = slices_from(shape, self.size());
        let bytes = data.elements() * size_of::<T>();
        let sliced = shape.is_one_result() && bytes >= slices_from;
        let is_read = sliced || shape.is_read_by_others(self.rank(), self.size());
        data.read_in_place_of(&self.rank_state, (is_read, sliced));
        self.rank_state.chosen(bytes, || {
            let path = match whereabouts(data.lending()).0 {
                Some(_) => Path::InPlace,
                None if sliced => Path::Slices,
                None => Path::Staging,
            };
            Choice { operation, path, receive: Stores::Cached }
        });
        self.rank_state.collective(operation, |member| member.reduction(call, shape, slices_from, &mut data))
    }
}

/// How two contributions are combined.
pub(crate) trait Operator<T> {
    /// Folds.
    fn fold(&self, job: FoldJob<'_, T>);

    /// Folds what came with headers: that of rank 0 is in the target.
    fn fold_inline(&self, job: InlineJob<'_, T, impl Platform>);
}

/// One of [`ReduceOp`], over what is sent for values of `V`.
pub(crate) struct Builtin<V>(ReduceOp, PhantomData<V>);

impl<V: Reducible> Builtin<V> {
    /// It was [checked](check_op).
    pub(super) fn new(op: ReduceOp) -> Self {
        Builtin(op, PhantomData)
    }
}

impl<V: Reducible> Operator<V::Repr> for Builtin<V> {
    #[inline]
    fn fold(&self, job: FoldJob<'_, V::Repr>) {
        V::fold(self.0, job);
    }

    #[inline]
    fn fold_inline(&self, job: InlineJob<'_, V::Repr, impl Platform>) {
        V::fold(self.0, job);
    }
}

/// The arguments of [`copy::fold`], except the combination.
pub(crate) struct FoldJob<'a, T> {
    pub(super) target: &'a mut [T],
    pub(super) own: Option<&'a [T]>,
    pub(super) begin: bool,
    pub(super) terms: &'a [Term<'a>],
    pub(super) staging: Option<Sink<'a>>,
}

impl<'a, T: Pod> Folder<T> for FoldJob<'a, T> {
    type Of<U: Pod> = FoldJob<'a, U>;

    #[inline]
    fn each(self, combine: impl Fn(T, T) -> T) {
        let FoldJob { target, own, begin, terms, staging } = self;
        copy::fold(target, own, begin, terms, staging, combine);
    }

    #[inline]
    fn cast<U: Pod>(self) -> FoldJob<'a, U> {
        let FoldJob { target, own, begin, terms, staging } = self;
        let own = own.map(bytemuck::cast_slice);
        FoldJob { target: bytemuck::cast_slice_mut(target), own, begin, terms, staging }
    }
}

/// What came with headers.
pub(crate) struct InlineJob<'a, T, P: Platform> {
    pub(super) target: &'a mut [T],
    pub(super) terms: &'a HeaderTerms<'a, P>,
}

impl<'a, T: Pod, P: Platform> Folder<T> for InlineJob<'a, T, P> {
    type Of<U: Pod> = InlineJob<'a, U, P>;

    #[inline]
    fn each(self, combine: impl Fn(T, T) -> T) {
        let InlineJob { target, terms } = self;
        for rank in 1..terms.ranks() {
            terms.look(rank, |term| copy::fold_short(target, term, &combine));
        }
    }

    #[inline]
    fn cast<U: Pod>(self) -> InlineJob<'a, U, P> {
        InlineJob { target: bytemuck::cast_slice_mut(self.target), terms: self.terms }
    }
}

#[inline]
fn fold_inline<T: Pod>(op: &impl Operator<T>, target: &mut [T], terms: &HeaderTerms<'_, impl Platform>) {
    if terms.ranks() > 0 {
        terms.look(0, |term| term.get(0, bytemuck::cast_slice_mut(target)));
    }
    if terms.ranks() > 1 {
        op.fold_inline(InlineJob { target, terms });
    }
}

/// The caller's buffers.
pub(crate) struct ReduceBuffers<'a, T, O> {
    /// None: in place.
    send: Option<&'a [T]>,
    target: Target<'a, T>,
    op: O,
    /// Of what is sent.
    lending: Option<Lending<'a>>,
}

/// Where a rank folds.
enum Target<'a, T> {
    /// In its receive buffer, which begins with the result of this element.
    Recv(&'a mut [T], usize),
    /// It gets no result, but folds a slice for others.
    Scratch(Vec<T>),
}

impl<'a, T: Pod, O> ReduceBuffers<'a, T, O> {
    /// Folds what all ranks send into `recv`.
    pub(super) fn new(send: &'a [T], recv: &'a mut [T], op: O) -> Self {
        ReduceBuffers { send: Some(send), target: Target::Recv(recv, 0), op, lending: None }
    }

    /// The result takes the place of the contribution.
    pub(super) fn in_place(data: &'a mut [T], op: O) -> Self {
        ReduceBuffers { send: None, target: Target::Recv(data, 0), op, lending: None }
    }

    /// This rank gets no result.
    pub(super) fn without_result(send: &'a [T], op: O) -> Self {
        ReduceBuffers { send: Some(send), target: Target::Scratch(Vec::new()), op, lending: None }
    }

    /// Contributions that lie in memory that all ranks map do not go through staging. `is_read`: others may read this rank's. `sliced`: they
    /// read a slice of it, so that the result may take its place.
    fn read_in_place_of(&mut self, rank_state: &'a RankState, (is_read, sliced): (bool, bool)) {
        let from = if sliced { REDUCE_IN_PLACE_FROM } else { REDUCE_WHOLE_IN_PLACE_FROM };
        let place = match (self.send, &mut self.target) {
            _ if !is_read => None,
            (Some(send), _) => rank_state.lend_from(bytemuck::cast_slice(send), from),
            // The call itself changes it: that was measured from there on alone.
            (None, Target::Recv(data, _)) if sliced && size_of_val(*data) >= from.usual => {
                rank_state.lend(bytemuck::cast_slice(data))
            }
            _ => None,
        };
        self.lending = Some(Lending::new(rank_state, place));
    }

    /// This rank gets the result of some elements only, from `start` on.
    pub(super) fn of_block(send: &'a [T], recv: &'a mut [T], start: usize, op: O) -> Self {
        ReduceBuffers { send: Some(send), target: Target::Recv(recv, start), op, lending: None }
    }
}

impl<T: Pod> Target<'_, T> {
    #[inline]
    fn chunk(&mut self, chunk: Range<usize>) -> &mut [T] {
        match self {
            Target::Recv(recv, first) => &mut recv[chunk.start - *first..chunk.end - *first],
            Target::Scratch(scratch) => {
                if scratch.len() < chunk.len() {
                    // Not `resize`, which has an element on the stack.
                    *scratch = zeroed_vec(chunk.len());
                }
                &mut scratch[..chunk.len()]
            }
        }
    }
}

impl<T: Pod, O: Operator<T>> Reduction for ReduceBuffers<'_, T, O> {
    #[inline]
    fn elements(&self) -> usize {
        match (&self.send, &self.target) {
            (Some(send), _) => send.len(),
            (None, Target::Recv(data, _)) => data.len(),
            (None, Target::Scratch(_)) => unreachable!("in place is in the receive buffer"),
        }
    }

    #[inline]
    fn element_size(&self) -> usize {
        size_of::<T>()
    }

    #[inline]
    fn contribute(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        let send = match self.send {
            Some(send) => &send[chunk],
            None => &*self.target.chunk(chunk),
        };
        staging.publish(bytemuck::cast_slice(send));
    }

    #[inline]
    fn keeps_contribution(&self) -> bool {
        self.send.is_some()
    }

    #[inline]
    fn lending(&mut self) -> Option<&mut dyn Lend> {
        self.lending.as_mut().map(|lending| lending as _)
    }

    fn fold(&mut self, chunk: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>) {
        let own = self.send.map(|send| &send[chunk.clone()]);
        self.op.fold(FoldJob { target: self.target.chunk(chunk), own, begin, terms, staging });
    }

    #[inline]
    fn fold_inline(&mut self, chunk: Range<usize>, terms: &HeaderTerms<'_, impl Platform>) {
        fold_inline(&self.op, self.target.chunk(chunk), terms);
    }

    #[cold]
    fn fold_in_place(
        &mut self,
        chunk: Range<usize>,
        begin: bool,
        (terms, places): (&[Term<'_>], &[Address]),
        staging: Option<Sink<'_>>,
    ) {
        let width = size_of::<T>();
        let lending = self.lending.as_ref().expect("what it reads others in place with");
        let found = lending.all_at(places, chunk.start * width, chunk.len() * width);
        let terms = found.terms(terms, places);
        self.fold(chunk, begin, &terms[..places.len()], staging);
    }

    #[inline]
    fn collect(&mut self, chunk: Range<usize>, staging: Source<'_>) {
        staging.fetch(bytemuck::cast_slice_mut(self.target.chunk(chunk)));
    }
}
