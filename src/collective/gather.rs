//! gather and gatherv: a transfer that only the root reads.

use std::num::NonZeroU64;
use std::ops::Range;

use bytemuck::Pod;

use super::block_table::BlockTable;
use super::counts;
use super::rooted::{check_equal_blocks, check_given_blocks};
use crate::communicator::{Communicator, call};
use crate::copy::policy::StorePolicy;
use crate::copy::{Sink, Source};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::block_transfer::{Address, BlockTransfer, Lend};
use crate::protocol::call::INLINE;
use crate::rank::choices::{Choice, Path};
use crate::rank::lending::Lending;
use crate::rank::rank_state::OpenCall;
use crate::tuning::GATHER_IN_PLACE_FROM;

impl Communicator {
    /// Gathers the block `send` of every rank on rank `root`, in rank order. `send` has the same length on all ranks. `recv`
    /// is `Some` on the root, of that length times the number of ranks, and `None` elsewhere. Collective: no rank
    /// returns before all have called, and the root needs nothing more of it.
    ///
    /// Blocks of up to 96 bytes take one round, in which the root reads and the others only arrive; longer ones stream through
    /// staging (as for [`allgatherv`](Communicator::allgatherv)).
    ///
    /// ```
    /// let gathered = intranode::threads(3, |comm| {
    ///     let mut all = [0; 3];
    ///     let recv = if comm.rank() == 2 { Some(&mut all[..]) } else { None };
    ///     comm.gather(&[10 * comm.rank()], recv, 2)?;
    ///     Ok::<_, intranode::Error>(all)
    /// })?;
    /// for (rank, all) in gathered.into_iter().enumerate() {
    ///     assert_eq!(all?, if rank == 2 { [0, 10, 20] } else { [0; 3] });
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::RootBuffer`] if `recv` is not `Some` exactly on the root;
    /// [`Error::InvalidBufferSize`] if it has another length; otherwise as [`barrier`](Communicator::barrier).
    pub fn gather<T: Pod>(&self, send: &[T], recv: Option<&mut [T]>, root: usize) -> Result<(), Error> {
        let operation = Operation::Gather;
        let call = Call { length: send.len() as u64, extra: root as u64, ..call::<T>(operation) };
        let whole = recv.as_ref().map(|whole| whole.len());
        if let Err(error) = check_equal_blocks(self, operation, root, send.len(), whole) {
            return Err(self.rank_state.refuse(&call, error));
        }
        let recv = recv.map(bytemuck::cast_slice_mut);
        if self.are_short(1, size_of_val(send)) {
            return self.gather_short(&call, bytemuck::cast_slice(send), recv);
        }
        let table = BlockTable::Equal { bytes: size_of_val(send) };
        let mut open = self.rank_state.begin(operation)?;
        let (send, place) = (bytemuck::cast_slice(send), self.place_of_block(send));
        gather_to(&mut open, &call, (Some(send), place), recv, (table, root))
    }

    /// Gathers the block `send` of every rank on rank `root`: the `counts[r]` elements of rank `r` at `recv[displs[r]..]`.
    /// `counts` is the same on all ranks, in elements; a count may be 0. `recv` is `Some` on the root and `None` elsewhere;
    /// only the root's `displs` matters. Gaps between blocks are not written. Collective. If only the sender knows the length
    /// of its block, see [`gather_vec`](Communicator::gather_vec).
    ///
    /// ```
    /// use intranode::Blocks;
    ///
    /// let blocks = Blocks::new(5, 2); // 3 elements and 2
    /// let gathered = intranode::threads(2, |comm| {
    ///     let send: Vec<usize> = blocks.range(comm.rank()).collect();
    ///     let mut all = [0; 5];
    ///     let recv = if comm.rank() == 0 { Some(&mut all[..]) } else { None };
    ///     comm.gatherv(&send, recv, &blocks.counts(), &blocks.displs(), 0)?;
    ///     Ok::<_, intranode::Error>(all)
    /// })?;
    /// for (all, expected) in gathered.into_iter().zip([[0, 1, 2, 3, 4], [0; 5]]) {
    ///     assert_eq!(all?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`gather`](Communicator::gather); [`Error::InvalidBufferSize`] also if `counts` does not have one entry a rank, or
    /// `send` does not have `counts[rank]` elements; on the root also if `displs` does not have one entry a rank, or a block
    /// exceeds `recv`, and [`Error::OverlappingBlocks`].
    pub fn gatherv<T: Pod>(
        &self,
        send: &[T],
        recv: Option<&mut [T]>,
        counts: &[usize],
        displs: &[usize],
        root: usize,
    ) -> Result<(), Error> {
        let operation = Operation::Gatherv;
        let call = counts::call_at::<T>(operation, self.rank_state.mapped.key(), counts, root);
        let (lens, tables) = ((send.len(), recv.as_ref().map(|whole| whole.len())), (counts, displs));
        if let Err(error) = check_given_blocks(self, operation, root, lens, tables, counts::check_blocks) {
            return Err(self.rank_state.refuse(&call, error));
        }
        let table = BlockTable::Given { counts, displs, width: size_of::<T>() };
        let recv = recv.map(bytemuck::cast_slice_mut);
        let longest = table.lens_of_parts(root, self.size()).max().unwrap_or(0);
        if self.are_short(1, longest) {
            return self.gatherv_short(&call, bytemuck::cast_slice(send), recv, (table, root), longest);
        }
        let mut open = self.rank_state.begin(operation)?;
        let (send, place) = (bytemuck::cast_slice(send), self.place_of_block(send));
        gather_to(&mut open, &call, (Some(send), place), recv, (table, root))
    }

