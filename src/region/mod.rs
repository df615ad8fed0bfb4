//! Typed memory that all ranks see in place.

pub(crate) mod allocation;
pub(crate) mod exchange;
pub(crate) mod options;

use std::fmt;
use std::ops::{Deref, Range};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use bytemuck::Pod;

use crate::collective::allgatherv::{BlockTable, gather, gather_words};
use crate::collective::blocks::Blocks;
use crate::communicator::{Communicator, call};
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::partition::block;
use crate::protocol::region::Parts;
use crate::rank::rank_state::{OpenCall, RankState};
use crate::region::allocation::{AllocRequest, allocate};
use crate::region::options::{Placement, RegionOptions};
use crate::segment::region_memory::{Memory, ReadOnly, Writable};

/// A region in its read epoch: every rank has all of it as a plain slice.
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

/// `len` values of `T` in one copy of memory for all ranks.
///
/// A region is written and read in epochs, which are its type: in a write epoch, `Region<T, Writable>`, each rank has
/// `&mut [T]` of the parts that it owns; in a read epoch, [`Shared<T>`], every rank has `&[T]` of everything. Two
/// collective calls lie between them, [`publish`](Region::publish) and [`reclaim`](Region::reclaim). So in safe code
/// no rank writes what another reads.
///
/// At first the region is zeros, and the leader, rank 0, owns all of it. [`distribute`](Region::distribute) and
/// [`set_ownership`](Region::set_ownership) give it to others.
///
/// Regions and the communicator can be dropped in any order. What was published can be read for as long as the region
/// lives, also when other ranks have dropped theirs, or have ended.
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
    seat: Arc<RankState>,
    number: u64,
    memory: Memory<T, E>,
}

impl Communicator {
    /// Makes a region of `len` zeros, of which there is one copy for all ranks. Rank 0, the leader, owns all of it.
    /// `len` is in elements, is the same on all ranks, and may be 0. Collective. Example: [`Region`].
    ///
    /// Its memory, `len` times the size of an element and rounded up to a page, is allocated before this returns. It does not
    /// count against the size of `/dev/shm` where the system has memfds, and lets ranks open each
    /// other's; otherwise it is there.
    ///
    /// # Errors
    /// [`Error::AllocationFailed`] on every rank if there is not enough memory, which is looked up before anything is
    /// allocated. The communicator can be used further. Otherwise as [`barrier`](Communicator::barrier).
    pub fn region<T: Pod>(&self, len: usize) -> Result<Region<T>, Error> {
        self.region_with(len, &RegionOptions::new())
    }

    /// The same with a choice of where the memory lies, and in pages of which size. The options are the same on all ranks.
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
        let (seat, operation) = (&self.seat, Operation::Region);
        let call = Call { length: len as u64, extra: options.code(), ..call::<T>(operation) };
        let bytes = len.checked_mul(size_of::<T>()).filter(|bytes| isize::try_from(*bytes).is_ok());
        // Even a region of nothing is mapped: a page.
        let bytes = bytes.map(|bytes| bytes.max(1));
        // A page lies near the rank that allocates it.
        let part = match options.placement {
            Placement::Distributed => block(bytes.unwrap_or(0), self.size(), self.rank()),
            _ if self.rank() == LEADER => 0..bytes.unwrap_or(0),
            _ => 0..0,
        };
        let huge = options.huge_pages;
        let wanted = AllocRequest { call: &call, leader: LEADER, len: bytes, part, huge };
        let (mapping, number) = allocate(
            &mut seat.begin(operation)?,
            &wanted,
            |mapping| options.place(mapping, &seat.settings),
            |_| Ok(()),
        )?;
        let parts = Parts::new(options.owners(LEADER), len, self.size(), self.rank());
        let region = Region { seat: Arc::clone(seat), number, memory: Memory::new(mapping, len, parts) };
        if huge && self.rank() == LEADER {
            // After all have allocated their parts.
            match region.memory.collapse() {
                Ok(held) => {
                    let of = bytes.unwrap_or(0);
                    seat.settings.debug(&format!("huge pages hold {held} of {of} bytes of a region"));
                }
                Err(error) => {
                    seat.settings.debug(&format!("a region has no huge pages: the system says {error}"));
                }
            }
        }
        Ok(region)
    }
}

