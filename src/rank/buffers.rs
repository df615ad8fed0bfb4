//! The memory of a communicator's buffers: where those of this rank lie, and how it finds those of others.
//!
//! * A **segment** is memory that one rank makes alone, and other ranks find when they first need it, by a name that follows from
//!   the communicator's key, the rank and the segment's number. Segments are never given back before the communicator ends, so
//!   what a rank has mapped stays what it is.
//! * A **buffer** is a block of a segment of its rank, given out by the best fit (`range-alloc`), in granules of 128 bytes. When
//!   it is dropped, its whole pages go back to the system.
//! * The **prefixes** of the heaps of all processes are found and read like segments: see [`crate::rank::heap_prefixes`].
//! * A place in a segment is [offered](crate::protocol::offers) until all ranks have found the segment once. If one has not, it is
//!   not offered again: what lies there goes through staging.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use range_alloc::RangeAllocator;

use crate::rank::heap_prefixes::{self, HeapPrefixes, PREFIXES, Reach};
use crate::rank::unchanged::SentBlocks;
use crate::segment::buffer_memory::{BufferBlock, BufferBytes};
use crate::segment::mapped::MappedSegment;
use crate::sys::kept_file::KeptFile;
use crate::sys::memory::backing::{Refusal, too_long};
use crate::sys::memory::findable;
use crate::sys::memory::pages::page_size;
use crate::sys::shared_heap;

/// The unit of offsets and lengths, in bytes: two lines, as in the heap of symmetric objects.
const GRANULE: usize = 128;

/// The least length of a segment, in bytes: it costs addresses only.
const FIRST: usize = 1 << 20;

/// Pages of shorter buffers are kept for the next ones, since giving them back is a call of the system.
const GIVE_BACK_FROM_BYTES: usize = 64 << 10;

/// The bits of a place: the offset, the segment's number, and the rank.
const OFFSET_BITS: u32 = 40;
const SEGMENT_BITS: u32 = 5;
const RANK_BITS: u32 = 16;

/// The last numbers of segments are those of the prefixes of heaps.
const FIRST_PREFIX: usize = (1 << SEGMENT_BITS) - PREFIXES;

/// Bytes in a segment of some rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BufferPlace {
    rank: usize,
    segment: usize,
    pub(crate) offset: usize,
}

/// The number that means the same to all ranks.
fn encode(place: BufferPlace) -> Option<u64> {
    let BufferPlace { rank, segment, offset } = place;
    let fits = |value: usize, bits: u32| (value as u64) < 1 << bits;
    let all_fit = fits(rank, RANK_BITS) && fits(segment, SEGMENT_BITS) && fits(offset, OFFSET_BITS);
    let high = (rank as u64) << SEGMENT_BITS | segment as u64;
    all_fit.then_some(high << OFFSET_BITS | offset as u64)
}

/// The place that a number stands for. Further bits are ignored.
pub(crate) fn of_place(number: u64) -> BufferPlace {
    let bits = |shift: u32, bits: u32| (number >> shift & ((1 << bits) - 1)) as usize;
    BufferPlace {
        rank: bits(OFFSET_BITS + SEGMENT_BITS, RANK_BITS),
        segment: bits(OFFSET_BITS, SEGMENT_BITS),
        offset: bits(0, OFFSET_BITS),
    }
}

/// One rank's buffers in a communicator, and those of others that it has found.
#[derive(Debug, Default)]
pub(crate) struct Buffers {
    own: Mutex<Vec<Segment>>,
    /// Whether there was ever a segment. If not, no call takes a lock to look for its blocks.
    is_used: AtomicBool,
    /// The heap of this rank's process.
    heap: Mutex<HeapPrefixes>,
    /// By rank and segment.
    found: Mutex<BTreeMap<(usize, usize), Arc<BufferBytes>>>,
}

#[derive(Debug)]
struct Segment {
    bytes: Arc<BufferBytes>,
    /// `None`: no other process can find it.
    file: Option<KeptFile>,
    /// In granules.
    free: RangeAllocator<usize>,
    /// Below this granule buffers have been before.
    used: usize,
    reach: Reach,
    sent: SentBlocks,
}

/// The name of a segment: the key is random, and the same on all ranks of a communicator.
fn name(key: u64, rank: usize, segment: usize) -> String {
    format!("intranode_{key:016x}_{rank}_{segment}")
}

