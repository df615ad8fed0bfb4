//! allreduce: argument checks, and the caller's buffers as a [`Reduction`].

use std::ops::Range;

use bytemuck::Pod;

use crate::communicator::{Communicator, call};
use crate::copy::policy::Stores;
use crate::copy::{self, Sink, Source, Term};
use crate::element::{Number, ReduceOp, sealed::Folder};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::allreduce::Reduction;
use crate::protocol::call::INLINE;
use crate::rank::choices::{Choice, Path};
use crate::tuning::fold_slices_from_bytes;

impl Communicator {
    /// Combines `send[i]` of all ranks into `recv[i]`, on every rank, in rank order: the result has the same bits on every
    /// rank and in every run. Both buffers have the same length on all ranks; it may be 0. Collective.
    ///
    /// Up to 96 bytes are published with the arrival, in one round. Longer data streams through staging, one round a chunk:
    /// every rank folds the whole chunk. If the data is large, a rank folds its own slice, and then copies the slices of the
    /// other ranks (reduce-scatter, then allgather: Rabenseifner 2004).
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let sums = intranode::threads(3, |comm| {
    ///     let send = [comm.rank() as f64, 1.0];
    ///     let mut recv = [0.0; 2];
    ///     comm.allreduce(&send, &mut recv, ReduceOp::Sum)?;
    ///     Ok::<_, intranode::Error>(recv)
    /// })?;
    /// for sum in sums {
    ///     assert_eq!(sum?, [3.0, 3.0]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if the lengths differ, [`Error::InvalidReduction`] for a bitwise reduction of
    /// floating-point values; otherwise as [`barrier`](Communicator::barrier).
    pub fn allreduce<T: Number>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let operation = Operation::Allreduce;
        let call = self.reduction::<T>(send.len(), op);
        if send.len() != recv.len() {
            let error = Error::InvalidBufferSize { operation, expected: send.len(), actual: recv.len() };
            return Err(self.rank_state.refuse(&call, error));
        }
        self.reduce(&call, AllreduceBuffers { send: Some(send), recv, op })
    }

    /// The same in place: the result replaces the contribution. `data` has the same length on all ranks. Collective.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let flags = intranode::threads(3, |comm| {
    ///     let mut flags = [1u32 << comm.rank()];
    ///     comm.allreduce_in_place(&mut flags, ReduceOp::BitOr)?;
    ///     Ok::<_, intranode::Error>(flags[0])
    /// })?;
    /// for flags in flags {
    ///     assert_eq!(flags?, 0b111);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allreduce`](Communicator::allreduce).
    pub fn allreduce_in_place<T: Number>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = self.reduction::<T>(data.len(), op);
        self.reduce(&call, AllreduceBuffers { send: None, recv: data, op })
    }

    fn reduction<T: Number>(&self, length: usize, op: ReduceOp) -> Call {
        Call { reduction: op as u8, length: length as u64, ..call::<T>(Operation::Allreduce) }
    }

    fn reduce<T: Number>(&self, call: &Call, mut data: AllreduceBuffers<'_, T>) -> Result<(), Error> {
        let reduction = data.op;
        if T::FLOAT && reduction.is_bitwise() {
            let element = std::any::type_name::<T>();
            return Err(self.rank_state.refuse(call, Error::InvalidReduction { reduction, element }));
        }
        let slices_from = fold_slices_from_bytes(self.size());
        let bytes = size_of_val(data.recv);
        self.rank_state.chosen(bytes, || {
            let path = match bytes {
                _ if bytes <= INLINE => Path::Inline,
                _ if bytes < slices_from => Path::Staging,
                _ => Path::Slices,
            };
            Choice { operation: Operation::Allreduce, path, receive: Stores::Cached }
        });
        self.rank_state
            .collective(Operation::Allreduce, |member| member.allreduce(call, slices_from, &mut data))
    }
}

/// The caller's buffers.
pub(crate) struct AllreduceBuffers<'a, T> {
    /// None: in place.
    pub(crate) send: Option<&'a [T]>,
    pub(crate) recv: &'a mut [T],
    pub(crate) op: ReduceOp,
}

impl<T: Number> Reduction for AllreduceBuffers<'_, T> {
    #[inline]
    fn elements(&self) -> usize {
        self.recv.len()
    }

    #[inline]
    fn element_size(&self) -> usize {
        size_of::<T>()
    }

    #[inline]
    fn contribute(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        let send = self.send.unwrap_or(self.recv);
        staging.publish(bytemuck::cast_slice(&send[chunk]));
    }

    #[inline]
    fn keeps_contribution(&self) -> bool {
        self.send.is_some()
    }

    #[inline]
    fn fold(&mut self, chunk: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>) {
        let own = self.send.map(|send| &send[chunk.clone()]);
        T::fold(self.op, FoldJob { target: &mut self.recv[chunk], own, begin, terms, staging });
    }

    #[inline]
    fn collect(&mut self, chunk: Range<usize>, staging: Source<'_>) {
        staging.fetch(bytemuck::cast_slice_mut(&mut self.recv[chunk]));
    }
}

/// The arguments of [`copy::fold`], except the combination.
struct FoldJob<'a, T> {
    target: &'a mut [T],
    own: Option<&'a [T]>,
    begin: bool,
    terms: &'a [Term<'a>],
    staging: Option<Sink<'a>>,
}

impl<T: Pod> Folder<T> for FoldJob<'_, T> {
    #[inline]
    fn each(self, combine: impl Fn(T, T) -> T) {
        let FoldJob { target, own, begin, terms, staging } = self;
        copy::fold(target, own, begin, terms, staging, combine);
    }
}
