//! The recorder of a rank: counts its calls, bytes and waits in a [record](super::record), for `intranode run --report`.
//!
//! **What it costs.** Reading the clock twice takes as long as half a barrier. So a call that brings no data is counted, by
//! one store, and timed only now and then; a wait that takes longer than the polls before the first reading of the clock is
//! always timed, where time is lost anyway. From the two follows the time of an operation: all of its long waits, and the
//! mean of the rest of its timed calls for each of its calls.
//!
//! **Who was late.** A rank waits for the others one after the other. If it waits long for one of them, and long for none
//! after it in the same round, then that one arrived last.
//!
//! **Messages and one-sided accesses** may be made by any thread of the rank, also during a collective: [`calls`].

mod calls;

use core::sync::atomic::Ordering::{Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64};

use std::fmt;
use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::record::{
    AWAITED_SHIFT, CONTINUED, COUNTERS, LANE_HEAD, LANES, LATE, OPERATIONS, RecordLayout, SLICE,
};
use crate::sys::memory::mapping::Mapping;
use crate::sys::wait::clock::Moment;
use crate::tuning::{
    RECORD_ALL_FROM_BYTES, RECORD_ALL_FROM_NS, RECORD_FIRST, RECORD_ONE_OF, RECORD_ONE_OF_OVERSUBSCRIBED,
};

/// What a rank has counted of one operation.
#[repr(C, align(64))]
pub(crate) struct Counters {
    calls: AtomicU64,
    /// From which call on the next is timed.
    next_timed: AtomicU64,
    timed: AtomicU64,
    /// Of the timed calls, without long waits.
    rest_ns: AtomicU64,
    bytes: AtomicU64,
    /// Long waits, of all calls.
    wait_ns: AtomicU64,
    parks: AtomicU64,
    wakes: AtomicU64,
}

#[repr(C)]
struct LaneHead {
    /// The operation of the call in progress, if it is timed, or of the last long wait.
    operation: AtomicU64,
    /// When the call in progress began, if it is timed; else 0.
    start: AtomicU64,
    /// Since when the rank waits, and for which rank plus one; else 0.
    waiting_since: AtomicU64,
    waiting_for: AtomicU64,
    /// Slices written.
    slices: AtomicU64,
    communicators: AtomicU64,
    /// `wait_ns` of the operation when the timed call began.
    waited_before: AtomicU64,
    /// The round of the last long wait, and the rank that was found to be late in it, plus one.
    round: AtomicU64,
    late: AtomicU64,
    /// The rank that the call in progress has waited for last, plus one.
    awaited: AtomicU64,
    /// The same as `operation`, `waiting_since` and `waiting_for`, of a wait that belongs to no round: the last that began.
    other_operation: AtomicU64,
    other_since: AtomicU64,
    other_for: AtomicU64,
    unused: [AtomicU64; 3],
}

#[repr(C)]
struct Late {
    rounds: AtomicU64,
    wait_ns: AtomicU64,
}

/// One call, for the timeline.
#[repr(C)]
struct Slice {
    start: AtomicU64,
    duration: AtomicU64,
    bytes: AtomicU64,
    what: AtomicU64,
}

#[repr(C)]
struct RowHead {
    process: AtomicU64,
    joined: AtomicU64,
    left: AtomicU64,
    without_lane: AtomicU64,
}

const _: () = assert!(size_of::<Counters>() == COUNTERS * 8);
const _: () = assert!(size_of::<LaneHead>() == LANE_HEAD * 8);
const _: () = assert!(size_of::<Late>() == LATE * 8);
const _: () = assert!(size_of::<Slice>() == SLICE * 8);

/// Adds to a counter that only this thread writes.
#[inline(always)]
fn add(counter: &AtomicU64, amount: u64) -> u64 {
    let before = counter.load(Relaxed);
    counter.store(before.wrapping_add(amount), Relaxed);
    before
}

/// The row of a rank, mapped until the process ends.
pub(crate) struct Row {
    mapping: &'static Mapping,
    head: &'static RowHead,
    lanes: Box<[Lane]>,
    /// By lane: whether a communicator has it.
    taken: Mutex<[bool; LANES]>,
}

/// The counters of one communicator of a rank. The thread of the rank that is in a call writes them.
pub(crate) struct Lane {
    number: usize,
    head: &'static LaneHead,
    operations: &'static [Counters; OPERATIONS],
    late: &'static [Late],
    ring: &'static [Slice],
    /// Of this number of cheap calls one is timed.
    one_of: AtomicU64,
    awaited: Mutex<Option<Box<dyn Awaited>>>,
}