    /// Where all ranks have a block mapped, if it pays to read it there.
    fn place_of_block<T: Pod>(&self, block: &[T]) -> Address {
        self.rank_state.lend_from(bytemuck::cast_slice(block), GATHER_IN_PLACE_FROM)
    }
}

/// A gather of bytes, as one transfer of a call. `recv` is `Some` on the root. `send` is `None` on a root whose own block has its
/// place there already; beside it is where the root has it mapped, if it is not to go through staging.
pub(super) fn gather_to(
    open: &mut OpenCall<'_>,
    call: &Call,
    (send, place): (Option<&[u8]>, Address),
    recv: Option<&mut [u8]>,
    (table, root): (BlockTable<'_>, usize),
) -> Result<(), Error> {
    let rank_state = open.rank_state();
    let stores = StorePolicy::of_call(recv.as_ref().map_or(0, |recv| recv.len()));
    let mut blocks = GatherBuffers {
        // The root's own block goes nowhere.
        lending: Lending::new(rank_state, place.filter(|_| rank_state.rank != root)),
        copied: send.is_none(),
        send,
        recv,
        table,
        root,
        stores,
    };
    let operation = open.operation();
    rank_state.chosen(table.len(rank_state.rank), || Choice {
        operation,
        path: Path::of_block((0..rank_state.size()).all(|rank| blocks.length(rank) <= INLINE), &mut blocks),
        receive: blocks.stores.receive(),
    });
    open.transfer(call, &mut blocks)
}

/// The caller's buffers, in bytes.
struct GatherBuffers<'a> {
    send: Option<&'a [u8]>,
    /// On the root.
    recv: Option<&'a mut [u8]>,
    table: BlockTable<'a>,
    root: usize,
    /// Of this rank's own block, to the root.
    lending: Lending<'a>,
    stores: StorePolicy,
    /// Whether the root has copied its own block.
    copied: bool,
}

impl BlockTransfer for GatherBuffers<'_> {
    #[inline]
    fn length(&self, rank: usize) -> usize {
        // The root's block goes to no other rank.
        if rank == self.root { 0 } else { self.table.len(rank) }
    }

    #[inline]
    fn put(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        if let Some(send) = self.send {
            staging.publish(&send[chunk]);
        }
    }

    #[inline]
    fn copy_own_block(&mut self, _: Range<usize>) {
        if let (Some(recv), Some(send), false) = (&mut self.recv, self.send, self.copied) {
            self.stores.copy(send, &mut recv[self.table.range(self.root)]);
            self.copied = true;
        }
    }

    #[inline]
    fn receives(&self) -> bool {
        self.recv.is_some()
    }

    #[inline]
    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>) {
        if let Some(recv) = &mut self.recv {
            let block = self.table.range(rank);
            self.stores.fetch(&staging, &mut recv[block.start + chunk.start..block.start + chunk.end]);
        }
    }

    #[inline]
    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(&mut self.lending)
    }

    fn read_in_place(&mut self, rank: usize, place: NonZeroU64) {
        if let Some(recv) = &mut self.recv {
            let target = &mut recv[self.table.range(rank)];
            self.lending.read(place, 0, target, &self.stores);
        }
    }
}
