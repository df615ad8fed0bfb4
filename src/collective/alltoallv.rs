//! alltoallv: an alltoall of the counts, the verdict on them, and a transfer of which each rank reads its parts.

use std::ops::Range;

use bytemuck::Pod;

use super::allgatherv::gather_words;
use super::alltoall::exchange;
use super::block_table::BlockTable;
use super::reduction::check_len;
use super::{counts, parts};
use crate::communicator::{Communicator, call};
use crate::copy::policy::StorePolicy;
use crate::copy::{Sink, Source};
use crate::error::{CountPair, Error, Operation};
use crate::protocol::Call;
use crate::protocol::block_transfer::BlockTransfer;
use crate::protocol::call::INLINE;
use crate::rank::choices::{Choice, Path};
use crate::rank::rank_state::OpenCall;

const OPERATION: Operation = Operation::Alltoallv;

impl Communicator {
    /// Sends a block to every rank and receives one from every rank: the `send_counts[r]` elements from
    /// `send[send_displs[r]]` on go to rank `r`, and those that rank `r` sends come to `recv[recv_displs[r]..]`, of which there
    /// are `recv_counts[r]`. Counts and displacements are in elements; a count may be 0. What rank `r` sends to this rank is as
    /// long as this rank expects. The blocks in `recv` must not overlap; gaps between them are not written. Collective.
    ///
    /// One round exchanges the counts, and a second says whether all agree; with more than 7 ranks the first takes a round for
    /// each chunk. The data follow as in [`alltoall`](Communicator::alltoall): if no rank sends more than 96 bytes, in one round.
    ///
    /// ```
    /// // Rank r sends r + 1 elements to each rank.
    /// let all = intranode::threads(2, |comm| {
    ///     let count = comm.rank() + 1;
    ///     let send = vec![comm.rank(); 2 * count];
    ///     let mut recv = [9; 3];
    ///     comm.alltoallv(&send, &[count; 2], &[0, count], &mut recv, &[1, 2], &[0, 1])?;
    ///     Ok::<_, intranode::Error>(recv)
    /// })?;
    /// for recv in all {
    ///     assert_eq!(recv?, [0, 1, 1]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if a table does not have one entry a rank, or a block exceeds its buffer;
    /// [`Error::OverlappingBlocks`] in `recv`; [`Error::CountsDisagree`] on every rank, with the first pair of ranks whose
    /// counts differ. Nothing is written then. Otherwise as [`barrier`](Communicator::barrier).
    pub fn alltoallv<T: Pod>(
        &self,
        send: &[T],
        send_counts: &[usize],
        send_displs: &[usize],
        recv: &mut [T],
        recv_counts: &[usize],
        recv_displs: &[usize],
    ) -> Result<(), Error> {
        let call = call::<T>(OPERATION);
        let check = || {
            let tables = [send_counts, send_displs, recv_counts, recv_displs];
            counts::check_tables(OPERATION, self.size(), tables)?;
            counts::check_fit(OPERATION, send.len(), send_counts, send_displs)?;
            counts::check_blocks(OPERATION, recv.len(), recv_counts, recv_displs)?;
            // Blocks may overlap where they are read, so together they can be longer than the buffer.
            let total = send_counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
            let fits = total.is_some_and(|total| total.checked_mul(size_of::<T>().max(1)).is_some());
            if fits { Ok(()) } else { check_len(OPERATION, usize::MAX, send.len()) }
        };
        if let Err(error) = check() {
            return Err(self.rank_state.refuse(&call, error));
        }
        let width = size_of::<T>();
        let mut open = self.rank_state.begin(OPERATION)?;
        let places = agree(&mut open, &call, send_counts, recv_counts)?;
        let mut blocks = AlltoallvBuffers {
            send: bytemuck::cast_slice(send),
            send_table: BlockTable::Given { counts: send_counts, displs: send_displs, width },
            recv_table: BlockTable::Given { counts: recv_counts, displs: recv_displs, width },
            width,
            places: &places,
            rank: self.rank(),
            stores: StorePolicy::of_call(size_of_val(recv), false),
            recv: bytemuck::cast_slice_mut(recv),
            copied: false,
        };
        let longest = (0..self.size()).map(|rank| blocks.length(rank)).max().unwrap_or(0);
        self.rank_state.chosen(longest, || Choice {
            operation: OPERATION,
            path: if longest <= INLINE { Path::Inline } else { Path::Staging },
            receive: blocks.stores.receive(),
        });
        open.transfer(&call, &mut blocks)
    }
}

