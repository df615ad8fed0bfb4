//! barrier, allgather, allgatherv and broadcast over several nodes.

use bytemuck::Pod;

use crate::collective::counts;
use crate::collective::rooted::check_root;
use crate::communicator::call;
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::packets::comes_along;
use crate::nodes::places::packed;
use crate::nodes::zeros::zeros;
use crate::protocol::Call;

impl<L: Leaders> Hierarchical<L> {
    /// Waits for all ranks of all nodes. Collective.
    ///
    /// Two rounds inside each node, and one exchange of the leaders between them, in which they compare what was called.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let results = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
    ///     comm.barrier()
    /// })?;
    /// assert!(results.iter().all(Result::is_ok));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::barrier`](crate::Communicator::barrier), with the numbers of ranks among all nodes. [`Error::NodeLate`]
    /// if another node does not come in time; [`Error::LeadersFailed`].
    pub fn barrier(&self) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.barrier();
        }
        let operation = Operation::Barrier;
        let call = Call { operation: operation as u8, ..Call::default() };
        self.begin(operation)?.agree(&call, Ok(()), &[]).map(drop)
    }

    /// Takes part in the other ranks' call of `operation` and refuses it, as
    /// [`Communicator::refuse_call`](crate::Communicator::refuse_call): they get [`Error::Refused`]. Collective, together with that
    /// call.
    ///
    /// ```
    /// use intranode::{Error, Hierarchical, NodeMap, Operation};
    ///
    /// let results = intranode::threads(2, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::even(2, 2)?)?;
    ///     if comm.rank() == 1 { comm.refuse_call(Operation::Barrier) } else { comm.barrier() }
    /// })?;
    /// assert!(matches!(results[..], [Err(Error::Refused { rank: 1, .. }), Ok(())]));
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// Any [fatal](Error::is_fatal) error, as of [`barrier`](Hierarchical::barrier).
    pub fn refuse_call(&self, operation: Operation) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.refuse_call(operation);
        }
        let call = Call { operation: operation as u8, ..Call::default() };
        let mut session = self.begin(operation)?;
        let own = Error::Refused { operation, round: session.round(), rank: self.rank() };
        match session.agree(&call, Err(own), &[]) {
            Err(error) if error.is_fatal() => Err(error),
            _ => Ok(()),
        }
    }

    /// Gathers the block `send` of every rank on every rank, in rank order, as
    /// [`Communicator::allgather`](crate::Communicator::allgather): `send` has the same length on all ranks, `recv` that length times
    /// the number of ranks. Collective.
    ///
    /// Blocks of a few bytes come along with the agreement on the call. Longer ones are gathered by the leaders, who exchange
    /// them: over the network each goes once to each node, not to each rank.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let mut recv = [0; 3];
    ///     comm.allgather(&[10 * comm.rank()], &mut recv)?;
    ///     Ok::<_, intranode::Error>(recv)
    /// })?;
    /// for recv in all {
    ///     assert_eq!(recv?, [0, 10, 20]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if `recv` has another length; otherwise as [`barrier`](Hierarchical::barrier).
    pub fn allgather<T: Pod>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.allgather(send, recv);
        }
        let operation = Operation::Allgather;
        let call = Call { length: send.len() as u64, ..call::<T>(operation) };
        let (expected, actual) = (send.len().saturating_mul(self.size()), recv.len());
        let checked = match expected == actual {
            true => Ok(()),
            false => Err(Error::InvalidBufferSize { operation, expected, actual }),
        };
        let own: &[u8] = bytemuck::cast_slice(send);
        let along = if comes_along(own.len(), self.map.largest()) { own } else { &[] };
        let mut session = self.begin(operation)?;
        let came = session.agree(&call, checked, along)?;
        let recv: &mut [u8] = bytemuck::cast_slice_mut(recv);
        if along.len() < own.len() {
            return session.gather_all(own, recv, &vec![own.len(); self.size()]);
        }
        came.unpack(&self.map, own.len(), recv);
        Ok(())
    }

    /// Gathers the block `send` of every rank on every rank, as
    /// [`Communicator::allgatherv`](crate::Communicator::allgatherv): the `counts[r]` elements of rank `r` at
    /// `recv[displs[r]..]`. Counts and displacements are in elements. Gaps between blocks are not written. Collective.
    ///
    /// As [`allgather`](Hierarchical::allgather) of long blocks. If they do not lie one after the other, from 0 on, a call takes a
    /// copy of all.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
    ///     let (counts, displs) = ([2, 0, 1], [1, 0, 0]);
    ///     let send = vec![comm.rank() + 7; counts[comm.rank()]];
    ///     let mut recv = [0; 3];
    ///     comm.allgatherv(&send, &mut recv, &counts, &displs)?;
    ///     Ok::<_, intranode::Error>(recv)
    /// })?;
    /// for recv in all {
    ///     assert_eq!(recv?, [9, 7, 7]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those about arguments of [`Communicator::allgatherv`](crate::Communicator::allgatherv); otherwise as
    /// [`barrier`](Hierarchical::barrier).
    pub fn allgatherv<T: Pod>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        displs: &[usize],
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.allgatherv(send, recv, counts, displs);
        }
        let operation = Operation::Allgatherv;
        let call = counts::call::<T>(operation, self.key, counts);
        let checked = counts::check(self.rank(), self.size(), send.len(), recv.len(), counts, displs);
        let mut session = self.begin(operation)?;
        session.agree(&call, checked, &[])?;

        let bytes: Vec<usize> = counts.iter().map(|count| count * size_of::<T>()).collect();
        let (own, starts) = (bytemuck::cast_slice(send), packed(counts));
        let total = counts.iter().sum();
        if starts == displs {
            return session.gather_all(own, bytemuck::cast_slice_mut(&mut recv[..total]), &bytes);
        }
        let mut all = zeros(total);
        session.gather_all(own, bytemuck::cast_slice_mut(&mut all), &bytes)?;
        for ((start, displ), count) in starts.iter().zip(displs).zip(counts) {
            recv[*displ..displ + count].copy_from_slice(&all[*start..start + count]);
        }
        Ok(())
    }

    /// Copies `buffer` of rank `root` to all ranks, as [`Communicator::broadcast`](crate::Communicator::broadcast). It has the same
    /// length on all ranks. Collective.
    ///
    /// Over the network it goes once to each node.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
    ///     let mut buffer = if comm.rank() == 2 { [1.5, 2.5] } else { [0.0; 2] };
    ///     comm.broadcast(&mut buffer, 2)?;
    ///     Ok::<_, intranode::Error>(buffer)
    /// })?;
    /// for buffer in all {
    ///     assert_eq!(buffer?, [1.5, 2.5]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`] if there is no such rank; otherwise as [`barrier`](Hierarchical::barrier).
    pub fn broadcast<T: Pod>(&self, buffer: &mut [T], root: usize) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.broadcast(buffer, root);
        }
        let operation = Operation::Broadcast;
        let call = Call { length: buffer.len() as u64, extra: root as u64, ..call::<T>(operation) };
        let mut session = self.begin(operation)?;
        session.agree(&call, check_root(self, operation, root), &[])?;
        session.broadcast_from(bytemuck::cast_slice_mut(buffer), root)
    }
}
