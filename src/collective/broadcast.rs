//! broadcast: a transfer in which one rank's block is not empty.

use std::ops::Range;

use bytemuck::Pod;

use super::receive::{STREAM_FROM, end, take};
use crate::communicator::{Communicator, call};
use crate::copy::{Sink, Source};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::block_transfer::BlockTransfer;

impl Communicator {
    /// Brings `buffer` of rank `root` to all ranks. It has the same length on all of them.
    ///
    /// The root writes chunk after chunk into its staging, and everybody reads; while one chunk is read, the next is
    /// written.
    ///
    /// # Errors
    /// [`Error::InvalidRoot`] if there is no such rank; otherwise as [`barrier`](Communicator::barrier).
    pub fn broadcast<T: Pod>(&self, buffer: &mut [T], root: usize) -> Result<(), Error> {
        let operation = Operation::Broadcast;
        let call = Call { length: buffer.len() as u64, extra: root as u64, ..call::<T>(operation) };
        let size = self.size();
        if root >= size {
            return Err(self.seat.refuse(&call, Error::InvalidRoot { root, size }));
        }
        let mut blocks = BroadcastBuffer::new(bytemuck::cast_slice_mut(buffer), root);
        self.seat.collective(operation, |member| member.transfer(&call, &mut blocks))
    }
}

/// One block of bytes from the root to everybody.
pub(crate) struct BroadcastBuffer<'a> {
    buffer: &'a mut [u8],
    root: usize,
    stream: bool,
}

impl<'a> BroadcastBuffer<'a> {
    pub(crate) fn new(buffer: &'a mut [u8], root: usize) -> Self {
        let stream = buffer.len() >= STREAM_FROM;
        BroadcastBuffer { buffer, root, stream }
    }
}

impl BlockTransfer for BroadcastBuffer<'_> {
    #[inline]
    fn length(&self, rank: usize) -> usize {
        if rank == self.root { self.buffer.len() } else { 0 }
    }

    #[inline]
    fn put(&mut self, part: Range<usize>, mut staging: Sink<'_>) {
        staging.publish(&self.buffer[part]);
    }

    #[inline]
    fn copy_own_block(&mut self, _: Range<usize>) {}

    #[inline]
    fn get(&mut self, _: usize, part: Range<usize>, staging: Source<'_>) {
        take(&staging, &mut self.buffer[part], self.stream);
    }
}

impl Drop for BroadcastBuffer<'_> {
    fn drop(&mut self) {
        end(self.stream);
    }
}
