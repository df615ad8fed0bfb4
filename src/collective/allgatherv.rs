//! allgatherv and allgather: argument checks, and the caller's buffers as a [`BlockTransfer`].

use std::num::NonZeroU64;
use std::ops::Range;

use bytemuck::Pod;

use super::block_table::BlockTable;
use super::counts;
use crate::communicator::{Communicator, call};
use crate::copy::policy::{StorePolicy, Stores};
use crate::copy::{Sink, Source};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::block_transfer::{BlockTransfer, Lend, whereabouts};
use crate::protocol::call::INLINE;
use crate::rank::choices::{Choice, Path};
use crate::rank::cma_peers;
use crate::rank::lending::Lending;
use crate::rank::rank_state::{OpenCall, RankState};
use crate::tuning::{
    ALLGATHERV_IN_PLACE_FROM, ALLGATHERV_UNCHANGED_SINGLE_COPY_BYTES, OWN_PIECE_BYTES, SINGLE_COPY_FROM,
};

impl Communicator {
    /// Gathers the block `send` of every rank on every rank: the `counts[r]` elements of rank `r` at `recv[displs[r]..]`.
    /// Counts and displacements are in elements; a count may be 0. `counts` is the same on all ranks; `displs` may differ, and
    /// the blocks must not overlap. Gaps between blocks are not written. Collective.
    ///
    /// Blocks stream through staging in chunks, one round a chunk: one write by the owner, one read by every other rank
    /// (collectives through a shared segment: Graham and Shipman 2008). Large blocks are copied directly from their owners'
    /// memory, in two rounds, where that is faster and allowed: see [`Config::single_copy`](crate::Config::single_copy)
    /// (Linux's cross memory attach, Yeoh 2010).
    ///
    /// ```
    /// use intranode::Blocks;
    ///
    /// let blocks = Blocks::new(5, 2); // 3 elements and 2
    /// let all = intranode::threads(2, |comm| {
    ///     let send: Vec<u64> = blocks.range(comm.rank()).map(|item| item as u64).collect();
    ///     let mut recv = [0; 5];
    ///     comm.allgatherv(&send, &mut recv, &blocks.counts(), &blocks.displs())?;
    ///     Ok::<_, intranode::Error>(recv)
    /// })?;
    /// for recv in all {
    ///     assert_eq!(recv?, [0, 1, 2, 3, 4]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if `counts` or `displs` do not have one entry a rank, `send` does not have
    /// `counts[rank]` elements, or a block exceeds `recv`; [`Error::OverlappingBlocks`]. On this rank nothing is written then. Otherwise
    /// as [`barrier`](Communicator::barrier).
    pub fn allgatherv<T: Pod>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        displs: &[usize],
    ) -> Result<(), Error> {
        let operation = Operation::Allgatherv;
        let call = counts::call::<T>(operation, self.rank_state.mapped.key(), counts);
        if let Err(error) =
            counts::check(self.rank_state.rank, self.size(), send.len(), recv.len(), counts, displs)
        {
            return Err(self.rank_state.refuse(&call, error));
        }
        let table = BlockTable::Given { counts, displs, width: size_of::<T>() };
        let (send, recv) = (bytemuck::cast_slice(send), bytemuck::cast_slice_mut(recv));
        gather(&mut self.rank_state.begin(operation)?, &call, send, recv, table)
    }

    /// Gathers the block `send` of every rank on every rank, in rank order. `send` has the same length on all ranks, and
    /// `recv` that length times the number of ranks. Collective. The algorithms are those of
    /// [`allgatherv`](Communicator::allgatherv).
    ///
    /// ```
    /// let all = intranode::threads(3, |comm| {
    ///     let mut recv = [0; 3];
    ///     comm.allgather(&[10 * comm.rank()], &mut recv)?;
    ///     Ok::<_, intranode::Error>(recv)
    /// })?;
    /// for recv in all {
    ///     assert_eq!(recv?, [0, 10, 20]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if `recv` has another length; otherwise as [`barrier`](Communicator::barrier).
    pub fn allgather<T: Pod>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let operation = Operation::Allgather;
        let call = Call { length: send.len() as u64, ..call::<T>(operation) };
        let expected = send.len().saturating_mul(self.size());
        if recv.len() != expected {
            let error = Error::InvalidBufferSize { operation, expected, actual: recv.len() };
            return Err(self.rank_state.refuse(&call, error));
        }
        let (send, recv) = (bytemuck::cast_slice::<T, u8>(send), bytemuck::cast_slice_mut(recv));
        if self.are_short(1, send.len()) {
            return self.allgather_short(&call, send, recv);
        }
        let table = BlockTable::Equal { bytes: send.len() };
        gather(&mut self.rank_state.begin(operation)?, &call, send, recv, table)
    }
}

