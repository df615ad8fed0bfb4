//! Symmetric memory: objects of which every rank has an instance, which any rank reads and writes.
//!
//! | file | what it has |
//! | --- | --- |
//! | handle.rs | [`Symmetric`]: the handle of an object, and its life |
//! | phase.rs | its phases, in which references are possible |
//! | options.rs | alignment, placement, huge pages |
//! | remote.rs | one-sided access: put, get, atomics |
//! | wait.rs | waiting for a change of the own instance; signals |
//! | order.rs | fence, quiet, and what else concerns all of a rank's symmetric memory |
//! | lock.rs | a lock of all ranks |
//! | allocate.rs | how the ranks agree about memory |

pub(crate) mod allocate;
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
