//! The heap of symmetric objects: which of them lie where.
//!
//! Every rank has the same tables, since each changes them in the same way after the same rounds. So no offset is ever sent,
//! and nothing of this lies in shared memory.
//!
//! * A **segment** is memory of which each rank has a part of the same length. Where an object has no room, a segment is added;
//!   objects never move and never span segments. A segment without objects is given back, unless it is the largest of its
//!   kind; that one too where there is too little memory for a further segment, or for a region.
//! * A **block** is the part of a segment that an object has, at the same offset in every rank's part. Offsets are those of the
//!   best fit (`range-alloc`), in granules of 128 bytes.
//! * A block is free again when every rank has dropped its handle. A handle is dropped without the other ranks: a rank tells
//!   them in its next call that gives memory out or takes it back.

use std::collections::BTreeMap;
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use range_alloc::RangeAllocator;

use crate::copy::Source;
use crate::protocol::block_transfer::Address;
use crate::rank::unchanged::SentBlocks;
use crate::segment::symmetric_memory::{Block, Instances};
use crate::sys::memory::huge;
use crate::sys::memory::pages::page_size;

/// The unit of offsets and lengths, in bytes: two lines, so that objects do not share lines, nor pairs of them that are
/// prefetched together.
const GRANULE: usize = 128;

/// The least length of a rank's part of a segment, in bytes, so that many small objects are not as many segments.
const FIRST: usize = 64 << 10;

/// One rank's heap in a communicator.
#[derive(Debug, Default)]
pub(crate) struct Heap {
    table: Mutex<Table>,
    /// Whether there was ever a segment. If not, no call takes a lock to look for its blocks.
    is_used: AtomicBool,
    /// The objects that this rank has dropped, and not told.
    dropped: Mutex<Vec<u64>>,
    sent: Mutex<SentBlocks>,
}

impl Heap {
    /// The tables. They are used inside collective calls only, so no thread waits.
    pub(crate) fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a segment.
    pub(crate) fn add(&self, instances: Arc<Instances>, kind: MemoryKind, alignment: usize, stride: usize) {
        self.table().add(instances, kind, alignment, stride);
        // Relaxed: who sends what lies there has a reference to it, which came after this.
        self.is_used.store(true, Ordering::Relaxed);
    }

    fn dropped_list(&self) -> MutexGuard<'_, Vec<u64>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This rank drops an object. Other threads of it may do so at the same time.
    pub(crate) fn drop_object(&self, number: u64) {
        self.dropped_list().push(number);
    }

    /// The objects that this rank has dropped, and not told.
    pub(crate) fn dropped(&self) -> Vec<u64> {
        self.dropped_list().clone()
    }

    /// The first `count` of them have been told.
    pub(crate) fn told(&self, count: usize) {
        self.dropped_list().drain(..count);
    }
}

/// The bits of an offset in a place: of segments of up to 256 TiB.
pub(crate) const OFFSET_BITS: u32 = 48;

/// How many segments a place can name: the bits above are those of [`crate::rank::lending`]. What lies in later ones is not lent.
const NAMED: usize = 1 << 13;

impl Heap {
    /// Where all ranks find these bytes in the heap: the segment's number, and the offset in it. `None`: they are not there, or another rank
    /// is a thread of this process, which has the same mapping: where a call fails, it may still read what its caller writes again.
    pub(crate) fn place_of(&self, bytes: &[u8]) -> Address {
        self.place(bytes, None)
    }

    /// The same of bytes in this rank's own part: of those in another's, which this one has in the phase [`Read`](crate::Read), that
    /// rank may have a `&mut` later.
    pub(crate) fn own_place_of(&self, rank: usize, bytes: &[u8]) -> Address {
        self.place(bytes, Some(rank))
    }

    fn place(&self, bytes: &[u8], part: Option<usize>) -> Address {
        if !self.is_used.load(Ordering::Relaxed) {
            return None;
        }
        let table = self.table();
        let found = |Segment { number, instances, .. }: &Segment| {
            let offset = instances.offset_of(bytes).filter(|_| *number < NAMED && !instances.by_threads())?;
            let is_there = part.is_none_or(|rank| instances.is_in_part(rank, offset, bytes.len()));
            is_there.then_some((*number as u64) << OFFSET_BITS | offset as u64)
        };
        // Never 0.
        NonZeroU64::new(table.segments.iter().find_map(found)?.wrapping_add(1))
    }