/// An allgatherv of bytes, as one transfer of a call.
pub(crate) fn gather(
    open: &mut OpenCall<'_>,
    call: &Call,
    send: &[u8],
    recv: &mut [u8],
    table: BlockTable<'_>,
) -> Result<(), Error> {
    gather_in(open, call, Some(send), recv, table)
}

/// The same. Without `send` this rank's own block has its place in `recv` already.
pub(super) fn gather_in(
    open: &mut OpenCall<'_>,
    call: &Call,
    send: Option<&[u8]>,
    recv: &mut [u8],
    table: BlockTable<'_>,
) -> Result<(), Error> {
    let rank_state = open.rank_state();
    let mut blocks = AllgathervBuffers::new(send, recv, rank_state.rank, table).unstaged_of(rank_state);
    let operation = open.operation();
    rank_state.chosen(blocks.recv.len(), || Choice {
        operation,
        path: blocks.path(rank_state.size()),
        receive: blocks.stores.receive(),
    });
    open.transfer(call, &mut blocks)
}

/// An allgather of words, as one transfer of a call. Returns the ranks' words, by rank.
pub(crate) fn gather_words<const N: usize>(
    open: &mut OpenCall<'_>,
    call: &Call,
    own: [u64; N],
) -> Result<Vec<[u64; N]>, Error> {
    let mut all = vec![[0; N]; open.rank_state().size()];
    let table = BlockTable::Equal { bytes: size_of::<[u64; N]>() };
    let recv = bytemuck::cast_slice_mut(all.as_flattened_mut());
    gather(open, call, bytemuck::cast_slice(&own), recv, table)?;
    Ok(all)
}

/// An allgatherv of lists, as one transfer of a call. `counts`, by rank: how long they are. `what` they are, for the error where there is
/// no memory for them. Returns the ranks' lists, by rank.
pub(crate) fn gather_lists<T: Pod>(
    open: &mut OpenCall<'_>,
    call: &Call,
    own: &[T],
    counts: &[usize],
    what: &str,
) -> Result<Vec<Vec<T>>, Error> {
    let mut displs = Vec::with_capacity(counts.len());
    let mut end = 0usize;
    for count in counts {
        displs.push(end);
        // The allocation fails if this saturates.
        end = end.saturating_add(*count);
    }
    let mut recv: Vec<T> = Vec::new();
    if let Err(error) = recv.try_reserve_exact(end) {
        let requested_bytes = end.saturating_mul(size_of::<T>());
        let reason = format!("for the list of {what}: {error}").into_boxed_str();
        let operation = open.operation();
        return Err(open.refuse(call, Error::AllocationFailed { operation, requested_bytes, reason }));
    }
    recv.resize(end, T::zeroed());
    let table = BlockTable::Given { counts, displs: &displs, width: size_of::<T>() };
    gather(open, call, bytemuck::cast_slice(own), bytemuck::cast_slice_mut(&mut recv), table)?;
    Ok(counts.iter().zip(&displs).map(|(count, displ)| recv[*displ..displ + count].to_vec()).collect())
}

/// The caller's buffers, in bytes.
pub(crate) struct AllgathervBuffers<'a> {
    /// `None`: this rank's own block is in `recv`.
    send: Option<&'a [u8]>,
    recv: &'a mut [u8],
    table: BlockTable<'a>,
    rank: usize,
    /// Of this rank's own block.
    lending: Option<Lending<'a>>,
    stores: StorePolicy,
}

impl<'a> AllgathervBuffers<'a> {
    pub(crate) fn new(send: Option<&'a [u8]>, recv: &'a mut [u8], rank: usize, table: BlockTable<'a>) -> Self {
        let stores = StorePolicy::of_call(recv.len());
        AllgathervBuffers { send, recv, table, rank, lending: None, stores }
    }

    /// Blocks that lie in memory that all ranks map do not go through staging, nor do long ones where the system copies faster.
    fn unstaged_of(self, rank_state: &'a RankState) -> Self {
        let own = self.send.unwrap_or_else(|| &self.recv[self.table.range(self.rank)]);
        let place = rank_state.lend_from(own, ALLGATHERV_IN_PLACE_FROM);
        let lengths = (0..rank_state.size()).map(|rank| self.table.range(rank).len());
        let address = if !rank_state.fetches_for_all() {
            None
        } else if rank_state.fetches(SINGLE_COPY_FROM, lengths.clone()) {
            cma_peers::address(own)
        } else if place.is_none() {
            let len = (own.len(), &ALLGATHERV_UNCHANGED_SINGLE_COPY_BYTES);
            rank_state.address_of_unchanged(own, len, lengths)
        } else {
            None
        };
        AllgathervBuffers { lending: Some(Lending::new(rank_state, place).or_at(address)), ..self }
    }

