//! A platform whose ranks are threads and whose segment is on the heap, without mappings and system calls. So checkers of
//! memory accesses that do not support these can run the protocols.

use std::cell::{Cell, UnsafeCell};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use intranode::copy::{Sink, Source};
use intranode::protocol::call::HEADER;
use intranode::protocol::{
    Barrier, Expired, Generation, Group, Member, Payload, Platform, Segment, Slot, Staging,
};

/// The processor's atomics. One site can be weakened, to show that a checker finds it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Machine {
    /// The longest time of a wait.
    pub(crate) patience: Duration,
    /// The site that is relaxed, whatever ordering the protocol requests.
    pub(crate) weakened: Option<&'static str>,
}

impl Machine {
    fn order(&self, site: &str, asked: Ordering) -> Ordering {
        if self.weakened == Some(site) { Ordering::Relaxed } else { asked }
    }
}

// SAFETY: I3: the operations are those of the standard library's atomics, with the given orderings. A weakened site runs
// under a checker only.
unsafe impl Platform for Machine {
    type Word = AtomicU32;
    type Word64 = AtomicU64;
    type Header = Header;
    type Buffer = Buffer;
    type Deadline = Instant;

    fn load(&self, site: &'static str, word: &AtomicU32, order: Ordering) -> u32 {
        word.load(self.order(site, order))
    }

    fn store(&self, site: &'static str, word: &AtomicU32, value: u32, order: Ordering) {
        word.store(value, self.order(site, order));
    }

    fn compare_exchange(
        &self,
        site: &'static str,
        word: &AtomicU32,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        word.compare_exchange(current, new, self.order(site, success), self.order(site, failure))
    }

    fn fetch_or(&self, site: &'static str, word: &AtomicU32, bits: u32, order: Ordering) -> u32 {
        word.fetch_or(bits, self.order(site, order))
    }

    fn load64(&self, site: &'static str, word: &AtomicU64, order: Ordering) -> u64 {
        word.load(self.order(site, order))
    }

    fn compare_exchange64(
        &self,
        site: &'static str,
        word: &AtomicU64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        word.compare_exchange(current, new, self.order(site, success), self.order(site, failure))
    }

    fn spin(
        &self,
        site: &'static str,
        word: &AtomicU32,
        order: Ordering,
        _: bool,
        until: impl Fn(u32) -> bool,
    ) -> Result<u32, u32> {
        let mut seen = 0;
        for _ in 0..SPINS {
            seen = word.load(self.order(site, order));
            if until(seen) {
                return Ok(seen);
            }
            std::thread::yield_now();
        }
        Err(seen)
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.patience
    }

    fn brief_deadline(&self) -> Instant {
        Instant::now() + self.patience / 10
    }

    /// Returns spuriously, as the contract permits. The waiting rank calls it again, so no rank has to wake it.
    fn wait(&self, _: &'static str, _: &AtomicU32, _: u32, deadline: &Instant) -> Result<(), Expired> {
        std::thread::yield_now();
        if Instant::now() < *deadline { Ok(()) } else { Err(Expired) }
    }

    fn wake_all(&self, _: &'static str, _: &AtomicU32) {
        WAKES.set(WAKES.get() + 1);
    }
}

thread_local! {
    /// The number of this thread's wake-ups.
    pub(crate) static WAKES: Cell<usize> = const { Cell::new(0) };
}

/// Few enough that ranks sometimes wait.
const SPINS: u32 = 10;

/// A header, aligned like the word before it.
pub(crate) struct Header(UnsafeCell<[u32; HEADER / 4]>);

// SAFETY: I2: all accesses are those of the protocols, which give a header to one writer or to readers.
unsafe impl Sync for Header {}

