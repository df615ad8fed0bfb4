//! start_reduce, start_scan, start_exscan, start_reduce_scatter and start_reduce_scatter_block: the other reductions that a rank need
//! not wait for.

use std::ops::Range;

use super::counts;
use super::owned::OwnedReduction;
use super::pending::Pending;
use super::reduction::{check_len, check_op, reduction, slices_from};
use super::rooted::check_root;
use crate::communicator::Communicator;
use crate::element::{ReduceOp, Reducible};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::allreduce::Shape;
use crate::protocol::started::{ReduceScatterSteps, ReductionSteps};

impl Communicator {
    /// Starts a [`reduce`](Communicator::reduce) of `data`, which has the same length on all ranks. It is moved into the call;
    /// [`Pending::wait`] gives it back with the result on rank `root`, and `None` elsewhere. The result has the same bits as that of the
    /// blocking call. Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let sums = intranode::threads(3, |comm| {
    ///     comm.start_reduce(vec![comm.rank()], ReduceOp::Sum, 1)?.wait()
    /// })?;
    /// for (rank, sum) in sums.into_iter().enumerate() {
    ///     assert_eq!(sum?, (rank == 1).then_some(vec![3]));
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; otherwise as [`start_allreduce`](Communicator::start_allreduce).
    pub fn start_reduce<T: Reducible>(
        &self,
        data: Vec<T>,
        op: ReduceOp,
        root: usize,
    ) -> Result<Pending<'_, Option<Vec<T>>>, Error> {
        let (operation, shape) = (Operation::StartReduce, Shape::Root(root));
        let call = Call { extra: root as u64, ..reduction::<T>(operation, data.len(), op) };
        let checked = check_root(self, operation, root).and_then(|()| check_op::<T>(operation, op));
        if let Err(error) = checked {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        let wanted = (self.rank() == root).then_some(0..data.len());
        let data = OwnedReduction::new(data, op).wanting(wanted);
        Pending::start(self, operation, call, ReductionSteps::new(data, shape, slices_from(shape, self.size())))
    }

    /// Starts a [`scan_in_place`](Communicator::scan_in_place) of `data`, which has the same length on all ranks. It is moved into the
    /// call; [`Pending::wait`] gives it back with the result. Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let sums = intranode::threads(3, |comm| comm.start_scan(vec![comm.rank() + 1], ReduceOp::Sum)?.wait())?;
    /// for (sum, expected) in sums.into_iter().zip([1, 3, 6]) {
    ///     assert_eq!(sum?, [expected]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`start_allreduce`](Communicator::start_allreduce).
    pub fn start_scan<T: Reducible>(&self, data: Vec<T>, op: ReduceOp) -> Result<Pending<'_, Vec<T>>, Error> {
        self.start_prefix(Operation::StartScan, Shape::Inclusive, data, op)
    }

    /// Starts an [`exscan_in_place`](Communicator::exscan_in_place): the same of the ranks before this one. Rank 0, which has none before
    /// it, gets its data back as they are. Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let starts = intranode::threads(3, |comm| comm.start_exscan(vec![10 * comm.rank()], ReduceOp::Sum)?.wait())?;
    /// for (start, expected) in starts.into_iter().zip([0, 0, 10]) {
    ///     assert_eq!(start?, [expected]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`start_allreduce`](Communicator::start_allreduce).
    pub fn start_exscan<T: Reducible>(&self, data: Vec<T>, op: ReduceOp) -> Result<Pending<'_, Vec<T>>, Error> {
        self.start_prefix(Operation::StartExscan, Shape::Exclusive, data, op)
    }

    fn start_prefix<T: Reducible>(
        &self,
        operation: Operation,
        shape: Shape,
        data: Vec<T>,
        op: ReduceOp,
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        let call = reduction::<T>(operation, data.len(), op);
        if let Err(error) = check_op::<T>(operation, op) {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        let steps = ReductionSteps::new(OwnedReduction::new(data, op), shape, slices_from(shape, self.size()));
        Pending::start(self, operation, call, steps)
    }

    /// Starts a [`reduce_scatter`](Communicator::reduce_scatter) of `data`, which has the sum of the `counts`. It is moved into the call;
    /// [`Pending::wait`] gives its memory back with this rank's block of the result: `counts[rank]` elements. `counts` is the same on all
    /// ranks. Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let sums = intranode::threads(2, |comm| {
    ///     comm.start_reduce_scatter(vec![1, 10, 100 * comm.rank()], &[2, 1], ReduceOp::Sum)?.wait()
    /// })?;
    /// for (sum, expected) in sums.into_iter().zip([vec![2, 20], vec![100]]) {
    ///     assert_eq!(sum?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if `data` or `counts` has another length; otherwise as
    /// [`start_allreduce`](Communicator::start_allreduce).
    pub fn start_reduce_scatter<T: Reducible>(
        &self,
        data: Vec<T>,
        counts: &[usize],
        op: ReduceOp,
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        let operation = Operation::StartReduceScatter;
        let total = counts.iter().fold(0usize, |sum, count| sum.saturating_add(*count));
        let extra = counts::digest(self.rank_state.mapped.key(), counts);
        let call = Call { extra, ..reduction::<T>(operation, total, op) };
        let checked = check_len(operation, self.size(), counts.len())
            .and_then(|()| check_len(operation, total, data.len()))
            .and_then(|()| check_op::<T>(operation, op));
        if let Err(error) = checked {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        let mut end = 0;
        let blocks = counts.iter().map(|count| {
            end += count;
            end - count..end
        });
        self.start_blocks(operation, call, data, blocks.collect(), op)
    }

    /// The same with blocks of the same length, as a [`reduce_scatter_block`](Communicator::reduce_scatter_block): `data` has the same
    /// length on all ranks, a multiple of the number of ranks. Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// ```
    /// use intranode::ReduceOp;
    ///
    /// let least = intranode::threads(2, |comm| {
    ///     let data = [vec![3.5, 1.5], vec![2.5, 4.5]][comm.rank()].clone();
    ///     comm.start_reduce_scatter_block(data, ReduceOp::Min)?.wait()
    /// })?;
    /// for (least, expected) in least.into_iter().zip([2.5, 1.5]) {
    ///     assert_eq!(least?, [expected]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if the length is no multiple of the number of ranks; otherwise as
    /// [`start_allreduce`](Communicator::start_allreduce).
    pub fn start_reduce_scatter_block<T: Reducible>(
        &self,
        data: Vec<T>,
        op: ReduceOp,
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        let (operation, len) = (Operation::StartReduceScatterBlock, data.len() / self.size());
        let call = reduction::<T>(operation, len, op);
        let checked =
            check_len(operation, len * self.size(), data.len()).and_then(|()| check_op::<T>(operation, op));
        if let Err(error) = checked {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        let blocks = (0..self.size()).map(|rank| rank * len..(rank + 1) * len);
        self.start_blocks(operation, call, data, blocks.collect(), op)
    }

    fn start_blocks<T: Reducible>(
        &self,
        operation: Operation,
        call: Call,
        data: Vec<T>,
        blocks: Box<[Range<usize>]>,
        op: ReduceOp,
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        let data = OwnedReduction::new(data, op).wanting(Some(blocks[self.rank()].clone()));
        Pending::start(self, operation, call, ReduceScatterSteps::new(data, blocks))
    }
}
