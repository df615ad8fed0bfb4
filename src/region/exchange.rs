//! Zero-copy collectives: every rank writes its block to shared memory, and all ranks read it there.

use std::ops::Range;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use bytemuck::Pod;

use crate::collective::allgatherv::gather_words;
use crate::collective::counts;
use crate::communicator::{Communicator, call};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::partition::block;
use crate::protocol::region::Parts;
use crate::rank::rank_state::{OpenCall, RankState};
use crate::region::allocation::{AllocRequest, allocate};
use crate::segment::double_buffer::{self, DoubleBuffer};
use crate::sys::memory::backing::{self, Pages};

/// A repeated allgatherv, or broadcast, without copies: [`Communicator::exchange`].
///
/// In each turn a rank writes its block, [`own`](Exchange::own), and then reads all blocks in place,
/// [`share`](Exchange::share), which costs one round, whatever the size. There are two buffers: ranks read one while they
/// write the next turn's blocks into the other. The blocks follow each other in rank order.
///
/// ```
/// let sums = intranode::threads(3, |comm| {
///     let mut exchange = comm.exchange::<f64>(&[2, 2, 2])?;
///     assert_eq!((exchange.len(), exchange.is_empty()), (6, false));
///     let mut sum = 0.0;
///     for turn in 0..10 {
///         exchange.own().fill(turn as f64);
///         sum += exchange.share()?.iter().sum::<f64>();
///     }
///     Ok::<f64, intranode::Error>(sum)
/// })?;
/// for sum in sums {
///     assert_eq!(sum?, 270.0);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
pub struct Exchange<T: Pod> {
    rank_state: Arc<RankState>,
    number: u64,
    memory: DoubleBuffer<T>,
}

impl Communicator {
    /// Allocates the memory for exchanges of `counts[r]` elements from each rank `r`; `counts` is the same on all ranks. If
    /// only one count is not 0, the exchange is a broadcast. Collective. Example: [`Exchange`].
    ///
    /// It takes twice the memory of a [`region`](Communicator::region) of all elements. Each rank allocates about the part of
    /// its own block.
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if `counts` does not have one entry a rank; [`Error::ProtectionFailed`] on every rank if
    /// the system refuses to make the other ranks' blocks read-only; otherwise as [`region`](Communicator::region).
    pub fn exchange<T: Pod>(&self, counts: &[usize]) -> Result<Exchange<T>, Error> {
        let (rank_state, operation) = (&self.rank_state, Operation::Exchange);
        let total = counts.iter().fold(0u64, |sum, count| sum.wrapping_add(*count as u64));
        let call = Call {
            length: total,
            extra: counts::digest(rank_state.mapped.key(), counts),
            ..call::<T>(operation)
        };
        if counts.len() != self.size() {
            let (expected, actual) = (self.size(), counts.len());
            return Err(rank_state.refuse(&call, Error::InvalidBufferSize { operation, expected, actual }));
        }
        let len = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        let bytes = len.and_then(double_buffer::bytes::<T>);
        // This is about the rank's own block in each buffer, if the blocks have about the same length.
        let part = block(bytes.unwrap_or(0), self.size(), self.rank());
        let mut open = rank_state.begin(operation)?;
        let parts = agree(&mut open, &call, len.map_or(0..0, |_| own_block(counts, self.rank())))?;
        let request = AllocRequest { call: &call, leader: 0, len: bytes, part, pages: Pages::huge(false) };
        let (mapping, handle) = allocate(&mut open, &request, |_| (), |_| Ok(()))?;
        let memory = DoubleBuffer::new(mapping, len.unwrap_or(0), &parts);
        let errno = memory.as_ref().map_or_else(backing::errno, |_| 0);
        let failures = gather_words(&mut open, &call, [errno as u64])?;
        let failed = |rank, source| Error::ProtectionFailed {
            operation,
            rank,
            bytes: bytes.unwrap_or(usize::MAX),
            source,
        };
        if let Some((rank, [errno])) = failures.iter().enumerate().find(|(_, [errno])| *errno != 0) {
            return Err(failed(rank, std::io::Error::from_raw_os_error(*errno as i32)));
        }
        let memory = memory.map_err(|source| failed(self.rank(), source))?;
        Ok(Exchange { rank_state: Arc::clone(rank_state), number: handle.number, memory })
    }
}

/// The block of a rank. The sum of the counts must not overflow.
fn own_block(counts: &[usize], rank: usize) -> Range<usize> {
    let start = counts[..rank].iter().sum();
    start..start + counts[rank]
}

/// Gathers the blocks of all ranks, and checks that they do not overlap. The digest of the counts can collide, so ownership
/// does not rest on it.
fn agree(open: &mut OpenCall<'_>, call: &Call, own: Range<usize>) -> Result<Parts, Error> {
    let all = gather_words(open, call, [own.start as u64, own.end as u64])?;
    let block = |[start, end]: [u64; 2]| std::iter::once(start as usize..end as usize).collect();
    let table: Vec<Vec<_>> = all.into_iter().map(block).collect();
    Parts::of_table(&table, open.rank_state().rank)
        .map_err(|overlap| Error::overlap(Operation::Exchange, overlap))
}

impl<T: Pod> Exchange<T> {
    /// The total length of all blocks, in elements. Not collective. Example: [`Exchange`].
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether no rank has any elements. Not collective. Example: [`Exchange`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// This rank's block of the next turn. It still holds what this rank wrote two turns ago, or zeros. It is empty after
    /// a [fatal](Error::is_fatal) error of [`share`](Self::share), or a panic of a hook there, since other ranks may have ended the turn
    /// and read it. Not collective. Example: [`Exchange`].
    ///
    /// # Panics
    /// In a forked child, in which the memory does not exist.
    pub fn own(&mut self) -> &mut [T] {
        self.memory.own()
    }

    /// Ends the turn. Returns the blocks of all ranks, in rank order. Collective; it costs one round, whatever the size.
    /// Example: [`Exchange`].
    ///
    /// # Errors
    /// As [`Communicator::barrier`]. The turn has not ended then. After a [fatal](Error::is_fatal) error no further turn is
    /// possible.
    pub fn share(&mut self) -> Result<&[T], Error> {
        let call = Call { length: self.memory.len() as u64, extra: self.number, ..call::<T>(Operation::Share) };
        // The release store of the round does not order non-temporal stores.
        crate::copy::lines::fence();
        // Meanwhile it owns nothing: where a hook panics the others may have completed the round.
        let own = self.memory.disown();
        let result = self
            .rank_state
            .collective(Operation::Share, |member| member.publish(&self.rank_state.barrier, &call, true));
        if !result.as_ref().is_err_and(Error::is_fatal) {
            self.memory.own_again(own);
        }
        result.map(|published| self.memory.flip(published))
    }
}

// As for a communicator: after a caught panic only the program's own plain data can be half-written.
impl<T: Pod> UnwindSafe for Exchange<T> {}
impl<T: Pod> RefUnwindSafe for Exchange<T> {}

impl<T: Pod> std::fmt::Debug for Exchange<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("len", &self.len()).finish()
    }
}
