//! broadcast, allgather(v) and gather over buffers that other threads may write meanwhile.
//!
//! The rounds are those of the calls over slices, so that some ranks may make the one and some the other. What differs is that
//! bytes go between the buffers and staging without a reference to them.

use std::num::NonZeroU64;
use std::ops::Range;

use bytemuck::Pod;

use super::block_table::BlockTable;
use super::counts;
use super::memory::{RecvBytes, SendBytes};
use super::reduction::check_len;
use super::rooted::{check_buffer, check_root};
use crate::communicator::{Communicator, call};
use crate::copy::policy::StorePolicy;
use crate::copy::raw::{RawSource, RawTarget};
use crate::copy::{Sink, Source};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::block_transfer::{BlockTransfer, Lend};
use crate::protocol::call::INLINE;
use crate::rank::choices::{Choice, Path};
use crate::rank::lending::Lending;
use crate::rank::rank_state::RankState;
use crate::tuning::SINGLE_COPY_FROM;

impl Communicator {
    /// A [`broadcast`](Communicator::broadcast) over buffers that other threads of this process may write while it runs; if one
    /// does, the result is unspecified, on every rank. `send` is `Some` exactly on the root, and `recv` exactly on the others; both
    /// have the same length. Other ranks may call `broadcast`. Collective.
    ///
    /// ```
    /// use intranode::{RawSource, RawTarget};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let mut data = if comm.rank() == 1 { [1.5, 2.5] } else { [0.0; 2] };
    ///     match comm.rank() {
    ///         1 => comm.broadcast_raw(Some(RawSource::from(&data[..])), None, 1)?,
    ///         _ => comm.broadcast_raw(None, Some(RawTarget::from(&mut data[..])), 1)?,
    ///     }
    ///     Ok::<_, intranode::Error>(data)
    /// })?;
    /// for data in all {
    ///     assert_eq!(data?, [1.5, 2.5]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::RootBuffer`] if the buffers are not those of this rank; otherwise as [`broadcast`](Communicator::broadcast).
    pub fn broadcast_raw<T: Pod>(
        &self,
        send: Option<RawSource<'_, T>>,
        recv: Option<RawTarget<'_, T>>,
        root: usize,
    ) -> Result<(), Error> {
        let operation = Operation::Broadcast;
        let len = send.map(|send| send.len()).or(recv.as_ref().map(RawTarget::len)).unwrap_or(0);
        let call = Call { length: len as u64, extra: root as u64, ..call::<T>(operation) };
        let checked = check_root(self, operation, root)
            .and_then(|()| check_buffer(self, operation, root, send.is_some()))
            .and_then(|()| check_buffer(self, operation, root, recv.is_none()));
        if let Err(error) = checked {
            return Err(self.rank_state.refuse(&call, error));
        }
        self.transfer_raw(operation, &call, send, recv, Blocks::OfRoot { root, bytes: len * size_of::<T>() })
    }

    /// An [`allgather`](Communicator::allgather) over such buffers. `send: None`: this rank's block is at its place in `recv`.
    /// Otherwise the two must not overlap, or the result is unspecified. Other ranks may call `allgather` or `allgather_in_place`.
    /// Collective.
    ///
    /// ```
    /// use intranode::{RawSource, RawTarget};
    ///
    /// let all = intranode::threads(3, |comm| {
    ///     let (send, mut recv) = ([10 * comm.rank()], [0; 3]);
    ///     comm.allgather_raw(Some(RawSource::from(&send[..])), RawTarget::from(&mut recv[..]))?;
    ///     Ok::<_, intranode::Error>(recv)
    /// })?;
    /// for recv in all {
    ///     assert_eq!(recv?, [0, 10, 20]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`allgather`](Communicator::allgather) and [`allgather_in_place`](Communicator::allgather_in_place).
    pub fn allgather_raw<T: Pod>(
        &self,
        send: Option<RawSource<'_, T>>,
        recv: RawTarget<'_, T>,
    ) -> Result<(), Error> {
        let operation = Operation::Allgather;
        let len = send.map_or(recv.len() / self.size(), |send| send.len());
        let call = Call { length: len as u64, ..call::<T>(operation) };
        if let Err(error) = check_len(operation, len.saturating_mul(self.size()), recv.len()) {
            return Err(self.rank_state.refuse(&call, error));
        }
        let table = BlockTable::Equal { bytes: len * size_of::<T>() };
        self.transfer_raw(operation, &call, send, Some(recv), Blocks::OfAll(table))
    }

