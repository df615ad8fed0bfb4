//! Whether the other ranks read this rank's data where it lies, in a symmetric object, in a region, in a buffer or in the heap, or
//! fetch it by single copy from other memory; and how this rank reads theirs.

use std::array;
use std::num::NonZeroU64;
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use crate::copy::policy::StorePolicy;
use crate::copy::publish::writing_is_cheap;
use crate::copy::{Source, TERMS, Term, cpu};
use crate::protocol::block_transfer::{Address, Lend, OFFER};
use crate::rank::buffers;
use crate::rank::cma_peers::{self, CmaPeers};
use crate::rank::heap::{self, InstancesInPlace};
use crate::rank::rank_state::RankState;
use crate::rank::shared_regions::NUMBERS;
use crate::segment::buffer_memory::{BufferBlock, BufferBytes};
use crate::segment::region_memory::RegionBytes;
use crate::sys::memory::backing::Refusal;
use crate::tuning::{InPlaceFrom, SingleCopyFrom, UNCHANGED_IN_PLACE_FROM_BYTES};

/// The bit of a place in a region. In the heap all others are those of [`crate::rank::heap`].
const REGION: u64 = OFFER >> 1;

/// The bit of a place in a buffer or a heap, where it is in no region: [`crate::rank::buffers`] has the others.
const BUFFER: u64 = REGION >> 1;

fn is_in_buffer(place: NonZeroU64) -> bool {
    place.get() & (REGION | BUFFER) == BUFFER
}

/// The number of the region that a place lies in, and the offset.
fn region_place(place: NonZeroU64) -> (u64, usize) {
    let offset = place.get() & ((1 << heap::OFFSET_BITS) - 1);
    (place.get() >> heap::OFFSET_BITS & (NUMBERS - 1), offset as usize)
}

impl RankState {
    /// Where all ranks find these bytes, if they lie in memory that all map, and it pays to read them there. No other rank finds them in
    /// the mapping of the caller's: it has one of its own of a region and of each other's buffers, and is another process where a
    /// symmetric object is meant. So the caller may have them by a `&mut`.
    pub(crate) fn lend(&self, bytes: &[u8]) -> Address {
        self.lends().then(|| self.heap.place_of(bytes).or_else(|| self.place_outside(bytes)))?
    }

    /// The same for bytes that may be written while others read them, as those of a message that is taken back or whose request is
    /// forgotten: no other rank ever has a `&mut` to where it finds them. So not in a region, whose parts may change hands meanwhile, nor
    /// in another rank's instance of a symmetric object.
    pub(crate) fn lend_unbound(&self, bytes: &[u8]) -> Address {
        self.lends()
            .then(|| self.heap.own_place_of(self.rank, bytes).or_else(|| self.place_in_buffer(bytes)))?
    }

    /// As [`lend`](Self::lend) for blocks from a size on, and for all others that lie in a symmetric object, in a buffer or in the heap
    /// and have not changed since they were sent last.
    pub(crate) fn lend_from(&self, bytes: &[u8], from: InPlaceFrom) -> Address {
        let place = match self.is_long(bytes.len(), from) {
            true if bytes.len() >= from.usual => self.lend(bytes),
            // Not in a region, which takes two rounds more in each call: what that costs was not measured.
            true => self.lend_unbound(bytes),
            false => None,
        };
        if place.is_some() || !self.may_lend_unchanged(bytes) {
            return place;
        }
        self.lend_unchanged(bytes)
    }

    /// Whether blocks of this length are read in place while they stay as they are.
    fn may_lend_unchanged(&self, bytes: &[u8]) -> bool {
        bytes.len() >= UNCHANGED_IN_PLACE_FROM_BYTES.saturating_mul(self.sharing())
            && self.settings.in_place != Some(false)
            && !self.mapped.forked()
    }

