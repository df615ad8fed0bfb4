//! Typed shared memory that all ranks read and write in place.

pub(crate) mod allocation;
pub(crate) mod buffer;
pub(crate) mod exchange;
pub(crate) mod options;

use std::fmt;
use std::ops::{Deref, Range};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use bytemuck::Pod;

use crate::collective::allgatherv::{gather_lists, gather_words};
use crate::collective::blocks::Blocks;
use crate::communicator::{Communicator, call};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::partition::block;
use crate::protocol::region::Parts;
use crate::rank::rank_state::RankState;
use crate::region::allocation::{AllocRequest, allocate};
use crate::region::options::{Placement, RegionOptions};
use crate::segment::region_memory::{Memory, ReadOnly, Writable};
use crate::sys::memory::backing::Pages;

/// A region in its read epoch: every rank reads all of it, as a plain slice.
///
/// ```
/// use intranode::{Communicator, Error, Shared};
///
/// fn table(comm: &Communicator) -> Result<Shared<u64>, Error> {
///     let mut squares = comm.region(10)?;
///     for (number, square) in squares.as_mut_slice().iter_mut().enumerate() {
///         *square = (number * number) as u64;
///     }
///     squares.publish()
/// }
///
/// let results = intranode::threads(3, |comm| table(&comm).map(|table| table[7]))?;
/// for result in results {
///     assert_eq!(result?, 49);
/// }
/// # Ok::<(), Error>(())
/// ```
pub type Shared<T> = Region<T, ReadOnly>;

/// `len` values of `T`, of which there is one copy for all ranks.
///
/// Write epochs and read epochs alternate, and the type says which one it is: in a write epoch, `Region<T, Writable>`, each
/// rank has `&mut [T]` of the parts that it owns; in a read epoch, [`Shared<T>`], every rank has `&[T]` of the whole region.
/// The collective calls [`publish`](Region::publish) and [`reclaim`](Region::reclaim) lead from one to the other. So in safe
/// code no rank writes an element while another rank reads it.
///
/// A new region contains zeros, and the leader, rank 0, owns all of it. [`distribute`](Region::distribute) and
/// [`set_ownership`](Region::set_ownership) change the owners.
///
/// Regions and the communicator can be dropped in any order; but `publish` and `reclaim` need the communicator of every rank, and
/// are [`Error::RankLeft`] once one has dropped it. A rank can read a published region until it drops it, even if
/// other ranks have dropped theirs or have ended.
///
/// Collectives take what a rank has `&` or `&mut` of, as any slice. In those of the region's communicator the other ranks read
/// large blocks where they lie, as they read [symmetric objects](crate::Symmetric), if all of them still have the region: that
/// takes two rounds more than a symmetric object, in which they ask each other.
///
/// ```
/// let sums = intranode::threads(4, |comm| {
///     let mut region = comm.region::<f64>(100)?;
///     assert_eq!((region.len(), region.is_empty()), (100, false));
///     assert_eq!(region.as_mut_slice().len(), if region.is_leader() { 100 } else { 0 });
///     region.as_mut_slice().fill(0.5);
///     let shared = region.publish()?;
///     let first: f64 = shared.as_slice().iter().sum();
///
///     let mut region = shared.reclaim()?;
///     if let Some(value) = region.as_mut_slice().first_mut() {
///         *value += 1.0;
///     }
///     let second: f64 = region.publish()?.iter().sum();
///     Ok::<_, intranode::Error>((first, second))
/// })?;
/// for sum in sums {
///     assert_eq!(sum?, (50.0, 51.0));
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
pub struct Region<T: Pod, E = Writable> {
    rank_state: Arc<RankState>,
    number: u64,
    memory: Memory<T, E>,
}

impl Communicator {
    /// Makes a region of `len` zeros, of which there is one copy for all ranks. Rank 0, the leader, owns all of it.
    /// `len` is in elements, is the same on all ranks, and may be 0. Collective. Example: [`Region`].
    ///
    /// The memory, `len` times the size of an element and rounded up to a page, is allocated before this returns. It is a
    /// memfd, which does not count against the size of `/dev/shm`. If the system has no memfds, or does not let ranks open
    /// each other's, it is a file in `/dev/shm`.
    ///
    /// # Errors
    /// [`Error::AllocationFailed`] on every rank if there is not enough memory. That is checked before anything is
    /// allocated, and the communicator can be used further. Otherwise as [`barrier`](Communicator::barrier).
    pub fn region<T: Pod>(&self, len: usize) -> Result<Region<T>, Error> {
        self.region_with(len, &RegionOptions::new())
    }