    /// Records that the bytes at a place are sent. As [`SentBlocks::is_unchanged`].
    pub(crate) fn is_unchanged(&self, place: NonZeroU64, bytes: &[u8]) -> bool {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).is_unchanged(place.get(), bytes)
    }

    /// `len` bytes, `start` bytes after a place. `None`: they do not exist.
    pub(crate) fn at(&self, place: NonZeroU64, start: usize, len: usize) -> Option<InstancesInPlace> {
        let place = place.get() - 1;
        let (number, offset) = ((place >> OFFSET_BITS) as usize, (place & ((1 << OFFSET_BITS) - 1)) as usize);
        let instances = self.table().numbered(number).map(|segment| Arc::clone(&segment.instances))?;
        let range = (offset.checked_add(start)?, len);
        instances.view(range.0, range.1)?;
        Some(InstancesInPlace { instances, range })
    }
}

/// Bytes in the heap that some rank lends to the others.
#[derive(Debug)]
pub(crate) struct InstancesInPlace {
    instances: Arc<Instances>,
    /// The offset and the length, which exist.
    range: (usize, usize),
}

impl InstancesInPlace {
    pub(crate) fn view(&self) -> Source<'_> {
        self.instances.view(self.range.0, self.range.1).expect("they were looked up")
    }
}

/// A request for memory. The same on all ranks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    /// In bytes; `None` if that overflows.
    pub(crate) bytes: Option<usize>,
    /// In bytes, a power of two.
    pub(crate) alignment: usize,
    pub(crate) kind: MemoryKind,
}

/// What kind of memory a segment has. Objects of different kinds do not share segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MemoryKind {
    /// A code for the placement.
    pub(crate) placement: u64,
    pub(crate) huge: bool,
}

/// Where an object comes to lie.
#[derive(Debug)]
pub(crate) struct Placed {
    /// The sequence number of the object, the same on all ranks.
    pub(crate) number: u64,
    pub(crate) block: Block,
    /// How many of the block's first bytes another object has had. The others are zero.
    pub(crate) used: usize,
}

/// What segments to try for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Growth {
    /// In bytes.
    pub(crate) alignment: usize,
    /// The lengths of a rank's part in bytes, with room to spare and without. `None`: it overflows.
    pub(crate) strides: [Option<usize>; 2],
}

/// The segments and the objects in them: the same on all ranks.
#[derive(Debug, Default)]
pub(crate) struct Table {
    segments: Vec<Segment>,
    /// How many there have been.
    made: usize,
    objects: BTreeMap<u64, Object>,
    /// The number of the next object.
    next: u64,
}

#[derive(Debug)]
struct Segment {
    /// Where it is named by a place. No later segment has it: a message whose request was forgotten may name it for ever, and in
    /// another segment the same offset may lie in the receiver's own instance, to which it may have a `&mut`.
    number: usize,
    instances: Arc<Instances>,
    kind: MemoryKind,
    /// In bytes: of the mapping, and of each rank's part.
    alignment: usize,
    stride: usize,
    /// In granules.
    free: RangeAllocator<usize>,
    /// Below this granule objects have been before.
    used: usize,
}

#[derive(Debug)]
struct Object {
    instances: Arc<Instances>,
    /// In granules.
    range: Range<usize>,
    /// How many ranks have dropped it.
    drops: usize,
    /// Whether this rank has.
    own: bool,
}

impl Table {
    /// The number of objects that not all ranks have dropped.
    pub(crate) fn objects(&self) -> usize {
        self.objects.len()
    }

    /// Takes a block. `None`: no segment has room.
    pub(crate) fn take(&mut self, request: &Request) -> Option<Placed> {
        let len = request.bytes?.max(1).div_ceil(GRANULE);
        let alignment = (request.alignment / GRANULE).max(1);
        let fits =
            |segment: &&mut Segment| segment.kind == request.kind && segment.alignment >= request.alignment;
        let mut segments = self.segments.iter_mut().filter(fits);
        let (segment, range) = segments.find_map(|segment| {
            let range = segment.free.allocate_range_aligned(len, alignment).ok()?;
            Some((segment, range))
        })?;
        let used = segment.used.saturating_sub(range.start).min(len) * GRANULE;
        segment.used = segment.used.max(range.end);
        let instances = Arc::clone(&segment.instances);
        let block = Block::new(Arc::clone(&instances), range.start * GRANULE, len * GRANULE);
        let number = self.next;
        self.next += 1;
        self.objects.insert(number, Object { instances, range, drops: 0, own: false });
        Some(Placed { number, block, used })
    }