    fn path(&mut self, ranks: usize) -> Path {
        let is_short = (0..ranks).all(|rank| self.length(rank) <= INLINE);
        Path::of_block(is_short, self)
    }

    /// The place of a chunk of a rank's block.
    fn target<'r>(
        recv: &'r mut [u8],
        table: &BlockTable<'_>,
        rank: usize,
        chunk: &Range<usize>,
    ) -> &'r mut [u8] {
        let block = table.range(rank);
        &mut recv[block.start + chunk.start..block.start + chunk.end]
    }
}

impl BlockTransfer for AllgathervBuffers<'_> {
    #[inline]
    fn length(&self, rank: usize) -> usize {
        self.table.range(rank).len()
    }

    #[inline]
    fn put(&mut self, chunk: Range<usize>, mut staging: Sink<'_>) {
        let Some(send) = self.send else {
            return staging.publish(Self::target(self.recv, &self.table, self.rank, &chunk));
        };
        if self.stores.receive() == Stores::Cached {
            return staging.publish(&send[chunk]);
        }
        // The receive buffer is larger than the cache, so the send buffer may be as well. Each piece is first copied to the
        // receive buffer, and then published from the cache: it is read from memory once.
        for start in chunk.clone().step_by(OWN_PIECE_BYTES) {
            let piece = start..chunk.end.min(start + OWN_PIECE_BYTES);
            let own = &send[piece.clone()];
            self.stores.copy(own, Self::target(self.recv, &self.table, self.rank, &piece));
            staging.publish(own);
            staging = staging.after(own.len());
        }
    }

    #[inline]
    fn copy_own_block(&mut self, chunk: Range<usize>) {
        let Some(send) = self.send else { return };
        if self.stores.receive() == Stores::NonTemporal && whereabouts(self.lending()) == (None, None) {
            // `put` has copied it.
            return;
        }
        let target = Self::target(self.recv, &self.table, self.rank, &chunk);
        self.stores.copy(&send[chunk], target);
    }

    #[inline]
    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>) {
        self.stores.fetch(&staging, Self::target(self.recv, &self.table, rank, &chunk));
    }

    #[inline]
    fn lending(&mut self) -> Option<&mut dyn Lend> {
        self.lending.as_mut().map(|lending| lending as _)
    }

    fn fetch(&mut self, rank: usize, chunk: Range<usize>, from: NonZeroU64) -> bool {
        let target = Self::target(self.recv, &self.table, rank, &chunk);
        self.lending.as_ref().is_some_and(|lending| lending.fetch_from(rank, from, chunk, target))
    }

    fn read_in_place(&mut self, rank: usize, place: NonZeroU64) {
        let target = &mut self.recv[self.table.range(rank)];
        if let Some(lending) = &self.lending {
            lending.read(place, 0, target, &self.stores);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::tuning::RECEIVE_NON_TEMPORAL_FROM_BYTES;

    #[test]
    #[cfg_attr(miri, ignore = "Miri would take hours")]
    fn blocks_of_several_chunks_are_placed_anywhere_and_gaps_are_not_written() {
        const LARGE: usize = RECEIVE_NON_TEMPORAL_FROM_BYTES;
        let byte = |rank: usize, index: usize| (index * 7 + index / 251 + 100 * rank) as u8;
        // With cached and with non-temporal stores, and with chunks that end at the end of a line and inside a line.
        for counts in [[1_700_001, 1_600_000], [1, 1_600_001], [LARGE, 1_300_003], [600_001, LARGE]] {
            for gap in [0, 1, 64] {
                crate::threads(2, |comm| {
                    let rank = comm.rank();
                    let send: Vec<u8> = (0..counts[rank]).map(|index| byte(rank, index)).collect();
                    let displs = [gap, 2 * gap + counts[0]];
                    let mut recv = vec![0xEE; 3 * gap + counts[0] + counts[1]];
                    comm.allgatherv(&send, &mut recv, &counts, &displs).unwrap();
                    for rank in 0..2 {
                        let block = &recv[displs[rank]..displs[rank] + counts[rank]];
                        assert!(block.iter().enumerate().all(|(index, value)| *value == byte(rank, index)));
                        assert!(recv[displs[rank] - gap..displs[rank]].iter().all(|value| *value == 0xEE));
                    }
                    assert!(recv[recv.len() - gap..].iter().all(|value| *value == 0xEE));
                })
                .unwrap();
            }
        }
    }
}
