//! allreduce: the arguments' checks, and the caller's buffers as the protocol uses them.

use std::ops::Range;

use bytemuck::Pod;

use super::receive::keep_pace;
use crate::communicator::{Communicator, call};
use crate::copy::{self, Sink, Source, Term};
use crate::element::{Number, ReduceOp, sealed::Folder};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::allreduce::{self, Reduction};

impl Communicator {
    /// Combines `send[i]` of all ranks into `recv[i]`, on every rank, in rank order: the same bits on every rank and
    /// in every run. Both buffers have the same length, on all ranks.
    ///
    /// Small values travel with the arrival word, in one round. Large ones are folded in slices, one a rank, and
    /// exchanged (Rabenseifner 2004).
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if the lengths differ, [`Error::InvalidReduction`] for a bitwise reduction of
    /// floating-point values; otherwise as [`barrier`](Communicator::barrier).
    pub fn allreduce<T: Number>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let operation = Operation::Allreduce;
        let call = self.reduction::<T>(send.len(), op);
        if send.len() != recv.len() {
            let error = Error::InvalidBufferSize { operation, expected: send.len(), actual: recv.len() };
            return Err(self.seat.refuse(&call, error));
        }
        self.reduce(&call, AllreduceBuffers { send: Some(send), recv, op })
    }

    /// The same with the result in place of the contribution.
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
            return Err(self.seat.refuse(call, Error::InvalidReduction { reduction, element }));
        }
        let slices_from = allreduce::slices_from(self.size());
        self.seat.collective(Operation::Allreduce, |member| member.allreduce(call, slices_from, &mut data))
    }
}

/// Values to reduce: from `send`, or in place.
pub(crate) struct AllreduceBuffers<'a, T> {
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
    fn contribute(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        let send = self.send.unwrap_or(self.recv);
        staging.publish(bytemuck::cast_slice(&send[part]));
    }

    #[inline]
    fn keeps_contribution(&self) -> bool {
        self.send.is_some()
    }

    #[inline]
    fn fold(&mut self, part: Range<usize>, begin: bool, terms: &[Term<'_>], staging: Option<Sink<'_>>) {
        let own = self.send.map(|send| &send[part.clone()]);
        T::fold(self.op, FoldJob { target: &mut self.recv[part], own, begin, terms, staging });
    }

    #[inline]
    fn collect(&mut self, part: Range<usize>, staging: Source<'_>) {
        staging.fetch(bytemuck::cast_slice_mut(&mut self.recv[part]));
    }

    fn collects_and_contributes(&self) -> bool {
        // Where all goes through the cache there is nothing to wait for.
        copy::streams()
    }

    fn collect_and_contribute(
        &mut self,
        part: Range<usize>,
        staging: Source<'_>,
        next: Range<usize>,
        place: Sink<'_>,
    ) {
        let (until, after) = self.recv.split_at_mut(part.end);
        let send = match self.send {
            Some(send) => &send[next],
            None => &after[next.start - part.end..next.end - part.end],
        };
        let send = bytemuck::cast_slice(send);
        let target: &mut [u8] = bytemuck::cast_slice_mut(&mut until[part.start..]);
        let mut got = 0;
        place.put_in_turns(send, |put| {
            let piece = keep_pace(&mut got, put, send.len(), target);
            staging.after(piece.start).fetch(&mut target[piece]);
        });
    }
}

/// A [`copy::fold`] without the combination.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no madvise, which ranks that are threads need")]
    fn parts_of_a_reduction_are_collected_while_others_are_contributed_to() {
        // The last part is shorter, slices differ in length, and the last of five ranks contributes all when in place.
        for (ranks, len) in [(2, 400_003), (5, 300_001)] {
            crate::threads(ranks, |world| {
                let value = |rank: usize, index: usize| (index * (rank + 3)) as u64;
                let send: Vec<u64> = (0..len).map(|index| value(world.rank(), index)).collect();
                let expected: Vec<u64> =
                    (0..len).map(|index| (0..ranks).map(|rank| value(rank, index)).sum()).collect();
                // Both settings at a time only if staging is stored past the cache.
                crate::copy::publish::stream_next(1 << 30);
                let mut recv = vec![0; len];
                world.allreduce(&send, &mut recv, ReduceOp::Sum).unwrap();
                assert!(recv == expected);
                recv.copy_from_slice(&send);
                world.allreduce_in_place(&mut recv, ReduceOp::Sum).unwrap();
                assert!(recv == expected);
            })
            .unwrap();
        }
    }
}
