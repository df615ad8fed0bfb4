//! Private memory for the data of a call, kept by its thread for the next one.

use std::cell::Cell;

use bytemuck::Zeroable;
use intranode::{Error, Operation};

/// A unit of it, so that every element type is aligned.
type Unit = u128;

/// What a thread keeps.
const KEEP_BYTES: usize = 16 << 20;

thread_local! {
    static KEPT: Cell<[Vec<Unit>; 2]> = const { Cell::new([Vec::new(), Vec::new()]) };
}

/// Zeros that stay with a call when this thread goes on.
pub(crate) fn zeros<T: Zeroable>(operation: Operation, len: usize) -> Result<Vec<T>, Error> {
    let zeros = bytemuck::allocation::try_zeroed_slice_box(len);
    zeros.map(Vec::from).map_err(|()| refused(operation, len.saturating_mul(size_of::<T>())))
}

/// Room for this many bytes.
pub(crate) fn reserve(memory: &mut Vec<u8>, operation: Operation, bytes: usize) -> Result<(), Error> {
    memory.try_reserve_exact(bytes).map_err(|_| refused(operation, bytes))
}

fn refused(operation: Operation, requested_bytes: usize) -> Error {
    let reason = "the system refuses memory for a private copy of the buffer".into();
    Error::AllocationFailed { operation, requested_bytes, reason }
}

/// Memory for what a call sends, and for what it receives.
pub(crate) struct Scratch([Vec<Unit>; 2], [usize; 2]);

impl Scratch {
    /// Memory of these lengths, in bytes. Its contents are those of an earlier call.
    pub(crate) fn new(operation: Operation, bytes: [usize; 2]) -> Result<Self, Error> {
        // A handler of a signal may make a call inside a call: it finds nothing here.
        let mut kept = KEPT.take();
        for (memory, bytes) in kept.iter_mut().zip(bytes) {
            let units = bytes.div_ceil(size_of::<Unit>());
            if memory.len() < units {
                memory.clear();
                memory.try_reserve_exact(units).map_err(|_| refused(operation, bytes))?;
                memory.resize(units, 0);
            }
        }
        Ok(Scratch(kept, bytes))
    }

    /// Both.
    pub(crate) fn parts(&mut self) -> (&mut [u8], &mut [u8]) {
        let ([send, recv], [send_bytes, recv_bytes]) = (&mut self.0, self.1);
        let send: &mut [u8] = bytemuck::cast_slice_mut(send);
        let recv: &mut [u8] = bytemuck::cast_slice_mut(recv);
        (&mut send[..send_bytes], &mut recv[..recv_bytes])
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let kept: usize = self.0.iter().map(|memory| memory.capacity() * size_of::<Unit>()).sum();
        if kept <= KEEP_BYTES {
            // The thread may be ending.
            let _ = KEPT.try_with(|place| place.set(std::mem::take(&mut self.0)));
        }
    }
}
