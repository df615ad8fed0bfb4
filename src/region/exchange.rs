//! Collectives without a copy: every rank writes its block where all read it.

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
use crate::sys::memory::backing;

/// An allgatherv, or a broadcast, that copies nothing and is done over and over: [`Communicator::exchange`].
///
/// In each turn a rank writes its block, [`own`](Exchange::own), and then reads all blocks in place,
/// [`share`](Exchange::share), which costs a round whatever the size. There are two buffers: while one is read, the
/// next turn's blocks are written into the other. The block of rank `r` begins after those of the ranks before it.
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
    seat: Arc<RankState>,
    number: u64,
    memory: DoubleBuffer<T>,
}

impl Communicator {
    /// Makes the memory for exchanges of `counts[r]` values from each rank `r`, in elements; `counts` is the same on all
    /// ranks. Where only one count is not 0, the exchange is a broadcast. Collective. Example: [`Exchange`].
    ///
    /// It takes twice the memory of a [`region`](Communicator::region) of all the values. Each rank allocates about that of its
    /// own block.
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if `counts` does not have one entry a rank; [`Error::ProtectionFailed`] on every rank where
    /// the system does not protect the blocks of the others; otherwise as [`region`](Communicator::region).
    pub fn exchange<T: Pod>(&self, counts: &[usize]) -> Result<Exchange<T>, Error> {
        let (seat, operation) = (&self.seat, Operation::Exchange);
        let total = counts.iter().fold(0u64, |sum, count| sum.wrapping_add(*count as u64));
        let call =
            Call { length: total, extra: counts::digest(seat.mapped.key(), counts), ..call::<T>(operation) };
        if counts.len() != self.size() {
            let (expected, actual) = (self.size(), counts.len());
            return Err(seat.refuse(&call, Error::InvalidBufferSize { operation, expected, actual }));
        }
        let len = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        let bytes = len.and_then(double_buffer::bytes::<T>);
        // About its own block in each of the buffers, if the blocks are of about the same size.
        let part = block(bytes.unwrap_or(0), self.size(), self.rank());
        let mut open = seat.begin(operation)?;
        let parts = agree(&mut open, &call, len.map_or(0..0, |_| own_block(counts, self.rank())))?;
        let wanted = AllocRequest { call: &call, leader: 0, len: bytes, part, huge: false };
        let (mapping, number) = allocate(&mut open, &wanted, |_| (), |_| Ok(()))?;
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
        Ok(Exchange { seat: Arc::clone(seat), number, memory })
    }
}

/// The block of a rank, if they follow each other. Their sum is a number.
fn own_block(counts: &[usize], rank: usize) -> Range<usize> {
    let start = counts[..rank].iter().sum();
    start..start + counts[rank]
}

/// This rank's part, if its block is apart from those of all other ranks. That all were given the same counts is known by a
/// digest; who owns what rests on the blocks themselves.
fn agree(open: &mut OpenCall<'_>, call: &Call, own: Range<usize>) -> Result<Parts, Error> {
    let all = gather_words(open, call, [own.start as u64, own.end as u64])?;
    let block = |[start, end]: [u64; 2]| std::iter::once(start as usize..end as usize).collect();
    let table: Vec<Vec<_>> = all.into_iter().map(block).collect();
    Parts::of_table(&table, open.rank_state().rank)
        .map_err(|overlap| Error::overlap(Operation::Exchange, overlap))
}

impl<T: Pod> Exchange<T> {
    /// The length of all blocks together, in elements. Not collective. Example: [`Exchange`].
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether no rank has any elements. Not collective. Example: [`Exchange`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// This rank's block of the next turn. At first it holds what this rank wrote two turns ago, or zeros. Empty after
    /// [`share`](Self::share) has failed for good, since the others may have ended the turn. Not collective. Example:
    /// [`Exchange`].
    ///
    /// # Panics
    /// In a forked child, in which the memory does not exist.
    pub fn own(&mut self) -> &mut [T] {
        self.memory.own()
    }

    /// Ends the turn: the blocks of all ranks, in rank order. Collective; it costs a round, whatever the size. Example:
    /// [`Exchange`].
    ///
    /// # Errors
    /// As [`Communicator::barrier`]. The turn has not ended then; after a [fatal](Error::is_fatal) error there is none any more.
    pub fn share(&mut self) -> Result<&[T], Error> {
        let call = Call { length: self.memory.len() as u64, extra: self.number, ..call::<T>(Operation::Share) };
        // The round that follows orders ordinary stores only.
        crate::copy::lines::fence();
        match self.seat.collective(Operation::Share, |member| member.publish(&self.seat.barrier, &call, true)) {
            Ok(published) => Ok(self.memory.flip(published)),
            Err(error) => {
                if error.is_fatal() {
                    self.memory.disown();
                }
                Err(error)
            }
        }
    }
}

// As for a communicator: a panic that is caught leaves nothing half-way but the program's own plain data.
impl<T: Pod> UnwindSafe for Exchange<T> {}
impl<T: Pod> RefUnwindSafe for Exchange<T> {}

impl<T: Pod> std::fmt::Debug for Exchange<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Exchange").field("len", &self.len()).finish()
    }
}