/// What a recorder asks about a word that a rank waits for.
pub(crate) trait Awaited: Send + Sync {
    /// `None` if it is no word of a round.
    fn of(&self, word: &AtomicU32, seen: u32) -> Option<Wait>;

    /// The only rank that has not arrived at a round; `None` if there are several, or none. It reads a word of each rank.
    fn missing(&self, round: u32) -> Option<usize>;

    /// The rank in the job of a rank of the communicator.
    fn rank(&self, rank: usize) -> Option<usize>;
}

/// What is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wait {
    /// The operation in which this rank waits.
    pub(crate) operation: u8,
    /// The round, so that two waits of it are known.
    pub(crate) round: u32,
    /// The rank of the job whose arrival is waited for; `None` if it has arrived, and speaks for others that have not.
    pub(crate) rank: Option<usize>,
}

/// A lane that a communicator has until this is dropped.
#[derive(Debug)]
pub(crate) struct Recording {
    row: &'static Row,
    lane: &'static Lane,
}

/// What the end of a call needs to know of its beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Begun(u8);

/// The counters of all operations.
pub(crate) type OperationCounters = [Counters; OPERATIONS];

/// Counts a call, in a handful of instructions. True: it is to be timed.
#[inline(always)]
pub(crate) fn count(counters: &OperationCounters, operation: u8) -> bool {
    let counters = &counters[usize::from(operation) % OPERATIONS];
    add(&counters.calls, 1) >= counters.next_timed.load(Relaxed)
}

impl Begun {
    const ENDS: u8 = 1;
    const TIMED: u8 = 2;
    const ODD: u8 = 4;
    const CONTINUES: u8 = 8;
    const STATED: u8 = 16;

    /// A call that brings data, and may have bytes. `odd`: the parity of its first round.
    pub(crate) fn with_data(odd: bool) -> Self {
        Begun(Begun::ENDS | if odd { Begun::ODD } else { 0 })
    }

    /// The same, if it brings data, with the parity of a later round, as calls that were started before were completed first.
    pub(crate) fn begins_later(self, odd: bool) -> Self {
        if self.0 & Begun::ENDS == 0 { self } else { Begun(self.0 & !Begun::ODD | Begun::with_data(odd).0) }
    }

    /// The same with bytes that are not in the header of a round: it may begin after its end.
    pub(crate) fn with_stated_bytes(self) -> Self {
        Begun(self.0 | Begun::STATED)
    }

    /// Whether its bytes are not in the header of a round.
    pub(crate) fn is_stated(self) -> bool {
        self.0 & Begun::STATED != 0
    }

    /// Whether the recorder has to be told of the end.
    #[inline(always)]
    pub(crate) fn needs_end(self) -> bool {
        self.0 != 0
    }

    /// The parity of the call's first round.
    pub(crate) fn parity(self) -> usize {
        usize::from(self.0 & Self::ODD != 0)
    }
}

impl fmt::Debug for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Lane({})", self.number)
    }
}

impl fmt::Debug for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Row").field("mapping", &self.mapping).finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The structures of a record: nothing but atomics, for which zero bytes are valid.
trait Words {}
impl Words for RowHead {}
impl Words for LaneHead {}
impl Words for Counters {}
impl Words for Late {}
impl Words for Slice {}

/// `count` structures from an offset on, in bytes.
fn table<T: Words>(mapping: &'static Mapping, offset: usize, count: usize) -> &'static [T] {
    assert!(offset.is_multiple_of(align_of::<T>()) && offset + count * size_of::<T>() <= mapping.len());
    let start = mapping.start().wrapping_add(offset).cast::<T>();
    // SAFETY: I17: inside the mapping, which is aligned to pages and never unmapped; nothing but atomics.
    unsafe { core::slice::from_raw_parts(start, count) }
}

impl Row {
    /// Maps the row of `rank`, and keeps it mapped until the process ends.
    ///
    /// # Errors
    /// If the file is too short, or the system refuses.
    ///
    /// # Panics
    /// If there is no such rank.
    pub(crate) fn map(file: &File, layout: RecordLayout, rank: usize) -> io::Result<&'static Row> {
        assert!(rank < layout.ranks());
        let mapping = Mapping::part(file, layout.row(rank), layout.row_len())?;
        let mapping: &'static Mapping = Box::leak(Box::new(mapping));
        let head: &RowHead = &table(mapping, 0, 1)[0];
        head.process.store(u64::from(std::process::id()), Relaxed);
        head.joined.store(Moment::now().nanoseconds(), Relaxed);
        let lanes = (0..LANES).map(|number| Lane::new(mapping, layout, number)).collect();
        Ok(Box::leak(Box::new(Row { mapping, head, lanes, taken: Mutex::default() })))
    }

    /// A lane for a communicator; `None` if there is none left.
    pub(crate) fn take(&'static self, awaited: Box<dyn Awaited>) -> Option<Recording> {
        if self.mapping.forked() {
            return None;
        }
        let mut taken = lock(&self.taken);
        let Some(number) = taken.iter().position(|taken| !taken) else {
            add(&self.head.without_lane, 1);
            return None;
        };
        taken[number] = true;
        // It may have left a job before.
        self.head.left.store(0, Relaxed);
        let lane = &self.lanes[number];
        add(&lane.head.communicators, 1);
        lane.head.round.store(NO_ROUND, Relaxed);
        *lock(&lane.awaited) = Some(awaited);
        Some(Recording { row: self, lane })
    }
}

