//! allgatherv and allgather: the arguments' checks, and the caller's buffers as the protocol uses them.

use std::num::NonZeroU64;
use std::ops::Range;

use bytemuck::Pod;

use super::counts;
use super::receive::{STREAM_FROM, end, keep_pace, take};
use crate::communicator::{Communicator, call};
use crate::copy::{self, Sink, Source, lines};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::block_transfer::Address;
use crate::protocol::block_transfer::BlockTransfer;
use crate::rank::cma_peers::{self, CmaPeers};
use crate::rank::rank_state::OpenCall;

impl Communicator {
    /// Brings the `send` of every rank to every rank: that of rank `r`, which has `counts[r]` elements, to
    /// `recv[displs[r]..]`. Counts and displacements are in elements. `counts` is the same on all ranks; each rank
    /// places the blocks as it likes, without overlap. What lies between them is not touched.
    ///
    /// Blocks stream through staging in chunks, one round a chunk; a write by the owner, a read by every other rank. Large
    /// ones are copied straight from their owners' memory where that is faster, and allowed, in two rounds: see
    /// [`Config::single_copy`](crate::Config::single_copy) (Linux's cross memory attach, Yeoh 2010).
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if `counts` or `displs` do not have one entry a rank, `send` does not have
    /// `counts[rank]` elements, or a block reaches past the end of `recv`; [`Error::OverlappingBlocks`]. Nothing is
    /// written then. Otherwise as [`barrier`](Communicator::barrier).
    pub fn allgatherv<T: Pod>(
        &self,
        send: &[T],
        recv: &mut [T],
        counts: &[usize],
        displs: &[usize],
    ) -> Result<(), Error> {
        let operation = Operation::Allgatherv;
        let total = counts.iter().fold(0u64, |sum, count| sum.wrapping_add(*count as u64));
        let call = Call {
            length: total,
            extra: counts::digest(self.seat.world.key(), counts),
            ..call::<T>(operation)
        };
        if let Err(error) = counts::check(self.seat.rank, self.size(), send.len(), recv.len(), counts, displs) {
            return Err(self.seat.refuse(&call, error));
        }
        let table = BlockTable::Given { counts, displs, width: size_of::<T>() };
        let (send, recv) = (bytemuck::cast_slice(send), bytemuck::cast_slice_mut(recv));
        gather(&mut self.seat.begin(operation)?, &call, send, recv, table)
    }

    /// Brings the `send` of every rank to every rank, in rank order. `send` has the same length on all ranks, and
    /// `recv` that times the number of ranks.
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if `recv` has another length; otherwise as [`barrier`](Communicator::barrier).
    pub fn allgather<T: Pod>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let operation = Operation::Allgather;
        let call = Call { length: send.len() as u64, ..call::<T>(operation) };
        let expected = send.len().saturating_mul(self.size());
        if recv.len() != expected {
            let error = Error::InvalidBufferSize { operation, expected, actual: recv.len() };
            return Err(self.seat.refuse(&call, error));
        }
        let table = BlockTable::Equal { bytes: size_of_val(send) };
        let (send, recv) = (bytemuck::cast_slice(send), bytemuck::cast_slice_mut(recv));
        gather(&mut self.seat.begin(operation)?, &call, send, recv, table)
    }
}

/// Blocks of bytes from every rank to every rank, which may be one of several transfers of a call.
pub(crate) fn gather(
    open: &mut OpenCall<'_>,
    call: &Call,
    send: &[u8],
    recv: &mut [u8],
    table: BlockTable<'_>,
) -> Result<(), Error> {
    let seat = open.seat();
    let mut blocks = AllgathervBuffers::new(send, recv, seat.rank, table, seat.cma_peers.as_ref());
    open.transfer(call, &mut blocks)
}

/// Some words from every rank to every rank, likewise.
pub(crate) fn gather_words<const N: usize>(
    open: &mut OpenCall<'_>,
    call: &Call,
    own: [u64; N],
) -> Result<Vec<[u64; N]>, Error> {
    let mut all = vec![[0; N]; open.seat().size()];
    let table = BlockTable::Equal { bytes: size_of::<[u64; N]>() };
    let recv = bytemuck::cast_slice_mut(all.as_flattened_mut());
    gather(open, call, bytemuck::cast_slice(&own), recv, table)?;
    Ok(all)
}

/// Where the block of each rank lies in the receive buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BlockTable<'a> {
    /// In rank order, of so many bytes each.
    Equal { bytes: usize },
    /// By rank, counts and displacements in elements of `width` bytes, which have been checked.
    Given { counts: &'a [usize], displs: &'a [usize], width: usize },
}

impl BlockTable<'_> {
    /// The bytes of a rank's block.
    #[inline]
    fn range(&self, rank: usize) -> Range<usize> {
        match self {
            BlockTable::Equal { bytes } => rank * bytes..(rank + 1) * bytes,
            BlockTable::Given { counts, displs, width } => {
                displs[rank] * width..(displs[rank] + counts[rank]) * width
            }
        }
    }
}

/// Blocks of bytes from every rank, each with its place in the receive buffer.
pub(crate) struct AllgathervBuffers<'a> {
    send: &'a [u8],
    recv: &'a mut [u8],
    table: BlockTable<'a>,
    rank: usize,
    stream: bool,
    cma_peers: Option<&'a CmaPeers>,
}

