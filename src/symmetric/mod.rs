//! Symmetric memory: objects of which every rank has an instance, which any rank reads and writes.
//!
//! | file | what it has |
//! | --- | --- |
//! | handle.rs | [`Symmetric`]: the handle of an object, and its life |
//! | phase.rs | its phases, in which references are possible |
//! | options.rs | alignment, placement, huge pages |
//! | remote.rs | one-sided access: put and get |
//! | atomics.rs | its atomic operations |
//! | wait.rs | waiting for a change of the own instance; signals |
//! | order.rs | fence, quiet, and what else concerns all of a rank's symmetric memory |
//! | lock.rs | a lock of all ranks |
//! | allocate.rs | how the ranks agree about memory |

pub(crate) mod allocate;
mod atomics;
pub(crate) mod handle;
pub(crate) mod lock;
pub(crate) mod options;
mod order;
pub(crate) mod phase;
pub(crate) mod remote;
pub(crate) mod wait;

use bytemuck::Pod;

use crate::communicator::{Communicator, call};
use crate::error::{Error, Operation};
use crate::symmetric::handle::Symmetric;
use crate::symmetric::options::SymmetricOptions;

impl Communicator {
    /// Makes an object of `len` zeros of which every rank has an instance: symmetric memory, as `shmem_calloc` of OpenSHMEM.
    /// `len` is in elements, is the same on all ranks, and may be 0. Collective. Example: [`Symmetric`].
    ///
    /// Instances lie at the same offset in every rank's part of the heap, aligned to 128 bytes. The heap grows as it is needed,
    /// by at least twice its largest part if there is memory, and where there is not by what is requested; it takes its memory
    /// as a [`region`](Communicator::region) does. Offsets are chosen by best fit (Knuth, The Art of Computer Programming,
    /// vol. 1, section 2.5), by each rank for itself and with the same result.
    ///
    /// # Errors
    /// [`Error::AllocationFailed`] on every rank if there is not enough memory. That is checked before anything is allocated,
    /// nothing has changed then, and the communicator can be used further. [`Error::Mismatch`] on every rank if the types,
    /// the lengths or the options differ. Otherwise as [`barrier`](Communicator::barrier).
    pub fn symmetric<T: Pod>(&self, len: usize) -> Result<Symmetric<T>, Error> {
        self.symmetric_with(len, &SymmetricOptions::new())
    }

    /// The same with options: alignment, placement on NUMA nodes, huge pages. The options are the same on all ranks.
    /// Collective. Example: [`SymmetricOptions`].
    ///
    /// # Errors
    /// [`Error::InvalidAlignment`] for an alignment that is not possible, and [`Error::Refused`] on the other ranks; otherwise as
    /// [`symmetric`](Communicator::symmetric).
    pub fn symmetric_with<T: Pod>(
        &self,
        len: usize,
        options: &SymmetricOptions,
    ) -> Result<Symmetric<T>, Error> {
        let operation = Operation::Symmetric;
        allocate::make(&self.rank_state, &call::<T>(operation), operation, len, options)
    }
}

impl<T: Pod> Symmetric<T> {
    /// Frees the object on all ranks at once. Collective; all ranks free the same object. Dropping the handle does not wait for
    /// other ranks, and frees the memory later.
    ///
    /// ```
    /// let freed = intranode::threads(2, |comm| comm.symmetric::<u64>(1 << 16)?.free())?;
    /// assert!(freed.iter().all(Result::is_ok));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`] if ranks free different objects; otherwise as
    /// [`barrier`](crate::Communicator::barrier). This rank has dropped the object then.
    pub fn free(self) -> Result<(), Error> {
        let call = self.object.call::<T>(Operation::FreeSymmetric, self.len());
        allocate::free(self.object, &call)
    }

    /// Makes it an object of `len` elements, the same on all ranks, with the same alignment and options. The first elements
    /// keep their values, and what is added is zero. Collective.
    ///
    /// The values are copied: as long as the call lasts, the memory of both lengths is needed.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let mut own = comm.symmetric::<u32>(2)?.into_own()?;
    ///     own.fill(7);
    ///     let longer = own.open()?.resize(4)?;
    ///     Ok::<_, intranode::Error>(longer.into_own()?.to_vec())
    /// })?;
    /// for values in results {
    ///     assert_eq!(values?, [7, 7, 0, 0]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Mismatch`] if ranks resize different objects or to different lengths; otherwise as
    /// [`symmetric`](crate::Communicator::symmetric). This rank has dropped the object then, with its values.
    pub fn resize(self, len: usize) -> Result<Symmetric<T>, Error> {
        let call = self.object.call::<T>(Operation::ResizeSymmetric, len);
        allocate::resize(self.object, self.memory, &call, len)
    }
}