    /// Whether blocks of this length are read in place, if nothing else is against it.
    pub(crate) fn is_long(&self, len: usize, from: InPlaceFrom) -> bool {
        len >= from.bytes(cpu::is_intel(), self.sharing())
    }

    /// How many times as long blocks have to be: if ranks share processors, the second round costs a context switch for each of them.
    fn sharing(&self) -> usize {
        if self.staging.oversubscribed { self.size() } else { 1 }
    }

    /// Whether blocks of these lengths are better fetched by single copy.
    #[inline]
    pub(crate) fn fetches(&self, from: SingleCopyFrom, lengths: impl Iterator<Item = usize>) -> bool {
        self.may_fetch(self.single_copy_from(from), lengths)
    }

    /// From how many bytes on blocks of a kind are.
    #[inline]
    pub(super) fn single_copy_from(&self, from: SingleCopyFrom) -> usize {
        if self.staging.oversubscribed { from.oversubscribed } else { from.usual }
    }

    /// Whether those of these lengths can be fetched, if none is shorter than this.
    #[inline]
    pub(super) fn may_fetch(&self, from_bytes: usize, lengths: impl Iterator<Item = usize>) -> bool {
        self.cma_peers.as_ref().is_some_and(|peers| peers.eligible(from_bytes, lengths))
    }

    /// Whether blocks that all ranks receive may be fetched, too.
    pub(crate) fn fetches_for_all(&self) -> bool {
        self.cma_peers.as_ref().is_some_and(|peers| peers.is_for_all)
    }

    /// Whether the system copies long messages.
    pub(crate) fn system_copies_messages(&self) -> bool {
        self.mapped.single_copy().is_for_messages(self.platform.spin.yields())
    }

    /// Where the others fetch blocks by single copy if these have not changed since they were sent last: then they may be in the others'
    /// caches. `len`: of how many bytes each is. `pays_for`: the lengths for which that pays. `lengths`: those of all blocks of the call,
    /// which are counted only where it may.
    pub(crate) fn address_of_unchanged(
        &self,
        bytes: &[u8],
        (len, pays_for): (usize, &impl RangeBounds<usize>),
        lengths: impl Iterator<Item = usize>,
    ) -> Address {
        let pays = pays_for.contains(&len) && self.may_fetch(0, lengths);
        let address = cma_peers::address(bytes).filter(|_| pays)?;
        // Another thread may be about to send, perhaps of the process that this one was forked from: then it is not looked at.
        let mut sent = self.sent.try_lock().ok()?;
        sent.is_unchanged(address.get(), bytes).then_some(address)
    }

    /// Whatever an RFO costs: what is not written does not need it.
    fn lend_unchanged(&self, bytes: &[u8]) -> Address {
        match self.heap.place_of(bytes) {
            Some(place) => self.heap.is_unchanged(place, bytes).then_some(place),
            None if self.buffers.are_unchanged(bytes) => self.place_in_buffer(bytes),
            None => None,
        }
    }

    fn place_outside(&self, bytes: &[u8]) -> Address {
        self.place_in_region(bytes).or_else(|| self.place_in_buffer(bytes))
    }

    /// An offer until all other ranks have mapped the memory.
    fn place_in_buffer(&self, bytes: &[u8]) -> Address {
        let (place, is_known) = self.buffers.place_of(self.findable_key(), self.rank, bytes)?;
        let offer = if is_known { 0 } else { OFFER };
        NonZeroU64::new(offer | BUFFER | place)
    }

    /// An offer: the other ranks may have dropped the region.
    fn place_in_region(&self, bytes: &[u8]) -> Address {
        let (number, offset) = self.regions.place_of(bytes)?;
        NonZeroU64::new(OFFER | REGION | number << heap::OFFSET_BITS | offset as u64)
    }

