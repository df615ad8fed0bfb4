//! broadcast_vec, allgather_vec and gather_vec over several nodes: blocks whose lengths only their senders know.
//!
//! The lengths come along with the agreement on the call, or are gathered after it. Then every rank makes room, and says whether
//! it could, before the data follow.

use bytemuck::Pod;

use crate::collective::rooted::check_root;
use crate::collective::vectors::{Gathered, room, sum};
use crate::communicator::call;
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::nodes::packets::comes_along;
use crate::nodes::session::Session;
use crate::nodes::steps::LEADER;
use crate::protocol::Call;

impl<L: Leaders> Hierarchical<L> {
    /// Copies the vector of rank `root` to all ranks, whatever its length, as
    /// [`Communicator::broadcast_vec`](crate::Communicator::broadcast_vec). Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let names = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[1, 2])?)?;
    ///     let mut name = if comm.rank() == 2 { b"input.bin".to_vec() } else { Vec::new() };
    ///     comm.broadcast_vec(&mut name, 2)?;
    ///     Ok::<_, intranode::Error>(name)
    /// })?;
    /// for name in names {
    ///     assert_eq!(name?, b"input.bin");
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::AllocationFailed`] on a rank that has no memory for the data; otherwise as
    /// [`barrier`](Hierarchical::barrier).
    pub fn broadcast_vec<T: Pod>(&self, data: &mut Vec<T>, root: usize) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.broadcast_vec(data, root);
        }
        let operation = Operation::BroadcastVec;
        let call = Call { extra: root as u64, ..call::<T>(operation) };
        let checked = check_root(self, operation, root);
        self.begin(operation)?.broadcast_vec(&call, checked, data, root)
    }

    /// Gathers the block `send` of every rank on every rank, whatever their lengths, as
    /// [`Communicator::allgather_vec`](crate::Communicator::allgather_vec): returns all blocks, in rank order, and the length of
    /// each, in elements. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     comm.allgather_vec(&vec![comm.rank(); comm.rank()])
    /// })?;
    /// for gathered in all {
    ///     assert_eq!(gathered?, (vec![1, 2, 2], vec![0, 1, 2]));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AllocationFailed`] on a rank that has no memory for the blocks; otherwise as [`barrier`](Hierarchical::barrier).
    pub fn allgather_vec<T: Pod>(&self, send: &[T]) -> Result<(Vec<T>, Vec<usize>), Error> {
        if self.map.nodes() == 1 {
            return self.node.allgather_vec(send);
        }
        let operation = Operation::AllgatherVec;
        self.begin(operation)?.allgather_vec(&call::<T>(operation), Ok(()), send)
    }

    /// Gathers the block `send` of every rank on rank `root`, whatever their lengths, as
    /// [`Communicator::gather_vec`](crate::Communicator::gather_vec): returns all blocks, in rank order, and the length of each, in
    /// elements, on the root, and `None` elsewhere. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let gathered = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     comm.gather_vec(&vec![comm.rank(); comm.rank()], 1)
    /// })?;
    /// for (rank, gathered) in gathered.into_iter().enumerate() {
    ///     assert_eq!(gathered?, (rank == 1).then_some((vec![1, 2, 2], vec![0, 1, 2])));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::AllocationFailed`] on the root; otherwise as [`barrier`](Hierarchical::barrier).
    #[expect(clippy::type_complexity, reason = "the blocks and their counts, on the root")]
    pub fn gather_vec<T: Pod>(&self, send: &[T], root: usize) -> Result<Option<(Vec<T>, Vec<usize>)>, Error> {
        if self.map.nodes() == 1 {
            return self.node.gather_vec(send, root);
        }
        let operation = Operation::GatherVec;
        let call = Call { extra: root as u64, ..call::<T>(operation) };
        let checked = check_root(self, operation, root);
        self.begin(operation)?.gather_vec(&call, checked, send, root)
    }
}

