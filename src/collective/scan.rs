//! scan and exscan: reductions over the ranks up to the own one.

use super::reduction::{Builtin, ReduceBuffers, check_len, check_op, reduction};
use crate::communicator::Communicator;
use crate::element::{ReduceOp, Reducible};
use crate::error::{Error, Operation};
use crate::protocol::allreduce::Shape;

impl Communicator {
    /// Combines `send[i]` of ranks 0 to `rank()` into `recv[i]`: the inclusive prefix reduction, in rank order. Both buffers
    /// have the same length on all ranks; it may be 0. Collective.
    ///
    /// Up to 96 bytes take one round, longer data one round a chunk, in which rank `r` folds the contributions of `r + 1` ranks
    /// straight from staging. (A distributed prefix sum over `log R` rounds, Hillis and Steele 1986, would combine in another
    /// order.)
    ///
    /// A contribution in memory that all ranks map (a [buffer](Communicator::buffer), a [symmetric object](crate::Symmetric)) may be read
    /// there, if it is long or does not change.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let sums = intranode::threads(4, |comm| {
    ///     let mut sum = [0];
    ///     comm.scan(&[comm.rank() + 1], &mut sum, ReduceOp::Sum)?;
    ///     Ok::<_, intranode::Error>(sum[0])
    /// })?;
    /// for (sum, expected) in sums.into_iter().zip([1, 3, 6, 10]) {
    ///     assert_eq!(sum?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allreduce`](Communicator::allreduce).
    pub fn scan<T: Reducible>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        self.prefix(Operation::Scan, Shape::Inclusive, send, recv, op)
    }

    /// The same in place: the result replaces the contribution. Collective.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let greatest = intranode::threads(3, |comm| {
    ///     let mut data = [[5, 2, 7][comm.rank()]];
    ///     comm.scan_in_place(&mut data, ReduceOp::Max)?;
    ///     Ok::<_, intranode::Error>(data[0])
    /// })?;
    /// for (value, expected) in greatest.into_iter().zip([5, 5, 7]) {
    ///     assert_eq!(value?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allreduce`](Communicator::allreduce).
    pub fn scan_in_place<T: Reducible>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        self.prefix_in_place(Operation::Scan, Shape::Inclusive, data, op)
    }

    /// Combines `send[i]` of the ranks before this one into `recv[i]`: the exclusive prefix reduction, in rank order. On rank
    /// 0, which has none before it, `recv` is not written. Both buffers have the same length on all ranks. Collective. The
    /// rounds are those of [`scan`](Communicator::scan).
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// // Where each rank's items begin among those of all.
    /// let starts = intranode::threads(3, |comm| {
    ///     let (items, mut start) = ([[4, 1, 5][comm.rank()]], [0]);
    ///     comm.exscan(&items, &mut start, ReduceOp::Sum)?;
    ///     Ok::<_, intranode::Error>(start[0])
    /// })?;
    /// for (start, expected) in starts.into_iter().zip([0, 4, 5]) {
    ///     assert_eq!(start?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allreduce`](Communicator::allreduce).
    pub fn exscan<T: Reducible>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        self.prefix(Operation::Exscan, Shape::Exclusive, send, recv, op)
    }

    /// The same in place: the result replaces the contribution, on rank 0 nothing does. Collective.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let products = intranode::threads(3, |comm| {
    ///     let mut data = [comm.rank() + 2];
    ///     comm.exscan_in_place(&mut data, ReduceOp::Prod)?;
    ///     Ok::<_, intranode::Error>(data[0])
    /// })?;
    /// for (product, expected) in products.into_iter().zip([2, 2, 6]) {
    ///     assert_eq!(product?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allreduce`](Communicator::allreduce).
    pub fn exscan_in_place<T: Reducible>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        self.prefix_in_place(Operation::Exscan, Shape::Exclusive, data, op)
    }

    fn prefix<T: Reducible>(
        &self,
        operation: Operation,
        shape: Shape,
        send: &[T],
        recv: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let call = reduction::<T>(operation, send.len(), op);
        let checked = check_len(operation, send.len(), recv.len()).and_then(|()| check_op::<T>(operation, op));
        if let Err(error) = checked {
            return Err(self.rank_state.refuse(&call, error));
        }
        let send = T::encode(send);
        T::update(recv, |recv| {
            let data = ReduceBuffers::new(&send, recv, Builtin::<T>::new(op));
            self.run_reduction(operation, &call, shape, data)
        })
    }

    fn prefix_in_place<T: Reducible>(
        &self,
        operation: Operation,
        shape: Shape,
        data: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let call = reduction::<T>(operation, data.len(), op);
        if let Err(error) = check_op::<T>(operation, op) {
            return Err(self.rank_state.refuse(&call, error));
        }
        T::update(data, |data| {
            let data = ReduceBuffers::in_place(data, Builtin::<T>::new(op));
            self.run_reduction(operation, &call, shape, data)
        })
    }
}
