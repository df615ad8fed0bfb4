//! allreduce over several nodes, with the bits of a fold in rank order.

use bytemuck::Pod;

use crate::collective::reduction::{check_op, reduction};
use crate::element::{ReduceOp, Reducible, combine_slices};
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::packets::comes_along;
use crate::nodes::places::parts;
use crate::nodes::session::Session;
use crate::nodes::steps::LEADER;
use crate::protocol::Call;

impl<L: Leaders> Hierarchical<L> {
    /// Combines `send[i]` of all ranks into `recv[i]`, on every rank, as [`Communicator::allreduce`](crate::Communicator::allreduce):
    /// in rank order, with the same bits as there. Both buffers have the same length on all ranks; it may be 0. Collective.
    ///
    /// A few bytes a rank come along with the agreement on the call. Up to 64 KiB of all ranks together are gathered on every
    /// rank, which folds them. Longer data goes from node to node in chunks: each folds its ranks' values, one after the other,
    /// to what the nodes before it have folded, and the last broadcasts the result. (MPI's reduce-scatter and recursive doubling,
    /// Thakur and others 2005, move fewer bytes in fewer steps, but combine in an order that depends on the number of ranks.)
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap, ReduceOp};
    ///
    /// let sums = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let mut sum = [0.0; 2];
    ///     comm.allreduce(&[comm.rank() as f64, 1.0], &mut sum, ReduceOp::Sum)?;
    ///     Ok::<_, intranode::Error>(sum)
    /// })?;
    /// for sum in sums {
    ///     assert_eq!(sum?, [3.0, 3.0]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if the lengths differ, [`Error::InvalidReduction`] if the type does not have the reduction;
    /// otherwise as [`barrier`](Hierarchical::barrier).
    pub fn allreduce<T: Reducible>(&self, send: &[T], recv: &mut [T], op: ReduceOp) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.allreduce(send, recv, op);
        }
        let (operation, expected, actual) = (Operation::Allreduce, send.len(), recv.len());
        if expected != actual {
            let error = Error::InvalidBufferSize { operation, expected, actual };
            return self
                .begin(operation)?
                .agree(&reduction::<T>(operation, expected, op), Err(error), &[])
                .map(drop);
        }
        recv.copy_from_slice(send);
        self.allreduce_in_place(recv, op)
    }

    /// The same in place: the result replaces the contribution. `data` has the same length on all ranks. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap, ReduceOp};
    ///
    /// let flags = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
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
    /// As [`allreduce`](Hierarchical::allreduce).
    pub fn allreduce_in_place<T: Reducible>(&self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.allreduce_in_place(data, op);
        }
        let operation = Operation::Allreduce;
        let call = reduction::<T>(operation, data.len(), op);
        let mut session = self.begin(operation)?;
        match session.agree_on_reduction(&call, check_op::<T>(operation, op), &T::encode(data))? {
            Contributions::Here(all) => {
                T::update(data, |result| fold_all::<T>(op, result, &all, self.size()));
                Ok(())
            }
            Contributions::ToBeFolded => session.fold_along_nodes(data, op),
        }
    }
}

/// The contributions to a reduction that is agreed on.
pub(super) enum Contributions<R> {
    /// Those of all ranks, in their order.
    Here(Vec<R>),
    /// They are too long to be on every rank.
    ToBeFolded,
}

