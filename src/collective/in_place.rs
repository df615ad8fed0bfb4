//! The in-place forms of the collectives that bring blocks, where MPI has `MPI_IN_PLACE`. Those of reductions over all elements
//! stand beside these.
//!
//! Each is the same operation as the form with two buffers: some ranks may call the one and some the other.

use bytemuck::Pod;

use super::allgatherv::gather_in;
use super::block_table::BlockTable;
use super::counts;
use super::gather::gather_to;
use super::reduction::check_len;
use super::rooted::{BlockCheck, check_root};
use crate::communicator::{Communicator, call};
use crate::element::{ReduceOp, Reducible};
use crate::error::{Error, Operation};
use crate::protocol::Call;

impl Communicator {
    /// An [`allgather`](Communicator::allgather) in place: `data` has a block for each rank, in rank order, of which this rank
    /// fills its own before the call. It has the same length on all ranks, a multiple of the number of ranks. Collective.
    ///
    /// ```
    /// let all = intranode::threads(3, |comm| {
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
    /// [`barrier`](Communicator::barrier).
    pub fn allgather_in_place<T: Pod>(&self, data: &mut [T]) -> Result<(), Error> {
        let (operation, len) = (Operation::Allgather, data.len() / self.size());
        let call = Call { length: len as u64, ..call::<T>(operation) };
        if let Err(error) = check_len(operation, len * self.size(), data.len()) {
            return Err(self.rank_state.refuse(&call, error));
        }
        let table = BlockTable::Equal { bytes: len * size_of::<T>() };
        gather_in(&mut self.rank_state.begin(operation)?, &call, None, bytemuck::cast_slice_mut(data), table)
    }

    /// An [`allgatherv`](Communicator::allgatherv) in place: this rank fills its block, the `counts[rank]` elements at
    /// `data[displs[rank]..]`, before the call. Counts and displacements are as there. Collective.
    ///
    /// ```
    /// let all = intranode::threads(2, |comm| {
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
    /// As [`allgatherv`](Communicator::allgatherv).
    pub fn allgatherv_in_place<T: Pod>(
        &self,
        data: &mut [T],
        counts: &[usize],
        displs: &[usize],
    ) -> Result<(), Error> {
        let operation = Operation::Allgatherv;
        let call = counts::call::<T>(operation, self.rank_state.mapped.key(), counts);
        let checked = counts::check_tables(operation, self.size(), [counts, displs])
            .and_then(|()| counts::check_blocks(operation, data.len(), counts, displs));
        if let Err(error) = checked {
            return Err(self.rank_state.refuse(&call, error));
        }
        let table = BlockTable::Given { counts, displs, width: size_of::<T>() };
        gather_in(&mut self.rank_state.begin(operation)?, &call, None, bytemuck::cast_slice_mut(data), table)
    }

    /// A [`gather`](Communicator::gather) in place. On the root `data` has a block for each rank, in rank order, of which it has
    /// filled its own; on every other rank `data` is the block that it sends, and does not change. Collective.
    ///
    /// ```
    /// let results = intranode::threads(3, |comm| {
    ///     let mut data = if comm.rank() == 0 { vec![5, 0, 0] } else { vec![10 * comm.rank()] };
    ///     comm.gather_in_place(&mut data, 0)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for (data, expected) in results.into_iter().zip([vec![5, 10, 20], vec![10], vec![20]]) {
    ///     assert_eq!(data?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::InvalidBufferSize`] if the root's length is no multiple of the number of ranks;
    /// otherwise as [`barrier`](Communicator::barrier).
    pub fn gather_in_place<T: Pod>(&self, data: &mut [T], root: usize) -> Result<(), Error> {
        let operation = Operation::Gather;
        let (call, table) = self.equal_blocks(operation, data, root)?;
        self.gather_blocks(operation, &call, data, (table, root))
    }

