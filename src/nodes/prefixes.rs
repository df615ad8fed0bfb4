//! scan, exscan, reduce_scatter and reduce_scatter_block over several nodes.

use crate::collective::counts;
use crate::collective::reduction::{check_len, check_op, reduction};
use crate::element::{ReduceOp, Reducible};
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::places::{packed, parts};
use crate::nodes::reductions::{Contributions, fold_all, folded};
use crate::nodes::session::Session;
use crate::protocol::Call;

impl<L: Leaders> Hierarchical<L> {
    /// Combines `send[i]` of ranks 0 to `rank()` into `recv[i]`, as [`Communicator::scan`](crate::Communicator::scan), with the same
    /// bits. Both buffers have the same length on all ranks. Collective.
    ///
    /// The forms of [`allreduce`](Hierarchical::allreduce); in the long one nothing comes back.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap, ReduceOp};
    ///
    /// let sums = intranode::threads(4, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 3])?)?;
    ///     let (mut sum, mut before) = ([0], [comm.rank() + 1]);
    ///     comm.scan(&[comm.rank() + 1], &mut sum, ReduceOp::Sum)?;
    ///     comm.scan_in_place(&mut before, ReduceOp::Sum)?;
    ///     assert_eq!(sum, before);
    ///     Ok::<_, intranode::Error>(sum[0])
    /// })?;
    /// for (sum, expected) in sums.into_iter().zip([1, 3, 6, 10]) {
    ///     assert_eq!(sum?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allreduce`](Hierarchical::allreduce).
    pub fn scan<T: Reducible>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.scan(send, recv, op);
        }
        self.prefix(Operation::Scan, send, recv, op)
    }

    /// The same in place: the result replaces the contribution. Collective. Example: [`scan`](Hierarchical::scan).
    ///
    /// # Errors
    /// As [`allreduce`](Hierarchical::allreduce).
    pub fn scan_in_place<T: Reducible>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let send = data.to_vec();
        self.scan(&send, data, op)
    }

    /// Combines `send[i]` of the ranks before this one into `recv[i]`, as [`Communicator::exscan`](crate::Communicator::exscan), with
    /// the same bits. On rank 0 `recv` is not written. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap, ReduceOp};
    ///
    /// // Where each rank's items begin among those of all.
    /// let starts = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
    ///     let (items, mut start) = ([[4, 1, 5][comm.rank()]], [0]);
    ///     comm.exscan(&items, &mut start, ReduceOp::Sum)?;
    ///     let mut same = items;
    ///     comm.exscan_in_place(&mut same, ReduceOp::Sum)?;
    ///     assert!(comm.rank() == 0 || same == start);
    ///     Ok::<_, intranode::Error>(start[0])
    /// })?;
    /// for (start, expected) in starts.into_iter().zip([0, 4, 5]) {
    ///     assert_eq!(start?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allreduce`](Hierarchical::allreduce).
    pub fn exscan<T: Reducible>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.exscan(send, recv, op);
        }
        self.prefix(Operation::Exscan, send, recv, op)
    }

    /// The same in place: the result replaces the contribution, on rank 0 nothing does. Collective. Example:
    /// [`exscan`](Hierarchical::exscan).
    ///
    /// # Errors
    /// As [`allreduce`](Hierarchical::allreduce).
    pub fn exscan_in_place<T: Reducible>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let send = data.to_vec();
        self.exscan(&send, data, op)
    }

    fn prefix<T: Reducible>(
        &self,
        operation: Operation,
        send: &[T],
        recv: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let call = reduction::<T>(operation, send.len(), op);
        let checked = check_len(operation, send.len(), recv.len()).and_then(|()| check_op::<T>(operation, op));
        let mut session = self.begin(operation)?;
        // How many ranks' contributions are in the result.
        let ranks = self.rank() + usize::from(operation == Operation::Scan);
        match session.agree_on_reduction(&call, checked, &T::encode(send))? {
            Contributions::Here(_) if ranks == 0 => Ok(()),
            Contributions::Here(all) => {
                T::update(recv, |result| fold_all::<T>(op, result, &all, ranks));
                Ok(())
            }
            Contributions::ToBeFolded => {
                let parts = parts(send.len(), size_of::<T::Repr>(), self.sizes.chunk);
                for part in parts {
                    session.prefix_part(&send[part.clone()], &mut recv[part], op)?;
                }
                Ok(())
            }
        }
    }

    /// Combines `send[i]` of all ranks, and leaves rank `r` the block of `counts[r]` elements of the result, as
    /// [`Communicator::reduce_scatter`](crate::Communicator::reduce_scatter), with the same bits. Collective.
    ///
    /// It is an [`allreduce`](Hierarchical::allreduce) of which every rank keeps its block: a call takes a copy of all blocks.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap, ReduceOp};
    ///
    /// let sums = intranode::threads(2, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 1])?)?;
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
    /// [`Error::InvalidBufferSize`] if a buffer or `counts` has another length; otherwise as
    /// [`allreduce`](Hierarchical::allreduce).
    pub fn reduce_scatter<T: Reducible>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.reduce_scatter(send, recv, counts, op);
        }
        let operation = Operation::ReduceScatter;
        let total = counts.iter().fold(0usize, |sum, count| sum.saturating_add(*count));
        let call = Call { extra: counts::digest(self.key, counts), ..reduction::<T>(operation, total, op) };
        let checked = check_len(operation, self.size(), counts.len())
            .and_then(|()| check_len(operation, total, send.len()))
            .and_then(|()| check_len(operation, counts[self.rank()], recv.len()))
            .and_then(|()| check_op::<T>(operation, op));
        let start = if checked.is_ok() { packed(counts)[self.rank()] } else { 0 };
        self.reduce_block((operation, &call), checked, send, (recv, start), op)
    }

    /// The same with blocks of the same length: `send` has that of `recv` times the number of ranks. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap, ReduceOp};
    ///
    /// let least = intranode::threads(2, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 1])?)?;
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
    /// As [`reduce_scatter`](Hierarchical::reduce_scatter).
    pub fn reduce_scatter_block<T: Reducible>(
        &self,
        send: &[T],
        recv: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.reduce_scatter_block(send, recv, op);
        }
        let (operation, len) = (Operation::ReduceScatterBlock, recv.len());
        let call = reduction::<T>(operation, len, op);
        let checked = check_len(operation, len.saturating_mul(self.size()), send.len())
            .and_then(|()| check_op::<T>(operation, op));
        self.reduce_block((operation, &call), checked, send, (recv, self.rank().saturating_mul(len)), op)
    }

    fn reduce_block<T: Reducible>(
        &self,
        (operation, call): (Operation, &Call),
        checked: Result<(), Error>,
        send: &[T],
        (recv, start): (&mut [T], usize),
        op: ReduceOp,
    ) -> Result<(), Error> {
        let mut session = self.begin(operation)?;
        let mut all = send.to_vec();
        match session.agree_on_reduction(call, checked, &T::encode(send))? {
            Contributions::Here(sent) => {
                T::update(&mut all, |result| fold_all::<T>(op, result, &sent, self.size()));
            }
            Contributions::ToBeFolded => session.fold_along_nodes(&mut all, op)?,
        }
        recv.copy_from_slice(&all[start..start + recv.len()]);
        Ok(())
    }
}

impl<L: Leaders> Session<'_, L> {
    /// A part of a scan or an exscan. What a leader receives and its own contribution, folded, is its contribution to the scan of
    /// its node.
    fn prefix_part<T: Reducible>(&mut self, own: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let before = self.receive_prefix(own)?;
        let first = folded(before.as_deref(), own, op);
        let inclusive = self.operation == Operation::Scan;
        self.node(|node| match inclusive {
            true => node.scan(&first, recv, op),
            false => node.exscan(&first, recv, op),
        })?;
        if let (false, Some(before)) = (inclusive, before) {
            recv.copy_from_slice(&before);
        }
        if self.all.own + 1 < self.all.map.nodes() {
            let folded = self.fold_node(first, own, op)?;
            self.send_prefix(&folded)?;
        }
        Ok(())
    }
}
