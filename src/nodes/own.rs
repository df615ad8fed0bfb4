//! allreduce_with, reduce_with and scan_with over several nodes: reductions by an operation of the program's own.

use bytemuck::Pod;

use crate::collective::counts;
use crate::collective::reduction::check_len;
use crate::collective::rooted::{check_buffer, check_root};
use crate::communicator::call;
use crate::error::{Error, OWN_REDUCTION, Operation, root_and_digest};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::places::parts;
use crate::nodes::reductions::Contributions;
use crate::nodes::session::Session;
use crate::nodes::steps::LEADER;
use crate::protocol::Call;

impl<L: Leaders> Hierarchical<L> {
    /// An [`allreduce`](Hierarchical::allreduce) by an operation of the program's own, as
    /// [`Communicator::allreduce_with`](crate::Communicator::allreduce_with), with the same result: `combine(acc, x)` combines the next
    /// rank's `x` into `acc`, from rank 0's value on. `name` stands for the operation. Collective.
    ///
    /// If `combine` panics, the communicator has ended on all ranks.
    ///
    /// With `INTRANODE_CHECK=1` only the ranks of one node compare what their operations do, and only in the form for long data.
    /// Where they differ the communicator has ended on all nodes, which is not so on one machine: the error is [`Error::LeadersFailed`], whose
    /// reason is the text of [`Error::OperationsDiffer`].
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let spans = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let mut span = [[0u32; 2]];
    ///     let own = [[comm.rank() as u32 * 10, comm.rank() as u32 * 10 + 7]];
    ///     comm.allreduce_with(&own, &mut span, "span", |span, next| *span = [span[0], next[1]])?;
    ///     Ok::<_, intranode::Error>(span[0])
    /// })?;
    /// for span in spans {
    ///     assert_eq!(span?, [0, 27]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if the lengths differ; otherwise as [`barrier`](Hierarchical::barrier).
    pub fn allreduce_with<T: Pod>(
        &self,
        send: &[T],
        recv: &mut [T],
        name: &str,
        combine: impl Fn(&mut T, &T),
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.allreduce_with(send, recv, name, combine);
        }
        let operation = Operation::Allreduce;
        let checked = check_len(operation, send.len(), recv.len());
        let mut session = self.begin(operation)?;
        let call = self.own_call::<T>(operation, send.len(), name, 0);
        let contributions = session.agree_on_reduction(&call, checked, send)?;
        session.run(|session| {
            match contributions {
                Contributions::Here(all) => fold_all(recv, &all, self.size(), &combine),
                Contributions::ToBeFolded => {
                    session.fold_own_along(send, recv, name, &combine)?;
                    session.spread(bytemuck::cast_slice_mut(recv), self.map.nodes() - 1)?;
                }
            }
            Ok(())
        })
    }

    /// A [`reduce`](Hierarchical::reduce) by an operation of the program's own, as in
    /// [`allreduce_with`](Hierarchical::allreduce_with). `recv` is `Some` on the root and `None` elsewhere. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let results = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let mut digits = [0u64];
    ///     let recv = if comm.rank() == 0 { Some(&mut digits[..]) } else { None };
    ///     comm.reduce_with(&[comm.rank() as u64 + 1], recv, "digits", |acc, x| *acc = 10 * *acc + x, 0)?;
    ///     Ok::<_, intranode::Error>(digits[0])
    /// })?;
    /// for (digits, expected) in results.into_iter().zip([123, 0, 0]) {
    ///     assert_eq!(digits?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::RootBuffer`] if `recv` is not `Some` exactly on the root; otherwise as
    /// [`allreduce_with`](Hierarchical::allreduce_with).
    pub fn reduce_with<T: Pod>(
        &self,
        send: &[T],
        recv: Option<&mut [T]>,
        name: &str,
        combine: impl Fn(&mut T, &T),
        root: usize,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.reduce_with(send, recv, name, combine, root);
        }
        let operation = Operation::Reduce;
        let room = recv.as_ref().map_or(send.len(), |recv| recv.len());
        let checked = check_root(self, operation, root)
            .and_then(|()| check_buffer(self, operation, root, recv.is_some()))
            .and_then(|()| check_len(operation, send.len(), room));
        let mut session = self.begin(operation)?;
        let call = self.own_call::<T>(operation, send.len(), name, root);
        let contributions = session.agree_on_reduction(&call, checked, send)?;
        session.run(|session| {
            match contributions {
                Contributions::Here(all) => {
                    if let Some(recv) = recv {
                        fold_all(recv, &all, self.size(), &combine);
                    }
                }
                Contributions::ToBeFolded => {
                    let mut result = send.to_vec();
                    session.fold_own_along(send, &mut result, name, &combine)?;
                    session.hand_over(bytemuck::cast_slice_mut(&mut result), self.map.nodes() - 1, root)?;
                    if let Some(recv) = recv {
                        recv.copy_from_slice(&result);
                    }
                }
            }
            Ok(())
        })
    }

    /// A [`scan`](Hierarchical::scan) by an operation of the program's own, as in
    /// [`allreduce_with`](Hierarchical::allreduce_with). Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let results = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
    ///     let mut digits = [0u64];
    ///     comm.scan_with(&[comm.rank() as u64 + 1], &mut digits, "digits", |acc, x| *acc = 10 * *acc + x)?;
    ///     Ok::<_, intranode::Error>(digits[0])
    /// })?;
    /// for (digits, expected) in results.into_iter().zip([1, 12, 123]) {
    ///     assert_eq!(digits?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allreduce_with`](Hierarchical::allreduce_with).
    pub fn scan_with<T: Pod>(
        &self,
        send: &[T],
        recv: &mut [T],
        name: &str,
        combine: impl Fn(&mut T, &T),
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.scan_with(send, recv, name, combine);
        }
        let operation = Operation::Scan;
        let checked = check_len(operation, send.len(), recv.len());
        let mut session = self.begin(operation)?;
        let call = self.own_call::<T>(operation, send.len(), name, 0);
        let contributions = session.agree_on_reduction(&call, checked, send)?;
        session.run(|session| {
            match contributions {
                Contributions::Here(all) => fold_all(recv, &all, self.rank() + 1, &combine),
                Contributions::ToBeFolded => {
                    for part in parts(send.len(), size_of::<T>(), self.sizes.chunk) {
                        let (own, recv) = (&send[part.clone()], &mut recv[part]);
                        let first = session.prefix_and_own(own, &combine)?;
                        session.node(|node| node.scan_with(&first, recv, name, &combine))?;
                        if self.own + 1 < self.map.nodes() {
                            let folded = session.fold_own_node(&first, name, &combine)?;
                            session.send_folded(&folded)?;
                        }
                    }
                }
            }
            Ok(())
        })
    }

    fn own_call<T: Pod>(&self, operation: Operation, length: usize, name: &str, root: usize) -> Call {
        let extra = root_and_digest(root, counts::digest_name(self.key, name));
        Call { reduction: OWN_REDUCTION, length: length as u64, extra, ..call::<T>(operation) }
    }
}

