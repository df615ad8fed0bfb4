//! The in-place forms over several nodes of the collectives that bring blocks, where MPI has `MPI_IN_PLACE`.
//!
//! Each is the same operation as the form with two buffers, which it calls with a copy of this rank's own block: some ranks may
//! call the one and some the other.

use bytemuck::Pod;

use crate::collective::counts;
use crate::collective::rooted::BlockCheck;
use crate::element::{ReduceOp, Reducible};
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::Hierarchical;
use crate::nodes::leaders::Leaders;
use crate::protocol::Call;

impl<L: Leaders> Hierarchical<L> {
    /// An [`allgather`](Hierarchical::allgather) in place: `data` has a block for each rank, in rank order, of which this rank fills
    /// its own before the call. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::new(&[2, 1])?)?;
    ///     let mut data = [0; 3];
    ///     data[comm.rank()] = 10 * comm.rank();
    ///     comm.allgather_in_place(&mut data)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for data in all {
    ///     assert_eq!(data?, [0, 10, 20]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if the length is no multiple of the number of ranks; otherwise as
    /// [`barrier`](Hierarchical::barrier).
    pub fn allgather_in_place<T: Pod>(&self, data: &mut [T]) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.allgather_in_place(data);
        }
        let own = self.own_of_equal(data);
        self.allgather(&own, data)
    }

    /// An [`allgatherv`](Hierarchical::allgatherv) in place: this rank fills its block, the `counts[rank]` elements at
    /// `data[displs[rank]..]`, before the call. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(2, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::even(2, 2)?)?;
    ///     let mut data = if comm.rank() == 0 { [7, 7, 0] } else { [0, 0, 8] };
    ///     comm.allgatherv_in_place(&mut data, &[2, 1], &[0, 2])?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for data in all {
    ///     assert_eq!(data?, [7, 7, 8]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allgatherv`](Hierarchical::allgatherv).
    pub fn allgatherv_in_place<T: Pod>(
        &self,
        data: &mut [T],
        counts: &[usize],
        displs: &[usize],
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.allgatherv_in_place(data, counts, displs);
        }
        let Some(own) = self.own_of(data, counts, displs) else {
            let (operation, tables) = (Operation::Allgatherv, (counts, displs));
            let call = counts::call::<T>(operation, self.key, counts);
            return self.refuse_blocks(operation, &call, data.len(), tables, counts::check_blocks);
        };
        self.allgatherv(&own, data, counts, displs)
    }

    /// An [`alltoall`](Hierarchical::alltoall) in place: block `r` of `data` goes to rank `r`, and that rank's takes its place.
    /// Collective. It takes a copy of `data`.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap};
    ///
    /// let all = intranode::threads(2, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::even(2, 2)?)?;
    ///     let mut data = [10 * comm.rank(), 10 * comm.rank() + 1];
    ///     comm.alltoall_in_place(&mut data)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for (data, expected) in all.into_iter().zip([[0, 10], [1, 11]]) {
    ///     assert_eq!(data?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`alltoall`](Hierarchical::alltoall).
    pub fn alltoall_in_place<T: Pod>(&self, data: &mut [T]) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.alltoall_in_place(data);
        }
        let send = data.to_vec();
        self.alltoall(&send, data)
    }

    /// A [`reduce_scatter`](Hierarchical::reduce_scatter) in place: the result of this rank's block takes the place of the first
    /// elements of `data`; the rest does not change. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap, ReduceOp};
    ///
    /// let all = intranode::threads(2, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::even(2, 2)?)?;
    ///     let mut data = [1, 2, 3];
    ///     comm.reduce_scatter_in_place(&mut data, &[2, 1], ReduceOp::Sum)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for (data, expected) in all.into_iter().zip([[2, 4, 3], [6, 2, 3]]) {
    ///     assert_eq!(data?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`reduce_scatter`](Hierarchical::reduce_scatter).
    pub fn reduce_scatter_in_place<T: Reducible>(
        &self,
        data: &mut [T],
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.reduce_scatter_in_place(data, counts, op);
        }
        // A wrong count is refused in the call.
        let len = counts.get(self.rank()).map_or(0, |count| *count).min(data.len());
        let mut result = data[..len].to_vec();
        self.reduce_scatter(data, &mut result, counts, op)?;
        data[..len].copy_from_slice(&result);
        Ok(())
    }

    /// A [`reduce_scatter_block`](Hierarchical::reduce_scatter_block) in place: the result of this rank's block takes the place of the
    /// first elements of `data`; the rest does not change. Collective.
    ///
    /// ```
    /// use intranode::{Hierarchical, NodeMap, ReduceOp};
    ///
    /// let all = intranode::threads(2, |comm| {
    ///     let comm = Hierarchical::simulated(comm, &NodeMap::even(2, 2)?)?;
    ///     let mut data = [1, 2];
    ///     comm.reduce_scatter_block_in_place(&mut data, ReduceOp::Sum)?;
    ///     Ok::<_, intranode::Error>(data[0])
    /// })?;
    /// for (first, expected) in all.into_iter().zip([2, 4]) {
    ///     assert_eq!(first?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`reduce_scatter_block`](Hierarchical::reduce_scatter_block).
    pub fn reduce_scatter_block_in_place<T: Reducible>(
        &self,
        data: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        if self.map.nodes() == 1 {
            return self.node.reduce_scatter_block_in_place(data, op);
        }
        let mut result = data[..data.len() / self.size()].to_vec();
        self.reduce_scatter_block(data, &mut result, op)?;
        data[..result.len()].copy_from_slice(&result);
        Ok(())
    }

    /// This rank's own of equal blocks.
    pub(super) fn own_of_equal<T: Pod>(&self, data: &[T]) -> Vec<T> {
        let len = data.len() / self.size();
        data[self.rank() * len..][..len].to_vec()
    }

    /// This rank's own block. `None`: it is not inside, so the call is to be refused.
    pub(super) fn own_of<T: Pod>(&self, data: &[T], counts: &[usize], displs: &[usize]) -> Option<Vec<T>> {
        let (count, displ) = (counts.get(self.rank()), displs.get(self.rank()));
        let (count, displ) = (count.map_or(0, |count| *count), displ.map_or(0, |displ| *displ));
        if count == 0 {
            return Some(Vec::new());
        }
        let end = displ.checked_add(count)?;
        data.get(displ..end).map(<[T]>::to_vec)
    }

    /// Refuses a call in place: this rank's own block is not inside its `len` elements, which the check of all blocks finds.
    #[cold]
    pub(super) fn refuse_blocks(
        &self,
        operation: Operation,
        call: &Call,
        len: usize,
        (counts, displs): (&[usize], &[usize]),
        check: BlockCheck,
    ) -> Result<(), Error> {
        let checked = counts::check_tables(operation, self.size(), [counts, displs])
            .and_then(|()| check(operation, len, counts, displs));
        self.begin(operation)?.agree(call, checked, &[]).map(drop)
    }
}
