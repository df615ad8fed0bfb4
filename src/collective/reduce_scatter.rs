//! reduce_scatter and reduce_scatter_block: each rank gets one block of a reduction.

use std::ops::Range;

use super::counts;
use super::reduction::{Builtin, ReduceBuffers, check_len, check_op, reduction};
use crate::communicator::Communicator;
use crate::copy::policy::Stores;
use crate::element::{ReduceOp, Reducible};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::call::INLINE;
use crate::rank::choices::{Choice, Path};

impl Communicator {
    /// Combines the contributions of all ranks, in rank order, and gives each rank one block of the result: the `counts[r]`
    /// elements of rank `r` follow those of rank `r − 1`. `send` has the sum of the counts, `recv` has `counts[rank]` elements;
    /// `counts` is the same on all ranks, and a count may be 0. Collective.
    ///
    /// Up to 96 bytes take one round. Longer contributions go through staging in rounds that have a piece of every block, and
    /// each rank folds its own (reduce-scatter by direct exchange: Rabenseifner 2004, without its recursive halving, which would
    /// combine in another order).
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let sums = intranode::threads(2, |comm| {
    ///     let counts = [2, 1];
    ///     let mut sum = vec![0; counts[comm.rank()]];
    ///     comm.reduce_scatter(&[1, 10, 100 * comm.rank()], &mut sum, &counts, ReduceOp::Sum)?;
    ///     Ok::<_, intranode::Error>(sum)
    /// })?;
    /// for (sum, expected) in sums.into_iter().zip([vec![2, 20], vec![100]]) {
    ///     assert_eq!(sum?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if a buffer or `counts` has another length; [`Error::InvalidReduction`]; otherwise as
    /// [`barrier`](Communicator::barrier).
    pub fn reduce_scatter<T: Reducible>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let operation = Operation::ReduceScatter;
        let total = counts.iter().fold(0usize, |sum, count| sum.saturating_add(*count));
        let extra = counts::digest(self.rank_state.mapped.key(), counts);
        let call = Call { extra, ..reduction::<T>(operation, total, op) };
        let checked = check_len(operation, self.size(), counts.len())
            .and_then(|()| check_len(operation, total, send.len()))
            .and_then(|()| check_len(operation, counts[self.rank()], recv.len()))
            .and_then(|()| check_op::<T>(operation, op));
        if let Err(error) = checked {
            return Err(self.rank_state.refuse(&call, error));
        }
        let starts: Vec<usize> = std::iter::once(0)
            .chain(counts.iter().scan(0, |sum, count| {
                *sum += count;
                Some(*sum)
            }))
            .collect();
        self.reduce_blocks(operation, &call, &|rank| starts[rank]..starts[rank + 1], send, recv, op)
    }

    /// The same with blocks of the same length: `recv` has the same length on all ranks, and `send` that length times the
    /// number of ranks. Collective.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let least = intranode::threads(2, |comm| {
    ///     let mut least = [0.0];
    ///     comm.reduce_scatter_block(&[[3.5, 1.5], [2.5, 4.5]][comm.rank()], &mut least, ReduceOp::Min)?;
    ///     Ok::<_, intranode::Error>(least[0])
    /// })?;
    /// for (least, expected) in least.into_iter().zip([2.5, 1.5]) {
    ///     assert_eq!(least?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`reduce_scatter`](Communicator::reduce_scatter).
    pub fn reduce_scatter_block<T: Reducible>(
        &self,
        send: &[T],
        recv: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let (operation, len) = (Operation::ReduceScatterBlock, recv.len());
        let call = reduction::<T>(operation, len, op);
        let checked = check_len(operation, len.saturating_mul(self.size()), send.len())
            .and_then(|()| check_op::<T>(operation, op));
        if let Err(error) = checked {
            return Err(self.rank_state.refuse(&call, error));
        }
        self.reduce_blocks(operation, &call, &|rank| rank * len..(rank + 1) * len, send, recv, op)
    }

    fn reduce_blocks<T: Reducible>(
        &self,
        operation: Operation,
        call: &Call,
        blocks: &impl Fn(usize) -> Range<usize>,
        send: &[T],
        recv: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let send = T::encode(send);
        let bytes = size_of_val(&*send);
        self.rank_state.chosen(bytes, || {
            let path = if bytes <= INLINE { Path::Inline } else { Path::Staging };
            Choice { operation, path, receive: Stores::Cached }
        });
        T::update(recv, |recv| {
            let start = blocks(self.rank()).start;
            let mut data = ReduceBuffers::of_block(&send, recv, start, Builtin::<T>::new(op));
            self.rank_state.collective(operation, |member| member.reduce_scatter(call, blocks, &mut data))
        })
    }
}
