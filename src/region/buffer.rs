//! Memory of one rank that the others read in place, when it is given to a collective.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use bytemuck::Pod;

use crate::communicator::Communicator;
use crate::error::{Error, Operation};
use crate::rank::rank_state::RankState;
use crate::segment::buffer_memory::BufferBlock;
use crate::sys::memory::backing::Refusal;

/// `len` values of `T` that belong to one rank, as those of a `Vec` do, and that the other ranks of the communicator read in place
/// when it is given to a collective as the source.
///
/// In the program nobody else has access to it: it is a `[T]` behind `&` and `&mut`, and every slice function takes it. Where a
/// collective would copy a large block into staging and out of it, the others copy it once, from where it lies. The first
/// such call of a rank takes two rounds more, in which all ranks map the memory that the buffer lies in; later ones, also with
/// other buffers there, do not. Where a rank cannot map it (another PID namespace, no memfds, `INTRANODE_MEMORY=named`), blocks
/// go through staging as those of private memory.
///
/// It pays where blocks have from some hundred kilobytes to some megabytes on, as those of a
/// [symmetric object](crate::Symmetric), which needs a collective call to be made; shorter ones only where they are sent again
/// unchanged, by an allgatherv or a broadcast. It does not pay for buffers that are made for one call and dropped. In the collectives
/// of other communicators it is private memory.
///
/// Buffers lie next to each other in few mappings, each at least twice as long as the one before, of 1 MiB at first; only what
/// buffers occupy is allocated. Mappings stay until the communicator and all of its buffers have been dropped. What a dropped
/// buffer has occupied goes back to the system at once, from 64 KiB on.
///
/// ```
/// let sums = intranode::threads(4, |comm| {
///     let mut own = comm.buffer::<f64>(1000)?;
///     assert!(own.iter().all(|value| *value == 0.0));
///     own.fill(1.5);
///     let mut all = vec![0.0; 4000];
///     comm.allgather(&own, &mut all)?;
///     Ok::<f64, intranode::Error>(all.iter().sum())
/// })?;
/// for sum in sums {
///     assert_eq!(sum?, 6000.0);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
///
/// A call that was started owns its buffers, so it takes none of these, and none can be dropped under it:
///
/// ```compile_fail,E0308
/// # fn start(comm: &intranode::Communicator) -> Result<(), intranode::Error> {
/// let buffer = comm.buffer::<f64>(1000)?;
/// let started = comm.start_broadcast(buffer, 0)?;
/// # Ok(())
/// # }
/// ```
pub struct Buffer<T: Pod> {
    rank_state: Arc<RankState>,
    block: BufferBlock,
    /// In elements.
    len: usize,
    values: PhantomData<T>,
}

impl Communicator {
    /// Makes a [`Buffer`] of `len` zeros, in elements. Not collective: other ranks need not make any, and may make others.
    ///
    /// The memory is allocated before this returns.
    ///
    /// ```
    /// let first = intranode::threads(2, |comm| {
    ///     let mut buffer = comm.buffer::<u32>(if comm.rank() == 0 { 100_000 } else { 0 })?;
    ///     buffer.fill(7);
    ///     let mut data = vec![0; 100_000];
    ///     if comm.rank() == 0 {
    ///         comm.broadcast(&mut buffer, 0)?;
    ///         data[0] = buffer[0];
    ///     } else {
    ///         comm.broadcast(&mut data, 0)?;
    ///     }
    ///     Ok::<u32, intranode::Error>(data[0])
    /// })?;
    /// for first in first {
    ///     assert_eq!(first?, 7);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::AllocationFailed`] if there is not enough memory; nothing has changed then, and the communicator can be used
    /// further. [`Error::Forked`] in a forked child.
    pub fn buffer<T: Pod>(&self, len: usize) -> Result<Buffer<T>, Error> {
        const { assert!(align_of::<T>() <= 4096, "an element's alignment is at most that of a page") };
        let rank_state = Arc::clone(&self.rank_state);
        let operation = Operation::Buffer;
        if rank_state.mapped.forked() {
            return Err(Error::Forked { operation });
        }
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
        let taken = rank_state.take_buffer(bytes, align_of::<T>());
        let block = taken.map_err(|refusal| Error::AllocationFailed {
            operation,
            requested_bytes: bytes.unwrap_or(usize::MAX),
            reason: reason(&refusal).into_boxed_str(),
        })?;
        Ok(Buffer { rank_state, block, len, values: PhantomData })
    }
}

fn reason(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Memory(headroom) => {
            format!(
                "{} bytes are available within {}; request less, or raise it",
                headroom.bytes, headroom.limit
            )
        }
        Refusal::System(error) => format!("the system refuses memory: {error}"),
    }
}

impl<T: Pod> Deref for Buffer<T> {
    type Target = [T];

    /// # Panics
    /// In a forked child, in which the buffer does not exist.
    fn deref(&self) -> &[T] {
        self.block.values(self.len)
    }
}

impl<T: Pod> DerefMut for Buffer<T> {
    /// # Panics
    /// In a forked child, in which the buffer does not exist.
    fn deref_mut(&mut self) -> &mut [T] {
        self.block.values_mut(self.len)
    }
}

impl<T: Pod> Drop for Buffer<T> {
    fn drop(&mut self) {
        self.rank_state.buffers.free(&mut self.block);
    }
}

impl<T: Pod> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Buffer").field("len", &self.len).finish_non_exhaustive()
    }
}

// The elements are plain data, and what a panic leaves of them is some value.
impl<T: Pod> UnwindSafe for Buffer<T> {}
impl<T: Pod> RefUnwindSafe for Buffer<T> {}
