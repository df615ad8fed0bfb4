//! start_barrier, start_allreduce, start_broadcast and start_allgatherv: collectives that a rank need not wait for, of the kinds that
//! programs use most.

use bytemuck::Pod;

use super::block_table::BlockTable;
use super::counts;
use super::owned::{OwnedBlocks, OwnedReduction, ranges};
use super::pending::Pending;
use super::reduction::{check_op, reduction, slices_from};
use super::rooted::check_root;
use crate::communicator::{Communicator, call};
use crate::copy::policy::StorePolicy;
use crate::element::{ReduceOp, Reducible};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::allreduce::Shape;
use crate::protocol::started::{ReductionSteps, TransferSteps};

impl Communicator {
    /// Starts a [`barrier`](Communicator::barrier): it is complete when every rank has started it. Collective, and does not
    /// wait. See [`Pending`] for how it goes on.
    ///
    /// It takes one round, flat also where [groups](crate::Config::group) are set.
    ///
    /// ```
    /// let results = intranode::threads(3, |comm| {
    ///     let pending = comm.start_barrier()?;
    ///     let own = (0..1000).sum::<u64>(); // while the others come
    ///     pending.wait()?;
    ///     Ok::<_, intranode::Error>(own)
    /// })?;
    /// assert!(results.into_iter().all(|own| matches!(own, Ok(499_500))));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ConcurrentUse`], [`Error::Forked`]. All others come from [`Pending::wait`], as those of
    /// [`barrier`](Communicator::barrier).
    pub fn start_barrier(&self) -> Result<Pending<'_, ()>, Error> {
        let operation = Operation::StartBarrier;
        Pending::start(self, operation, Call { operation: operation as u8, ..Call::default() }, ())
    }

    /// Starts an [`allreduce_in_place`](Communicator::allreduce_in_place) of `data`, which has the same length on all ranks. It
    /// is moved into the call; [`Pending::wait`] gives it back with the result, which has the same bits as that of the blocking
    /// call. Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// The rounds are those of [`allreduce`](Communicator::allreduce): one for up to 96 bytes, one for each chunk otherwise.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let results = intranode::threads(3, |comm| {
    ///     let greatest = comm.start_allreduce(vec![comm.rank()], ReduceOp::Max)?;
    ///     let sum = comm.start_allreduce(vec![comm.rank()], ReduceOp::Sum)?; // after the first
    ///     Ok::<_, intranode::Error>((greatest.wait()?, sum.wait()?))
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, (vec![2], vec![3]));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidReduction`] if the type does not have the reduction; the other ranks get [`Error::Refused`] from
    /// [`Pending::wait`]. Otherwise as [`start_barrier`](Communicator::start_barrier).
    pub fn start_allreduce<T: Reducible>(
        &self,
        data: Vec<T>,
        op: ReduceOp,
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        let operation = Operation::StartAllreduce;
        let call = reduction::<T>(operation, data.len(), op);
        if let Err(error) = check_op::<T>(operation, op) {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        let (shape, data) = (Shape::All, OwnedReduction::new(data, op));
        Pending::start(self, operation, call, ReductionSteps::new(data, shape, slices_from(shape, self.size())))
    }

    /// Starts a [`broadcast`](Communicator::broadcast) of `buffer` of rank `root`, which has the same length on all ranks. It is
    /// moved into the call; [`Pending::wait`] gives it back with the root's data. Collective, and does not wait. See [`Pending`]
    /// for how it goes on.
    ///
    /// The root's data always go through staging, or the header, also if they lie in memory that all ranks map.
    ///
    /// ```
    /// let all = intranode::threads(3, |comm| {
    ///     let buffer = if comm.rank() == 2 { vec![1.5, 2.5] } else { vec![0.0; 2] };
    ///     comm.start_broadcast(buffer, 2)?.wait()
    /// })?;
    /// for buffer in all {
    ///     assert_eq!(buffer?, [1.5, 2.5]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`] if there is no such rank; the other ranks get [`Error::Refused`] from [`Pending::wait`].
    /// Otherwise as [`start_barrier`](Communicator::start_barrier).
    pub fn start_broadcast<T: Pod + Send>(
        &self,
        buffer: Vec<T>,
        root: usize,
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        let operation = Operation::StartBroadcast;
        let call = Call { length: buffer.len() as u64, extra: root as u64, ..call::<T>(operation) };
        if let Err(error) = check_root(self, operation, root) {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        let bytes = size_of_val(&*buffer);
        let blocks = (0..self.size()).map(|rank| if rank == root { 0..bytes } else { 0..0 }).collect();
        let blocks = OwnedBlocks { data: buffer, blocks, receiver: None, rank: self.rank() };
        Pending::start(self, operation, call, TransferSteps::new(blocks))
    }

    /// Starts an [`allgatherv`](Communicator::allgatherv): the `counts[r]` elements `send` of rank `r` at `recv[displs[r]..]`, on
    /// every rank. `send` is copied; `recv` is moved into the call, and [`Pending::wait`] gives it back with all blocks. Counts
    /// and displacements are in elements, with the same rules. Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// Blocks go through staging, or the headers; single copy is not used.
    ///
    /// ```
    /// let all = intranode::threads(2, |comm| {
    ///     let (counts, displs) = ([2, 1], [0, 2]);
    ///     let send = vec![comm.rank() + 7; counts[comm.rank()]];
    ///     comm.start_allgatherv(&send, vec![0; 3], &counts, &displs)?.wait()
    /// })?;
    /// for recv in all {
    ///     assert_eq!(recv?, [7, 7, 8]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`allgatherv`](Communicator::allgatherv) about this rank's arguments; the other ranks get [`Error::Refused`]
    /// from [`Pending::wait`]. Otherwise as [`start_barrier`](Communicator::start_barrier).
    pub fn start_allgatherv<T: Pod + Send>(
        &self,
        send: &[T],
        mut recv: Vec<T>,
        counts: &[usize],
        displs: &[usize],
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        let operation = Operation::StartAllgatherv;
        let call = counts::call::<T>(operation, self.rank_state.mapped.key(), counts);
        let rank = self.rank();
        let sizes = (rank, self.size());
        if let Err(error) = counts::check_gather(operation, sizes, send.len(), recv.len(), counts, displs) {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        let own = &mut recv[displs[rank]..displs[rank] + counts[rank]];
        StorePolicy::of_call(size_of_val(send)).copy(bytemuck::cast_slice(send), bytemuck::cast_slice_mut(own));
        let table = BlockTable::Given { counts, displs, width: size_of::<T>() };
        let blocks = ranges(&table, self.size());
        let blocks = OwnedBlocks { data: recv, blocks, receiver: None, rank };
        Pending::start(self, operation, call, TransferSteps::new(blocks))
    }
}