impl Buffers {
    fn own(&self) -> MutexGuard<'_, Vec<Segment>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, unless there never was a segment.
    fn used(&self) -> Option<MutexGuard<'_, Vec<Segment>>> {
        self.is_used.load(Ordering::Relaxed).then(|| self.own())
    }

    fn heap(&self) -> MutexGuard<'_, HeapPrefixes> {
        self.heap.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn found_segments(&self) -> MutexGuard<'_, BTreeMap<(usize, usize), Arc<BufferBytes>>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a block of `bytes` zeros for a buffer of this rank. `key`: the communicator's, or `None` if nobody is to find it.
    pub(crate) fn take(
        &self,
        key: Option<u64>,
        rank: usize,
        bytes: Option<usize>,
        align: usize,
    ) -> Result<BufferBlock, Refusal> {
        let bytes = bytes.ok_or_else(too_long)?;
        // Whole pages can be given back.
        let align = if bytes >= page_size() { align.max(page_size()) } else { align.max(GRANULE) };
        let needed = bytes.max(1).checked_next_multiple_of(align).ok_or_else(too_long)?;
        findable::check_room(needed)?;
        let mut own = self.own();
        let mut fit = take_range(&mut own, needed, align);
        if fit.is_none() {
            let number = own.len();
            let longest = own.iter().map(|segment| segment.bytes.len()).max().unwrap_or(0);
            let segment = grow(key.map(|key| name(key, rank, number)), needed, longest)?;
            own.push(segment);
            // Relaxed: who sends what lies there has a reference to it, which comes after this.
            self.is_used.store(true, Ordering::Relaxed);
            fit = take_range(&mut own, needed, align);
        }
        let (number, range) = fit.ok_or_else(too_long)?;
        let segment = &mut own[number];
        let bytes = range.start * GRANULE..range.end * GRANULE;
        let mut block = BufferBlock::new(Arc::clone(&segment.bytes), bytes);
        if let Err(refusal) = block.allocate(segment.file.as_ref()) {
            // It was allocated in steps, of which the first ones may have succeeded.
            block.give_back(segment.file.as_ref());
            segment.free.free_range(range);
            return Err(refusal);
        }
        let used = segment.used.saturating_sub(range.start).min(range.len()) * GRANULE;
        segment.used = segment.used.max(range.end);
        drop(own);
        block.values_mut::<u8>(used).fill(0);
        Ok(block)
    }

    /// A buffer has been dropped: its block is free. In a forked child nothing changes, since the memory is the parent's.
    pub(crate) fn free(&self, block: &mut BufferBlock) {
        if block.bytes().forked() {
            return;
        }
        let range = block.range().clone();
        let mut own = self.own();
        let Some(segment) = own.iter_mut().find(|segment| Arc::ptr_eq(&segment.bytes, block.bytes())) else {
            return;
        };
        if range.len() >= GIVE_BACK_FROM_BYTES {
            block.give_back(segment.file.as_ref());
        }
        segment.free.free_range(range.start / GRANULE..range.end / GRANULE);
    }

    /// Where other ranks find these bytes, if they lie in a buffer of this rank or in the heap of its process; and whether all of them
    /// know it. `key`: the communicator's, or `None` if nobody is to find it.
    pub(crate) fn place_of(&self, key: Option<u64>, rank: usize, bytes: &[u8]) -> Option<(u64, bool)> {
        let (segment, offset, reach) = self.place_in_segment(bytes).or_else(|| {
            let place = shared_heap::place_of(bytes)?;
            let (prefix, offset, reach) = self.heap().place_of(key, rank, place, bytes.len())?;
            Some((FIRST_PREFIX + prefix, offset, reach))
        })?;
        let place = encode(BufferPlace { rank, segment, offset })?;
        (reach != Reach::NotAll).then_some((place, reach == Reach::All))
    }

    fn place_in_segment(&self, bytes: &[u8]) -> Option<(usize, usize, Reach)> {
        let own = self.used()?;
        let mut segments = own.iter().take(FIRST_PREFIX).enumerate();
        segments.find_map(|(number, segment)| Some((number, segment.bytes.offset_of(bytes)?, segment.reach)))
    }

    /// Records that these bytes are sent. Reports whether they lie where other ranks find them, and were sent before as they are.
    pub(crate) fn are_unchanged(&self, bytes: &[u8]) -> bool {
        if let Some(mut own) = self.used() {
            let mut segments = own.iter_mut();
            let found = segments.find_map(|segment| Some((segment.bytes.offset_of(bytes)?, &mut segment.sent)));
            if let Some((offset, sent)) = found {
                return sent.is_unchanged(offset as u64, bytes);
            }
        }
        shared_heap::place_of(bytes).is_some_and(|place| self.heap().is_unchanged(place, bytes))
    }

    /// All ranks have answered whether they have what this one has offered.
    pub(crate) fn settle(&self, place: BufferPlace, found: bool) {
        if let Some(prefix) = place.segment.checked_sub(FIRST_PREFIX) {
            self.heap().settle(prefix, found);
        } else if let Some(segment) = self.own().get_mut(place.segment) {
            segment.reach = if found { Reach::All } else { Reach::NotAll };
        }
    }

    /// Whether this rank, `own`, has mapped the segment of a place, or can map it now.
    pub(crate) fn find(&self, place: BufferPlace, own: usize, mapped: &MappedSegment) -> bool {
        let BufferPlace { rank, segment, .. } = place;
        if rank == own || rank >= mapped.layout().ranks() {
            return false;
        }
        let mut found = self.found_segments();
        if found.contains_key(&(rank, segment)) {
            return true;
        }
        let mapping = match segment.checked_sub(FIRST_PREFIX) {
            Some(prefix) => heap_prefixes::find(mapped, rank, prefix),
            None => findable::find(mapped.snapshot(rank).pid, &name(mapped.key(), rank, segment)).ok(),
        };
        let Some(mapping) = mapping else { return false };
        found.insert((rank, segment), Arc::new(BufferBytes::new(mapping)));
        true
    }

    /// The segment of a place, which this rank has found.
    pub(crate) fn found(&self, place: BufferPlace) -> Option<Arc<BufferBytes>> {
        self.found_segments().get(&(place.rank, place.segment)).map(Arc::clone)
    }
}