    /// The same with options: the placement on NUMA nodes, and huge pages. The options are the same on all ranks.
    /// Collective.
    ///
    /// ```
    /// use intranode::{Blocks, Placement, RegionOptions};
    ///
    /// let results = intranode::threads(2, |comm| {
    ///     let options = RegionOptions::new().placement(Placement::Distributed);
    ///     let mut region = comm.region_with::<u32>(1000, &options)?;
    ///     // Each rank has allocated its block, and owns it at first.
    ///     let own = Blocks::new(1000, comm.size()).range(comm.rank());
    ///     Ok::<_, intranode::Error>(region.as_mut_slice().len() == own.len())
    /// })?;
    /// for result in results {
    ///     assert!(result?);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`region`](Communicator::region).
    pub fn region_with<T: Pod>(&self, len: usize, options: &RegionOptions) -> Result<Region<T>, Error> {
        let (rank_state, operation) = (&self.rank_state, Operation::Region);
        let call = Call { length: len as u64, extra: options.code(), ..call::<T>(operation) };
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
        // An empty region is mapped too: mmap refuses a length of 0.
        let bytes = bytes.map(|bytes| bytes.max(1));
        // A page is allocated on the node of the rank that allocates it.
        let part = match options.placement {
            Placement::Distributed => block(bytes.unwrap_or(0), self.size(), self.rank()),
            _ if self.rank() == LEADER => 0..bytes.unwrap_or(0),
            _ => 0..0,
        };
        let huge = options.huge_pages;
        let pages = Pages::huge(huge);
        let request = AllocRequest { call: &call, leader: LEADER, len: bytes, part, pages };
        let mut open = rank_state.begin(operation)?;
        let (mapping, handle) = allocate(
            &mut open,
            &request,
            |mapping| options.set_policy(mapping, &rank_state.settings),
            |_| Ok(()),
        )?;
        let parts = Parts::new(options.owners(LEADER), len, self.size(), self.rank());
        let memory = Memory::new(mapping, len, parts);
        rank_state.regions.add(memory.bytes());
        drop(open);
        let region = Region { rank_state: Arc::clone(rank_state), number: handle.number, memory };
        if huge && self.rank() == LEADER {
            // Only now: a collapse needs pages that are allocated.
            match region.memory.collapse() {
                Ok(huge_bytes) => {
                    let bytes = bytes.unwrap_or(0);
                    let text = format!("{huge_bytes} of {bytes} bytes of a region are in huge pages");
                    rank_state.settings.debug(&text);
                }
                Err(error) => {
                    rank_state.settings.debug(&format!("a region has no huge pages: {error}"));
                }
            }
        }
        Ok(region)
    }
}

/// The rank that creates the memory of regions.
const LEADER: usize = 0;

impl<T: Pod, E> Region<T, E> {
    /// Whether this is the leader, rank 0, which owns a new region. Not collective. Example: [`Region`].
    pub fn is_leader(&self) -> bool {
        self.rank_state.rank == LEADER
    }

    fn call(&self, operation: Operation) -> Call {
        Call { length: self.memory.len() as u64, extra: self.number, ..call::<T>(operation) }
    }
}

impl<T: Pod> Region<T> {
    /// The length in elements. Not collective. Example: [`Region`].
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether the region has no elements. Not collective. Example: [`Region`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The ranges that this rank owns, in elements: ascending, none of them empty. Not collective. Example:
    /// [`set_ownership`](Region::set_ownership).
    pub fn parts(&self) -> &[Range<usize>] {
        self.memory.parts().ranges()
    }

    /// The values that this rank owns, one slice for each of its [`parts`](Region::parts). Not collective. Example:
    /// [`set_ownership`](Region::set_ownership).
    ///
    /// # Panics
    /// In a forked child, in which the region does not exist.
    pub fn parts_mut(&mut self) -> impl Iterator<Item = &mut [T]> {
        self.memory.own()
    }

    /// The values of this rank's first part. A rank has several only after [`set_ownership`](Region::set_ownership). Empty
    /// if it owns nothing. Not collective. Example: [`Region`].
    ///
    /// # Panics
    /// In a forked child, in which the region does not exist.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self.memory.own().next().unwrap_or_default()
    }