impl<L: Leaders> Session<'_, L> {
    /// # Errors
    /// Those of [`Hierarchical::broadcast_vec`]. `data` has not changed then.
    pub(super) fn broadcast_vec<T: Pod>(
        &mut self,
        call: &Call,
        checked: Result<(), Error>,
        data: &mut Vec<T>,
        root: usize,
    ) -> Result<(), Error> {
        let is_root = self.all.rank() == root;
        let len = self.lengths(call, checked, if is_root { data.len() } else { 0 })?;
        let own = if is_root { Ok(None) } else { room(self.operation, Some(len[root])).map(Some) };
        let mut received = self.all_have(call, own)?;
        self.broadcast_from(bytemuck::cast_slice_mut(received.as_mut().unwrap_or(data)), root)?;
        if let Some(received) = received {
            *data = received;
        }
        Ok(())
    }

    /// # Errors
    /// Those of [`Hierarchical::allgather_vec`].
    pub(super) fn allgather_vec<T: Pod>(
        &mut self,
        call: &Call,
        checked: Result<(), Error>,
        send: &[T],
    ) -> Result<Gathered<T>, Error> {
        let counts = self.lengths(call, checked, send.len())?;
        let mut recv = self.all_have(call, room(self.operation, total(&counts)))?;
        self.gather_all(bytemuck::cast_slice(send), bytemuck::cast_slice_mut(&mut recv), &bytes::<T>(&counts))?;
        Ok((recv, counts))
    }

    /// # Errors
    /// Those of [`Hierarchical::gather_vec`].
    pub(super) fn gather_vec<T: Pod>(
        &mut self,
        call: &Call,
        checked: Result<(), Error>,
        send: &[T],
        root: usize,
    ) -> Result<Option<Gathered<T>>, Error> {
        let counts = self.lengths(call, checked, send.len())?;
        let is_root = self.all.rank() == root;
        let len = if is_root { total(&counts) } else { Some(0) };
        let mut recv = self.all_have(call, room(self.operation, len))?;
        let (own, all) = (bytemuck::cast_slice(send), bytemuck::cast_slice_mut(&mut recv));
        self.gather_on(own, all, &bytes::<T>(&counts), root)?;
        Ok(is_root.then_some((recv, counts)))
    }

    /// Agrees on the call, and gathers a length of each rank.
    fn lengths(&mut self, call: &Call, checked: Result<(), Error>, own: usize) -> Result<Vec<usize>, Error> {
        const BYTES: usize = size_of::<u64>();
        let (map, own) = (&self.all.map, (own as u64).to_ne_bytes());
        let mut all = vec![0u64; map.ranks()];
        if comes_along(BYTES, map.largest()) {
            self.agree(call, checked, &own)?.unpack(map, BYTES, bytemuck::cast_slice_mut(&mut all));
        } else {
            self.agree(call, checked, &[])?;
            let counts = vec![BYTES; all.len()];
            self.gather_all(&own, bytemuck::cast_slice_mut(&mut all), &counts)?;
        }
        Ok(all.into_iter().map(|len| usize::try_from(len).unwrap_or(usize::MAX)).collect())
    }

    /// Lets all ranks know whether each has what it needs to go on.
    ///
    /// # Errors
    /// That of `own`, and [`Error::Refused`] on the other ranks; those of the node and of the leaders.
    pub(super) fn all_have<R>(&mut self, call: &Call, own: Result<R, Error>) -> Result<R, Error> {
        let (own, checked) = match own {
            Ok(own) => (Some(own), Ok(())),
            Err(error) => (None, Err(error)),
        };
        self.agree(call, checked, &[])?;
        // The call of a rank without it is refused.
        own.ok_or(Error::Refused { operation: self.operation, round: self.round(), rank: self.all.rank() })
    }

    /// Copies `data` of rank `root` to all ranks. It has the same length on all.
    ///
    /// # Errors
    /// Those of the node and of the leaders.
    pub(super) fn broadcast_from(&mut self, data: &mut [u8], root: usize) -> Result<(), Error> {
        if data.is_empty() {
            return Ok(());
        }
        let node = self.all.map.node_of(root);
        let local = root - self.all.map.leader_of(node);
        if local != LEADER && node == self.all.own {
            self.node(|comm| comm.broadcast(data, local))?;
        }
        self.spread(data, node)
    }
}

fn total(counts: &[usize]) -> Option<usize> {
    sum(counts.iter().copied())
}

fn bytes<T>(counts: &[usize]) -> Vec<usize> {
    counts.iter().map(|count| count.saturating_mul(size_of::<T>())).collect()
}