impl Segment {
    /// Whether memory can be allocated in it: a program may have closed its descriptor.
    fn is_open(&self) -> bool {
        self.file.as_ref().is_none_or(|file| file.get().is_some())
    }
}

/// Takes a range, in granules, where there is room. Lengths in bytes.
fn take_range(own: &mut [Segment], needed: usize, align: usize) -> Option<(usize, Range<usize>)> {
    let take = |(number, segment): (usize, &mut Segment)| {
        let range = segment.free.allocate_range_aligned(needed.div_ceil(GRANULE), align / GRANULE).ok()?;
        Some((number, range))
    };
    own.iter_mut().enumerate().filter(|(_, segment)| segment.is_open()).find_map(take)
}

/// A segment with room for `needed` bytes, and if possible for more: twice the longest so far.
fn grow(name: Option<String>, needed: usize, longest: usize) -> Result<Segment, Refusal> {
    let page = page_size();
    let alone = needed.checked_next_multiple_of(page).ok_or_else(too_long)?;
    let spare = alone.max(longest.saturating_mul(2)).max(FIRST).checked_next_multiple_of(page);
    let make = |len: Option<usize>| match &name {
        Some(name) => findable::make(name, len.ok_or_else(too_long)?),
        None => Err(io::Error::from(io::ErrorKind::Unsupported).into()),
    };
    let make_private = |len: Option<usize>| findable::make_private(len.ok_or_else(too_long)?);
    let (file, mapping) = match make(spare).or_else(|_| make(Some(alone))) {
        Ok((file, mapping)) => (Some(file), mapping),
        Err(Refusal::Memory(headroom)) => return Err(Refusal::Memory(headroom)),
        // The system has no memory that others find.
        Err(Refusal::System(_)) => (None, make_private(spare).or_else(|_| make_private(Some(alone)))?),
    };
    let free = RangeAllocator::new(0..mapping.len() / GRANULE);
    let reach = if file.is_some() { Reach::Unknown } else { Reach::NotAll };
    let bytes = Arc::new(BufferBytes::new(mapping));
    Ok(Segment { bytes, file, free, used: 0, reach, sent: SentBlocks::default() })
}
