//! Collectives without a copy: every rank writes its block where all read it.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use bytemuck::Pod;

use crate::blocks;
use crate::communicator::{Communicator, call};
use crate::distribute::block;
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::region::Parts;
use crate::seat::Seat;
use crate::share::{Wanted, share};
use crate::sys::turns::{self, Turns};

/// An allgatherv, or a broadcast, that copies nothing and is done over and over: [`Communicator::exchange`].
///
/// In each turn a rank writes its block, [`own`](Exchange::own), and then reads all blocks in place,
/// [`share`](Exchange::share), which costs a round whatever the size. There are two buffers: while one is read, the
/// next turn's blocks are written into the other.
///
/// ```
/// let sums = intranode::threads(3, |comm| {
///     let mut exchange = comm.exchange::<f64>(&[2, 2, 2])?;
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
    seat: Arc<Seat>,
    number: u64,
    memory: Turns<T>,
}

impl Communicator {
    /// Makes the memory for exchanges of `counts[r]` values from each rank `r`, which are the same on all ranks. Where
    /// only one count is not 0, the exchange is a broadcast. Collective.
    ///
    /// Each rank allocates the memory of its own block.
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] if `counts` does not have one entry a rank; otherwise as
    /// [`region`](Communicator::region).
    pub fn exchange<T: Pod>(&self, counts: &[usize]) -> Result<Exchange<T>, Error> {
        let (seat, operation) = (&self.seat, Operation::Exchange);
        let total = counts.iter().fold(0u64, |sum, count| sum.wrapping_add(*count as u64));
        let call = Call { length: total, extra: blocks::digest(counts), ..call::<T>(operation) };
        if counts.len() != self.size() {
            let (expected, actual) = (self.size(), counts.len());
            return Err(seat.refuse(&call, Error::InvalidBufferSize { operation, expected, actual }));
        }
        let len = counts.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
        let bytes = len.and_then(turns::bytes::<T>);
        // About its own block in each of the buffers, if the blocks are of about the same size.
        let part = block(bytes.unwrap_or(0), self.size(), self.rank());
        let wanted = Wanted { operation, call: &call, leader: 0, len: bytes, part, huge: false };
        let (mapping, number) = share(seat, &wanted, |_| (), |_| Ok(()))?;
        let starts = counts.iter().scan(0, |end, count| {
            *end += count;
            Some(*end - count..*end)
        });
        let table: Vec<_> = starts.map(|block| vec![block]).collect();
        let parts = Parts::of_table(&table, self.rank()).expect("blocks in a row are apart");
        let memory = Turns::new(mapping, len.unwrap_or(0), &parts);
        let failures = seat.exchange(operation, &call, [u64::from(memory.is_err())])?;
        let failed = |reason: String| Error::AllocationFailed {
            requested_bytes: bytes.unwrap_or(usize::MAX),
            reason: reason.into_boxed_str(),
        };
        if let Some(rank) = failures.iter().position(|[failed]| *failed != 0) {
            return Err(failed(format!("rank {rank} could not change the memory's protection")));
        }
        let memory = memory.map_err(|error| failed(error.to_string()))?;
        Ok(Exchange { seat: Arc::clone(seat), number: number.into(), memory })
    }
}

impl<T: Pod> Exchange<T> {
    /// The number of values of all ranks.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// This rank's block of the next turn. What is in it at first is what this rank wrote two turns ago, or zeros.
    ///
    /// # Panics
    /// In a forked child, in which the memory does not exist.
    pub fn own(&mut self) -> &mut [T] {
        self.memory.own()
    }

    /// Ends the turn: the blocks of all ranks, in rank order. Collective; it costs a round, whatever the size.
    ///
    /// # Errors
    /// As [`Communicator::barrier`]. The turn has not ended then.
    pub fn share(&mut self) -> Result<&[T], Error> {
        let call = Call { length: self.memory.len() as u64, extra: self.number, ..call::<T>(Operation::Share) };
        // The round that follows orders ordinary stores only.
        crate::sys::lines::fence();
        let published = self.seat.collective(Operation::Share, |member| member.publish(&call, true))?;
        Ok(self.memory.turn(published))
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
