//! reduce: an allreduce of which one rank gets the result.

use super::reduction::{Builtin, ReduceBuffers, check_len, check_op, reduction};
use super::rooted::{check_buffer, check_root};
use crate::communicator::Communicator;
use crate::element::{ReduceOp, Reducible};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::allreduce::Shape;

const OPERATION: Operation = Operation::Reduce;

impl Communicator {
    /// Combines `send[i]` of all ranks into `recv[i]` of rank `root`, in rank order: the result has the same bits in every
    /// run, and as that of [`allreduce`](Communicator::allreduce). `recv` is `Some` on the root and `None` elsewhere. Both
    /// buffers have the same length on all ranks; it may be 0. Collective: no rank returns before all have called, and the
    /// root needs nothing more of it.
    ///
    /// Up to 96 bytes take one round, in which the root reads and the others only arrive. Longer data streams through staging;
    /// if it is large, every rank of three and more folds a slice for the root, which copies the slices (reduce-scatter, then
    /// gather: Rabenseifner 2004).
    ///
    /// A contribution in memory that all ranks map (a [buffer](Communicator::buffer), a [symmetric object](crate::Symmetric)) may be read
    /// there, if it is long or does not change.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let sums = intranode::threads(3, |comm| {
    ///     let mut sum = [0.0];
    ///     let recv = if comm.rank() == 1 { Some(&mut sum[..]) } else { None };
    ///     comm.reduce(&[comm.rank() as f64], recv, ReduceOp::Sum, 1)?;
    ///     Ok::<_, intranode::Error>(sum[0])
    /// })?;
    /// for (rank, sum) in sums.into_iter().enumerate() {
    ///     assert_eq!(sum?, if rank == 1 { 3.0 } else { 0.0 });
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::RootBuffer`] if `recv` is not `Some` exactly on the root; otherwise as
    /// [`allreduce`](Communicator::allreduce).
    pub fn reduce<T: Reducible>(
        &self,
        send: &[T],
        recv: Option<&mut [T]>,
        op: ReduceOp,
        root: usize,
    ) -> Result<(), Error> {
        let call = Call { extra: root as u64, ..reduction::<T>(OPERATION, send.len(), op) };
        let checked = check_root(self, OPERATION, root)
            .and_then(|()| check_buffer(self, OPERATION, root, recv.is_some()))
            .and_then(|()| {
                check_len(OPERATION, send.len(), recv.as_ref().map_or(send.len(), |recv| recv.len()))
            })
            .and_then(|()| check_op::<T>(OPERATION, op));
        if let Err(error) = checked {
            return Err(self.rank_state.refuse(&call, error));
        }
        let (send, op, shape) = (T::encode(send), Builtin::<T>::new(op), Shape::Root(root));
        match recv {
            Some(recv) => T::update(recv, |recv| {
                self.run_reduction(OPERATION, &call, shape, ReduceBuffers::new(&send, recv, op))
            }),
            None => self.run_reduction(OPERATION, &call, shape, ReduceBuffers::without_result(&send, op)),
        }
    }

    /// The same in place: on the root the result replaces the contribution. On the other ranks `data` does not change. It
    /// has the same length on all ranks. Collective.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let values = intranode::threads(3, |comm| {
    ///     let mut data = [comm.rank() as u64 + 1];
    ///     comm.reduce_in_place(&mut data, ReduceOp::Prod, 0)?;
    ///     Ok::<_, intranode::Error>(data[0])
    /// })?;
    /// for (value, expected) in values.into_iter().zip([6, 2, 3]) {
    ///     assert_eq!(value?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; otherwise as [`allreduce`](Communicator::allreduce).
    pub fn reduce_in_place<T: Reducible>(
        &self,
        data: &mut [T],
        op: ReduceOp,
        root: usize,
    ) -> Result<(), Error> {
        let call = Call { extra: root as u64, ..reduction::<T>(OPERATION, data.len(), op) };
        let checked = check_root(self, OPERATION, root).and_then(|()| check_op::<T>(OPERATION, op));
        if let Err(error) = checked {
            return Err(self.rank_state.refuse(&call, error));
        }
        let (op, shape) = (Builtin::<T>::new(op), Shape::Root(root));
        if self.rank() == root {
            T::update(data, |data| {
                self.run_reduction(OPERATION, &call, shape, ReduceBuffers::in_place(data, op))
            })
        } else {
            let data = T::encode(data);
            self.run_reduction(OPERATION, &call, shape, ReduceBuffers::without_result(&data, op))
        }
    }
}
