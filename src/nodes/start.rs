//! start_barrier, start_allreduce, start_broadcast and start_allgatherv over several nodes.

use bytemuck::Pod;

use crate::collective::counts;
use crate::collective::pending::Pending;
use crate::collective::reduction::{check_op, reduction};
use crate::collective::rooted::check_root;
use crate::communicator::call;
use crate::element::{ReduceOp, Reducible};
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::protocol::Call;

impl<L: Leaders> Hierarchical<L> {
    /// Starts a [`barrier`](Hierarchical::barrier), as [`Communicator::start_barrier`](crate::Communicator::start_barrier). Collective, and
    /// does not wait. See [`Pending`] for how it goes on.
    ///
    /// A round inside each node, an exchange of the leaders, and a round in which they tell how that ended.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let results = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let mut pending = comm.start_barrier()?;
    ///     let mut own = 0u64;
    ///     while !pending.test() {
    ///         own += 1; // something else
    ///     }
    ///     pending.wait()
    /// })?;
    /// assert!(results.iter().all(Result::is_ok));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::ConcurrentUse`], [`Error::Forked`]. All others come from [`Pending::wait`], as those of
    /// [`barrier`](Hierarchical::barrier).
    pub fn start_barrier(&self) -> Result<Pending<'_, ()>, Error> {
        if self.map.nodes() == 1 {
            return self.node.start_barrier();
        }
        let operation = Operation::StartBarrier;
        let call = Call { operation: operation as u8, ..Call::default() };
        self.start(operation, |steps| steps.only_agree(call, Ok(())))
    }

    /// Starts an [`allreduce_in_place`](Hierarchical::allreduce_in_place) of `data`, which has the same length on all ranks, as
    /// [`Communicator::start_allreduce`](crate::Communicator::start_allreduce): it is moved into the call, and [`Pending::wait`] gives
    /// it back with the result, which has the same bits as that of the blocking call. Collective, and does not wait. See
    /// [`Pending`] for how it goes on.
    ///
    /// The forms are those of [`allreduce`](Hierarchical::allreduce).
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap, ReduceOp};
    ///
    /// let results = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
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
    /// [`Pending::wait`]. Otherwise as [`start_barrier`](Hierarchical::start_barrier).
    pub fn start_allreduce<T: Reducible>(
        &self,
        data: Vec<T>,
        op: ReduceOp,
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        if self.map.nodes() == 1 {
            return self.node.start_allreduce(data, op);
        }
        let operation = Operation::StartAllreduce;
        let call = reduction::<T>(operation, data.len(), op);
        match check_op::<T>(operation, op) {
            Ok(()) => self.start(operation, |steps| steps.allreduce(call, data, op)),
            Err(error) => Err(self.start_refusal(call, error)),
        }
    }

    /// Starts a [`broadcast`](Hierarchical::broadcast) of `buffer` of rank `root`, which has the same length on all ranks, as
    /// [`Communicator::start_broadcast`](crate::Communicator::start_broadcast): it is moved into the call, and [`Pending::wait`] gives
    /// it back with the root's data. Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// Over the network it goes once to each node.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
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
    /// Otherwise as [`start_barrier`](Hierarchical::start_barrier).
    pub fn start_broadcast<T: Pod + Send>(
        &self,
        buffer: Vec<T>,
        root: usize,
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        if self.map.nodes() == 1 {
            return self.node.start_broadcast(buffer, root);
        }
        let operation = Operation::StartBroadcast;
        let call = Call { length: buffer.len() as u64, extra: root as u64, ..call::<T>(operation) };
        match check_root(self, operation, root) {
            Ok(()) => self.start(operation, |steps| steps.broadcast(call, buffer, root)),
            Err(error) => Err(self.start_refusal(call, error)),
        }
    }

    /// Starts an [`allgatherv`](Hierarchical::allgatherv), as
    /// [`Communicator::start_allgatherv`](crate::Communicator::start_allgatherv): the `counts[r]` elements `send` of rank `r` at
    /// `recv[displs[r]..]`, on every rank. `send` is copied; `recv` is moved into the call, and [`Pending::wait`] gives it back with
    /// all blocks. Counts and displacements are in elements. Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// The call has a copy of all blocks.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
    ///     let (counts, displs) = ([2, 0, 1], [1, 0, 0]);
    ///     let send = vec![comm.rank() + 7; counts[comm.rank()]];
    ///     comm.start_allgatherv(&send, vec![0; 3], &counts, &displs)?.wait()
    /// })?;
    /// for recv in all {
    ///     assert_eq!(recv?, [9, 7, 7]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`allgatherv`](Hierarchical::allgatherv) about this rank's arguments; the other ranks get [`Error::Refused`]
    /// from [`Pending::wait`]. Otherwise as [`start_barrier`](Hierarchical::start_barrier).
    pub fn start_allgatherv<T: Pod + Send>(
        &self,
        send: &[T],
        recv: Vec<T>,
        counts: &[usize],
        displs: &[usize],
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        if self.map.nodes() == 1 {
            return self.node.start_allgatherv(send, recv, counts, displs);
        }
        let operation = Operation::StartAllgatherv;
        let call = counts::call::<T>(operation, self.key, counts);
        let sizes = (self.rank(), self.size());
        match counts::check_gather(operation, sizes, send.len(), recv.len(), counts, displs) {
            Ok(()) => {
                let (buffers, tables) = ((send.to_vec(), recv), (counts.to_vec(), displs.to_vec()));
                self.start(operation, |steps| steps.allgatherv(call, buffers, tables))
            }
            Err(error) => Err(self.start_refusal(call, error)),
        }
    }

    /// Starts a call that only refuses, so that all other ranks get an error. Returns this rank's error.
    #[cold]
    fn start_refusal(&self, call: Call, error: Error) -> Error {
        let operation = error.operation();
        let refused = Err(Error::Refused { operation, round: 0, rank: self.rank() });
        // Its handle is not needed: the next call completes it.
        match self.start(operation, |steps| steps.only_agree(call, refused)) {
            Ok(_) => error,
            Err(fatal) => fatal,
        }
    }
}