/// The rank that makes regions.
const LEADER: usize = 0;

impl<T: Pod, E> Region<T, E> {
    /// Whether this rank is the one that owns a new region: rank 0. Not collective. Example: [`Region`].
    pub fn is_leader(&self) -> bool {
        self.seat.rank == LEADER
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

    /// Whether it has no elements. Not collective. Example: [`Region`].
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What this rank owns: ascending ranges, in elements, none of them empty. Not collective. Example:
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

    /// The values of this rank's first part: all that it owns, unless [`set_ownership`](Region::set_ownership) gave it
    /// several. Empty if it owns nothing. Not collective. Example: [`Region`].
    ///
    /// # Panics
    /// In a forked child, in which the region does not exist.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        self.memory.own().next().unwrap_or_default()
    }

    /// Gives each rank its block of [`Blocks::new(len, size)`](Blocks::new). The values stay. Collective.
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
        let own = Blocks::new(self.len(), self.seat.size()).range(self.seat.rank);
        self.set_ownership(Some(own))
    }

    /// Gives each rank the ranges that it asks for, in elements and in any order; empty ones do not count.
    /// `set_ownership(Some(3..5))` asks for one, `set_ownership(None)` for none. All values stay, also where no rank owns them.
    /// Collective.
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
    /// [`Error::InvalidBufferSize`] for a range that reaches past the end and [`Error::InvalidRange`] for one that ends before
    /// it begins, and [`Error::Refused`] on the other ranks; [`Error::OverlappingBlocks`] on every rank if two ranges share a
    /// value; [`Error::AllocationFailed`] if this rank has no memory for the ranges of all ranks, and [`Error::Refused`] on the
    /// others. Nothing has changed then. Otherwise as [`Communicator::barrier`]; after a [fatal](Error::is_fatal) error this
    /// rank owns nothing any more, since the others may own it.
    pub fn set_ownership(&mut self, own: impl IntoIterator<Item = Range<usize>>) -> Result<(), Error> {
        let own: Vec<_> = own.into_iter().collect();
        let result = self.agree(own);
        match result {
            Ok(parts) => self.memory.set_ownership(parts),
            Err(error) => {
                if error.is_fatal() {
                    self.memory.set_ownership(Parts::none());
                }
                return Err(error);
            }
        }
        Ok(())
    }

    /// This rank's parts, if what all ask for is apart.
    fn agree(&self, mut own: Vec<Range<usize>>) -> Result<Parts, Error> {
        let operation = Operation::SetOwnership;
        let (seat, len) = (&self.seat, self.len());
        let call = self.call(operation);
        if let Some(Range { start, end }) = own.iter().find(|part| part.start > part.end) {
            return Err(seat.refuse(&call, Error::InvalidRange { operation, start: *start, end: *end }));
        }
        if let Some(beyond) = own.iter().find(|part| part.end > len) {
            let error = Error::InvalidBufferSize { operation, expected: beyond.end, actual: len };
            return Err(seat.refuse(&call, error));
        }
        own.retain(|part| !part.is_empty());
        let mut open = seat.begin(operation)?;
        let counts = gather_words(&mut open, &call, [own.len() as u64])?;
        // A rank that asks for more ranges than there are values asks for one of them twice.
        if let Some(rank) = counts.iter().position(|[count]| *count > len as u64) {
            return Err(Error::overlap(operation, (rank, rank)));
        }
        let table = exchange_parts(&mut open, &call, &own, &counts)?;
        Parts::of_table(&table, seat.rank).map_err(|overlap| Error::overlap(operation, overlap))
    }

    /// Ends the write epoch: after this every rank can read everything, in place. Collective; nothing is copied. It costs
    /// a round, and what the system takes to change the protection of the pages; an
    /// [`Exchange`](crate::Exchange) costs the round alone. Example: [`Region`].
    ///
    /// Before any rank can read, the memory of every rank has become read-only, so that a stray store is a fault in the
    /// process that made it.
    ///
    /// # Errors
    /// [`Error::ProtectionFailed`] where the system does not change the protection, and [`Error::Refused`] on the other ranks;
    /// otherwise as [`Communicator::barrier`]. The region is gone then.
    pub fn publish(self) -> Result<Shared<T>, Error> {
        let call = self.call(Operation::Publish);
        let Region { seat, number, memory, .. } = self;
        // The round that follows orders ordinary stores only.
        crate::copy::lines::fence();
        match memory.protect() {
            Ok(memory) => {
                let published =
                    seat.collective(Operation::Publish, |member| member.publish(&seat.barrier, &call, true))?;
                Ok(Region { seat, number, memory: memory.publish(published) })
            }
            Err(error) => Err(not_protected(&seat, Operation::Publish, &call, size_of::<T>(), error)),
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

    /// Ends the read epoch: after this each rank can write what it owned before. Collective. Example: [`Region`].
    ///
    /// # Errors
    /// As [`publish`](Region::publish). The region is gone then.
    pub fn reclaim(self) -> Result<Region<T>, Error> {
        let call = self.call(Operation::Reclaim);
        let Region { seat, number, memory, .. } = self;
        match memory.unprotect() {
            Ok(memory) => {
                let taken =
                    seat.collective(Operation::Reclaim, |member| member.reclaim(&seat.barrier, &call, true))?;
                Ok(Region { seat, number, memory: memory.reclaim(taken) })
            }
            Err(error) => Err(not_protected(&seat, Operation::Reclaim, &call, size_of::<T>(), error)),
        }
    }
}

/// The ranges that every rank asks for. By rank, `counts` has their number.
fn exchange_parts(
    open: &mut OpenCall<'_>,
    call: &Call,
    own: &[Range<usize>],
    counts: &[[u64; 1]],
) -> Result<Vec<Vec<Range<usize>>>, Error> {
    let send: Vec<[u64; 2]> = own.iter().map(|part| [part.start as u64, part.end as u64]).collect();
    let counts: Vec<usize> = counts.iter().map(|[count]| *count as usize).collect();
    let mut displs = Vec::with_capacity(counts.len());
    let mut end = 0usize;
    for count in &counts {
        displs.push(end);
        // The allocation finds out what does not fit.
        end = end.saturating_add(*count);
    }
    let mut recv: Vec<[u64; 2]> = Vec::new();
    if let Err(error) = recv.try_reserve_exact(end) {
        let requested_bytes = end.saturating_mul(size_of::<[u64; 2]>());
        let reason = format!("for the ranges that all ranks ask for: {error}").into_boxed_str();
        let operation = open.operation();
        return Err(open.refuse(call, Error::AllocationFailed { operation, requested_bytes, reason }));
    }
    recv.resize(end, [0; 2]);
    let (from, to) = (bytemuck::cast_slice(&send), bytemuck::cast_slice_mut(recv.as_mut_slice()));
    let table = BlockTable::Given { counts: &counts, displs: &displs, width: size_of::<[u64; 2]>() };
    gather(open, call, from, to, table)?;
    let ranges = |rank: usize| {
        let block = &recv[displs[rank]..displs[rank] + counts[rank]];
        block.iter().map(|[start, end]| *start as usize..*end as usize).collect()
    };
    Ok((0..counts.len()).map(ranges).collect())
}

/// Tells the others that this rank's memory could not change its protection, so that none of them goes on.
#[cold]
fn not_protected(
    seat: &RankState,
    operation: Operation,
    call: &Call,
    width: usize,
    source: std::io::Error,
) -> Error {
    let result = seat.collective(operation, |member| match operation {
        Operation::Publish => member.publish(&seat.barrier, call, false).map(drop),
        _ => member.reclaim(&seat.barrier, call, false).map(drop),
    });
    match result {
        Err(fatal) if fatal.is_fatal() => fatal,
        _ => Error::ProtectionFailed {
            operation,
            rank: seat.rank,
            bytes: usize::try_from(call.length).unwrap_or(usize::MAX).saturating_mul(width),
            source,
        },
    }
}

// As for a communicator: a panic that is caught leaves nothing half-way but the program's own plain data.
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