    /// A [`gatherv`](Communicator::gatherv) in place. On the root `data` has the `counts[r]` elements of rank `r` at
    /// `data[displs[r]..]`, of which it has filled its own; on every other rank `data` is its block of `counts[rank]` elements, and
    /// does not change. `counts` is the same on all ranks; `displs` is for the root. Collective.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let mut data = if comm.rank() == 1 { vec![0, 0, 9] } else { vec![7, 8] };
    ///     comm.gatherv_in_place(&mut data, &[2, 1], &[0, 2], 1)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for (data, expected) in results.into_iter().zip([vec![7, 8], vec![7, 8, 9]]) {
    ///     assert_eq!(data?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`gatherv`](Communicator::gatherv).
    pub fn gatherv_in_place<T: Pod>(
        &self,
        data: &mut [T],
        counts: &[usize],
        displs: &[usize],
        root: usize,
    ) -> Result<(), Error> {
        let operation = Operation::Gatherv;
        let (call, table) = self.given_blocks(operation, data, (counts, displs), root, counts::check_blocks)?;
        self.gather_blocks(operation, &call, data, (table, root))
    }

    /// A [`scatter`](Communicator::scatter) in place. On the root `data` has a block for each rank, in rank order, and does not
    /// change: its own stays where it is. On every other rank `data` is the block that it receives. Collective.
    ///
    /// ```
    /// let results = intranode::threads(3, |comm| {
    ///     let mut data = if comm.rank() == 0 { vec![5, 6, 7] } else { vec![0] };
    ///     comm.scatter_in_place(&mut data, 0)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for (data, expected) in results.into_iter().zip([vec![5, 6, 7], vec![6], vec![7]]) {
    ///     assert_eq!(data?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`gather_in_place`](Communicator::gather_in_place).
    pub fn scatter_in_place<T: Pod>(&self, data: &mut [T], root: usize) -> Result<(), Error> {
        let operation = Operation::Scatter;
        let (call, table) = self.equal_blocks(operation, data, root)?;
        self.scatter_blocks(operation, &call, data, (table, root))
    }

    /// A [`scatterv`](Communicator::scatterv) in place. On the root `data` has the `counts[r]` elements for rank `r` at
    /// `data[displs[r]..]`, and does not change; on every other rank `data` is its block of `counts[rank]` elements. `counts` is the
    /// same on all ranks; `displs` is for the root. Collective.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let mut data = if comm.rank() == 1 { vec![7, 8, 9] } else { vec![0, 0] };
    ///     comm.scatterv_in_place(&mut data, &[2, 1], &[0, 2], 1)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for (data, expected) in results.into_iter().zip([vec![7, 8], vec![7, 8, 9]]) {
    ///     assert_eq!(data?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`scatterv`](Communicator::scatterv).
    pub fn scatterv_in_place<T: Pod>(
        &self,
        data: &mut [T],
        counts: &[usize],
        displs: &[usize],
        root: usize,
    ) -> Result<(), Error> {
        let operation = Operation::Scatterv;
        let (call, table) = self.given_blocks(operation, data, (counts, displs), root, counts::check_fit)?;
        self.scatter_blocks(operation, &call, data, (table, root))
    }

    /// An [`alltoall`](Communicator::alltoall) in place: the block from rank `r` takes the place of the block for it. It takes a
    /// copy of `data`, as what has not been sent would be overwritten. `data` has the same length on all ranks, a multiple of the
    /// number of ranks. Collective.
    ///
    /// ```
    /// let all = intranode::threads(3, |comm| {
    ///     let mut data = [0, 1, 2].map(|to| 10 * comm.rank() + to);
    ///     comm.alltoall_in_place(&mut data)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for (rank, data) in all.into_iter().enumerate() {
    ///     assert_eq!(data?, [rank, 10 + rank, 20 + rank]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`alltoall`](Communicator::alltoall).
    pub fn alltoall_in_place<T: Pod>(&self, data: &mut [T]) -> Result<(), Error> {
        let send = data.to_vec();
        self.alltoall(&send, data)
    }

