//! scatter and scatterv: a transfer of the root's block, of which each rank reads its part.

use std::num::NonZeroU64;
use std::ops::Range;

use bytemuck::Pod;

use super::block_table::BlockTable;
use super::memory::{RecvBytes, SendBytes};
use super::rooted::{check_equal_blocks, check_given_blocks};
use super::{counts, parts};
use crate::communicator::{Communicator, call};
use crate::copy::policy::StorePolicy;
use crate::copy::{Sink, Source};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::block_transfer::{BlockTransfer, Lend};
use crate::protocol::call::INLINE;
use crate::rank::choices::{Choice, Path};
use crate::rank::lending::Lending;
use crate::rank::rank_state::OpenCall;
use crate::tuning::{
    IN_PLACE_FROM_ANY, InPlaceFrom, SCATTER_IN_PLACE_FROM, SCATTER_SINGLE_COPY_FROM,
    SCATTER_UNCHANGED_SINGLE_COPY_BYTES,
};

impl Communicator {
    /// Gives each rank its block of rank `root`'s `send`, in rank order: the inverse of [`gather`](Communicator::gather).
    /// `recv` has the same length on all ranks. `send` is `Some` on the root, of that length times the number of ranks, and
    /// `None` elsewhere. Collective: every rank returns when all have read their blocks.
    ///
    /// The blocks of the other ranks follow one another in the root's staging. Up to 96 bytes in all take one round; longer data
    /// streams chunk by chunk, as a [`broadcast`](Communicator::broadcast), and each rank reads its own block only. With
    /// [single copy](crate::Config::single_copy), blocks of 768 KiB or more, or of 256 KiB that stay as
    /// they are, are read from the root's memory.
    ///
    /// ```
    /// let blocks = intranode::threads(3, |comm| {
    ///     let send = [1.5, 2.5, 3.5];
    ///     let mut own = [0.0];
    ///     comm.scatter((comm.rank() == 1).then_some(&send[..]), &mut own, 1)?;
    ///     Ok::<_, intranode::Error>(own[0])
    /// })?;
    /// for (own, expected) in blocks.into_iter().zip([1.5, 2.5, 3.5]) {
    ///     assert_eq!(own?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`]; [`Error::RootBuffer`] if `send` is not `Some` exactly on the root;
    /// [`Error::InvalidBufferSize`] if it has another length; otherwise as [`barrier`](Communicator::barrier).
    pub fn scatter<T: Pod>(&self, send: Option<&[T]>, recv: &mut [T], root: usize) -> Result<(), Error> {
        let operation = Operation::Scatter;
        let call = Call { length: recv.len() as u64, extra: root as u64, ..call::<T>(operation) };
        let whole = send.as_ref().map(|whole| whole.len());
        if let Err(error) = check_equal_blocks(self, operation, root, recv.len(), whole) {
            return Err(self.rank_state.refuse(&call, error));
        }
        let table = BlockTable::Equal { bytes: size_of_val(recv) };
        let (send, recv) = (send.map(bytemuck::cast_slice::<T, u8>), bytemuck::cast_slice_mut::<T, u8>(recv));
        if self.are_short(self.size() - 1, recv.len()) {
            return self.scatter_short(&call, send, recv, root);
        }
        self.scatter_from(operation, &call, send, Some(recv), (table, root))
    }

