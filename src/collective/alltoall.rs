//! alltoall: a transfer of which each rank reads its part of every block.

use std::iter;
use std::num::NonZeroU64;
use std::ops::Range;

use bytemuck::Pod;

use super::memory::{RecvBytes, SendBytes};
use super::parts;
use super::reduction::check_len;
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
use crate::tuning::{ALLTOALL_IN_PLACE_FROM, ALLTOALL_SINGLE_COPY_FROM};

impl Communicator {
    /// Sends a block to every rank and receives one from every rank: block `r` of `send` becomes block `rank()` of rank `r`'s
    /// `recv`. Both buffers have the same length on all ranks, a multiple of the number of ranks. Collective.
    ///
    /// If all blocks of a rank but its own have up to 96 bytes in all, they take one round. Longer data streams through staging;
    /// each rank begins with the block for its successor, so that all read at the same time (the linear shift: Thakur,
    /// Rabenseifner and Gropp 2005). A `send` in memory that all ranks map (a [buffer](Communicator::buffer), a
    /// [symmetric object](crate::Symmetric)) may be read there, if it is long or does not change; with
    /// [single copy](crate::Config::single_copy), blocks of 64 KiB or more are read wherever they lie.
    ///
    /// ```
    /// let all = intranode::threads(3, |comm| {
    ///     let rank = comm.rank();
    ///     let mut recv = [0; 3];
    ///     comm.alltoall(&[10 * rank, 10 * rank + 1, 10 * rank + 2], &mut recv)?;
    ///     Ok::<_, intranode::Error>(recv)
    /// })?;
    /// for (rank, recv) in all.into_iter().enumerate() {
    ///     assert_eq!(recv?, [rank, 10 + rank, 20 + rank]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if the lengths differ, or are no multiple of the number of ranks; otherwise as
    /// [`barrier`](Communicator::barrier).
    pub fn alltoall<T: Pod>(&self, send: &[T], recv: &mut [T]) -> Result<(), Error> {
        let call = self.alltoall_call::<T>(send.len(), recv.len())?;
        let (send, recv) = (bytemuck::cast_slice::<T, u8>(send), bytemuck::cast_slice_mut::<T, u8>(recv));
        match self.are_short(self.size() - 1, send.len() / self.size()) {
            true => self.alltoall_short(&call, send, recv),
            false => exchange(&mut self.rank_state.begin(Operation::Alltoall)?, &call, send, recv),
        }
    }

    /// The call with buffers of these lengths, in elements. If they are wrong, the call is refused.
    pub(super) fn alltoall_call<T: Pod>(&self, send_len: usize, recv_len: usize) -> Result<Call, Error> {
        let operation = Operation::Alltoall;
        let call = Call { length: send_len as u64, ..call::<T>(operation) };
        let whole = send_len - send_len % self.size();
        let checked =
            check_len(operation, whole, send_len).and_then(|()| check_len(operation, send_len, recv_len));
        match checked {
            Ok(()) => Ok(call),
            Err(error) => Err(self.rank_state.refuse(&call, error)),
        }
    }
}

/// An alltoall of bytes, as one transfer of a call.
pub(super) fn exchange<S: SendBytes>(
    open: &mut OpenCall<'_>,
    call: &Call,
    send: S,
    recv: impl RecvBytes<S>,
) -> Result<(), Error> {
    let (rank_state, operation) = (open.rank_state(), open.operation());
    let (rank, size) = (rank_state.rank, rank_state.size());
    let stores = StorePolicy::of_call(recv.bytes());
    let place = send.lend_from(rank_state, ALLTOALL_IN_PLACE_FROM);
    let lengths = iter::repeat_n(send.bytes() / size, size);
    let is_fetched = rank_state.fetches(ALLTOALL_SINGLE_COPY_FROM, lengths);
    let address = if is_fetched { send.address() } else { None };
    let lending = Lending::new(rank_state, place).or_at(address);
    let mut blocks = AlltoallBuffers { send, recv, rank, size, lending, stores, copied: false };
    let bytes = blocks.length(rank);
    rank_state.chosen(bytes, || Choice {
        operation,
        path: Path::of_block(bytes <= INLINE, &mut blocks),
        receive: blocks.stores.receive(),
    });
    open.transfer(call, &mut blocks)
}

/// The caller's buffers, in bytes.
struct AlltoallBuffers<'a, S, R> {
    send: S,
    recv: R,
    rank: usize,
    size: usize,
    /// Of `send`.
    lending: Lending<'a>,
    stores: StorePolicy,
    /// Whether the own block was copied.
    copied: bool,
}

impl<S: SendBytes, R> AlltoallBuffers<'_, S, R> {
    /// The length of a block of one rank for another.
    #[inline]
    fn bytes(&self) -> usize {
        self.send.bytes() / self.size
    }

    #[inline]
    fn range(&self, rank: usize) -> Range<usize> {
        rank * self.bytes()..(rank + 1) * self.bytes()
    }
}

impl<S: SendBytes, R: RecvBytes<S>> BlockTransfer for AlltoallBuffers<'_, S, R> {
    #[inline]
    fn length(&self, _: usize) -> usize {
        self.send.bytes() - self.bytes()
    }

    #[inline]
    fn put(&mut self, chunk: Range<usize>, staging: Sink<'_>) {
        let blocks = parts::receivers(self.rank, self.size).map(|rank| self.send.part(self.range(rank)));
        parts::put(blocks, chunk, staging);
    }

    #[inline]
    fn copy_own_block(&mut self, _: Range<usize>) {
        if !self.copied {
            let own = self.range(self.rank);
            self.recv.copy(own.clone(), self.send.part(own), &self.stores);
            self.copied = true;
        }
    }

    #[inline]
    fn get(&mut self, rank: usize, chunk: Range<usize>, staging: Source<'_>) {
        let start = parts::position(rank, self.rank, self.size) * self.bytes();
        let (part, place) = (start..start + self.bytes(), self.range(rank));
        parts::get((part, place), chunk, staging, &mut self.recv, &self.stores);
    }

    #[inline]
    fn lending(&mut self) -> Option<&mut dyn Lend> {
        Some(&mut self.lending)
    }

    /// This rank's part of the chunk. The blocks of a sender lie in rank order, its own among them.
    fn fetch(&mut self, rank: usize, chunk: Range<usize>, from: NonZeroU64) -> bool {
        let start = parts::position(rank, self.rank, self.size) * self.bytes();
        let (own, place) = (self.range(self.rank), self.range(rank));
        parts::fetch((start, own, place), chunk, (&self.lending, rank, from), &mut self.recv, &self.stores)
    }

    fn read_in_place(&mut self, rank: usize, place: NonZeroU64) {
        let (own, range) = (self.range(self.rank), self.range(rank));
        if let Some(found) = self.lending.at(place, own.start, own.len()) {
            self.recv.fetch(range, &found.view(), &self.stores);
        }
    }
}
