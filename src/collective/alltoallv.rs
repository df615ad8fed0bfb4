//! alltoallv: the counts, the verdict on them, and a transfer of which each rank reads its parts.

use std::iter;
use std::num::NonZeroU64;
use std::ops::Range;

use bytemuck::Pod;

use super::alltoall::exchange;
use super::alltoallv_eager::{Verdict, first_round};
use super::block_table::BlockTable;
use super::memory::{RecvBytes, SendBytes};
use super::pair_counts::{Agreed, OwnCounts, Place, agree_in_two_rounds};
use super::vector_buffers::VectorBuffers;
use super::{counts, parts};
use crate::communicator::{Communicator, call};
use crate::copy::policy::StorePolicy;
use crate::copy::{Sink, Source};
use crate::error::{Error, Operation};
use crate::protocol::block_transfer::{Address, BlockTransfer, Lend};
use crate::protocol::call::INLINE;
use crate::rank::choices::{Choice, Path};
use crate::rank::lending::Lending;
use crate::tuning::{ALLTOALL_IN_PLACE_FROM, ALLTOALL_SINGLE_COPY_FROM, IN_PLACE_FROM_ANY};

const OPERATION: Operation = Operation::Alltoallv;

impl Communicator {
    /// Sends a block to every rank and receives one from every rank: the `send_counts[r]` elements from
    /// `send[send_displs[r]]` on go to rank `r`, and those that rank `r` sends come to `recv[recv_displs[r]..]`, of which there
    /// are `recv_counts[r]`. Counts and displacements are in elements; a count may be 0. What rank `r` sends to this rank is as
    /// long as this rank expects. The blocks in `recv` must not overlap; gaps between them are not written. Collective.
    ///
    /// The first round exchanges the counts: the header of each rank has 94 bytes for its `2 * size()` counts. A count below 128 takes 1
    /// byte, below 16,384 it takes 2, and so on. If the counts of some rank alone do not fit, two further rounds exchange them and say
    /// whether all agree. If they do, and all blocks of each rank for the others have less than 8 KiB together, the data come with the counts
    /// (the eager protocol of message passing): in the header if they fit beside these, or else through staging. After two calls with longer
    /// ones in a row they come with the counts only from the second short one on. Otherwise they follow as
    /// in [`alltoall`](Communicator::alltoall). Blocks of `send` that do not follow one another in rank order go through staging, unless
    /// they have 1 MiB or more together and lie in memory that all ranks map; then one more round exchanges the displacements.
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
    /// [`Error::InvalidBufferSize`] if a table does not have one entry a rank, a block exceeds its buffer, or those of `send`,
    /// which may overlap, are longer together than a `usize` can say; [`Error::OverlappingBlocks`] in `recv`;
    /// [`Error::CountsDisagree`] on every rank, with the first pair of ranks whose counts differ. Nothing is written then.
    /// Otherwise as [`barrier`](Communicator::barrier).
    pub fn alltoallv<T: Pod>(
        &self,
        send: &[T],
        send_counts: &[usize],
        send_displs: &[usize],
        recv: &mut [T],
        recv_counts: &[usize],
        recv_displs: &[usize],
    ) -> Result<(), Error> {
        let lens = [send.len(), recv.len()];
        let (send, recv) = (bytemuck::cast_slice::<T, u8>(send), bytemuck::cast_slice_mut::<T, u8>(recv));
        let (sent, received) = ([send_counts, send_displs], [recv_counts, recv_displs]);
        self.alltoallv_of::<T, _, _>((send, sent), (recv, received), lens)
    }

    /// The same of bytes, with counts and displacements, and the lengths of the buffers, in elements of `T`.
    pub(super) fn alltoallv_of<T: Pod, S: SendBytes, R: RecvBytes<S>>(
        &self,
        (send, [send_counts, send_displs]): (S, [&[usize]; 2]),
        (recv, [recv_counts, recv_displs]): (R, [&[usize]; 2]),
        [send_len, recv_len]: [usize; 2],
    ) -> Result<(), Error> {
        let call = call::<T>(OPERATION);
        let width = size_of::<T>();
        let (lens, tables) = ([send_len, recv_len], ([send_counts, send_displs], [recv_counts, recv_displs]));
        if let Err(error) = counts::check_exchange(OPERATION, self.size(), width, lens, tables) {
            return Err(self.rank_state.refuse(&call, error));
        }
        let send_table = BlockTable::Given { counts: send_counts, displs: send_displs, width };
        let sent = send_table.start_if_packed(self.size());
        // Those that are shorter come with the counts, or follow one another in memory, or go through staging.
        let lent = (sent >= ALLTOALL_IN_PLACE_FROM.usual).then(|| self.lend_sent(send, &send_table, sent));
        let sends_displs = matches!(lent, Some((None, Some(_))));
        let own = OwnCounts { send: send_counts, recv: recv_counts, sends_displs };
        let mut blocks = VectorBuffers {
            send,
            send_table,
            stores: StorePolicy::of_call(recv.bytes()),
            recv,
            recv_table: BlockTable::Given { counts: recv_counts, displs: recv_displs, width },
            width,
            rank: self.rank(),
            size: self.size(),
        };
        let mut open = self.rank_state.begin(OPERATION)?;
        open.moves(sent);
        let Agreed { mut places, need_displs } = match first_round(&mut open, &call, &own, &mut blocks)? {
            Verdict::Complete => return Ok(()),
            Verdict::Agreed(agreed) => agreed,
            Verdict::NoRoom => agree_in_two_rounds(&mut open, &call, &own)?,
        };
        let (packed, place) = lent.unwrap_or_else(|| self.lend_sent(send, &send_table, sent));
        if need_displs {
            let first = packed.as_ref().map_or(0, |blocks| blocks.start / width.max(1));
            let own = send_displs.iter().map(|displ| displ.wrapping_sub(first) as u64);
            let (own, mut theirs) = (own.collect::<Vec<u64>>(), vec![0u64; self.size()]);
            let received = bytemuck::cast_slice_mut::<u64, u8>(&mut theirs);
            exchange(&mut open, &call, bytemuck::cast_slice::<u64, u8>(&own), received)?;
            places.iter_mut().zip(theirs).for_each(|(place, offset)| place.offset = offset as usize);
        }
        let address = packed.and_then(|blocks| self.address_of_parts(send.part(blocks), &send_table));
        let lending = Lending::new(&self.rank_state, place).or_at(address);
        let mut blocks = AlltoallvBlocks { blocks, places: &places, lending, copied: false };
        let longest = (0..self.size()).map(|rank| blocks.length(rank)).max().unwrap_or(0);
        self.rank_state.chosen(longest, || Choice {
            operation: OPERATION,
            path: Path::of_block(longest <= INLINE, &mut blocks),
            receive: blocks.blocks.stores.receive(),
        });
        open.transfer(&call, &mut blocks)
    }