// SAFETY: I1: the view is exactly the cell.
unsafe impl Payload for Header {
    fn write<R>(&self, fill: impl FnOnce(Sink<'_>) -> R) -> R {
        // SAFETY: I1 and I2.
        fill(unsafe { Sink::new(self.0.get().cast(), HEADER) })
    }

    fn read<R>(&self, access: impl FnOnce(Source<'_>) -> R) -> R {
        // SAFETY: I1 and I2.
        access(unsafe { Source::new(self.0.get().cast(), HEADER) })
    }
}

/// A staging buffer, aligned to the elements of reductions.
pub(crate) struct Buffer(Box<[UnsafeCell<u64>]>);

// SAFETY: I2: as for a header.
unsafe impl Sync for Buffer {}

// SAFETY: I1: the view is exactly the buffer.
unsafe impl Payload for Buffer {
    fn write<R>(&self, fill: impl FnOnce(Sink<'_>) -> R) -> R {
        // SAFETY: I1 and I2.
        fill(unsafe { Sink::new(UnsafeCell::raw_get(self.0.as_ptr()).cast(), 8 * self.0.len()) })
    }

    fn read<R>(&self, access: impl FnOnce(Source<'_>) -> R) -> R {
        // SAFETY: I1 and I2.
        access(unsafe { Source::new(UnsafeCell::raw_get(self.0.as_ptr()).cast(), 8 * self.0.len()) })
    }
}

/// The memory of a segment.
pub(crate) struct Heap {
    cause: AtomicU64,
    spread: AtomicU32,
    claims: Box<[AtomicU32]>,
    slots: Box<[[Slot<Machine>; 2]]>,
    buffers: Box<[[Buffer; 2]]>,
    pub(crate) staging: Staging,
    start: Generation,
}

impl Heap {
    /// A segment for `ranks` ranks with chunks of `chunk` bytes, in which round `start` is complete.
    pub(crate) fn new(ranks: usize, chunk: usize, start: Generation) -> Self {
        let slot = || Slot { state: AtomicU32::new(0), header: Header(UnsafeCell::new([0; HEADER / 4])) };
        let slots = || [slot(), slot()];
        let buffer = || Buffer((0..chunk / 8).map(|_| UnsafeCell::new(0)).collect());
        let heap = Heap {
            cause: AtomicU64::new(0),
            spread: AtomicU32::new(0),
            claims: (0..ranks).map(|_| AtomicU32::new(0)).collect(),
            slots: (0..ranks).map(|_| slots()).collect(),
            buffers: (0..ranks).map(|_| [buffer(), buffer()]).collect(),
            staging: Staging::of(chunk, ranks),
            start,
        };
        for pair in &heap.slots {
            for (slot, word) in pair.iter().zip(start.initial_words()) {
                slot.state.store(word, Ordering::Relaxed);
            }
        }
        heap
    }

    /// Runs a program in a thread for each rank. Returns their results. `leaders`: by rank, the leader of its group.
    pub(crate) fn run<R: Send>(
        &self,
        machine: &Machine,
        leaders: Option<&[usize]>,
        program: impl Fn(usize, &mut Member<'_, Machine>, &Barrier) -> R + Sync,
    ) -> Vec<R> {
        let rank = |rank: usize| {
            let barrier =
                leaders.map_or(Barrier::Flat, |leaders| Barrier::Hierarchical(Group::new(leaders, rank)));
            let turn = AtomicU32::new(0);
            let segment = self.segment();
            let mut member = Member::new(machine, &segment, &self.staging, rank, self.start, &turn);
            program(rank, &mut member, &barrier)
        };
        let rank = &rank;
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..self.claims.len()).map(|index| scope.spawn(move || rank(index))).collect();
            threads.into_iter().map(|thread| thread.join().expect("no rank panics")).collect()
        })
    }

    pub(crate) fn segment(&self) -> Segment<'_, Machine> {
        Segment {
            cause: &self.cause,
            spread: &self.spread,
            claims: &self.claims,
            slots: &self.slots,
            buffers: &self.buffers,
            bells: &[],
        }
    }
}
