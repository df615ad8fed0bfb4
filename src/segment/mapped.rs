//! One segment in memory, seen through its layout.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use std::hash::{BuildHasher, RandomState};
use std::io;

use super::platform::{Chunk, Pairs, ShmPlatform, Wait};
use super::settings::{BarrierShape, SegmentSettings, SingleCopy};
use crate::protocol::generation::POISON;
#[cfg(target_os = "linux")]
use crate::protocol::watch::{Liveness, Roll};
use crate::protocol::{Generation, Segment, Slot, Staging};
#[cfg(target_os = "linux")]
use crate::segment::layout::ALIVE;
use crate::segment::layout::{Layout, PAIR, PAIRS, PREAMBLE};
use crate::sys::memory::mapping::Mapping;
use crate::sys::wait::pthread::{PAIR_ALIGN, PAIR_SIZE, Pair};

/// The round that every communicator starts after.
pub(crate) const START: Generation = Generation::new(0);

/// A mapped segment.
pub(crate) struct MappedSegment {
    mapping: Mapping,
    layout: Layout,
    chunks: Box<[[Chunk; 2]]>,
    staging: Staging,
    shape: BarrierShape,
    /// The key of the digests by which ranks compare counts.
    key: u64,
    /// Whether what is mapped is not the segment any more.
    torn: AtomicBool,
}

impl MappedSegment {
    /// Fills a segment that is all zeros, but for its preamble maybe, and that nobody else uses yet. `pid` makes it.
    pub(crate) fn initialise(
        mapping: &Mapping,
        layout: &Layout,
        pid: u32,
        settings: SegmentSettings,
    ) -> io::Result<()> {
        assert!(mapping.len() >= layout.len());
        word_of(mapping, layout.wait()).store(u32::from(settings.pthread), Relaxed);
        word_of(mapping, layout.barrier_shape()).store(settings.shape.0, Relaxed);
        word_of(mapping, layout.single_copy()).store(settings.single_copy.0, Relaxed);
        word64_of(mapping, layout.key()).store(RandomState::new().hash_one(0), Relaxed);
        for index in 0..PAIRS {
            let offset = layout.pair(index).expect("the index is in range");
            // SAFETY: I1: inside the mapping and aligned by the layout, which has this room for it.
            unsafe { Pair::init(mapping.start().wrapping_add(offset)) }?;
        }
        let words = START.initial_words();
        for pair in slots(mapping, layout) {
            for (slot, word) in pair.iter().zip(words) {
                slot.state.store(word, Relaxed);
            }
        }
        let preamble = layout.preamble(pid);
        let (magic, rest) = preamble.split_first_chunk().expect("a preamble is longer than its magic number");
        // SAFETY: I1: the preamble lies inside the mapping, which nobody else uses yet.
        unsafe {
            core::ptr::copy_nonoverlapping(rest.as_ptr(), mapping.start().wrapping_add(MAGIC), rest.len())
        };
        magic_of(mapping).store(u64::from_ne_bytes(*magic), Release);
        Ok(())
    }

    /// Whether the segment in `mapping` has been initialised. If so, what was written then is visible.
    pub(crate) fn is_initialised(mapping: &Mapping) -> bool {
        magic_of(mapping).load(Acquire) != 0
    }

    /// The segment in `mapping`, which is at least as long as the layout says.
    pub(crate) fn new(mapping: Mapping, layout: Layout) -> Self {
        assert!(mapping.len() >= layout.len());
        let chunk = |rank, parity| {
            let offset = layout.staging(rank, parity).expect("the rank is one of the layout's");
            // SAFETY: I1: the layout keeps its parts apart and inside the mapping, which the world keeps.
            unsafe { Chunk::new(mapping.start().wrapping_add(offset), layout.chunk()) }
        };
        let chunks = (0..layout.ranks()).map(|rank| [chunk(rank, 0), chunk(rank, 1)]).collect();
        let staging = Staging::of(layout.chunk(), layout.ranks());
        let shape = BarrierShape(word_of(&mapping, layout.barrier_shape()).load(Relaxed));
        let key = word64_of(&mapping, layout.key()).load(Relaxed);
        MappedSegment { shape, key, mapping, layout, chunks, staging, torn: AtomicBool::new(false) }
    }