    /// Where the blocks lie among `send`, if they follow one another in rank order, and where all ranks find them to read them in place.
    fn lend_sent<S: SendBytes>(
        &self,
        send: S,
        table: &BlockTable<'_>,
        sent: usize,
    ) -> (Option<Range<usize>>, Address) {
        let packed = table.packed(self.size());
        let place = match &packed {
            Some(blocks) => send.part(blocks.clone()).lend_from(&self.rank_state, ALLTOALL_IN_PLACE_FROM),
            // On any processor: where the blocks begin takes a round then.
            None if sent >= ALLTOALL_IN_PLACE_FROM.usual => send.lend_from(&self.rank_state, IN_PLACE_FROM_ANY),
            None => None,
        };
        (packed, place)
    }

    /// Where the others fetch this rank's blocks by single copy, if these are long enough on average.
    fn address_of_parts<S: SendBytes>(&self, blocks: S, table: &BlockTable<'_>) -> Address {
        let lengths = || table.lens_of_parts(self.rank(), self.size());
        let some = lengths().filter(|len| *len > 0).count();
        let mean = lengths().fold(0, usize::saturating_add).checked_div(some)?;
        let pays = self.rank_state.fetches(ALLTOALL_SINGLE_COPY_FROM, iter::repeat_n(mean, some));
        if pays { blocks.address() } else { None }
    }
}

/// The buffers of a call whose ranks agree on the counts, and whose blocks are still to come.
struct AlltoallvBlocks<'a, 'b, S, R> {
    blocks: VectorBuffers<'a, S, R>,
    /// By sender.
    places: &'b [Place],
    /// Of the blocks of `send`.
    lending: Lending<'b>,
    /// Whether the own block was copied.
    copied: bool,
}

impl<S: SendBytes, R: RecvBytes<S>> AlltoallvBlocks<'_, '_, S, R> {
    /// Where the part of a sender for this rank lies among its parts, in bytes.
    fn part(&self, sender: usize) -> Range<usize> {
        self.blocks.range_from(sender, self.places[sender].start)
    }

    /// The same in the sender's memory.
    fn range_in_place(&self, sender: usize) -> Range<usize> {
        self.blocks.range_from(sender, self.places[sender].offset)
    }

    fn place_of(&self, sender: usize) -> Range<usize> {
        self.blocks.recv_table.range(sender)
    }
}

impl<S: SendBytes, R: RecvBytes<S>> BlockTransfer for AlltoallvBlocks<'_, '_, S, R> {
    #[inline]
    fn length(&self, rank: usize) -> usize {
        self.places[rank].total.saturating_mul(self.blocks.width)
    }

    #[inline]
    fn put(&mut self, chunk: Range<usize>, staging: Sink<'_>) {
        parts::put(self.blocks.parts(), chunk, staging);
    }

    #[inline]
    fn copy_own_block(&mut self, _: Range<usize>) {
        if !self.copied {
            self.blocks.copy_own_block();
            self.copied = true;
        }
    }

    #[inline]
    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>) {
        let (part, place) = (self.part(rank), self.place_of(rank));
        parts::get((part, place), chunk, staging, &mut self.blocks.recv, &self.blocks.stores);
    }

    #[inline]
    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(&mut self.lending)
    }

    /// This rank's part of the chunk.
    fn fetch(&mut self, rank: usize, chunk: Range<usize>, from: NonZeroU64) -> bool {
        let part = (self.part(rank).start, self.range_in_place(rank), self.place_of(rank));
        let VectorBuffers { recv, stores, .. } = &mut self.blocks;
        parts::fetch(part, chunk, (&self.lending, rank, from), recv, stores)
    }

    fn read_in_place(&mut self, rank: usize, place: NonZeroU64) {
        let (own, range) = (self.range_in_place(rank), self.place_of(rank));
        if let Some(found) = self.lending.at(place, own.start, own.len()) {
            self.blocks.recv.fetch(range, &found.view(), &self.blocks.stores);
        }
    }
}