    /// Gives each rank its block of rank `root`'s `send`: the `counts[r]` elements from `send[displs[r]]` on to rank `r`.
    /// `counts` is the same on all ranks, in elements; a count may be 0. `send` is `Some` on the root and `None` elsewhere;
    /// only the root's `displs` matters, and its blocks may overlap. `recv` has `counts[rank]` elements. Collective.
    ///
    /// Rounds and places are those of [`scatter`](Communicator::scatter). Blocks that do not follow one another in rank order are read
    /// where they lie only from 4 MiB on; then a round before sends the displacements.
    ///
    /// ```
    /// use intranode::Blocks;
    ///
    /// let blocks = Blocks::new(5, 2); // 3 elements and 2
    /// let parts = intranode::threads(2, |comm| {
    ///     let send = [0, 1, 2, 3, 4];
    ///     let mut own = vec![0; blocks.range(comm.rank()).len()];
    ///     let send = (comm.rank() == 0).then_some(&send[..]);
    ///     comm.scatterv(send, &blocks.counts(), &blocks.displs(), &mut own, 0)?;
    ///     Ok::<_, intranode::Error>(own)
    /// })?;
    /// for (own, expected) in parts.into_iter().zip([vec![0, 1, 2], vec![3, 4]]) {
    ///     assert_eq!(own?, expected);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`scatter`](Communicator::scatter); [`Error::InvalidBufferSize`] also if `counts` does not have one entry a rank, or
    /// `recv` does not have `counts[rank]` elements; on the root also if `displs` does not have one entry a rank, or a block
    /// exceeds `send`.
    pub fn scatterv<T: Pod>(
        &self,
        send: Option<&[T]>,
        counts: &[usize],
        displs: &[usize],
        recv: &mut [T],
        root: usize,
    ) -> Result<(), Error> {
        let operation = Operation::Scatterv;
        let call = counts::call_at::<T>(operation, self.rank_state.mapped.key(), counts, root);
        let (lens, tables) = ((recv.len(), send.as_ref().map(|whole| whole.len())), (counts, displs));
        if let Err(error) = check_given_blocks(self, operation, root, lens, tables, counts::check_fit) {
            return Err(self.rank_state.refuse(&call, error));
        }
        let table = BlockTable::Given { counts, displs, width: size_of::<T>() };
        let (send, recv) = (send.map(bytemuck::cast_slice::<T, u8>), bytemuck::cast_slice_mut::<T, u8>(recv));
        let total = table.len_of_parts(root, self.size(), self.size() - 1);
        if self.are_short(1, total) {
            return self.scatterv_short(&call, send, recv, (table, root), total);
        }
        self.scatter_from(operation, &call, send, Some(recv), (table, root))
    }

    /// A scatter of bytes. `recv` is `None` on a root whose own block stays where it is.
    pub(super) fn scatter_from<S: SendBytes, R: RecvBytes<S>>(
        &self,
        operation: Operation,
        call: &Call,
        send: Option<S>,
        recv: Option<R>,
        (table, root): (BlockTable<'_>, usize),
    ) -> Result<(), Error> {
        let mut open = self.rank_state.begin(operation)?;
        let mut blocks = ScatterBuffers::new(self, (send, recv), (table, root));
        if !self.rank_state.staging.is_short(blocks.total) {
            // Only the root knows of gaps between its blocks; no rank knows whether it has lent them.
            let sends_displs = matches!(table, BlockTable::Given { .. })
                && table.start_if_packed(self.size()) >= SCATTER_IN_PLACE_FROM.usual;
            blocks.offset = match sends_displs {
                true => self.scatter_displs(&mut open, call, (table, root))?,
                false => table.start_if_packed(self.rank()),
            };
            // The displacements matter on the root only.
            let lent = send.and_then(|send| match sends_displs {
                true => Some((send, IN_PLACE_FROM_ANY)),
                false => table.packed(self.size()).map(|packed| (send.part(packed), SCATTER_IN_PLACE_FROM)),
            });
            if let Some(lent) = lent {
                blocks.lending = self.lend_blocks(lent, (&table, root));
            }
        }
        self.rank_state.chosen(blocks.total, || Choice {
            operation,
            path: Path::of_block(blocks.total <= INLINE, &mut blocks),
            receive: blocks.stores.receive(),
        });
        open.transfer(call, &mut blocks)
    }

    /// Where this rank's block begins in the root's buffer, in bytes, by a round.
    fn scatter_displs(
        &self,
        open: &mut OpenCall<'_>,
        call: &Call,
        (table, root): (BlockTable<'_>, usize),
    ) -> Result<usize, Error> {
        let all: Vec<u64> = match self.rank() == root {
            true => (0..self.size()).map(|rank| table.range(rank).start as u64).collect(),
            false => Vec::new(),
        };
        let (mut own, words) = ([0u64], BlockTable::Equal { bytes: size_of::<u64>() });
        let send = (self.rank() == root).then_some(bytemuck::cast_slice::<u64, u8>(&all));
        let recv = Some(bytemuck::cast_slice_mut::<u64, u8>(&mut own));
        open.transfer(call, &mut ScatterBuffers::new(self, (send, recv), (words, root)))?;
        Ok(own[0] as usize)
    }

    /// Lends the root's blocks to those who read them in place from this length on, or fetch them, if either pays.
    fn lend_blocks<S: SendBytes>(
        &self,
        (blocks, from): (S, InPlaceFrom),
        (table, root): (&BlockTable<'_>, usize),
    ) -> Lending<'_> {
        let place = blocks.lend_from(&self.rank_state, from);
        let lengths = || table.lens_of_parts(root, self.size()).filter(|len| *len > 0);
        let address = match self.rank_state.fetches(SCATTER_SINGLE_COPY_FROM, lengths()) {
            true => blocks.address(),
            false if place.is_none() => {
                let shortest = lengths().min().unwrap_or(0);
                blocks.address_of_unchanged(&self.rank_state, shortest, &SCATTER_UNCHANGED_SINGLE_COPY_BYTES)
            }
            false => None,
        };
        Lending::new(&self.rank_state, place).or_at(address)
    }
}

/// The caller's buffers, in bytes.
struct ScatterBuffers<'a, S, R> {
    /// Of the root's blocks.
    lending: Lending<'a>,
    /// On the root.
    send: Option<S>,
    /// `None`: this rank's block stays where it is.
    recv: Option<R>,
    /// Where this rank's block begins in what the root lends.
    offset: usize,
    table: BlockTable<'a>,
    root: usize,
    size: usize,
    /// The length of the blocks of all other ranks.
    total: usize,
    /// This rank's place among them.
    part: Range<usize>,
    stores: StorePolicy,
    /// Whether the root has copied its own block.
    copied: bool,
}

impl<'a, S: SendBytes, R: RecvBytes<S>> ScatterBuffers<'a, S, R> {
    fn new(
        comm: &'a Communicator,
        (send, recv): (Option<S>, Option<R>),
        (table, root): (BlockTable<'a>, usize),
    ) -> Self {
        let (rank, size, received) = (comm.rank(), comm.size(), recv.as_ref().map_or(0, R::bytes));
        let length = |parts| table.len_of_parts(root, size, parts);
        let start = if rank == root { 0 } else { length(parts::position(root, rank, size)) };
        ScatterBuffers {
            part: start..start.saturating_add(received),
            stores: StorePolicy::of_call(received),
            total: length(size - 1),
            lending: Lending::new(&comm.rank_state, None),
            copied: rank != root,
            send,
            recv,
            offset: 0,
            table,
            root,
            size,
        }
    }
}

impl<S: SendBytes, R: RecvBytes<S>> BlockTransfer for ScatterBuffers<'_, S, R> {
    #[inline]
    fn length(&self, rank: usize) -> usize {
        if rank == self.root { self.total } else { 0 }
    }