    /// Whether this process is a forked child, in which the segment does not exist.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.mapping.forked()
    }

    /// To be called by a handler of signals where memory at this address is gone. False: it is not the segment's.
    pub(crate) fn tear(&self, address: usize) -> bool {
        if !self.mapping.contains(address) {
            return false;
        }
        // First: zeros must not be taken for data.
        self.torn.store(true, Relaxed);
        self.mapping.replace()
    }

    /// Whether somebody has cut the segment short: what was read is zeros.
    #[inline]
    pub(crate) fn torn(&self) -> bool {
        self.torn.load(Relaxed)
    }

    /// How ranks sleep in this segment: decided by whoever made it.
    pub(crate) fn wait(&self) -> Wait {
        #[cfg(target_os = "linux")]
        if word_of(&self.mapping, self.layout.wait()).load(Relaxed) == 0 {
            return Wait::Futex;
        }
        // SAFETY: I1: `initialise` has made the pairs, and whoever has the machine keeps the world.
        Wait::Pthread(unsafe { Pairs::new(self.mapping.start(), self.layout) })
    }

    /// What can be seen of a rank from outside. Nothing is synchronised with what it does meanwhile.
    pub(crate) fn snapshot(&self, rank: usize) -> Snapshot {
        let segment = self.segment();
        let generation = |slot: &Slot<ShmPlatform>| Generation::of_word(slot.state.load(Relaxed));
        let [even, odd] = &segment.slots[rank];
        // The words of a rank are one round apart.
        let (round, slot) = match (generation(even), generation(odd)) {
            (even_round, odd_round) if odd_round.next() == even_round => (even_round, even),
            (_, odd_round) => (odd_round, odd),
        };
        let poisoned = (even.state.load(Relaxed) | odd.state.load(Relaxed)) & POISON != 0;
        let pid = segment.claims[rank].load(Relaxed);
        Snapshot { round, operation: slot.header.operation(), pid, poisoned }
    }

    /// How ranks meet in this segment: decided by whoever made it.
    pub(crate) fn barrier_shape(&self) -> BarrierShape {
        self.shape
    }

    /// When ranks try to read in each other's memory: decided by whoever made the segment.
    pub(crate) fn single_copy(&self) -> SingleCopy {
        SingleCopy(word_of(&self.mapping, self.layout.single_copy()).load(Relaxed))
    }

    /// The key of the digests by which ranks compare counts: the same on every rank, and different in every segment.
    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The words by which ranks watch each other; see [`super::watcher`].
    #[cfg(target_os = "linux")]
    pub(crate) fn roll(&self) -> Roll<'_, ShmPlatform> {
        let (start, layout) = (self.mapping.start(), &self.layout);
        let fates = start.wrapping_add(layout.fates()).cast::<AtomicU32>();
        // With one rank there are none.
        let slots = start.wrapping_add(layout.alive(0, 0).unwrap_or_default()).cast::<Liveness<ShmPlatform>>();
        Roll {
            notices: word_of(&self.mapping, layout.notices()),
            // SAFETY: I1: inside the mapping and aligned by the layout; an atomic may be changed by others.
            fates: unsafe { core::slice::from_raw_parts(fates, layout.ranks()) },
            // SAFETY: I1: as above.
            slots: unsafe { core::slice::from_raw_parts(slots, layout.ranks() * layout.watchers()) },
        }
    }

    /// The space that the number of a rank's process counts in; 0 as long as that is not known.
    #[cfg(target_os = "linux")]
    pub(crate) fn space(&self, rank: usize) -> &AtomicU32 {
        assert!(rank < self.layout.ranks());
        word_of(&self.mapping, self.layout.spaces() + rank * size_of::<AtomicU32>())
    }

    /// The control structures in the mapping.
    #[inline]
    pub(crate) fn segment(&self) -> Segment<'_, ShmPlatform> {
        let (start, ranks) = (self.mapping.start(), self.layout.ranks());
        let claims = start.wrapping_add(self.layout.claims()).cast::<AtomicU32>();
        Segment {
            cause: word64_of(&self.mapping, self.layout.cause()),
            spread: word_of(&self.mapping, self.layout.spread()),
            // SAFETY: I1: inside the mapping and aligned by the layout; atomics may be changed by others.
            claims: unsafe { core::slice::from_raw_parts(claims, ranks) },
            slots: slots(&self.mapping, &self.layout),
            chunks: &self.chunks,
            staging: self.staging,
        }
    }
}

/// A rank from outside, at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The last round at which it has arrived.
    pub(crate) round: Generation,
    /// What it called then.
    pub(crate) operation: u8,
    /// 0: it has not come yet.
    pub(crate) pid: u32,
    /// Whether the communicator has ended.
    pub(crate) poisoned: bool,
}

/// The length of the magic number.
const MAGIC: usize = size_of::<u64>();

fn magic_of(mapping: &Mapping) -> &AtomicU64 {
    assert!(mapping.len() >= PREAMBLE);
    // SAFETY: I1: inside the mapping, which is aligned to a page; an atomic may be changed by others.
    unsafe { &*mapping.start().cast::<AtomicU64>() }
}

/// A 64-bit word at an offset that the layout has given.
#[inline]
fn word64_of(mapping: &Mapping, offset: usize) -> &AtomicU64 {
    let word = mapping.start().wrapping_add(offset).cast::<AtomicU64>();
    // SAFETY: I1: inside the mapping and aligned by the layout; an atomic may be changed by others.
    unsafe { &*word }
}

/// A word at an offset that the layout has given.
#[inline]
fn word_of(mapping: &Mapping, offset: usize) -> &AtomicU32 {
    let word = mapping.start().wrapping_add(offset).cast::<AtomicU32>();
    // SAFETY: I1: inside the mapping and aligned by the layout; an atomic may be changed by others.
    unsafe { &*word }
}

#[inline]
fn slots<'a>(mapping: &'a Mapping, layout: &Layout) -> &'a [[Slot<ShmPlatform>; 2]] {
    let start = mapping.start().wrapping_add(layout.slots()).cast::<[Slot<ShmPlatform>; 2]>();
    // SAFETY: I1: inside the mapping and aligned by the layout; a slot is atomics and cells, which others may
    // change.
    unsafe { core::slice::from_raw_parts(start, layout.ranks()) }
}

#[cfg(target_os = "linux")]
const _: () =
    assert!(size_of::<Liveness<ShmPlatform>>() == ALIVE && align_of::<Liveness<ShmPlatform>>() == ALIVE);
const _: () = assert!(PAIR_SIZE <= PAIR && PAIR.is_multiple_of(PAIR_ALIGN));
const _: () = assert!(size_of::<Slot<ShmPlatform>>() == 128 && align_of::<Slot<ShmPlatform>>() == 128);
