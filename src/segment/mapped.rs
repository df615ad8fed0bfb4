//! A mapped segment, with typed access to the parts of its layout.

use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64};

use std::io;
use std::sync::Arc;

use super::platform::{Buffer, Pairs, ShmPlatform, Wait};
use super::settings::{BarrierShape, SegmentSettings, SingleCopy};
use crate::copy::cpu;
use crate::protocol::generation::POISON;
#[cfg(target_os = "linux")]
use crate::protocol::watch::{Liveness, Roll};
use crate::protocol::{Bell, Generation, Segment, Slot, Staging};
#[cfg(target_os = "linux")]
use crate::segment::layout::ALIVE;
use crate::segment::layout::{Layout, PAIR, PAIRS, PREAMBLE};
use crate::sys::memory::mapping::Mapping;
use crate::sys::random;
use crate::sys::wait::pthread::{PAIR_ALIGN, PAIR_SIZE, Pair};

/// The generation before a communicator's first round.
pub(crate) const START: Generation = Generation::new(0);

/// A mapped segment.
pub(crate) struct MappedSegment {
    mapping: Mapping,
    layout: Layout,
    /// Found once, since each call needs them. Their lifetime is that of the mapping, and of the buffers.
    segment: Segment<'static, ShmPlatform>,
    /// No `Box`: nothing may refer to what is in one when it is moved.
    _buffers: Arc<[[Buffer; 2]]>,
    staging: Staging,
    shape: BarrierShape,
    /// The key of the digests by which ranks compare counts.
    key: u64,
    /// Whether the file was truncated, and the mapping replaced by zeros.
    torn: AtomicBool,
}

impl MappedSegment {
    /// Initialises a segment of process `pid`, which is zero except for its preamble, and not shared yet.
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
        word_of(mapping, layout.swap()).store(u32::from(!cpu::has_strings()), Relaxed);
        word64_of(mapping, layout.key()).store(random::number(), Relaxed);
        for index in 0..PAIRS {
            let offset = layout.pair(index).expect("the index is in range");
            // SAFETY: I1: inside the mapping and aligned by the layout, which reserves this space for it.
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
        // SAFETY: I1: the preamble lies inside the mapping, which is not shared yet.
        unsafe {
            core::ptr::copy_nonoverlapping(rest.as_ptr(), mapping.start().wrapping_add(MAGIC), rest.len())
        };
        magic_of(mapping).store(u64::from_ne_bytes(*magic), Release);
        Ok(())
    }

    /// Whether the segment in `mapping` was initialised. If so, its initial contents are visible (Acquire).
    pub(crate) fn is_initialised(mapping: &Mapping) -> bool {
        magic_of(mapping).load(Acquire) != 0
    }

    /// The segment in `mapping`.
    ///
    /// # Panics
    /// When the mapping is shorter than the layout.
    pub(crate) fn new(mapping: Mapping, layout: Layout) -> Self {
        assert!(mapping.len() >= layout.len());
        let buffer = |rank, parity| {
            let offset = layout.staging(rank, parity).expect("the rank is one of the layout's");
            // SAFETY: I1: the layout's parts are disjoint and inside the mapping, which this value owns.
            unsafe { Buffer::new(mapping.start().wrapping_add(offset), layout.chunk()) }
        };
        let buffers: Arc<[_]> = (0..layout.ranks()).map(|rank| [buffer(rank, 0), buffer(rank, 1)]).collect();
        let staging = Staging::of(layout.chunk(), layout.ranks());
        let staging =
            if word_of(&mapping, layout.swap()).load(Relaxed) != 0 { staging.swapping() } else { staging };
        let shape = BarrierShape(word_of(&mapping, layout.barrier_shape()).load(Relaxed));
        let key = word64_of(&mapping, layout.key()).load(Relaxed);
        let segment = segment(&mapping, &layout, &buffers);
        // SAFETY: I1: the mapping and the buffers stay where they are, and are kept as long as what refers to them; what is given
        // out does not outlive it.
        let segment =
            unsafe { core::mem::transmute::<Segment<'_, ShmPlatform>, Segment<'static, ShmPlatform>>(segment) };
        let torn = AtomicBool::new(false);
        MappedSegment { shape, key, mapping, layout, segment, _buffers: buffers, staging, torn }
    }

