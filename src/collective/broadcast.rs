//! broadcast: a transfer in which only the root's block is not empty.

use std::iter;
use std::num::NonZeroU64;
use std::ops::Range;

use bytemuck::Pod;

use super::rooted::check_root;
use crate::communicator::{Communicator, call};
use crate::copy::policy::StorePolicy;
use crate::copy::{Sink, Source};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::block_transfer::{BlockTransfer, Lend};
use crate::rank::choices::{Choice, Path};
use crate::rank::lending::Lending;
use crate::rank::rank_state::RankState;
use crate::tuning::{
    BROADCAST_IN_PLACE_FROM, BROADCAST_SINGLE_COPY_RANKS, BROADCAST_UNCHANGED_IN_PLACE_FROM,
    BROADCAST_UNCHANGED_SINGLE_COPY_BYTES,
};

impl Communicator {
    /// Copies `buffer` of rank `root` to all ranks. It has the same length on all ranks. Collective: every rank, also the
    /// root, returns when all have read the data.
    ///
    /// The root writes chunk after chunk into its staging. The other ranks read a chunk while the root writes the next (a
    /// pipeline through a shared segment: Graham and Shipman 2008). With [single copy](crate::Config::single_copy), a buffer of
    /// 256 KiB to 2 MiB that stays as it is is read from the root's memory.
    ///
    /// ```
    /// let all = intranode::threads(3, |comm| {
    ///     let mut buffer = if comm.rank() == 2 { [1.5, 2.5] } else { [0.0; 2] };
    ///     comm.broadcast(&mut buffer, 2)?;
    ///     Ok::<_, intranode::Error>(buffer)
    /// })?;
    /// for buffer in all {
    ///     assert_eq!(buffer?, [1.5, 2.5]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRoot`] if there is no such rank; otherwise as [`barrier`](Communicator::barrier).
    pub fn broadcast<T: Pod>(&self, buffer: &mut [T], root: usize) -> Result<(), Error> {
        let operation = Operation::Broadcast;
        let call = Call { length: buffer.len() as u64, extra: root as u64, ..call::<T>(operation) };
        if let Err(error) = check_root(self, operation, root) {
            return Err(self.rank_state.refuse(&call, error));
        }
        let buffer = bytemuck::cast_slice_mut(buffer);
        if self.are_short(1, buffer.len()) {
            return self.broadcast_short(&call, buffer, root);
        }
        let mut blocks = BroadcastBuffer::new(buffer, root);
        blocks.unstaged_of(&self.rank_state);
        let bytes = blocks.buffer.len();
        self.rank_state.chosen(bytes, || Choice {
            operation,
            path: Path::of_block(false, &mut blocks),
            receive: blocks.stores.receive(),
        });
        self.rank_state.collective(operation, |member| member.transfer(&call, &mut blocks))
    }
}

/// The caller's buffer, in bytes.
pub(crate) struct BroadcastBuffer<'a> {
    buffer: &'a mut [u8],
    root: usize,
    /// Of the root's buffer.
    lending: Option<Lending<'a>>,
    stores: StorePolicy,
}

impl<'a> BroadcastBuffer<'a> {
    pub(crate) fn new(buffer: &'a mut [u8], root: usize) -> Self {
        let stores = StorePolicy::of_call(buffer.len());
        BroadcastBuffer { buffer, root, lending: None, stores }
    }

    /// A root's buffer that lies in memory that all ranks map does not go through staging, nor does one that does not change where the system
    /// copies faster.
    fn unstaged_of(&mut self, rank_state: &'a RankState) {
        let len = self.buffer.len();
        let lends = rank_state.rank == self.root && rank_state.is_long(len, BROADCAST_UNCHANGED_IN_PLACE_FROM);
        let place = if lends { rank_state.lend_from(self.buffer, BROADCAST_IN_PLACE_FROM) } else { None };
        let is_for_few = rank_state.size() <= BROADCAST_SINGLE_COPY_RANKS;
        let may_be_fetched = lends && place.is_none() && is_for_few && rank_state.fetches_for_all();
        let address = match may_be_fetched {
            true => rank_state.address_of_unchanged(
                self.buffer,
                (len, &BROADCAST_UNCHANGED_SINGLE_COPY_BYTES),
                iter::once(len),
            ),
            false => None,
        };
        self.lending = Some(Lending::new(rank_state, place).or_at(address));
    }
}

impl BlockTransfer for BroadcastBuffer<'_> {
    #[inline]
    fn length(&self, rank: usize) -> usize {
        if rank == self.root { self.buffer.len() } else { 0 }
    }

    #[inline]
    fn put(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        staging.publish(&self.buffer[chunk]);
    }

    #[inline]
    fn copy_own_block(&mut self, _: Range<usize>) {}

    #[inline]
    fn get(&mut self, _: usize, chunk: Range<usize>, staging: Source<'_>) {
        self.stores.fetch(&staging, &mut self.buffer[chunk]);
    }

    #[inline]
    fn lending(&mut self) -> Option<&mut dyn Lend> {
        self.lending.as_mut().map(|lending| lending as _)
    }

    fn fetch(&mut self, rank: usize, chunk: Range<usize>, from: NonZeroU64) -> bool {
        let target = &mut self.buffer[chunk.clone()];
        self.lending.as_ref().is_some_and(|lending| lending.fetch_from(rank, from, chunk, target))
    }

    fn read_in_place(&mut self, _: usize, place: NonZeroU64) {
        let BroadcastBuffer { buffer, lending, stores, .. } = self;
        if let Some(lending) = lending {
            lending.read(place, 0, buffer, stores);
        }
    }
}