    /// Memory that others have read needs an RFO when it is written again: by staging, or else by the program. On Intel's processors that was
    /// measured to cost the program no more (docs/adr/0059).
    fn lends(&self) -> bool {
        // A forked child does not look: another thread may have had a lock when it was forked.
        !self.mapped.forked() && self.settings.in_place.unwrap_or_else(|| cpu::is_intel() || writing_is_cheap())
    }
}

impl RankState {
    /// Takes a block for a buffer of this rank: `bytes`, or `None` if that overflows.
    pub(crate) fn take_buffer(&self, bytes: Option<usize>, align: usize) -> Result<BufferBlock, Refusal> {
        self.buffers.take(self.findable_key(), self.rank, bytes, align)
    }

    /// The communicator's key, if others may find memory of this rank by it.
    fn findable_key(&self) -> Option<u64> {
        (!self.settings.named_memory).then(|| self.mapped.key())
    }
}

impl InPlaceFrom {
    /// `sharing`: how many times as long blocks have to be.
    fn bytes(self, is_intel: bool, sharing: usize) -> usize {
        if is_intel { self.on_intel.saturating_mul(sharing).min(self.usual) } else { self.usual }
    }
}

/// What a rank lends in a call, and what it reads of the others.
pub(crate) struct Lending<'a> {
    rank_state: &'a RankState,
    place: Address,
    address: Address,
    /// Regions that others have offered, by number: they stay mapped as long as the call lasts.
    found: Vec<(u64, Arc<RegionBytes>)>,
}

impl<'a> Lending<'a> {
    /// `place`: where the others find what this rank sends.
    pub(crate) fn new(rank_state: &'a RankState, place: Address) -> Self {
        Lending { rank_state, place, address: None, found: Vec::new() }
    }

    /// `address`: where the others fetch it, if they find it nowhere.
    pub(crate) fn or_at(self, address: Address) -> Self {
        Lending { address, ..self }
    }

    /// As [`BlockTransfer::fetch`](crate::protocol::block_transfer::BlockTransfer::fetch), into `target`.
    pub(crate) fn fetch_from(
        &self,
        rank: usize,
        from: NonZeroU64,
        range: Range<usize>,
        target: &mut [u8],
    ) -> bool {
        self.rank_state.cma_peers.as_ref().is_some_and(|peers| peers.fetch(rank, from, range, target))
    }

    /// Fills `target` with what is `start` bytes after a place. A place that does not exist was overwritten by another process:
    /// nothing is copied.
    pub(crate) fn read(&self, place: NonZeroU64, start: usize, target: &mut [u8], stores: &StorePolicy) {
        if let Some(found) = self.at(place, start, target.len()) {
            stores.fetch(&found.view(), target);
        }
    }

    /// What lies at these places: `len` bytes, `start` bytes after each.
    pub(crate) fn all_at(&self, places: &[Address], start: usize, len: usize) -> Found {
        Found(array::from_fn(|index| self.at(places.get(index).copied().flatten()?, start, len)))
    }

    /// `len` bytes, `start` bytes after a place. `None`: they do not exist.
    pub(crate) fn at(&self, place: NonZeroU64, start: usize, len: usize) -> Option<InPlace> {
        if is_in_buffer(place) {
            let found = buffers::of_place(place.get());
            let bytes = self.rank_state.buffers.found(found)?;
            let offset = found.offset.checked_add(start)?;
            bytes.view(offset, len)?;
            return Some(InPlace::Buffer(bytes, (offset, len)));
        }
        if place.get() & REGION == 0 {
            return self.rank_state.heap.at(place, start, len).map(InPlace::Heap);
        }
        let region = self.region(place)?;
        let offset = region_place(place).1.checked_add(start)?;
        region.view(offset, len)?;
        Some(InPlace::Region(Arc::clone(region), (offset, len)))
    }

    fn region(&self, place: NonZeroU64) -> Option<&Arc<RegionBytes>> {
        let (number, _) = region_place(place);
        self.found.iter().find(|(other, _)| *other == number).map(|(_, region)| region)
    }
}

