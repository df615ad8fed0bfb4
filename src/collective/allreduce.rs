//! allreduce.

use super::reduction::{Builtin, ReduceBuffers, check_len, check_op, reduction};
use crate::communicator::Communicator;
use crate::element::{ReduceOp, Reducible};
use crate::error::{Error, Operation};
use crate::protocol::allreduce::Shape;

const OPERATION: Operation = Operation::Allreduce;

impl Communicator {
    /// Combines `send[i]` of all ranks into `recv[i]`, on every rank, in rank order: the result has the same bits on every
    /// rank and in every run. Both buffers have the same length on all ranks; it may be 0. Collective.
    ///
    /// Up to 96 bytes are published with the arrival, in one round. Longer data streams through staging, one round a chunk:
    /// every rank folds the whole chunk. If the data is large, a rank folds its own slice, and then copies the slices of the
    /// other ranks (reduce-scatter, then allgather: Rabenseifner 2004).
    ///
    /// A contribution in memory that all ranks map (a [buffer](Communicator::buffer), a [symmetric object](crate::Symmetric)) may be read
    /// there, if it is long or does not change.
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
    /// [`Error::InvalidBufferSize`] if the lengths differ, [`Error::InvalidReduction`] if the type does
    /// not have the reduction; otherwise as [`barrier`](Communicator::barrier).
    pub fn allreduce<T: Reducible>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = reduction::<T>(OPERATION, send.len(), op);
        let checked = check_len(OPERATION, send.len(), recv.len()).and_then(|()| check_op::<T>(OPERATION, op));
        if let Err(error) = checked {
            return Err(self.rank_state.refuse(&call, error));
        }
        let send = T::encode(send);
        T::update(recv, |recv| {
            let data = ReduceBuffers::new(&send, recv, Builtin::<T>::new(op));
            self.run_reduction(OPERATION, &call, Shape::All, data)
        })
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
    pub fn allreduce_in_place<T: Reducible>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let call = reduction::<T>(OPERATION, data.len(), op);
        if let Err(error) = check_op::<T>(OPERATION, op) {
            return Err(self.rank_state.refuse(&call, error));
        }
        T::update(data, |data| {
            let data = ReduceBuffers::in_place(data, Builtin::<T>::new(op));
            self.run_reduction(OPERATION, &call, Shape::All, data)
        })
    }
}