    #[inline]
    fn put(&mut self, chunk: Range<usize>, staging: Sink<'_>) {
        if let Some(send) = self.send {
            let blocks = parts::receivers(self.root, self.size).map(|rank| send.part(self.table.range(rank)));
            parts::put(blocks, chunk, staging);
        }
    }

    #[inline]
    fn copy_own_block(&mut self, chunk: Range<usize>) {
        // With the last chunk: the others wait for none while the root copies.
        if chunk.end < self.total {
            return;
        }
        if let (Some(send), Some(recv), false) = (self.send, &mut self.recv, self.copied) {
            let own = send.part(self.table.range(self.root));
            recv.copy(0..own.bytes(), own, &self.stores);
            self.copied = true;
        }
    }

    #[inline]
    fn get(&mut self, _: usize, chunk: Range<usize>, staging: Source<'_>) {
        if let Some(recv) = &mut self.recv {
            let place = 0..self.part.len();
            parts::get((self.part.clone(), place), chunk, staging, recv, &self.stores);
        }
    }

    #[inline]
    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(&mut self.lending)
    }

    /// This rank's part of the chunk.
    fn fetch(&mut self, root: usize, chunk: Range<usize>, from: NonZeroU64) -> bool {
        let Some(recv) = &mut self.recv else { return true };
        let (len, offset) = (self.part.len(), self.offset);
        let part = (self.part.start, offset..offset.saturating_add(len), 0..len);
        parts::fetch(part, chunk, (&self.lending, root, from), recv, &self.stores)
    }

    fn read_in_place(&mut self, _: usize, place: NonZeroU64) {
        let own = 0..self.part.len();
        if let (Some(recv), Some(found)) = (&mut self.recv, self.lending.at(place, self.offset, own.len())) {
            recv.fetch(own, &found.view(), &self.stores);
        }
    }
}