    /// Makes each rank the owner of its block of [`Blocks::new(len, size)`](Blocks::new). The values do not change.
    /// Collective.
    ///
    /// ```
    /// let results = intranode::threads(3, |comm| {
    ///     let mut region = comm.region::<usize>(7)?;
    ///     region.distribute()?;
    ///     region.as_mut_slice().fill(comm.rank());
    ///     Ok::<_, intranode::Error>(region.publish()?.to_vec())
    /// })?;
    /// for values in results {
    ///     assert_eq!(values?, [0, 0, 0, 1, 1, 2, 2]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Communicator::barrier`].
    pub fn distribute(&mut self) -> Result<(), Error> {
        let own = Blocks::new(self.len(), self.rank_state.size()).range(self.rank_state.rank);
        self.set_ownership(Some(own))
    }

    /// Makes each rank the owner of the ranges that it requests, in elements and in any order; empty ranges are ignored.
    /// `set_ownership(Some(3..5))` requests one range, `set_ownership(None)` none. The values do not change. A range may have
    /// no owner. Collective.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let mut region = comm.region::<usize>(6)?;
    ///     // The even elements to rank 0, the odd ones to rank 1.
    ///     let own = (comm.rank()..6).step_by(2).map(|index| index..index + 1);
    ///     region.set_ownership(own)?;
    ///     assert_eq!(region.parts().len(), 3);
    ///     for (number, part) in region.parts_mut().enumerate() {
    ///         part[0] = 10 * comm.rank() + number;
    ///     }
    ///     Ok::<_, intranode::Error>(region.publish()?.to_vec())
    /// })?;
    /// for values in results {
    ///     assert_eq!(values?, [0, 10, 1, 11, 2, 12]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidBufferSize`] for a range that exceeds the region and [`Error::InvalidRange`] for one that ends before
    /// it begins, and [`Error::Refused`] on the other ranks; [`Error::OverlappingBlocks`] on every rank if two ranges share an
    /// element; [`Error::AllocationFailed`] if this rank has no memory for the list of all ranks' ranges, and
    /// [`Error::Refused`] on the other ranks. The owners have not changed then. Otherwise as [`Communicator::barrier`]; after
    /// a [fatal](Error::is_fatal) error, or a panic of a hook, this rank owns nothing, since other ranks may have completed the call.
    pub fn set_ownership(&mut self, own: impl IntoIterator<Item = Range<usize>>) -> Result<(), Error> {
        let own: Vec<_> = own.into_iter().collect();
        // Nothing meanwhile: where a hook panics in the last round the others may have completed it.
        let before = self.memory.set_ownership(Parts::none());
        let (parts, result) = match self.agree(own) {
            Ok(parts) => (parts, Ok(())),
            Err(error) if error.is_fatal() => return Err(error),
            Err(error) => (before, Err(error)),
        };
        self.memory.set_ownership(parts);
        result
    }

    /// Checks the ranges of all ranks. Returns this rank's parts.
    fn agree(&self, mut own: Vec<Range<usize>>) -> Result<Parts, Error> {
        let operation = Operation::SetOwnership;
        let (rank_state, len) = (&self.rank_state, self.len());
        let call = self.call(operation);
        if let Some(Range { start, end }) = own.iter().find(|part| part.start > part.end) {
            return Err(rank_state.refuse(&call, Error::InvalidRange { operation, start: *start, end: *end }));
        }
        if let Some(beyond) = own.iter().find(|part| part.end > len) {
            let error = Error::InvalidBufferSize { operation, expected: beyond.end, actual: len };
            return Err(rank_state.refuse(&call, error));
        }
        own.retain(|part| !part.is_empty());
        let mut open = rank_state.begin(operation)?;
        let counts = gather_words(&mut open, &call, [own.len() as u64])?;
        // More ranges than elements overlap, since none of them is empty.
        if let Some(rank) = counts.iter().position(|[count]| *count > len as u64) {
            return Err(Error::overlap(operation, (rank, rank)));
        }
        let counts: Vec<usize> = counts.iter().map(|[count]| *count as usize).collect();
        let own: Vec<[u64; 2]> = own.iter().map(|part| [part.start as u64, part.end as u64]).collect();
        let table = gather_lists(&mut open, &call, &own, &counts, "all ranks' ranges")?;
        let ranges =
            |list: &Vec<[u64; 2]>| list.iter().map(|[start, end]| *start as usize..*end as usize).collect();
        let table: Vec<Vec<Range<usize>>> = table.iter().map(ranges).collect();
        Parts::of_table(&table, rank_state.rank).map_err(|overlap| Error::overlap(operation, overlap))
    }