    /// Whether this process is a forked child, in which the segment does not exist.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.mapping.forked()
    }

    /// After a SIGBUS at this address: replaces the mapping by zeros. Async-signal-safe. Returns false if the address is not in
    /// this segment, or a system call fails.
    pub(crate) fn tear(&self, address: usize) -> bool {
        if !self.mapping.contains(address) {
            return false;
        }
        // First, so that the zeros are not taken for data.
        self.torn.store(true, Relaxed);
        self.mapping.replace()
    }

    /// Whether the segment's file was truncated. If so, zeros may have been read.
    #[inline]
    pub(crate) fn torn(&self) -> bool {
        self.torn.load(Relaxed)
    }

    /// How ranks sleep in this segment: a setting of its creator.
    pub(crate) fn wait(&self) -> Wait {
        #[cfg(target_os = "linux")]
        if word_of(&self.mapping, self.layout.wait()).load(Relaxed) == 0 {
            return Wait::Futex;
        }
        // SAFETY: I1: `initialise` has made the pairs, and every user of the platform keeps the segment.
        Wait::Pthread(unsafe { Pairs::new(self.mapping.start(), self.layout) })
    }

    /// An unsynchronised snapshot of a rank.
    pub(crate) fn snapshot(&self, rank: usize) -> Snapshot {
        let segment = self.segment();
        let generation = |slot: &Slot<ShmPlatform>| Generation::of_word(slot.state.load(Relaxed));
        let [even, odd] = &segment.slots[rank];
        // The generations of a rank's two slots differ by one round.
        let (round, slot) = match (generation(even), generation(odd)) {
            (even_round, odd_round) if odd_round.next() == even_round => (even_round, even),
            (_, odd_round) => (odd_round, odd),
        };
        let poisoned = even.state.load(Relaxed) & odd.state.load(Relaxed) & POISON != 0;
        let pid = segment.claims[rank].load(Relaxed);
        Snapshot { round, operation: slot.header.operation(), pid, poisoned }
    }

    /// The shape of the barriers in this segment: a setting of its creator.
    pub(crate) fn barrier_shape(&self) -> BarrierShape {
        self.shape
    }

    /// When ranks try single copy in this segment: a setting of its creator.
    pub(crate) fn single_copy(&self) -> SingleCopy {
        SingleCopy(word_of(&self.mapping, self.layout.single_copy()).load(Relaxed))
    }

    /// The key of the digests by which ranks compare counts: random, and the same on every rank.
    pub(crate) fn key(&self) -> u64 {
        self.key
    }

    pub(crate) fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The words by which ranks watch each other: see [`crate::protocol::watch`].
    #[cfg(target_os = "linux")]
    pub(crate) fn roll(&self) -> Roll<'_, ShmPlatform> {
        let (start, layout) = (self.mapping.start(), &self.layout);
        let fates = start.wrapping_add(layout.fates()).cast::<AtomicU32>();
        // A single rank has no liveness words.
        let slots = start.wrapping_add(layout.alive(0, 0).unwrap_or_default()).cast::<Liveness<ShmPlatform>>();
        Roll {
            notices: word_of(&self.mapping, layout.notices()),
            // SAFETY: I1: inside the mapping and aligned by the layout; other ranks may change an atomic.
            fates: unsafe { core::slice::from_raw_parts(fates, layout.ranks()) },
            // SAFETY: I1: as above.
            slots: unsafe { core::slice::from_raw_parts(slots, layout.ranks() * layout.watchers()) },
        }
    }

    /// The PID namespace of a rank's process; 0 while it is unknown.
    #[cfg(target_os = "linux")]
    pub(crate) fn pid_namespace(&self, rank: usize) -> &AtomicU32 {
        assert!(rank < self.layout.ranks());
        word_of(&self.mapping, self.layout.pid_namespaces() + rank * size_of::<AtomicU32>())
    }

    /// The control structures in the mapping.
    #[inline(always)]
    pub(crate) fn segment(&self) -> &Segment<'_, ShmPlatform> {
        &self.segment
    }

    /// How calls use the staging buffers, as far as that follows from the segment.
    pub(crate) fn staging(&self) -> Staging {
        self.staging
    }
}

