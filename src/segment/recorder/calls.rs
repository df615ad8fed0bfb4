//! Calls that are not collective: messages, waits, locks, and accesses to symmetric memory.
//!
//! Any thread of the rank may make them, so what is counted is added atomically, and what belongs to a call in progress is
//! kept by its thread. A message is timed now and then, as a collective; all of its waits are. An access of a few nanoseconds
//! is only counted: reading the clock would take longer than the access.

use core::cell::Cell;
use core::sync::atomic::Ordering::Relaxed;

use super::{Lane, lock};
use crate::sys::wait::clock::Moment;
use crate::tuning::{RECORD_ALL_FROM_BYTES, RECORD_ALL_FROM_NS, RECORD_FIRST};

/// What a thread knows of the call that it is in.
struct Thread {
    /// Its operation.
    operation: Cell<u8>,
    /// Whether it began with [`Lane::enter`].
    is_entered: Cell<bool>,
    /// All long waits of this thread.
    waited_ns: Cell<u64>,
    /// All copying of this thread.
    copied_ns: Cell<u64>,
    /// The rank that it has waited for last, plus one.
    awaited: Cell<u64>,
}

std::thread_local! {
    static THREAD: Thread = const {
        Thread {
            operation: Cell::new(0),
            is_entered: Cell::new(false),
            waited_ns: Cell::new(0),
            copied_ns: Cell::new(0),
            awaited: Cell::new(0),
        }
    };
}

/// A call that this thread is in.
pub(crate) struct Entered {
    operation: u8,
    /// 0: it is not timed.
    start: u64,
    waited_before: u64,
}

fn now() -> u64 {
    Moment::now().nanoseconds()
}

impl Lane {
    /// Counts a call of which nothing else is known, or that goes on by other calls.
    #[cold]
    pub(crate) fn count(&self, operation: u8, bytes: usize) {
        let counters = self.counters(operation);
        counters.calls.fetch_add(1, Relaxed);
        counters.bytes.fetch_add(bytes as u64, Relaxed);
        THREAD.with(|thread| thread.operation.set(operation));
    }

    /// An access begins. When it does, if it is timed; else 0.
    #[cold]
    pub(crate) fn begin_access(&self, operation: u8, bytes: usize) -> u64 {
        self.count(operation, bytes);
        if bytes as u64 >= RECORD_ALL_FROM_BYTES { now() } else { 0 }
    }

    /// A timed access ends.
    #[cold]
    pub(crate) fn end_access(&self, operation: u8, bytes: usize, start: u64) {
        let duration = now().saturating_sub(start);
        let counters = self.counters(operation);
        counters.timed.fetch_add(1, Relaxed);
        counters.rest_ns.fetch_add(duration, Relaxed);
        self.write_slice(operation, false, (start, duration), bytes as u64, 0);
    }

    /// A call begins that may wait. `leave` follows on the same thread.
    #[cold]
    pub(crate) fn enter(&self, operation: u8) -> Entered {
        let counters = self.counters(operation);
        let calls = counters.calls.fetch_add(1, Relaxed);
        let is_timed = calls >= counters.next_timed.load(Relaxed);
        let waited_before = THREAD.with(|thread| {
            thread.operation.set(operation);
            thread.is_entered.set(true);
            thread.awaited.set(0);
            thread.waited_ns.get()
        });
        Entered { operation, start: if is_timed { now() } else { 0 }, waited_before }
    }