/// What a rank has to know of a sender. In elements.
#[derive(Clone, Copy)]
struct Place {
    /// Where the part for this rank begins among the sender's parts.
    start: usize,
    /// The length of all parts for other ranks.
    total: usize,
}

/// Exchanges the counts, and agrees on whether those of all pairs are equal. Returns the places, by sender.
fn agree(
    open: &mut OpenCall<'_>,
    call: &Call,
    send_counts: &[usize],
    recv_counts: &[usize],
) -> Result<Vec<Place>, Error> {
    let (rank, size) = (open.rank_state().rank, open.rank_state().size());
    // For each receiver: its count, and where its part begins.
    let mut own = vec![[0u64; 2]; size];
    let mut total = 0;
    for receiver in parts::receivers(rank, size) {
        own[receiver] = [send_counts[receiver] as u64, total as u64];
        total += send_counts[receiver];
    }
    own[rank][0] = send_counts[rank] as u64;
    let mut theirs = vec![[0u64; 2]; size];
    let (send, recv) = (own.as_flattened(), theirs.as_flattened_mut());
    exchange(open, call, bytemuck::cast_slice(send), bytemuck::cast_slice_mut(recv))?;
    let wrong = (0..size).find(|from| theirs[*from][0] != recv_counts[*from] as u64);
    // The sender counts from 1, so that 0 is none.
    let verdict = wrong.map_or([0; 3], |from| [1 + from as u64, theirs[from][0], recv_counts[from] as u64]);
    let verdicts = gather_words(open, call, [total as u64, verdict[0], verdict[1], verdict[2]])?;
    let disagreement = verdicts.iter().enumerate().filter(|(_, [_, from, ..])| *from > 0);
    if let Some((to, [_, from, sent, expected])) = disagreement.min_by_key(|(to, [_, from, ..])| (*from, *to)) {
        let pair =
            CountPair { from: *from as usize - 1, to, sent: *sent as usize, expected: *expected as usize };
        return Err(Error::CountsDisagree { operation: OPERATION, pair: Box::new(pair) });
    }
    let place = |([_, start], [total, ..]): (&[u64; 2], &[u64; 4])| Place {
        start: *start as usize,
        total: *total as usize,
    };
    Ok(theirs.iter().zip(&verdicts).map(place).collect())
}

/// The caller's buffers, in bytes.
struct AlltoallvBuffers<'a> {
    send: &'a [u8],
    send_table: BlockTable<'a>,
    recv: &'a mut [u8],
    recv_table: BlockTable<'a>,
    /// The size of an element.
    width: usize,
    /// By sender.
    places: &'a [Place],
    rank: usize,
    stores: StorePolicy,
    /// Whether the own block was copied.
    copied: bool,
}

impl BlockTransfer for AlltoallvBuffers<'_> {
    #[inline]
    fn length(&self, rank: usize) -> usize {
        self.places[rank].total.saturating_mul(self.width)
    }

    #[inline]
    fn put(&mut self, chunk: Range<usize>, staging: Sink<'_>) {
        let receivers = parts::receivers(self.rank, self.places.len());
        parts::put(receivers.map(|rank| &self.send[self.send_table.range(rank)]), chunk, staging);
    }

    #[inline]
    fn copy_own_block(&mut self, _: Range<usize>) {
        if !self.copied {
            let (from, to) = (self.send_table.range(self.rank), self.recv_table.range(self.rank));
            self.stores.copy(&self.send[from], &mut self.recv[to]);
            self.copied = true;
        }
    }

    #[inline]
    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>) {
        let place = self.recv_table.range(rank);
        let start = self.places[rank].start.saturating_mul(self.width);
        let part = start..start.saturating_add(place.len());
        parts::get(part, chunk, staging, &mut self.recv[place], &self.stores);
    }
}