    /// A [`reduce_scatter`](Communicator::reduce_scatter) in place: the result, `counts[rank]` elements, takes the place of the
    /// first elements of `data`; the others do not change. `data` has the sum of the counts. Collective.
    ///
    /// The result is made in memory of its own, as what has not been sent would be overwritten.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let sums = intranode::threads(2, |comm| {
    ///     let mut data = [1, 10, 100 * comm.rank()];
    ///     comm.reduce_scatter_in_place(&mut data, &[2, 1], ReduceOp::Sum)?;
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for (data, expected) in sums.into_iter().zip([[2, 20, 0], [100, 10, 100]]) {
    ///     assert_eq!(data?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`reduce_scatter`](Communicator::reduce_scatter).
    pub fn reduce_scatter_in_place<T: Reducible>(
        &self,
        data: &mut [T],
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<(), Error> {
        // A wrong count is refused in the call.
        let len = counts.get(self.rank()).map_or(0, |count| *count).min(data.len());
        let mut result = data[..len].to_vec();
        self.reduce_scatter(data, &mut result, counts, op)?;
        data[..len].copy_from_slice(&result);
        Ok(())
    }

    /// The same with blocks of the same length: `data` has the same length on all ranks, a multiple of the number of ranks.
    /// Collective.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let least = intranode::threads(2, |comm| {
    ///     let mut data = [[3.5, 1.5], [2.5, 4.5]][comm.rank()];
    ///     comm.reduce_scatter_block_in_place(&mut data, ReduceOp::Min)?;
    ///     Ok::<_, intranode::Error>(data[0])
    /// })?;
    /// for (least, expected) in least.into_iter().zip([2.5, 1.5]) {
    ///     assert_eq!(least?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`reduce_scatter_block`](Communicator::reduce_scatter_block).
    pub fn reduce_scatter_block_in_place<T: Reducible>(
        &self,
        data: &mut [T],
        op: ReduceOp,
    ) -> Result<(), Error> {
        let mut result = data[..data.len() / self.size()].to_vec();
        self.reduce_scatter_block(data, &mut result, op)?;
        data[..result.len()].copy_from_slice(&result);
        Ok(())
    }

    /// The call and the blocks where the root's buffer has a block for each rank. Refuses a call that is wrong.
    fn equal_blocks<T: Pod>(
        &self,
        operation: Operation,
        data: &[T],
        root: usize,
    ) -> Result<(Call, BlockTable<'static>), Error> {
        let is_root = self.rank() == root;
        let len = if is_root { data.len() / self.size() } else { data.len() };
        let call = Call { length: len as u64, extra: root as u64, ..call::<T>(operation) };
        let whole = if is_root { len * self.size() } else { len };
        check_root(self, operation, root)
            .and_then(|()| check_len(operation, whole, data.len()))
            .map_err(|error| self.rank_state.refuse(&call, error))?;
        Ok((call, BlockTable::Equal { bytes: len * size_of::<T>() }))
    }

    /// The same with counts and displacements. `check`: of how the blocks lie in the root's buffer.
    fn given_blocks<'t, T: Pod>(
        &self,
        operation: Operation,
        data: &[T],
        (counts, displs): (&'t [usize], &'t [usize]),
        root: usize,
        check: BlockCheck,
    ) -> Result<(Call, BlockTable<'t>), Error> {
        let call = counts::call_at::<T>(operation, self.rank_state.mapped.key(), counts, root);
        let checked = check_root(self, operation, root)
            .and_then(|()| counts::check_tables(operation, self.size(), [counts]))
            .and_then(|()| match self.rank() == root {
                true => counts::check_tables(operation, self.size(), [displs])
                    .and_then(|()| check(operation, data.len(), counts, displs)),
                false => check_len(operation, counts[self.rank()], data.len()),
            });
        checked.map_err(|error| self.rank_state.refuse(&call, error))?;
        Ok((call, BlockTable::Given { counts, displs, width: size_of::<T>() }))
    }

    fn gather_blocks<T: Pod>(
        &self,
        operation: Operation,
        call: &Call,
        data: &mut [T],
        (table, root): (BlockTable<'_>, usize),
    ) -> Result<(), Error> {
        let mut open = self.rank_state.begin(operation)?;
        let data: &mut [u8] = bytemuck::cast_slice_mut(data);
        match self.rank() == root {
            true => gather_to(&mut open, call, (None, None), Some(data), (table, root)),
            // Not read in place: it was not measured.
            false => gather_to(&mut open, call, (Some(data), None), None, (table, root)),
        }
    }

    fn scatter_blocks<T: Pod>(
        &self,
        operation: Operation,
        call: &Call,
        data: &mut [T],
        blocks: (BlockTable<'_>, usize),
    ) -> Result<(), Error> {
        let data: &mut [u8] = bytemuck::cast_slice_mut(data);
        match self.rank() == blocks.1 {
            true => self.scatter_from(operation, call, Some(&*data), None::<&mut [u8]>, blocks),
            false => self.scatter_from(operation, call, None::<&[u8]>, Some(data), blocks),
        }
    }
}