impl Recording {
    pub(crate) fn lane(&self) -> &'static Lane {
        self.lane
    }

    pub(crate) fn counters(&self) -> &'static OperationCounters {
        self.lane.operations
    }

    /// A lane for a communicator that is split from this one.
    pub(crate) fn sibling(&self, awaited: Box<dyn Awaited>) -> Option<Recording> {
        self.row.take(awaited)
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        if self.row.mapping.forked() {
            return;
        }
        *lock(&self.lane.awaited) = None;
        let mut taken = lock(&self.row.taken);
        taken[self.lane.number] = false;
        // It leaves the job with the last of its communicators.
        if !taken.contains(&true) {
            self.row.head.left.store(Moment::now().nanoseconds(), Relaxed);
        }
    }
}

/// More than any round.
const NO_ROUND: u64 = u64::MAX;

impl Lane {
    fn new(mapping: &'static Mapping, layout: RecordLayout, number: usize) -> Self {
        let word = |index: usize| layout.lane(number) + index * size_of::<u64>();
        let head: &LaneHead = &table(mapping, word(0), 1)[0];
        Lane {
            number,
            head,
            operations: table(mapping, word(LANE_HEAD), OPERATIONS)
                .try_into()
                .expect("a counter for each operation"),
            late: table(mapping, word(layout.late()), layout.ranks()),
            ring: table(mapping, word(layout.ring()), layout.slices()),
            one_of: AtomicU64::new(RECORD_ONE_OF),
            awaited: Mutex::default(),
        }
    }

    /// Where ranks share processors, what takes long is not always a long wait. Then calls are timed more often.
    pub(crate) fn oversubscribed(&self, yields: bool) {
        self.one_of.store(if yields { RECORD_ONE_OF_OVERSUBSCRIBED } else { RECORD_ONE_OF }, Relaxed);
    }

