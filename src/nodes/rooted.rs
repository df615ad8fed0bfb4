//! reduce, gather, gatherv, scatter and scatterv over several nodes.

use bytemuck::Pod;

use crate::collective::counts;
use crate::communicator::call;
use crate::element::{ReduceOp, Reducible};
use crate::error::{Error, Operation, root_and_digest};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::moves::{packed, parts};
use crate::nodes::reductions::{Contributions, check_op, fold_all, reduction};
use crate::protocol::Call;

impl<L: Leaders> Hierarchical<L> {
    /// Combines `send[i]` of all ranks into `recv[i]` of rank `root`, as [`Communicator::reduce`](crate::Communicator::reduce), with
    /// the same bits. `recv` is `Some` on the root and `None` elsewhere. Collective.
    ///
    /// The forms of [`allreduce`](Hierarchical::allreduce). In the long one the last node's leader has a copy of the result, and
    /// hands it to the root.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap, ReduceOp};
    ///
    /// let sums = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
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
    /// [`allreduce`](Hierarchical::allreduce).
    pub fn reduce<T: Reducible>(
        &self,
        send: &[T],
        recv: Option<&mut [T]>,
        op: ReduceOp,
        root: usize,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.reduce(send, recv, op, root);
        }
        let operation = Operation::Reduce;
        let call = Call { extra: root as u64, ..reduction::<T>(operation, send.len(), op) };
        let checked = self
            .check_root(operation, root, recv.is_some())
            .and_then(|()| {
                check_len(operation, send.len(), recv.as_ref().map_or(send.len(), |recv| recv.len()))
            })
            .and_then(|()| check_op::<T>(operation, op));
        let mut session = self.begin(operation)?;
        match session.agree_on_reduction(&call, checked, send)? {
            Contributions::Here(all) => {
                if let Some(recv) = recv {
                    T::update(recv, |result| fold_all::<T>(op, result, &all, self.size()));
                }
                Ok(())
            }
            Contributions::ToBeFolded => {
                // Copies: of what was folded on the last leader, of what comes to the root.
                let last = self.map.nodes() - 1;
                let mut result = T::encode(send).into_owned();
                for part in parts(send.len(), size_of::<T::Repr>(), self.sizes.chunk) {
                    let folded = session.fold_up_to(&send[part.clone()], op)?;
                    session.send_prefix(&folded)?;
                    result[part].copy_from_slice(&T::encode(&folded));
                }
                session.hand_over(bytemuck::cast_slice_mut(&mut result), last, root)?;
                if let Some(recv) = recv {
                    T::update(recv, |recv| recv.copy_from_slice(&result));
                }
                Ok(())
            }
        }
    }

    /// The same in place: on the root the result replaces the contribution. On the other ranks `data` does not change. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap, ReduceOp};
    ///
    /// let values = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
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
    /// [`Error::InvalidRoot`]; otherwise as [`allreduce`](Hierarchical::allreduce).
    pub fn reduce_in_place<T: Reducible>(
        &self,
        data: &mut [T],
        op: ReduceOp,
        root: usize,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.reduce_in_place(data, op, root);
        }
        let send = data.to_vec();
        self.reduce(&send, (self.rank() == root).then_some(data), op, root)
    }

    /// Gathers the block `send` of every rank on rank `root`, in rank order, as
    /// [`Communicator::gather`](crate::Communicator::gather). `recv` is `Some` on the root and `None` elsewhere. Collective.
    ///
    /// The leaders gather the blocks of their nodes, and send them to the root's leader: each goes over the network once.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
    ///     let mut all = [0; 3];
    ///     let recv = if comm.rank() == 2 { Some(&mut all[..]) } else { None };
    ///     comm.gather(&[10 * comm.rank()], recv, 2)?;
    ///     Ok::<_, intranode::Error>(all)
    /// })?;
    /// for (rank, all) in all.into_iter().enumerate() {
    ///     assert_eq!(all?, if rank == 2 { [0, 10, 20] } else { [0; 3] });
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::RootBuffer`]; [`Error::InvalidBufferSize`] if `recv` has another length than that of all
    /// blocks; otherwise as [`barrier`](Hierarchical::barrier).
    pub fn gather<T: Pod>(&self, send: &[T], recv: Option<&mut [T]>, root: usize) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.gather(send, recv, root);
        }
        let operation = Operation::Gather;
        let call = Call { length: send.len() as u64, extra: root as u64, ..call::<T>(operation) };
        let total = send.len().saturating_mul(self.size());
        let checked = self
            .check_root(operation, root, recv.is_some())
            .and_then(|()| check_len(operation, total, recv.as_ref().map_or(total, |recv| recv.len())));
        let mut session = self.begin(operation)?;
        session.agree(&call, checked, &[])?;
        let own: &[u8] = bytemuck::cast_slice(send);
        let recv = recv.map_or(&mut [][..], bytemuck::cast_slice_mut);
        session.gather_on(own, recv, &vec![own.len(); self.size()], root)
    }

    /// The same with blocks of any lengths, as [`Communicator::gatherv`](crate::Communicator::gatherv): the `counts[r]` elements of
    /// rank `r` at `recv[displs[r]..]` of the root. `counts` is the same on all ranks; `displs` counts on the root only.
    /// Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let (counts, displs, mut all) = ([1, 0, 2], [2, 0, 0], [0; 3]);
    ///     let recv = if comm.rank() == 0 { Some(&mut all[..]) } else { None };
    ///     comm.gatherv(&vec![comm.rank() + 7; counts[comm.rank()]], recv, &counts, &displs, 0)?;
    ///     Ok::<_, intranode::Error>(all)
    /// })?;
    /// for (rank, all) in all.into_iter().enumerate() {
    ///     assert_eq!(all?, if rank == 0 { [9, 9, 7] } else { [0; 3] });
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those about arguments of [`Communicator::gatherv`](crate::Communicator::gatherv); otherwise as
    /// [`barrier`](Hierarchical::barrier).
    pub fn gatherv<T: Pod>(
        &self,
        send: &[T],
        recv: Option<&mut [T]>,
        counts: &[usize],
        displs: &[usize],
        root: usize,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.gatherv(send, recv, counts, displs, root);
        }
        let operation = Operation::Gatherv;
        let checked = self.check_blocks(operation, counts, send.len(), root, recv.is_some()).and_then(|()| {
            let Some(recv) = &recv else { return Ok(()) };
            counts::check_tables(operation, self.size(), [displs])?;
            counts::check_blocks(operation, recv.len(), counts, displs)
        });
        let mut session = self.begin(operation)?;
        session.agree(&self.call_of_blocks::<T>(operation, counts, root), checked, &[])?;
        let bytes: Vec<usize> = counts.iter().map(|count| count * size_of::<T>()).collect();
        let Some(recv) = recv else {
            return session.gather_on(bytemuck::cast_slice(send), &mut [], &bytes, root);
        };
        let mut all = vec![T::zeroed(); counts.iter().sum()];
        session.gather_on(bytemuck::cast_slice(send), bytemuck::cast_slice_mut(&mut all), &bytes, root)?;
        for ((start, displ), count) in packed(counts).iter().zip(displs).zip(counts) {
            recv[*displ..displ + count].copy_from_slice(&all[*start..start + count]);
        }
        Ok(())
    }

    /// Sends block `r` of `send` of rank `root` to rank `r`, as [`Communicator::scatter`](crate::Communicator::scatter). `send` is
    /// `Some` on the root and `None` elsewhere. Collective. Each block goes over the network once.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let blocks = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
    ///     let mut own = [0];
    ///     comm.scatter(if comm.rank() == 1 { Some(&[4, 5, 6]) } else { None }, &mut own, 1)?;
    ///     Ok::<_, intranode::Error>(own[0])
    /// })?;
    /// for (own, expected) in blocks.into_iter().zip([4, 5, 6]) {
    ///     assert_eq!(own?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`gather`](Hierarchical::gather), about `send`.
    pub fn scatter<T: Pod>(&self, send: Option<&[T]>, recv: &mut [T], root: usize) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.scatter(send, recv, root);
        }
        let operation = Operation::Scatter;
        let call = Call { length: recv.len() as u64, extra: root as u64, ..call::<T>(operation) };
        let total = recv.len().saturating_mul(self.size());
        let checked = self
            .check_root(operation, root, send.is_some())
            .and_then(|()| check_len(operation, total, send.map_or(total, <[T]>::len)));
        let mut session = self.begin(operation)?;
        session.agree(&call, checked, &[])?;
        let own: &mut [u8] = bytemuck::cast_slice_mut(recv);
        let bytes = vec![own.len(); self.size()];
        session.scatter_from(bytemuck::cast_slice(send.unwrap_or_default()), own, &bytes, root)
    }

    /// The same with blocks of any lengths, as [`Communicator::scatterv`](crate::Communicator::scatterv): the `counts[r]` elements
    /// at `send[displs[r]..]` of the root go to rank `r`. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let blocks = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let (counts, displs) = ([1, 0, 2], [2, 0, 0]);
    ///     let mut own = vec![0; counts[comm.rank()]];
    ///     comm.scatterv(if comm.rank() == 0 { Some(&[4, 5, 6]) } else { None }, &counts, &displs, &mut own, 0)?;
    ///     Ok::<_, intranode::Error>(own)
    /// })?;
    /// for (own, expected) in blocks.into_iter().zip([vec![6], vec![], vec![4, 5]]) {
    ///     assert_eq!(own?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those about arguments of [`Communicator::scatterv`](crate::Communicator::scatterv); otherwise as
    /// [`barrier`](Hierarchical::barrier).
    pub fn scatterv<T: Pod>(
        &self,
        send: Option<&[T]>,
        counts: &[usize],
        displs: &[usize],
        recv: &mut [T],
        root: usize,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.scatterv(send, counts, displs, recv, root);
        }
        let operation = Operation::Scatterv;
        let checked = self.check_blocks(operation, counts, recv.len(), root, send.is_some()).and_then(|()| {
            let Some(send) = send else { return Ok(()) };
            counts::check_tables(operation, self.size(), [displs])?;
            counts::check_fit(operation, send.len(), counts, displs)
        });
        let mut session = self.begin(operation)?;
        session.agree(&self.call_of_blocks::<T>(operation, counts, root), checked, &[])?;
        let bytes: Vec<usize> = counts.iter().map(|count| count * size_of::<T>()).collect();
        let blocks = send.map_or(Vec::new(), |send| {
            let blocks = displs.iter().zip(counts).map(|(displ, count)| &send[*displ..displ + count]);
            blocks.collect::<Vec<_>>().concat()
        });
        session.scatter_from(bytemuck::cast_slice(&blocks), bytemuck::cast_slice_mut(recv), &bytes, root)
    }

    fn call_of_blocks<T: Pod>(&self, operation: Operation, counts: &[usize], root: usize) -> Call {
        Call {
            length: counts.iter().fold(0u64, |sum, count| sum.wrapping_add(*count as u64)),
            extra: root_and_digest(root, counts::digest(self.key, counts)),
            ..call::<T>(operation)
        }
    }

    fn check_blocks(
        &self,
        operation: Operation,
        counts: &[usize],
        own: usize,
        root: usize,
        given: bool,
    ) -> Result<(), Error> {
        self.check_root(operation, root, given)?;
        counts::check_tables(operation, self.size(), [counts])?;
        check_len(operation, counts[self.rank()], own)
    }

    fn check_root(&self, operation: Operation, root: usize, given: bool) -> Result<(), Error> {
        let size = self.size();
        if root >= size {
            return Err(Error::InvalidRoot { operation, root, size });
        }
        if given == (self.rank() == root) { Ok(()) } else { Err(Error::RootBuffer { operation, root, given }) }
    }
}

/// Checks that a buffer has the length that is needed.
pub(super) fn check_len(operation: Operation, expected: usize, actual: usize) -> Result<(), Error> {
    if expected == actual { Ok(()) } else { Err(Error::InvalidBufferSize { operation, expected, actual }) }
}