impl<L: Leaders> Session<'_, L> {
    /// Agrees on a reduction, and gathers its contributions if they are short.
    ///
    /// # Errors
    /// As [`agree`](Session::agree).
    pub(super) fn agree_on_reduction<R: Pod>(
        &mut self,
        call: &Call,
        checked: Result<(), Error>,
        data: &[R],
    ) -> Result<Contributions<R>, Error> {
        let own: &[u8] = bytemuck::cast_slice(data);
        let (map, size) = (&self.all.map, self.all.size());
        let comes_along = comes_along(own.len(), map.largest());
        let came = self.agree(call, checked, if comes_along { own } else { &[] })?;
        let total = own.len().saturating_mul(size);
        if !comes_along && total >= self.all.sizes.chain_from {
            return Ok(Contributions::ToBeFolded);
        }
        let mut all = vec![R::zeroed(); data.len() * size];
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(&mut all);
        if comes_along {
            came.unpack(&self.all.map, own.len(), bytes);
        } else {
            self.gather_all(own, bytes, &vec![own.len(); size])?;
        }
        Ok(Contributions::Here(all))
    }

    /// Folds `data` of all ranks, and replaces it by the result. Chunk by chunk goes from node to node: what a leader receives
    /// and its own contribution, folded, is its contribution to the fold of its node.
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    pub(super) fn fold_along_nodes<T: Reducible>(&mut self, data: &mut [T], op: ReduceOp) -> Result<(), Error> {
        let last = self.all.map.nodes() - 1;
        for part in parts(data.len(), size_of::<T::Repr>(), self.all.sizes.chunk) {
            let folded = self.fold_up_to(&data[part.clone()], op)?;
            self.send_prefix(&folded)?;
            if self.all.own == last && self.leads() {
                data[part].copy_from_slice(&folded);
            }
        }
        T::update(data, |result| self.spread(bytemuck::cast_slice_mut(result), last))
    }

    /// Folds the contributions of the ranks of all nodes up to this one. The leader has the result.
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    pub(super) fn fold_up_to<T: Reducible>(&mut self, own: &[T], op: ReduceOp) -> Result<Vec<T>, Error> {
        let before = self.receive_prefix(own)?;
        self.fold_node(folded(before.as_deref(), own, op), own, op)
    }

    /// What the nodes before this one have folded, on the leader, if there are any. It is as long as the own contribution.
    ///
    /// # Errors
    /// Those of the leaders.
    pub(super) fn receive_prefix<T: Reducible>(&mut self, own: &[T]) -> Result<Option<Vec<T>>, Error> {
        let Some(from) = self.all.own.checked_sub(1) else { return Ok(None) };
        let mut prefix = if self.leads() { own.to_vec() } else { Vec::new() };
        T::update(&mut prefix, |prefix| {
            self.leaders(|leaders, wait| leaders.recv(bytemuck::cast_slice_mut(prefix), from, wait))
        })?;
        Ok(self.leads().then_some(prefix))
    }

    /// Folds the contributions of the node's ranks, `first` as that of the leader, which has the result.
    ///
    /// # Errors
    /// Those of the node.
    pub(super) fn fold_node<T: Reducible>(
        &mut self,
        mut first: Vec<T>,
        own: &[T],
        op: ReduceOp,
    ) -> Result<Vec<T>, Error> {
        let leads = self.leads();
        self.node(|node| match leads {
            true => node.reduce_in_place(&mut first, op, LEADER),
            false => node.reduce(own, None, op, LEADER),
        })?;
        Ok(first)
    }

    /// Hands what was folded to the next node, if there is one.
    ///
    /// # Errors
    /// Those of the leaders.
    pub(super) fn send_prefix<T: Reducible>(&mut self, folded: &[T]) -> Result<(), Error> {
        self.send_folded(&T::encode(folded))
    }

    /// The same of values as they are sent.
    ///
    /// # Errors
    /// Those of the leaders.
    pub(super) fn send_folded<R: Pod>(&mut self, folded: &[R]) -> Result<(), Error> {
        let next = self.all.own + 1;
        if next == self.all.map.nodes() {
            return Ok(());
        }
        self.leaders(|leaders, wait| leaders.send(bytemuck::cast_slice(folded), next, wait))
    }
}

/// The own contribution, folded to what came from the nodes before, if anything did.
pub(super) fn folded<T: Reducible>(before: Option<&[T]>, own: &[T], op: ReduceOp) -> Vec<T> {
    let Some(before) = before else { return own.to_vec() };
    let mut folded = before.to_vec();
    T::update(&mut folded, |prefix| combine_slices::<T>(op, prefix, &T::encode(own)));
    folded
}

/// Folds the contributions of `ranks` ranks, in their order.
pub(super) fn fold_all<T: Reducible>(op: ReduceOp, result: &mut [T::Repr], all: &[T::Repr], ranks: usize) {
    let len = result.len();
    for rank in 0..ranks {
        let term = &all[rank * len..][..len];
        if rank == 0 { result.copy_from_slice(term) } else { combine_slices::<T>(op, result, term) }
    }
}