    fn counters(&self, operation: u8) -> &'static Counters {
        &self.operations[usize::from(operation) % OPERATIONS]
    }

    /// This rank goes on with a call that was counted before.
    #[cold]
    pub(crate) fn resume(&self, operation: u8) -> Begun {
        self.begin_timed(operation, Begun(Begun::CONTINUES))
    }

    /// A call that is timed begins.
    #[cold]
    pub(crate) fn begin_timed(&self, operation: u8, begun: Begun) -> Begun {
        let counters = self.counters(operation);
        self.head.operation.store(operation.into(), Relaxed);
        self.head.waited_before.store(counters.wait_ns.load(Relaxed), Relaxed);
        self.head.awaited.store(0, Relaxed);
        self.head.start.store(Moment::now().nanoseconds(), Relaxed);
        Begun(begun.0 | Begun::TIMED)
    }

    /// The call ends.
    #[cold]
    pub(crate) fn end(&self, operation: u8, begun: Begun, bytes: u64) {
        let counters = self.counters(operation);
        let continues = begun.0 & Begun::CONTINUES != 0;
        let bytes = if continues { 0 } else { bytes };
        add(&counters.bytes, bytes);
        if begun.0 & Begun::TIMED == 0 {
            if bytes >= RECORD_ALL_FROM_BYTES {
                counters.next_timed.store(0, Relaxed);
            }
            return;
        }
        let start = self.head.start.load(Relaxed);
        let duration = Moment::now().nanoseconds().saturating_sub(start);
        self.head.start.store(0, Relaxed);
        let waited = counters.wait_ns.load(Relaxed).wrapping_sub(self.head.waited_before.load(Relaxed));
        let rest = duration.saturating_sub(waited);
        add(&counters.rest_ns, rest);
        if !continues {
            add(&counters.timed, 1);
            let calls = counters.calls.load(Relaxed);
            let has_data = begun.0 & Begun::ENDS != 0;
            let is_large = has_data && (rest >= RECORD_ALL_FROM_NS || bytes >= RECORD_ALL_FROM_BYTES);
            let all = is_large || calls < RECORD_FIRST || !self.ring.is_empty();
            let gap = if all { 0 } else { self.one_of.load(Relaxed) - 1 };
            counters.next_timed.store(calls.wrapping_add(gap), Relaxed);
        }
        let awaited = self.head.awaited.load(Relaxed);
        self.write_slice(operation, continues, (start, duration), bytes, awaited);
    }

    /// `time`: start and duration. `awaited`: a rank plus one. Several threads may write one each.
    fn write_slice(&self, operation: u8, continues: bool, time: (u64, u64), bytes: u64, awaited: u64) {
        if self.ring.is_empty() {
            return;
        }
        let number = self.head.slices.fetch_add(1, Relaxed);
        let slice = &self.ring[number as usize & (self.ring.len() - 1)];
        // No operation has this number: a rank that is killed here leaves no half of a slice.
        slice.what.store(0, Relaxed);
        slice.start.store(time.0, Release);
        slice.duration.store(time.1, Release);
        slice.bytes.store(bytes, Release);
        let flags = u64::from(operation) | if continues { CONTINUED } else { 0 };
        slice.what.store(flags | awaited << AWAITED_SHIFT, Release);
    }

    /// A long wait for a word, which is what `wait` does.
    pub(crate) fn wait<R>(&self, word: &AtomicU32, seen: u32, wait: impl FnOnce() -> R) -> R {
        self.wait_or_park(word, seen, 0, wait)
    }

    /// The same, and it sleeps in the kernel.
    pub(crate) fn park<R>(&self, word: &AtomicU32, seen: u32, park: impl FnOnce() -> R) -> R {
        self.wait_or_park(word, seen, 1, park)
    }

    fn wait_or_park<R>(&self, word: &AtomicU32, seen: u32, parks: u64, wait: impl FnOnce() -> R) -> R {
        let awaited = lock(&self.awaited).as_ref().and_then(|arrivals| {
            let mut awaited = arrivals.of(word, seen)?;
            // A leader that has arrived waits for others. Who sleeps has the time to find out for which.
            if awaited.rank.is_none() && parks > 0 {
                awaited.rank = arrivals.missing(awaited.round);
            }
            Some(awaited)
        });
        let Some(awaited) = awaited else {
            self.parks_elsewhere(parks);
            return wait();
        };
        let start = Moment::now().nanoseconds();
        self.head.operation.store(awaited.operation.into(), Relaxed);
        self.head.waiting_for.store(awaited.rank.map_or(0, |rank| rank as u64 + 1), Relaxed);
        self.head.waiting_since.store(start, Relaxed);
        let result = wait();
        let waited = Moment::now().nanoseconds().saturating_sub(start);
        self.head.waiting_since.store(0, Relaxed);
        let counters = self.counters(awaited.operation);
        add(&counters.wait_ns, waited);
        add(&counters.parks, parks);
        if let Some(rank) = awaited.rank.filter(|rank| *rank < self.late.len()) {
            self.was_late(awaited.round, rank, waited);
        }
        result
    }

    /// A rank was waited for at a round. Of several, the last was late.
    fn was_late(&self, round: u32, rank: usize, waited: u64) {
        let (head, number) = (self.head, rank as u64 + 1);
        head.awaited.store(number, Relaxed);
        // Other threads may wait for messages of this rank.
        self.late[rank].wait_ns.fetch_add(waited, Relaxed);
        if head.round.load(Relaxed) == u64::from(round) {
            let before = head.late.load(Relaxed);
            if before == number {
                return;
            }
            if let Some(before) = self.late.get((before as usize).wrapping_sub(1)) {
                before.rounds.fetch_sub(1, Relaxed);
            }
        }
        head.round.store(u64::from(round), Relaxed);
        head.late.store(number, Relaxed);
        self.late[rank].rounds.fetch_add(1, Relaxed);
    }

    /// This rank wakes those that wait for a word. On any thread: also a watcher does.
    pub(crate) fn wakes(&self, word: &AtomicU32) {
        let awaited = lock(&self.awaited).as_ref().and_then(|awaited| awaited.of(word, 0));
        match awaited {
            Some(awaited) => _ = self.counters(awaited.operation).wakes.fetch_add(1, Relaxed),
            None => self.wakes_elsewhere(),
        }
    }
}