impl<L: Leaders> Session<'_, L> {
    /// Folds the contributions of the ranks of all nodes up to this one, and sends that to the next. The leader has it in `result`,
    /// which other ranks keep as it is.
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    fn fold_own_along<T: Pod>(
        &mut self,
        own: &[T],
        result: &mut [T],
        name: &str,
        combine: &impl Fn(&mut T, &T),
    ) -> Result<(), Error> {
        for part in parts(own.len(), size_of::<T>(), self.all.sizes.chunk) {
            let first = self.prefix_and_own(&own[part.clone()], combine)?;
            let folded = self.fold_own_node(&first, name, combine)?;
            self.send_folded(&folded)?;
            if self.leads() {
                result[part].copy_from_slice(&folded);
            }
        }
        Ok(())
    }

    /// On the leader what the nodes before this one have folded, and the own contribution; elsewhere the own contribution.
    fn prefix_and_own<T: Pod>(&mut self, own: &[T], combine: &impl Fn(&mut T, &T)) -> Result<Vec<T>, Error> {
        let mut first = own.to_vec();
        if let Some(from) = self.all.own.checked_sub(1) {
            self.leaders(|leaders, wait| leaders.recv(bytemuck::cast_slice_mut(&mut first), from, wait))?;
            if self.leads() {
                first.iter_mut().zip(own).for_each(|(acc, x)| combine(acc, x));
            }
        }
        Ok(first)
    }

    fn fold_own_node<T: Pod>(
        &mut self,
        first: &[T],
        name: &str,
        combine: &impl Fn(&mut T, &T),
    ) -> Result<Vec<T>, Error> {
        let mut folded = if self.leads() { first.to_vec() } else { Vec::new() };
        let leads = self.leads();
        self.node(|node| node.reduce_with(first, leads.then_some(&mut folded[..]), name, combine, LEADER))?;
        Ok(folded)
    }
}

/// Folds the contributions of `ranks` ranks, in their order.
fn fold_all<T: Pod>(result: &mut [T], all: &[T], ranks: usize, combine: &impl Fn(&mut T, &T)) {
    let len = result.len();
    result.copy_from_slice(&all[..len]);
    for rank in 1..ranks {
        result.iter_mut().zip(&all[rank * len..][..len]).for_each(|(acc, x)| combine(acc, x));
    }
}