/// The control structures in a mapping.
fn segment<'a>(mapping: &'a Mapping, layout: &Layout, buffers: &'a [[Buffer; 2]]) -> Segment<'a, ShmPlatform> {
    let claims = mapping.start().wrapping_add(layout.claims()).cast::<AtomicU32>();
    Segment {
        cause: word64_of(mapping, layout.cause()),
        spread: word_of(mapping, layout.spread()),
        // SAFETY: I1: inside the mapping and aligned by the layout; other ranks may change atomics.
        claims: unsafe { core::slice::from_raw_parts(claims, layout.ranks()) },
        slots: slots(mapping, layout),
        buffers,
        bells: bells(mapping, layout),
    }
}

/// A rank's state at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// The last round at which it has arrived.
    pub(crate) round: Generation,
    /// The operation of that round.
    pub(crate) operation: u8,
    /// 0: the rank has not joined yet.
    pub(crate) pid: u32,
    /// Whether it does not arrive at any further round.
    pub(crate) poisoned: bool,
}

/// The length of the magic number.
const MAGIC: usize = size_of::<u64>();

fn magic_of(mapping: &Mapping) -> &AtomicU64 {
    assert!(mapping.len() >= PREAMBLE);
    // SAFETY: I1: inside the mapping, which is page-aligned; other ranks may change an atomic.
    unsafe { &*mapping.start().cast::<AtomicU64>() }
}

/// The 64-bit word at an offset from the layout.
#[inline]
fn word64_of(mapping: &Mapping, offset: usize) -> &AtomicU64 {
    let word = mapping.start().wrapping_add(offset).cast::<AtomicU64>();
    // SAFETY: I1: inside the mapping and aligned by the layout; other ranks may change an atomic.
    unsafe { &*word }
}

/// The word at an offset from the layout.
#[inline]
fn word_of(mapping: &Mapping, offset: usize) -> &AtomicU32 {
    let word = mapping.start().wrapping_add(offset).cast::<AtomicU32>();
    // SAFETY: I1: inside the mapping and aligned by the layout; other ranks may change an atomic.
    unsafe { &*word }
}

#[inline]
fn slots<'a>(mapping: &'a Mapping, layout: &Layout) -> &'a [[Slot<ShmPlatform>; 2]] {
    let start = mapping.start().wrapping_add(layout.slots()).cast::<[Slot<ShmPlatform>; 2]>();
    // SAFETY: I1: inside the mapping and aligned by the layout; a slot consists of atomics and cells, which other ranks may
    // change.
    unsafe { core::slice::from_raw_parts(start, layout.ranks()) }
}

#[inline]
fn bells<'a>(mapping: &'a Mapping, layout: &Layout) -> &'a [Bell<ShmPlatform>] {
    let start = mapping.start().wrapping_add(layout.bells()).cast::<Bell<ShmPlatform>>();
    // SAFETY: I1: inside the mapping and aligned by the layout; other ranks may change an atomic.
    unsafe { core::slice::from_raw_parts(start, layout.ranks()) }
}

#[cfg(target_os = "linux")]
const _: () =
    assert!(size_of::<Liveness<ShmPlatform>>() == ALIVE && align_of::<Liveness<ShmPlatform>>() == ALIVE);
const _: () = assert!(PAIR_SIZE <= PAIR && PAIR.is_multiple_of(PAIR_ALIGN));
const _: () = assert!(size_of::<Bell<ShmPlatform>>() == 128 && align_of::<Bell<ShmPlatform>>() == 128);
const _: () = assert!(size_of::<Slot<ShmPlatform>>() == 128 && align_of::<Slot<ShmPlatform>>() == 128);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_ranks_swap_buffers_if_the_creator_of_their_segment_says_so() {
        let layout = Layout::new(2, 4096).unwrap();
        let swaps = |change: fn(u32) -> u32| {
            let mapping = Mapping::anonymous(layout.len()).unwrap();
            MappedSegment::initialise(&mapping, &layout, 1, SegmentSettings::default()).unwrap();
            let word = word_of(&mapping, layout.swap());
            word.store(change(word.load(Relaxed)), Relaxed);
            MappedSegment::new(mapping, layout).staging().swaps
        };
        assert_eq!([swaps(|word| word), swaps(|_| 0), swaps(|_| 1)], [!cpu::has_strings(), false, true]);
    }
}