    /// The call ends.
    #[cold]
    pub(crate) fn leave(&self, entered: &Entered, bytes: usize) {
        let Entered { operation, start, waited_before } = *entered;
        let (counters, bytes) = (self.counters(operation), bytes as u64);
        counters.bytes.fetch_add(bytes, Relaxed);
        let (waited, awaited) = THREAD.with(|thread| {
            thread.operation.set(0);
            thread.is_entered.set(false);
            (thread.waited_ns.get().wrapping_sub(waited_before), thread.awaited.get())
        });
        if start == 0 {
            if bytes >= RECORD_ALL_FROM_BYTES {
                counters.next_timed.store(0, Relaxed);
            }
            return;
        }
        let duration = now().saturating_sub(start);
        let rest = duration.saturating_sub(waited);
        counters.rest_ns.fetch_add(rest, Relaxed);
        counters.timed.fetch_add(1, Relaxed);
        let calls = counters.calls.load(Relaxed);
        let is_large = rest >= RECORD_ALL_FROM_NS || bytes >= RECORD_ALL_FROM_BYTES;
        let all = is_large || calls < RECORD_FIRST || !self.ring.is_empty();
        let gap = if all { 0 } else { self.one_of.load(Relaxed) - 1 };
        counters.next_timed.store(calls.wrapping_add(gap), Relaxed);
        self.write_slice(operation, false, (start, duration), bytes, awaited);
    }

    /// Bytes of a call that has been counted before have come. In a call that was entered, `leave` counts them.
    #[cold]
    pub(crate) fn received(&self, operation: u8, bytes: usize) {
        if !THREAD.with(|thread| thread.is_entered.get()) {
            self.counters(operation).bytes.fetch_add(bytes as u64, Relaxed);
        }
    }

    /// A long wait that belongs to no round, for this rank of the communicator if it is for one. Copying in it is no waiting,
    /// if it belongs to the call that this thread is in.
    #[cold]
    pub(crate) fn wait_for<R>(&self, operation: u8, rank: Option<usize>, wait: impl FnOnce() -> R) -> R {
        let rank = rank.and_then(|rank| lock(&self.awaited).as_ref().and_then(|awaited| awaited.rank(rank)));
        let awaited = rank.map_or(0, |rank| rank as u64 + 1);
        let copied_before = THREAD.with(|thread| {
            thread.operation.set(operation);
            thread.copied_ns.get()
        });
        let start = now();
        self.head.other_operation.store(operation.into(), Relaxed);
        self.head.other_for.store(awaited, Relaxed);
        self.head.other_since.store(start, Relaxed);
        let result = wait();
        let duration = now().saturating_sub(start);
        // Unless another thread has begun to wait meanwhile.
        let _ = self.head.other_since.compare_exchange(start, 0, Relaxed, Relaxed);
        let (waited, is_entered) = THREAD.with(|thread| {
            let is_entered = thread.is_entered.get();
            let copied = thread.copied_ns.get().wrapping_sub(copied_before);
            let waited = if is_entered { duration.saturating_sub(copied) } else { duration };
            thread.waited_ns.set(thread.waited_ns.get().wrapping_add(waited));
            thread.awaited.set(awaited);
            (waited, is_entered)
        });
        self.counters(operation).wait_ns.fetch_add(waited, Relaxed);
        if let Some(late) = rank.and_then(|rank| self.late.get(rank)) {
            late.rounds.fetch_add(1, Relaxed);
            late.wait_ns.fetch_add(waited, Relaxed);
        }
        if !is_entered {
            self.write_slice(operation, true, (start, duration), 0, awaited);
        }
        result
    }

    /// Copies much, perhaps during a wait.
    #[cold]
    pub(crate) fn copy<R>(&self, copy: impl FnOnce() -> R) -> R {
        let start = now();
        let result = copy();
        let duration = now().saturating_sub(start);
        THREAD.with(|thread| thread.copied_ns.set(thread.copied_ns.get().wrapping_add(duration)));
        result
    }

    /// This thread sleeps on a word that belongs to no round.
    pub(super) fn parks_elsewhere(&self, parks: u64) {
        let operation = THREAD.with(|thread| thread.operation.get());
        self.counters(operation).parks.fetch_add(parks, Relaxed);
    }

    /// This thread wakes others that wait for a word which belongs to no round.
    pub(super) fn wakes_elsewhere(&self) {
        let operation = THREAD.with(|thread| thread.operation.get());
        self.counters(operation).wakes.fetch_add(1, Relaxed);
    }
}