    /// The segments to try where there is no room: twice the largest of this kind, and what the request needs.
    pub(crate) fn growth(&self, request: &Request, ranks: usize) -> Growth {
        let page = if request.kind.huge { huge::ALIGN.max(page_size()) } else { page_size() };
        let alignment = request.alignment.max(page);
        let largest = self.of_kind(request.kind).map(|segment| segment.stride).max().unwrap_or(0);
        let fits = |stride: &usize| stride.checked_mul(ranks).is_some_and(|len| isize::try_from(len).is_ok());
        let stride = |bytes: usize| bytes.checked_next_multiple_of(alignment).filter(fits);
        let alone = request.bytes.map(|bytes| bytes.max(1));
        let spare = alone.map(|bytes| bytes.max(largest.saturating_mul(2)).max(FIRST));
        Growth { alignment, strides: [spare, alone].map(|bytes| bytes.and_then(stride)) }
    }

    fn add(&mut self, instances: Arc<Instances>, kind: MemoryKind, alignment: usize, stride: usize) {
        let free = RangeAllocator::new(0..stride / GRANULE);
        self.segments.push(Segment { number: self.made, instances, kind, alignment, stride, free, used: 0 });
        self.made += 1;
    }

    fn numbered(&self, number: usize) -> Option<&Segment> {
        self.segments.iter().find(|segment| segment.number == number)
    }

    /// A rank has dropped an object, `is_own` if it is this one. Another process may have overwritten what other ranks say: a number that
    /// no object has is ignored, and what this rank has not dropped is not freed here.
    pub(crate) fn dropped(&mut self, number: u64, is_own: bool, ranks: usize) {
        if let Some(object) = self.objects.get_mut(&number) {
            object.drops += 1;
            object.own |= is_own;
            if object.own && object.drops >= ranks {
                self.free(number);
            }
        }
    }

    /// No rank has the object any more.
    pub(crate) fn free(&mut self, number: u64) {
        let Some(Object { instances, range, .. }) = self.objects.remove(&number) else { return };
        let segment = self.segments.iter_mut().find(|segment| Arc::ptr_eq(&segment.instances, &instances));
        if let Some(segment) = segment {
            segment.free.free_range(range);
        }
    }

    /// Gives segments without objects back, except the largest of each kind: a program that frees its objects and allocates
    /// them again does not need the system each time.
    pub(crate) fn give_back(&mut self) {
        let mut index = 0;
        while index < self.segments.len() {
            let segment = &self.segments[index];
            let larger = |(other_index, other): (usize, &Segment)| {
                other.kind == segment.kind
                    && (other.stride > segment.stride || other.stride == segment.stride && other_index < index)
            };
            if segment.free.is_empty() && self.segments.iter().enumerate().any(larger) {
                self.segments.remove(index);
            } else {
                index += 1;
            }
        }
    }

    /// Gives all segments without objects back. Returns whether there were any.
    pub(crate) fn give_back_all(&mut self) -> bool {
        let before = self.segments.len();
        self.segments.retain(|segment| !segment.free.is_empty());
        self.segments.len() < before
    }

