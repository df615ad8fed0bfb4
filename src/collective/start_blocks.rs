//! start_allgather, start_gather, start_gatherv, start_scatter, start_scatterv and start_alltoall: the other transfers that a rank need
//! not wait for.

use bytemuck::Pod;

use super::block_table::BlockTable;
use super::counts;
use super::owned::{OwnedBlocks, OwnedParts, SentBlock, ranges};
use super::parts;
use super::pending::Pending;
use super::reduction::check_len;
use super::rooted::{check_equal_blocks, check_given_blocks};
use crate::communicator::{Communicator, call};
use crate::copy::policy::StorePolicy;
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::started::TransferSteps;

impl Communicator {
    /// Starts an [`allgather`](Communicator::allgather): the block `send` of every rank on every rank, in rank order. `send` has the same
    /// length on all ranks, and is copied; `recv` has that length times the number of ranks. It is moved into the call, and
    /// [`Pending::wait`] gives it back with all blocks. Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// ```
    /// let all = intranode::threads(2, |comm| comm.start_allgather(&[comm.rank() + 7], vec![0; 2])?.wait())?;
    /// for recv in all {
    ///     assert_eq!(recv?, [7, 8]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if `recv` has another length; the other ranks get [`Error::Refused`] from [`Pending::wait`].
    /// Otherwise as [`start_barrier`](Communicator::start_barrier).
    pub fn start_allgather<T: Pod + Send>(
        &self,
        send: &[T],
        mut recv: Vec<T>,
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        let (operation, rank) = (Operation::StartAllgather, self.rank());
        let call = Call { length: send.len() as u64, ..call::<T>(operation) };
        let checked = check_len(operation, send.len().saturating_mul(self.size()), recv.len());
        if let Err(error) = checked {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        let table = BlockTable::Equal { bytes: size_of_val(send) };
        // In bytes: the places of elements without any may overflow.
        let own = &mut bytemuck::cast_slice_mut::<T, u8>(&mut recv)[table.range(rank)];
        StorePolicy::of_call(own.len()).copy(bytemuck::cast_slice(send), own);
        let blocks = ranges(&table, self.size());
        let blocks = OwnedBlocks { data: recv, blocks, receiver: None, rank };
        Pending::start(self, operation, call, TransferSteps::new(blocks))
    }

    /// Starts a [`gather`](Communicator::gather): the block `send` of every rank on rank `root`, in rank order. `send` has the same
    /// length on all ranks, and is copied. `recv` is `Some` on the root and `None` elsewhere, with that length times the number of ranks.
    /// It is moved into the call, and [`Pending::wait`] gives it back with all blocks. Collective, and does not wait. See [`Pending`] for
    /// how it goes on.
    ///
    /// ```
    /// let all = intranode::threads(2, |comm| {
    ///     let recv = (comm.rank() == 1).then(|| vec![0; 2]);
    ///     comm.start_gather(&[comm.rank() + 7], recv, 1)?.wait()
    /// })?;
    /// for (recv, expected) in all.into_iter().zip([None, Some(vec![7, 8])]) {
    ///     assert_eq!(recv?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`gather`](Communicator::gather) about this rank's arguments; the other ranks get [`Error::Refused`] from
    /// [`Pending::wait`]. Otherwise as [`start_barrier`](Communicator::start_barrier).
    pub fn start_gather<T: Pod + Send>(
        &self,
        send: &[T],
        recv: Option<Vec<T>>,
        root: usize,
    ) -> Result<Pending<'_, Option<Vec<T>>>, Error> {
        let operation = Operation::StartGather;
        let call = Call { length: send.len() as u64, extra: root as u64, ..call::<T>(operation) };
        let whole = recv.as_ref().map(|whole| whole.len());
        if let Err(error) = check_equal_blocks(self, operation, root, send.len(), whole) {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        self.start_gather_to(
            (operation, call),
            send,
            recv,
            (BlockTable::Equal { bytes: size_of_val(send) }, root),
        )
    }

    /// Starts a [`gatherv`](Communicator::gatherv): the `counts[r]` elements `send` of rank `r` at `recv[displs[r]..]` on rank `root`.
    /// The rules are those of the blocking call, but that `send` is copied, and `recv`, which is `Some` on the root and `None` elsewhere,
    /// is moved into the call. Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// ```
    /// let all = intranode::threads(2, |comm| {
    ///     let (counts, displs) = ([2, 1], [0, 2]);
    ///     let send = vec![comm.rank() + 7; counts[comm.rank()]];
    ///     let recv = (comm.rank() == 0).then(|| vec![0; 3]);
    ///     comm.start_gatherv(&send, recv, &counts, &displs, 0)?.wait()
    /// })?;
    /// for (recv, expected) in all.into_iter().zip([Some(vec![7, 7, 8]), None]) {
    ///     assert_eq!(recv?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`gatherv`](Communicator::gatherv) about this rank's arguments; the other ranks get [`Error::Refused`] from
    /// [`Pending::wait`]. Otherwise as [`start_barrier`](Communicator::start_barrier).
    pub fn start_gatherv<T: Pod + Send>(
        &self,
        send: &[T],
        recv: Option<Vec<T>>,
        counts: &[usize],
        displs: &[usize],
        root: usize,
    ) -> Result<Pending<'_, Option<Vec<T>>>, Error> {
        let operation = Operation::StartGatherv;
        let call = counts::call_at::<T>(operation, self.rank_state.mapped.key(), counts, root);
        let (lens, tables) = ((send.len(), recv.as_ref().map(|whole| whole.len())), (counts, displs));
        if let Err(error) = check_given_blocks(self, operation, root, lens, tables, counts::check_blocks) {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        let table = BlockTable::Given { counts, displs, width: size_of::<T>() };
        self.start_gather_to((operation, call), send, recv, (table, root))
    }

    /// A gather whose arguments were checked.
    fn start_gather_to<T: Pod + Send>(
        &self,
        (operation, call): (Operation, Call),
        send: &[T],
        recv: Option<Vec<T>>,
        (table, root): (BlockTable<'_>, usize),
    ) -> Result<Pending<'_, Option<Vec<T>>>, Error> {
        let rank = self.rank();
        let (data, blocks) = match recv {
            Some(mut recv) => {
                let own = &mut bytemuck::cast_slice_mut::<T, u8>(&mut recv)[table.range(rank)];
                StorePolicy::of_call(own.len()).copy(bytemuck::cast_slice(send), own);
                (recv, ranges(&table, self.size()))
            }
            // Only the root knows where blocks belong; here each is as if it were alone.
            None => (send.to_vec(), (0..self.size()).map(|rank| 0..table.len(rank)).collect()),
        };
        let blocks = OwnedBlocks { data, blocks, receiver: Some(root), rank };
        Pending::start(self, operation, call, TransferSteps::new(blocks))
    }

    /// Starts a [`scatter`](Communicator::scatter): each rank gets its block of rank `root`'s `send`, block `r` on rank `r`. `recv` has
    /// the same length on all ranks; `send` is `Some` on the root and `None` elsewhere, with that length times the number of ranks. Both
    /// are moved into the call, and [`Pending::wait`] gives `recv` back with the block. Collective, and does not wait. See [`Pending`]
    /// for how it goes on.
    ///
    /// ```
    /// let blocks = intranode::threads(2, |comm| {
    ///     let send = (comm.rank() == 1).then(|| vec![1.5, 2.5]);
    ///     comm.start_scatter(send, vec![0.0], 1)?.wait()
    /// })?;
    /// for (own, expected) in blocks.into_iter().zip([1.5, 2.5]) {
    ///     assert_eq!(own?, [expected]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`scatter`](Communicator::scatter) about this rank's arguments; the other ranks get [`Error::Refused`] from
    /// [`Pending::wait`]. Otherwise as [`start_barrier`](Communicator::start_barrier).
    pub fn start_scatter<T: Pod + Send>(
        &self,
        send: Option<Vec<T>>,
        recv: Vec<T>,
        root: usize,
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        let operation = Operation::StartScatter;
        let call = Call { length: recv.len() as u64, extra: root as u64, ..call::<T>(operation) };
        let whole = send.as_ref().map(|whole| whole.len());
        if let Err(error) = check_equal_blocks(self, operation, root, recv.len(), whole) {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        let table = BlockTable::Equal { bytes: size_of_val(&*recv) };
        self.start_scatter_from((operation, call), send, recv, (table, root))
    }

    /// Starts a [`scatterv`](Communicator::scatterv): the `counts[r]` elements from `send[displs[r]]` of rank `root` on to rank `r`. The
    /// rules are those of the blocking call, but that `send` and `recv` are moved into the call, and [`Pending::wait`] gives `recv` back.
    /// Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// ```
    /// let parts = intranode::threads(2, |comm| {
    ///     let (counts, displs) = ([2, 1], [0, 2]);
    ///     let send = (comm.rank() == 0).then(|| vec![7, 8, 9]);
    ///     comm.start_scatterv(send, &counts, &displs, vec![0; counts[comm.rank()]], 0)?.wait()
    /// })?;
    /// for (own, expected) in parts.into_iter().zip([vec![7, 8], vec![9]]) {
    ///     assert_eq!(own?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`scatterv`](Communicator::scatterv) about this rank's arguments; the other ranks get [`Error::Refused`] from
    /// [`Pending::wait`]. Otherwise as [`start_barrier`](Communicator::start_barrier).
    pub fn start_scatterv<T: Pod + Send>(
        &self,
        send: Option<Vec<T>>,
        counts: &[usize],
        displs: &[usize],
        recv: Vec<T>,
        root: usize,
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        let operation = Operation::StartScatterv;
        let call = counts::call_at::<T>(operation, self.rank_state.mapped.key(), counts, root);
        let (lens, tables) = ((recv.len(), send.as_ref().map(|whole| whole.len())), (counts, displs));
        if let Err(error) = check_given_blocks(self, operation, root, lens, tables, counts::check_fit) {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        let table = BlockTable::Given { counts, displs, width: size_of::<T>() };
        self.start_scatter_from((operation, call), send, recv, (table, root))
    }

    /// A scatter whose arguments were checked.
    fn start_scatter_from<T: Pod + Send>(
        &self,
        (operation, call): (Operation, Call),
        send: Option<Vec<T>>,
        recv: Vec<T>,
        (table, root): (BlockTable<'_>, usize),
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        let (rank, size) = (self.rank(), self.size());
        let length = |receivers: usize| {
            let lengths = parts::receivers(root, size).take(receivers).map(|rank| table.len(rank));
            lengths.fold(0, usize::saturating_add)
        };
        let part = if rank == root { 0 } else { length(parts::position(root, rank, size)) };
        let mut blocks = vec![SentBlock::default(); size].into_boxed_slice();
        blocks[root] = SentBlock { len: length(size - 1), part };
        let is_root = send.is_some();
        let mut parts = OwnedParts {
            // Only the root knows where parts are.
            sent: if is_root { ranges(&table, size) } else { Box::default() },
            send: send.unwrap_or_default(),
            received: (0..size).map(|_| 0..size_of_val(&*recv)).collect(),
            recv,
            blocks,
            rank,
        };
        if is_root {
            parts.copy_own_part();
        }
        Pending::start(self, operation, call, TransferSteps::new(parts))
    }

    /// Starts an [`alltoall`](Communicator::alltoall): block `r` of `send` becomes block `rank()` of rank `r`'s `recv`. Both have the same
    /// length on all ranks, a multiple of the number of ranks. They are moved into the call, and [`Pending::wait`] gives `recv` back.
    /// Collective, and does not wait. See [`Pending`] for how it goes on.
    ///
    /// ```
    /// let all = intranode::threads(2, |comm| {
    ///     let rank = comm.rank();
    ///     comm.start_alltoall(vec![10 * rank, 10 * rank + 1], vec![0; 2])?.wait()
    /// })?;
    /// for (rank, recv) in all.into_iter().enumerate() {
    ///     assert_eq!(recv?, [rank, 10 + rank]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`alltoall`](Communicator::alltoall) about this rank's arguments; the other ranks get [`Error::Refused`] from
    /// [`Pending::wait`]. Otherwise as [`start_barrier`](Communicator::start_barrier).
    pub fn start_alltoall<T: Pod + Send>(
        &self,
        send: Vec<T>,
        recv: Vec<T>,
    ) -> Result<Pending<'_, Vec<T>>, Error> {
        let (operation, rank, size) = (Operation::StartAlltoall, self.rank(), self.size());
        let call = Call { length: send.len() as u64, ..call::<T>(operation) };
        let whole = send.len() - send.len() % size;
        let checked =
            check_len(operation, whole, send.len()).and_then(|()| check_len(operation, send.len(), recv.len()));
        if let Err(error) = checked {
            return Err(self.rank_state.start_refusal(&call, error));
        }
        let bytes = size_of_val(&*send) / size;
        let places = ranges(&BlockTable::Equal { bytes }, size);
        let block = |sender: usize| {
            let part = if sender == rank { 0 } else { parts::position(sender, rank, size) * bytes };
            SentBlock { len: (size - 1) * bytes, part }
        };
        let blocks = (0..size).map(block).collect();
        let mut parts = OwnedParts { send, sent: places.clone(), recv, received: places, blocks, rank };
        parts.copy_own_part();
        Pending::start(self, operation, call, TransferSteps::new(parts))
    }
}