impl Lend for Lending<'_> {
    #[inline]
    fn place(&self) -> Address {
        self.place
    }

    #[inline]
    fn address(&self) -> Address {
        self.address
    }

    fn refused(&mut self) {
        self.address = None;
        self.rank_state.cma_peers.iter().for_each(CmaPeers::refuse);
    }

    fn find(&mut self, place: NonZeroU64) -> bool {
        if is_in_buffer(place) {
            let RankState { buffers, mapped, rank, .. } = self.rank_state;
            return buffers.find(buffers::of_place(place.get()), *rank, mapped);
        }
        if self.region(place).is_none() {
            let (number, _) = region_place(place);
            let found = self.rank_state.regions.find(number);
            self.found.extend(found.map(|region| (number, region)));
        }
        self.region(place).is_some()
    }

    fn settle(&mut self, found: bool) {
        if let Some(place) = self.place.filter(|place| place.get() & OFFER != 0 && is_in_buffer(*place)) {
            self.rank_state.buffers.settle(buffers::of_place(place.get()), found);
        }
        self.place = match self.place {
            Some(place) if place.get() & OFFER == 0 => Some(place),
            Some(place) if found => NonZeroU64::new(place.get() & !OFFER),
            _ => None,
        };
    }
}

/// What a fold reads in place.
#[derive(Default)]
pub(crate) struct Found([Option<InPlace>; TERMS]);

impl Found {
    /// The terms of a fold, those that have a place where that was found.
    pub(crate) fn terms<'t>(&'t self, terms: &[Term<'t>], places: &[Address]) -> [Term<'t>; TERMS] {
        array::from_fn(|index| match (terms.get(index), places.get(index)) {
            (Some(term), Some(None)) => *term,
            // A place that is not found was overwritten by another process: then the result is worth nothing.
            _ => self.0[index].as_ref().map_or(Term::Own, |found| Term::Staged(found.view())),
        })
    }
}

/// Bytes that some rank lends to the others.
#[derive(Debug)]
pub(crate) enum InPlace {
    Heap(InstancesInPlace),
    /// The offset and the length, which exist.
    Region(Arc<RegionBytes>, (usize, usize)),
    Buffer(Arc<BufferBytes>, (usize, usize)),
}

impl InPlace {
    pub(crate) fn view(&self) -> Source<'_> {
        match self {
            InPlace::Heap(instances) => instances.view(),
            InPlace::Region(region, (offset, len)) => region.view(*offset, *len).expect("they were looked up"),
            InPlace::Buffer(buffer, (offset, len)) => buffer.view(*offset, *len).expect("they were looked up"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tuning::{BROADCAST_IN_PLACE_FROM, IN_PLACE_FROM_ANY, REDUCE_WHOLE_IN_PLACE_FROM};

    #[test]
    fn blocks_of_ranks_that_share_processors_are_longer_at_most_as_long_as_elsewhere() {
        const MIB: usize = 1 << 20;
        let on_intel = |from: InPlaceFrom| [1, 3, 8].map(|sharing| from.bytes(true, sharing));
        let elsewhere = |from: InPlaceFrom| [1, 8].map(|sharing| from.bytes(false, sharing));
        assert_eq!(on_intel(BROADCAST_IN_PLACE_FROM), [MIB, 3 * MIB, 4 * MIB]);
        assert_eq!(elsewhere(BROADCAST_IN_PLACE_FROM), [4 * MIB; 2]);
        assert_eq!(on_intel(REDUCE_WHOLE_IN_PLACE_FROM), [MIB / 4, 3 * MIB / 4, 2 * MIB]);
        assert_eq!(elsewhere(REDUCE_WHOLE_IN_PLACE_FROM), [usize::MAX; 2]);
        assert_eq!((on_intel(IN_PLACE_FROM_ANY), elsewhere(IN_PLACE_FROM_ANY)), ([0; 3], [0; 2]));
    }
}
