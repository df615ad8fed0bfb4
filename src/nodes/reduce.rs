//! reduce over several nodes.

use crate::collective::reduction::{check_len, check_op, reduction};
use crate::collective::rooted::{check_buffer, check_root};
use crate::element::{ReduceOp, Reducible};
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::places::parts;
use crate::nodes::reductions::{Contributions, fold_all};
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
        let checked = check_root(self, operation, root)
            .and_then(|()| check_buffer(self, operation, root, recv.is_some()))
            .and_then(|()| {
                check_len(operation, send.len(), recv.as_ref().map_or(send.len(), |recv| recv.len()))
            })
            .and_then(|()| check_op::<T>(operation, op));
        let mut session = self.begin(operation)?;
        match session.agree_on_reduction(&call, checked, &T::encode(send))? {
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
}