    /// An [`allgatherv`](Communicator::allgatherv) over such buffers, likewise. Collective.
    ///
    /// ```
    /// use intranode::RawTarget;
    ///
    /// let all = intranode::threads(2, |comm| {
    ///     let mut data = if comm.rank() == 0 { [7, 7, 0] } else { [0, 0, 8] };
    ///     comm.allgatherv_raw(None, RawTarget::from(&mut data[..]), &[2, 1], &[0, 2])?;
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
    pub fn allgatherv_raw<T: Pod>(
        &self,
        send: Option<RawSource<'_, T>>,
        recv: RawTarget<'_, T>,
        counts: &[usize],
        displs: &[usize],
    ) -> Result<(), Error> {
        let operation = Operation::Allgatherv;
        let call = counts::call::<T>(operation, self.rank_state.mapped.key(), counts);
        let check = || {
            counts::check_tables(operation, self.size(), [counts, displs])?;
            let own = counts[self.rank()];
            check_len(operation, own, send.map_or(own, |send| send.len()))?;
            counts::check_blocks(operation, recv.len(), counts, displs)
        };
        if let Err(error) = check() {
            return Err(self.rank_state.refuse(&call, error));
        }
        let table = BlockTable::Given { counts, displs, width: size_of::<T>() };
        self.transfer_raw(operation, &call, send, Some(recv), Blocks::OfAll(table))
    }

    /// A [`gather`](Communicator::gather) over such buffers. `recv` is `Some` on the root; there `send: None` means that its block is
    /// at its place in `recv`. Other ranks may call `gather` or `gather_in_place`. Collective.
    ///
    /// ```
    /// use intranode::{RawSource, RawTarget};
    ///
    /// let gathered = intranode::threads(3, |comm| {
    ///     let (send, mut all) = ([10 * comm.rank()], [0; 3]);
    ///     let recv = (comm.rank() == 2).then(|| RawTarget::from(&mut all[..]));
    ///     comm.gather_raw(Some(RawSource::from(&send[..])), recv, 2)?;
    ///     Ok::<_, intranode::Error>(all)
    /// })?;
    /// for (rank, all) in gathered.into_iter().enumerate() {
    ///     assert_eq!(all?, if rank == 2 { [0, 10, 20] } else { [0; 3] });
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`gather`](Communicator::gather) and [`gather_in_place`](Communicator::gather_in_place); [`Error::RootBuffer`] also if another
    /// rank than the root has no `send`.
    pub fn gather_raw<T: Pod>(
        &self,
        send: Option<RawSource<'_, T>>,
        recv: Option<RawTarget<'_, T>>,
        root: usize,
    ) -> Result<(), Error> {
        let operation = Operation::Gather;
        let whole = recv.as_ref().map(RawTarget::len);
        let len = send.map(|send| send.len()).or(whole.map(|len| len / self.size())).unwrap_or(0);
        let call = Call { length: len as u64, extra: root as u64, ..call::<T>(operation) };
        let total = len.saturating_mul(self.size());
        let checked = check_root(self, operation, root)
            .and_then(|()| check_buffer(self, operation, root, recv.is_some()))
            .and_then(|()| check_buffer(self, operation, root, recv.is_some() || send.is_none()))
            .and_then(|()| check_len(operation, total, whole.unwrap_or(total)));
        if let Err(error) = checked {
            return Err(self.rank_state.refuse(&call, error));
        }
        let table = BlockTable::Equal { bytes: len * size_of::<T>() };
        self.transfer_raw(operation, &call, send, recv, Blocks::ToRoot(table, root))
    }

    fn transfer_raw<T: Pod>(
        &self,
        operation: Operation,
        call: &Call,
        send: Option<RawSource<'_, T>>,
        recv: Option<RawTarget<'_, T>>,
        blocks: Blocks<'_>,
    ) -> Result<(), Error> {
        let rank_state = &self.rank_state;
        let (send, recv) = (send.map(RawSource::bytes), recv.map(RawTarget::into_bytes));
        let received = recv.as_ref().map_or(0, RawTarget::len);
        let is_short = (0..self.size()).all(|rank| blocks.len(rank) <= INLINE);
        let stores = StorePolicy::of_call(received);
        // Nothing of this rank's is read in place, but it reads what others lend.
        let lending = Lending::new(rank_state, None);
        let mut data = RawBlocks { send, recv, blocks, rank: rank_state.rank, copied: false, lending, stores };
        if data.blocks.are_fetched(rank_state) {
            let address = data.own().and_then(RawSource::address);
            data.lending = data.lending.or_at(address);
        }
        rank_state.chosen(received, || Choice {
            operation,
            path: Path::of_block(is_short, &mut data),
            receive: data.stores.receive(),
        });
        rank_state.begin(operation)?.transfer(call, &mut data)
    }
}

