//! A rank's handle of a symmetric object.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use bytemuck::Pod;

use crate::communicator::call;
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::rank::rank_state::{OpenCall, RankState};
use crate::segment::symmetric_memory::{Open, SymmetricMemory};
use crate::segment::unit::{Access, Instance};
use crate::symmetric::options::SymmetricOptions;

/// An object of `len` values of `T`, of which every rank has an instance of its own: symmetric memory, as of OpenSHMEM and
/// NVSHMEM. Any rank reads and writes any instance, without its owner taking part.
///
/// The phase is a type:
///
/// | phase | access |
/// | --- | --- |
/// | [`Open`]: a new object, `Symmetric<T>` | any rank to any instance, at any time |
/// | [`Own`](crate::Own), by [`into_own`](Symmetric::into_own) | each rank has `&mut [T]` of its own instance |
/// | [`Read`](crate::Read), by [`into_read`](Symmetric::into_read) | each rank has `&[T]` of all instances |
///
/// Objects, and the communicator that made them, can be dropped in any order, and in another order on each rank. Access goes on
/// without the communicator; what is collective needs that of every rank, and is [`Error::RankLeft`] once one has dropped it. Dropping is
/// not collective: the rank tells the others in its next call of [`symmetric`](crate::Communicator::symmetric),
/// [`free`](Symmetric::free) or [`resize`](Symmetric::resize). The memory is used again when all ranks have dropped their
/// handles.
///
/// ```
/// let sums = intranode::threads(3, |comm| {
///     let object = comm.symmetric::<usize>(4)?;
///     assert_eq!((object.len(), object.is_empty()), (4, false));
///     let mut own = object.into_own()?;
///     own.fill(comm.rank());
///     let all = own.open()?.into_read()?;
///     Ok::<usize, intranode::Error>((0..comm.size()).flat_map(|rank| all.of(rank)).sum())
/// })?;
/// for sum in sums {
///     assert_eq!(sum?, 4 * (0 + 1 + 2));
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
pub struct Symmetric<T: Pod, P = Open> {
    pub(crate) object: Object,
    pub(crate) memory: SymmetricMemory<T, P>,
}

/// What is the same in every phase of an object. When it is dropped, this rank has dropped the object.
pub(crate) struct Object {
    pub(crate) rank_state: Arc<RankState>,
    /// The sequence number, the same on all ranks.
    pub(crate) number: u64,
    /// In bytes.
    pub(crate) alignment: usize,
    pub(crate) options: SymmetricOptions,
    /// Whether the other ranks have to be told that it is dropped.
    live: bool,
}

impl Object {
    pub(crate) fn new(
        rank_state: &Arc<RankState>,
        number: u64,
        alignment: usize,
        options: SymmetricOptions,
    ) -> Self {
        Object { rank_state: Arc::clone(rank_state), number, alignment, options, live: true }
    }

    /// Frees the memory: every rank does so after the same round, and in the same call, so that no other thread of it makes an object
    /// in between, which would lie at another offset than on the other ranks.
    pub(crate) fn free(mut self, _: &OpenCall<'_>) {
        self.live = false;
        let mut table = self.rank_state.heap.table();
        table.free(self.number);
        table.give_back();
    }

    /// The header of a collective method.
    pub(crate) fn call<T: 'static>(&self, operation: Operation, len: usize) -> Call {
        Call { length: len as u64, extra: self.number, ..call::<T>(operation) }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // A forked child has no part in this, and its copy of the lock may be held for ever.
        if self.live && !self.rank_state.mapped.forked() {
            self.rank_state.heap.drop_object(self.number);
        }
    }
}

impl<T: Pod, P> Symmetric<T, P> {
    pub(crate) fn new(object: Object, memory: SymmetricMemory<T, P>) -> Self {
        Symmetric { object, memory }
    }

    /// The rank that this handle belongs to.
    #[inline]
    pub(crate) fn rank_state(&self) -> &Arc<RankState> {
        &self.object.rank_state
    }
}

impl<T: Pod> Symmetric<T> {
    /// The length of each instance, in elements. Not collective. Example: [`Symmetric`].
    #[inline]
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether the instances have no elements. Not collective. Example: [`Symmetric`].
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A rank's instance, for an operation that is not collective.
    ///
    /// # Errors
    /// [`Error::InvalidRank`], [`Error::Forked`].
    #[inline]
    pub(crate) fn instance(&self, rank: usize) -> Result<Instance<'_, T>, Error> {
        let (operation, size) = (Operation::Remote, self.memory.ranks());
        if self.memory.forked() {
            return Err(Error::Forked { operation });
        }
        if rank >= size {
            return Err(Error::InvalidRank { operation, rank, size });
        }
        Ok(self.memory.instance(rank))
    }

    /// This rank's access to the memory of all ranks.
    #[inline]
    pub(crate) fn access(&self) -> Access<'_> {
        self.rank_state().access()
    }
}

// As for a communicator: after a caught panic only the program's own plain data can be half-written.
impl<T: Pod, P> UnwindSafe for Symmetric<T, P> {}
impl<T: Pod, P> RefUnwindSafe for Symmetric<T, P> {}

impl<T: Pod> fmt::Debug for Symmetric<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Symmetric").field("len", &self.len()).finish_non_exhaustive()
    }
}