    fn of_kind(&self, kind: MemoryKind) -> impl Iterator<Item = &Segment> {
        self.segments.iter().filter(move |segment| segment.kind == kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory::backing::ShmHandle;
    use crate::sys::memory::mapping::Mapping;
    use crate::sys::testing::in_forked_child;

    const KIND: MemoryKind = MemoryKind { placement: 0, huge: false };

    /// Adds a segment with this length of a rank's part, of one rank. Returns its number.
    fn add(table: &mut Table, stride: usize) -> usize {
        let mapping = Mapping::anonymous(stride).unwrap();
        let inode = mapping.start().addr() as u64;
        let handle = ShmHandle::decode([1, 0, inode, 0, inode, stride as u64]).unwrap();
        table.add(Instances::share(&handle, mapping, 1, stride), KIND, page_size(), stride);
        table.segments.last().unwrap().number
    }

    #[test]
    fn a_part_is_told_from_those_beside_it() {
        let stride = page_size();
        let mapping = Mapping::anonymous(3 * stride).unwrap();
        let inode = mapping.start().addr() as u64;
        let handle = ShmHandle::decode([1, 0, inode, 0, inode, 3 * stride as u64]).unwrap();
        let instances = Instances::share(&handle, mapping, 3, stride);
        let parts = |offset, len| [0, 1, 2].map(|rank| instances.is_in_part(rank, offset, len));
        assert_eq!(parts(stride - 1, 1), [true, false, false]);
        assert_eq!(parts(stride, stride), [false, true, false]);
        assert_eq!(parts(3 * stride - 8, 8), [false, false, true]);
        assert_eq!(
            [parts(stride - 1, 2), parts(stride, stride + 1), parts(stride, usize::MAX)],
            [[false; 3]; 3]
        );
    }

    #[test]
    fn no_segment_has_the_number_of_one_that_is_gone() {
        let mut table = Table::default();
        assert_eq!([1, 2].map(|pages| add(&mut table, pages * page_size())), [0, 1]);
        table.give_back();
        assert!(table.numbered(0).is_none() && table.numbered(1).is_some());
        assert_eq!(add(&mut table, 4 * page_size()), 2);
        assert!(table.numbered(0).is_none());
    }

    #[test]
    fn only_empty_segments_are_given_back() {
        let mut table = Table::default();
        assert_eq!([1, 2, 4].map(|pages| add(&mut table, pages * page_size())), [0, 1, 2]);
        let request = Request { bytes: Some(2 * page_size()), alignment: 1, kind: KIND };
        let placed = table.take(&request).unwrap();
        assert!(table.give_back_all());
        assert_eq!([0, 1, 2].map(|number| table.numbered(number).is_some()), [false, true, false]);
        table.free(placed.number);
        table.give_back();
        assert!(table.numbered(1).is_some(), "the largest is kept");
        assert!(table.give_back_all() && table.segments.is_empty() && !table.give_back_all());
    }

    fn growth(bytes: Option<usize>, alignment: usize, ranks: usize) -> [Option<usize>; 2] {
        Table::default().growth(&Request { bytes, alignment, kind: KIND }, ranks).strides
    }

    #[test]
    fn a_first_segment_has_room_to_spare() {
        let page = page_size();
        assert_eq!(growth(Some(0), 1, 4), [Some(FIRST), Some(page)]);
        assert_eq!(growth(Some(page + 1), 1, 4), [Some(FIRST), Some(2 * page)]);
        assert_eq!(growth(Some(FIRST + 1), 1, 4), [Some(FIRST + page); 2]);
    }

    #[test]
    fn a_part_is_a_multiple_of_the_alignment() {
        const ALIGNMENT: usize = 8 << 20;
        assert_eq!(growth(Some(1), ALIGNMENT, 2), [Some(ALIGNMENT); 2]);
        assert_eq!(growth(Some(ALIGNMENT + 1), ALIGNMENT, 2), [Some(2 * ALIGNMENT); 2]);
    }

    #[test]
    fn what_overflows_has_no_length() {
        assert_eq!(growth(None, 1, 2), [None; 2]);
        for bytes in [usize::MAX, usize::MAX / 2, isize::MAX as usize / 2] {
            assert_eq!(growth(Some(bytes), 1, 4), [None; 2], "{bytes}");
        }
    }

    #[test]
    fn drops_are_told_once() {
        let heap = Heap::default();
        [3, 1, 2].into_iter().for_each(|number| heap.drop_object(number));
        assert_eq!(heap.dropped(), [3, 1, 2]);
        heap.drop_object(7);
        heap.told(3);
        assert_eq!(heap.dropped(), [7]);
    }

    #[test]
    fn what_this_rank_has_not_dropped_is_not_freed() {
        let mut table = Table::default();
        add(&mut table, page_size());
        let request = Request { bytes: Some(page_size()), alignment: 1, kind: KIND };
        let number = table.take(&request).unwrap().number;
        // Another process has written that another rank has dropped it twice.
        table.dropped(number, false, 2);
        table.dropped(number, false, 2);
        assert!(table.objects() == 1 && table.take(&request).is_none());
        table.dropped(number, true, 2);
        assert!(table.objects() == 0 && table.take(&request).is_some());
    }

    #[test]
    fn numbers_that_no_object_has_are_ignored() {
        let mut table = Table::default();
        table.dropped(u64::MAX, true, 2);
        table.free(0);
        table.give_back();
        assert_eq!(table.objects(), 0);
    }

    #[test]
    fn an_object_is_dropped_in_a_child_that_is_forked_while_another_thread_drops_one() {
        let results = crate::threads(1, |comm| {
            let mut object = Some(comm.symmetric::<u8>(10)?);
            let dropping = comm.rank_state.heap.dropped_list();
            let ends = in_forked_child(|| {
                drop(object.take());
                true
            });
            assert!(dropping.is_empty());
            Ok::<_, crate::Error>(ends)
        });
        assert!(
            matches!(results.unwrap()[..], [Ok(true)]),
            "the child waits for a thread that it does not have"
        );
    }
}