impl<'a> AllgathervBuffers<'a> {
    pub(crate) fn new(
        send: &'a [u8],
        recv: &'a mut [u8],
        rank: usize,
        table: BlockTable<'a>,
        cma_peers: Option<&'a CmaPeers>,
    ) -> Self {
        let stream = recv.len() >= STREAM_FROM;
        AllgathervBuffers { send, recv, table, rank, stream, cma_peers }
    }

    fn target(&mut self, rank: usize, part: &Range<usize>) -> &mut [u8] {
        let block = self.table.range(rank);
        &mut self.recv[block.start + part.start..block.start + part.end]
    }

    /// Copies a part of this rank's own block into staging, and meanwhile what there is to `get`: a part of the block of
    /// a rank, from its staging. One's own part goes to its place too, while it is near, if received data does not stay in
    /// the cache: then it comes from memory once.
    fn put_in_turns(
        &mut self,
        part: Range<usize>,
        staging: Sink<'_>,
        get: Option<(usize, Range<usize>, Source<'_>)>,
    ) {
        let own = &self.send[part.clone()];
        let (mut kept, mut got) = (0, 0);
        staging.put_in_turns(own, |put| {
            if let Some((rank, part, staging)) = &get {
                let stream = self.stream;
                let target = self.target(*rank, part);
                let piece = keep_pace(&mut got, put, own.len(), target);
                take(&staging.after(piece.start), &mut target[piece], stream);
            }
            if self.stream {
                let target = self.target(self.rank, &part);
                let piece = keep_pace(&mut kept, put, own.len(), target);
                lines::copy_slice_nontemporal(&own[piece.clone()], &mut target[piece]);
            }
        });
    }
}

impl BlockTransfer for AllgathervBuffers<'_> {
    #[inline]
    fn length(&self, rank: usize) -> usize {
        self.table.range(rank).len()
    }

    #[inline]
    fn put(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        if self.stream {
            return self.put_in_turns(part, staging, None);
        }
        staging.publish(&self.send[part]);
    }

    #[inline]
    fn copy_own_block(&mut self, part: Range<usize>) {
        if self.stream {
            return;
        }
        let own = &self.send[part.clone()];
        self.target(self.rank, &part).copy_from_slice(own);
    }

    #[inline]
    fn get(&mut self, rank: usize, part: Range<usize>, staging: Source<'_>) {
        let stream = self.stream;
        take(&staging, self.target(rank, &part), stream);
    }

    fn get_and_put(
        &mut self,
        rank: usize,
        theirs: Range<usize>,
        staging: Source<'_>,
        next: Range<usize>,
        place: Sink<'_>,
    ) {
        // Where all goes through the cache there is nothing to wait for.
        if self.stream || copy::streams() {
            self.put_in_turns(next, place, Some((rank, theirs, staging)));
        } else {
            self.get(rank, theirs, staging);
            self.put(next, place);
        }
    }

    #[inline]
    fn by_single_copy(&mut self) -> bool {
        let Some(cma_peers) = self.cma_peers.filter(|cma_peers| cma_peers.eligible(|rank| self.length(rank)))
        else {
            return false;
        };
        // What is better stored past the cache is better not copied by the system.
        let fits = (0..cma_peers.size()).map(|rank| self.length(rank)).sum::<usize>() < STREAM_FROM;
        self.stream &= !fits;
        fits
    }

    fn address(&self) -> Address {
        cma_peers::address(self.send)
    }

    fn fetch(&mut self, rank: usize, part: Range<usize>, from: NonZeroU64) -> bool {
        let cma_peers = self.cma_peers;
        let target = self.target(rank, &part);
        cma_peers.is_some_and(|cma_peers| cma_peers.fetch(rank, from, part, target))
    }

    fn refused(&mut self) {
        self.cma_peers.iter().for_each(|cma_peers| cma_peers.refuse());
    }
}

impl Drop for AllgathervBuffers<'_> {
    fn drop(&mut self) {
        end(self.stream);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "Miri knows no madvise, which ranks that are threads need")]
    fn blocks_of_several_parts_come_to_any_place_and_nothing_else_is_touched() {
        let byte = |rank: usize, index: usize| (index * 7 + index / 251 + 100 * rank) as u8;
        // Through the cache and past it, with parts that end with a line of their target and that do not.
        for counts in [[1_700_001, 1_600_000], [1, 1_600_001], [STREAM_FROM, 1_300_003], [600_001, STREAM_FROM]]
        {
            for gap in [0, 1, 64] {
                crate::threads(2, |world| {
                    let rank = world.rank();
                    let send: Vec<u8> = (0..counts[rank]).map(|index| byte(rank, index)).collect();
                    let displs = [gap, 2 * gap + counts[0]];
                    let mut recv = vec![0xEE; 3 * gap + counts[0] + counts[1]];
                    world.allgatherv(&send, &mut recv, &counts, &displs).unwrap();
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

    #[test]
    fn what_goes_past_the_cache_does_not_go_in_one_copy() {
        let cma_peers = CmaPeers::of([1, 2].into());
        for (len, fits) in [(STREAM_FROM / 2 - 1, true), (STREAM_FROM / 2, false)] {
            // With gaps between the blocks, which do not count.
            let mut recv = vec![0; 2 * STREAM_FROM];
            let (counts, displs) = ([len; 2], [0, STREAM_FROM]);
            let table = BlockTable::Given { counts: &counts, displs: &displs, width: 1 };
            let mut blocks = AllgathervBuffers::new(&[], &mut recv, 0, table, Some(&cma_peers));
            assert_eq!((blocks.by_single_copy(), blocks.stream), (fits, !fits));
        }
    }
}