/// Which ranks send, and where their blocks go. Lengths are in bytes.
enum Blocks<'a> {
    /// Every rank, to all.
    OfAll(BlockTable<'a>),
    /// The root, to all.
    OfRoot { root: usize, bytes: usize },
    /// Every rank, to the root.
    ToRoot(BlockTable<'a>, usize),
}

impl Blocks<'_> {
    /// Whether they are better fetched by single copy.
    fn are_fetched(&self, rank_state: &RankState) -> bool {
        match self {
            Blocks::OfAll(table) => {
                let lengths = (0..rank_state.size()).map(|rank| table.len(rank));
                rank_state.fetches_for_all() && rank_state.fetches(SINGLE_COPY_FROM, lengths)
            }
            Blocks::OfRoot { .. } | Blocks::ToRoot(..) => false,
        }
    }

    /// The length of the block of a rank that goes to others.
    #[inline]
    fn len(&self, rank: usize) -> usize {
        match self {
            Blocks::OfAll(table) => table.len(rank),
            Blocks::OfRoot { root, bytes } if rank == *root => *bytes,
            Blocks::OfRoot { .. } => 0,
            Blocks::ToRoot(_, root) if rank == *root => 0,
            Blocks::ToRoot(table, _) => table.len(rank),
        }
    }

    /// The place of a rank's block where it is received.
    #[inline]
    fn range(&self, rank: usize) -> Range<usize> {
        match self {
            Blocks::OfAll(table) | Blocks::ToRoot(table, _) => table.range(rank),
            Blocks::OfRoot { bytes, .. } => 0..*bytes,
        }
    }
}

/// The caller's buffers, in bytes.
struct RawBlocks<'a> {
    /// `None`: this rank's block has its place in `recv`, or it has none.
    send: Option<RawSource<'a, u8>>,
    /// `None`: this rank receives nothing.
    recv: Option<RawTarget<'a, u8>>,
    blocks: Blocks<'a>,
    rank: usize,
    /// Whether this rank's own block has been copied.
    copied: bool,
    lending: Lending<'a>,
    stores: StorePolicy,
}

impl RawBlocks<'_> {
    /// This rank's own block.
    fn own(&self) -> Option<RawSource<'_, u8>> {
        let in_place = || Some(self.recv.as_ref()?.source().part(self.blocks.range(self.rank)));
        self.send.or_else(in_place)
    }

    /// The place of a chunk of a rank's block, if this rank receives it.
    fn target(&mut self, rank: usize, chunk: Range<usize>) -> Option<RawTarget<'_, u8>> {
        let start = self.blocks.range(rank).start;
        Some(self.recv.as_mut()?.part(start + chunk.start..start + chunk.end))
    }
}

impl BlockTransfer for RawBlocks<'_> {
    #[inline]
    fn length(&self, rank: usize) -> usize {
        self.blocks.len(rank)
    }

    #[inline]
    fn put(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        if let Some(own) = self.own() {
            staging.publish_raw(own.part(chunk));
        }
    }

    /// All of it at once: a root's own block, which goes to no other rank, has no chunks.
    #[inline]
    fn copy_own_block(&mut self, _: Range<usize>) {
        let (block, stores) = (self.blocks.range(self.rank), self.stores.receive());
        if let (Some(send), Some(recv), false) = (self.send, &mut self.recv, self.copied) {
            recv.part(block).copy_from(send, stores);
            self.copied = true;
        }
    }

    #[inline]
    fn receives(&self) -> bool {
        // All others read what the root of a broadcast has written.
        self.recv.is_some() || matches!(self.blocks, Blocks::OfRoot { .. })
    }

    #[inline]
    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>) {
        let stores = self.stores.receive();
        if let Some(mut target) = self.target(rank, chunk) {
            target.fetch(&staging, stores);
        }
    }

    #[inline]
    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(&mut self.lending)
    }

    fn fetch(&mut self, rank: usize, chunk: Range<usize>, from: NonZeroU64) -> bool {
        let Some(recv) = &mut self.recv else { return true };
        let block = self.blocks.range(rank).start;
        recv.fill(block + chunk.start..block + chunk.end, &self.stores, |offset, target| {
            let start = chunk.start + offset;
            self.lending.fetch_from(rank, from, start..start + target.len(), target)
        })
    }

    fn read_in_place(&mut self, rank: usize, place: NonZeroU64) {
        let (block, stores) = (self.blocks.range(rank), self.stores.receive());
        if let (Some(recv), Some(found)) = (&mut self.recv, self.lending.at(place, 0, block.len())) {
            recv.part(block).fetch(&found.view(), stores);
        }
    }
}