    /// Ends the write epoch: afterwards every rank can read the whole region, in place. Collective; nothing is copied. It
    /// costs one round, and the time in which the system changes the protection of the pages. An
    /// [`Exchange`](crate::Exchange) costs the round only. Example: [`Region`].
    ///
    /// Before any rank can read, the mappings of all ranks have become read-only, so that a stray store faults in the process
    /// that made it.
    ///
    /// # Errors
    /// [`Error::ProtectionFailed`] if the system refuses to change the protection, and [`Error::Refused`] on the other ranks;
    /// otherwise as [`Communicator::barrier`]. The region no longer exists then.
    pub fn publish(self) -> Result<Shared<T>, Error> {
        let call = self.call(Operation::Publish);
        let Region { rank_state, number, memory, .. } = self;
        // The release store of the round does not order non-temporal stores.
        crate::copy::lines::fence();
        match memory.protect() {
            Ok(memory) => {
                let published = rank_state.collective(Operation::Publish, |member| {
                    member.publish(&rank_state.barrier, &call, true)
                })?;
                Ok(Region { rank_state, number, memory: memory.publish(published) })
            }
            Err(error) => Err(not_protected(&rank_state, Operation::Publish, &call, size_of::<T>(), error)),
        }
    }
}

impl<T: Pod> Shared<T> {
    /// All values. Not collective. Example: [`Region`].
    ///
    /// # Panics
    /// In a forked child, in which the region does not exist.
    pub fn as_slice(&self) -> &[T] {
        self.memory.values()
    }

    /// Ends the read epoch: afterwards each rank can write what it owned before. Collective. Example: [`Region`].
    ///
    /// # Errors
    /// As [`publish`](Region::publish). The region no longer exists then.
    pub fn reclaim(self) -> Result<Region<T>, Error> {
        let call = self.call(Operation::Reclaim);
        let Region { rank_state, number, memory, .. } = self;
        match memory.unprotect() {
            Ok(memory) => {
                let reclaimed = rank_state.collective(Operation::Reclaim, |member| {
                    member.reclaim(&rank_state.barrier, &call, true)
                })?;
                Ok(Region { rank_state, number, memory: memory.reclaim(reclaimed) })
            }
            Err(error) => Err(not_protected(&rank_state, Operation::Reclaim, &call, size_of::<T>(), error)),
        }
    }
}

/// Takes part in the call as failed, so that it fails on all ranks. Returns this rank's error.
#[cold]
fn not_protected(
    rank_state: &RankState,
    operation: Operation,
    call: &Call,
    width: usize,
    source: std::io::Error,
) -> Error {
    let result = rank_state.collective(operation, |member| match operation {
        Operation::Publish => member.publish(&rank_state.barrier, call, false).map(drop),
        _ => member.reclaim(&rank_state.barrier, call, false).map(drop),
    });
    match result {
        Err(fatal) if fatal.is_fatal() => fatal,
        _ => Error::ProtectionFailed {
            operation,
            rank: rank_state.rank,
            bytes: usize::try_from(call.length).unwrap_or(usize::MAX).saturating_mul(width),
            source,
        },
    }
}

// As for a communicator: after a caught panic only the program's own plain data can be half-written.
impl<T: Pod, E> UnwindSafe for Region<T, E> {}
impl<T: Pod, E> RefUnwindSafe for Region<T, E> {}

impl<T: Pod> Deref for Shared<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: Pod> AsRef<[T]> for Shared<T> {
    fn as_ref(&self) -> &[T] {
        self.as_slice()
    }
}

impl<T: Pod + fmt::Debug> fmt::Debug for Shared<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<T: Pod> fmt::Debug for Region<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region").field("len", &self.len()).field("parts", &self.parts()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::exchange::Exchange;

    #[test]
    fn regions_cross_threads_and_caught_panics() {
        fn crosses<T: Send + Sync + UnwindSafe + RefUnwindSafe + 'static>() {}
        crosses::<Region<f64>>();
        crosses::<Shared<f64>>();
        crosses::<Exchange<f64>>();
    }
}
