//! allreduce over buffers that other threads may write meanwhile.
//!
//! A reduction folds private memory. So a piece at a time comes from the buffers into the L1 cache, is folded there, and goes back:
//! two copies that no other cache sees, in place of two of the whole buffer.

use std::array;
use std::num::NonZeroU64;
use std::ops::Range;

use bytemuck::Pod;

use super::reduction::{Builtin, FoldJob, Operator, check_len, check_op, reduction, slices_from};
use crate::communicator::Communicator;
use crate::copy::policy::Stores;
use crate::copy::raw::{RawSource, RawTarget};
use crate::copy::{Sink, Source, TERMS, Term};
use crate::element::{Number, ReduceOp};
use crate::error::{Error, Operation};
use crate::protocol::allreduce::{Reduction, Shape};
use crate::protocol::block_transfer::Address;
use crate::protocol::call::INLINE;
use crate::rank::choices::{Choice, Path};
use crate::rank::lending::Lending;
use crate::tuning::RAW_PIECE_BYTES;

const OPERATION: Operation = Operation::Allreduce;

impl Communicator {
    /// An [`allreduce`](Communicator::allreduce) over buffers that other threads of this process may write while it runs; if one
    /// does, the result is unspecified, on every rank. `send: None`: what is in `recv` is this rank's contribution. The two must
    /// not overlap, or the result is unspecified. Other ranks may call `allreduce` or `allreduce_in_place`: it is the same operation. Collective.
    ///
    /// The rounds are those of `allreduce`, and a piece of 8 KiB at a time goes through private memory.
    ///
    /// ```
    /// use intranode::{RawTarget, ReduceOp};
    ///
    /// let greatest = intranode::threads(3, |comm| {
    ///     let mut data = [comm.rank() as i32, 5];
    ///     comm.allreduce_raw(None, RawTarget::from(&mut data[..]), ReduceOp::Max)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for data in greatest {
    ///     assert_eq!(data?, [2, 5]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allreduce`](Communicator::allreduce).
    pub fn allreduce_raw<T: Number>(
        &self,
        send: Option<RawSource<'_, T>>,
        recv: RawTarget<'_, T>,
        op: ReduceOp,
    ) -> Result<(), Error> {
        let len = send.map_or(recv.len(), |send| send.len());
        let call = reduction::<T>(OPERATION, len, op);
        let checked = check_len(OPERATION, len, recv.len()).and_then(|()| check_op::<T>(OPERATION, op));
        if let Err(error) = checked {
            return Err(self.rank_state.refuse(&call, error));
        }
        let slices_from = slices_from(Shape::All, self.size());
        let bytes = len * size_of::<T>();
        self.rank_state.chosen(bytes, || {
            let path = match bytes {
                ..=INLINE => Path::Inline,
                _ if bytes >= slices_from => Path::Slices,
                _ => Path::Staging,
            };
            Choice { operation: OPERATION, path, receive: Stores::Cached }
        });
        let piece = (RAW_PIECE_BYTES / size_of::<T>()).min(len);
        let [own, folded] = [(); 2].map(|()| vec![T::zeroed(); piece]);
        // Nothing of this rank's is read in place, but it reads what others lend.
        let lending = Lending::new(&self.rank_state, None);
        let mut data = RawBuffers { send, recv, own, folded, op: Builtin::<T>::new(op), lending };
        self.rank_state
            .collective(OPERATION, |member| member.reduction(&call, Shape::All, slices_from, &mut data))
    }
}

/// The caller's buffers.
struct RawBuffers<'a, T, O> {
    send: Option<RawSource<'a, T>>,
    recv: RawTarget<'a, T>,
    /// A piece of what is sent.
    own: Vec<T>,
    /// A piece of what is folded.
    folded: Vec<T>,
    op: O,
    lending: Lending<'a>,
}

impl<T: Pod, O> RawBuffers<'_, T, O> {
    /// A chunk in pieces.
    fn pieces(&self, chunk: Range<usize>) -> impl Iterator<Item = Range<usize>> + use<T, O> {
        let Range { start, end } = chunk;
        let piece = self.folded.len().max(1);
        (start..end).step_by(piece).map(move |start| start..end.min(start + piece))
    }
}

impl<T: Pod, O: Operator<T>> Reduction for RawBuffers<'_, T, O> {
    fn elements(&self) -> usize {
        self.send.map_or(self.recv.len(), |send| send.len())
    }

    fn element_size(&self) -> usize {
        size_of::<T>()
    }

    fn contribute(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        for piece in self.pieces(chunk) {
            let own = &mut self.own[..piece.len()];
            match self.send {
                Some(send) => send.get(piece, own),
                None => self.recv.get(piece, own),
            }
            let bytes: &[u8] = bytemuck::cast_slice(own);
            staging.split_front(bytes.len()).publish(bytes);
        }
    }

    fn keeps_contribution(&self) -> bool {
        self.send.is_some()
    }

    fn find(&mut self, place: NonZeroU64) -> bool {
        self.lending.find(place)
    }

    fn settle(&mut self, found: bool) {
        self.lending.settle(found);
    }

    fn fold(&mut self, chunk: Range<usize>, begin: bool, terms: &[Term<'_>], mut staging: Option<Sink<'_>>) {
        let reads_own = terms.iter().any(|term| matches!(term, Term::Own));
        for piece in self.pieces(chunk.clone()) {
            let offset = (piece.start - chunk.start) * size_of::<T>();
            let (own, target) = (&mut self.own[..piece.len()], &mut self.folded[..piece.len()]);
            if !begin || self.send.is_none() {
                self.recv.get(piece.clone(), target);
            }
            if let Some(send) = self.send.filter(|_| reads_own) {
                send.get(piece.clone(), own);
            }
            let staged: [_; TERMS] = array::from_fn(|index| match terms.get(index) {
                Some(Term::Staged(staged)) => Term::Staged(staged.after(offset)),
                _ => Term::Own,
            });
            self.op.fold(FoldJob {
                own: self.send.is_some().then_some(&*own),
                begin,
                terms: &staged[..terms.len()],
                staging: staging.as_mut().map(|staging| staging.split_front(size_of_val(target))),
                target,
            });
            self.recv.put(piece, target);
        }
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
        let found: [_; TERMS] = array::from_fn(|index| {
            let place = places.get(index).copied().flatten()?;
            self.lending.at(place, chunk.start * width, chunk.len() * width)
        });
        let terms: [_; TERMS] = array::from_fn(|index| match (terms.get(index), places.get(index)) {
            (Some(term), Some(None)) => *term,
            // As in `ReduceBuffers`.
            _ => found[index].as_ref().map_or(Term::Own, |found| Term::Staged(found.view())),
        });
        self.fold(chunk, begin, &terms[..places.len()], staging);
    }

    fn collect(&mut self, chunk: Range<usize>, staging: Source<'_>) {
        self.recv.fetch(chunk, &staging);
    }
}
