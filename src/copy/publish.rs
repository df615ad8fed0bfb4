//! Publishing: copies into memory that other cores have read, by cached or by non-temporal stores, whichever costs less.

use crate::tuning::{
    FOLD_BATCH_BYTES, FOLD_STRING_BATCH_BYTES, PUBLISH_HELD_FROM_PS, PUBLISH_HELD_MEASUREMENTS, PUBLISH_MAX_PS,
    PUBLISH_MEASURE_BYTES, PUBLISH_MEASURE_EVERY_BYTES, PUBLISH_MEASURE_FROM_BYTES, PUBLISH_NON_TEMPORAL_BYTES,
    PUBLISH_NON_TEMPORAL_FROM_PS, PUBLISH_NON_TEMPORAL_LEAST_BYTES, PUBLISH_ONE_OF, READ_IN_PLACE_UP_TO_PS,
};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::policy::Stores;
use super::raw::{self, RawSource};
use super::view::Sink;
use super::{cpu, lines};

/// The line that costs are stated for, in bytes.
const LINE: usize = 64;

/// The costs that this process has measured.
static STORE_COST: StoreCost = StoreCost::new();

struct StoreCost {
    /// The bytes until the next measurement.
    unmeasured: AtomicUsize,
    /// The bytes that are still to be stored non-temporally.
    nontemporal: AtomicUsize,
    /// How many bytes are stored so the next time that a cached store is dear.
    phase: AtomicUsize,
    /// The running mean of a line's cost by cached stores, in ps. Some readers may share a cache, and others not.
    cost: AtomicU64,
    /// How many measurements in a row were [of lines that were just read](is_of_held_lines).
    held: AtomicUsize,
}

impl StoreCost {
    const fn new() -> Self {
        let [unmeasured, nontemporal, held] = [const { AtomicUsize::new(0) }; 3];
        let phase = AtomicUsize::new(PUBLISH_NON_TEMPORAL_LEAST_BYTES);
        StoreCost { unmeasured, nontemporal, phase, cost: AtomicU64::new(0), held }
    }

    /// Whether the next `len` bytes are to be stored non-temporally.
    fn is_nontemporal(&self, len: usize) -> bool {
        take(&self.nontemporal, len) > 0
    }

    /// Whether the next `len` bytes are to be measured.
    fn measures(&self, len: usize) -> bool {
        take(&self.unmeasured, len) <= len
    }

    /// Records the time of a copy of `len` bytes by cached stores.
    fn record(&self, len: usize, time: Duration) {
        let line = 1000 * time.as_nanos() / (len / LINE) as u128;
        let line = u64::try_from(line).map_or(PUBLISH_MAX_PS, |line| line.min(PUBLISH_MAX_PS));
        let cost = (3 * self.cost.load(Relaxed) + line) / 4;
        self.cost.store(cost, Relaxed);
        let held = if is_of_held_lines(line) { self.held.load(Relaxed).saturating_add(1) } else { 0 };
        self.held.store(held, Relaxed);
        // Copies may follow one another in a pattern: a varying distance does not always measure the same one.
        let more = line as usize % PUBLISH_MEASURE_EVERY_BYTES;
        // The mean is still of what was before.
        let (nontemporal, unmeasured, next) = if cost.min(line) > PUBLISH_NON_TEMPORAL_FROM_PS {
            let phase = self.phase.load(Relaxed);
            (phase + more, 0, (2 * phase).min(PUBLISH_NON_TEMPORAL_BYTES))
        } else {
            (0, PUBLISH_MEASURE_EVERY_BYTES / 2 + more, PUBLISH_NON_TEMPORAL_LEAST_BYTES)
        };
        self.phase.store(next, Relaxed);
        self.nontemporal.store(nontemporal, Relaxed);
        self.unmeasured.store(unmeasured, Relaxed);
    }
}

/// Subtracts `len` from a budget, down to 0, and returns what it was. Concurrent threads may subtract once for all.
fn take(left: &AtomicUsize, len: usize) -> usize {
    let before = left.load(Relaxed);
    if before > 0 {
        left.store(before.saturating_sub(len), Relaxed);
    }
    before
}

/// Whether cached stores to memory that other cores have read are cheap. Every now and then it says no, so that the caller
/// publishes something, which is measured.
pub(crate) fn writing_is_cheap() -> bool {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let asked = ASKED.fetch_add(1, Relaxed);
    !asked.is_multiple_of(PUBLISH_ONE_OF) && STORE_COST.cost.load(Relaxed) <= READ_IN_PLACE_UP_TO_PS
}

/// Whether a line that costs this much, in ps, is taken to be in the cache of a near reader. Others cost less, or so much that non-temporal stores
/// take less.
fn is_of_held_lines(line: u64) -> bool {
    (PUBLISH_HELD_FROM_PS..PUBLISH_NON_TEMPORAL_FROM_PS).contains(&line)
}

/// Whether what this process has published last went to lines that near readers have in their caches, on a processor without fast string
/// instructions: there it takes longer than to lines that have left these. Whichever readers, and whatever it was.
pub(crate) fn publishes_to_held_lines() -> bool {
    !cpu::has_strings() && STORE_COST.held.load(Relaxed) >= PUBLISH_HELD_MEASUREMENTS
}

/// Copies into memory that other cores have read since it was written last, and makes it ready to be read again.
///
/// A cached store waits for an RFO that invalidates the readers' copies; a non-temporal store does not. Which costs less
/// depends on whether the cores share a cache, which changes with the scheduler, so it is measured all the time.
///
/// # Safety
/// As for [`core::ptr::copy_nonoverlapping`].
#[inline]
unsafe fn publish(source: *const u8, target: *mut u8, len: usize) {
    if len < PUBLISH_MEASURE_FROM_BYTES {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(source, target, len) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { publish_large(source, target, len, Batches::publish) };
    }
}

/// How a batch is copied.
type PublishBatch = unsafe fn(&Batches, *const u8, *mut u8, usize);

/// Parts of it may have different readers, so each is measured for itself.
///
/// # Safety
/// As for [`core::ptr::copy_nonoverlapping`].
unsafe fn publish_large(source: *const u8, target: *mut u8, len: usize, publish: PublishBatch) {
    for at in (0..len).step_by(PUBLISH_MEASURE_BYTES) {
        let (source, target) = (source.wrapping_add(at), target.wrapping_add(at));
        let len = (len - at).min(PUBLISH_MEASURE_BYTES);
        let batches = Batches::of(len);
        let measures = !batches.nontemporal && len >= PUBLISH_MEASURE_FROM_BYTES && STORE_COST.measures(len);
        let start = measures.then(Instant::now);
        // SAFETY: the caller's promise, for this part.
        unsafe { publish(&batches, source, target, len) };
        if let Some(start) = start {
            STORE_COST.record(len, start.elapsed());
        }
    }
}

/// [`publish`] for data that is made on the way, batch by batch.
pub(crate) struct Batches {
    nontemporal: bool,
}

impl Batches {
    /// For `len` bytes in all.
    #[inline]
    pub(crate) fn of(len: usize) -> Self {
        Batches { nontemporal: len >= PUBLISH_MEASURE_FROM_BYTES && STORE_COST.is_nontemporal(len) }
    }

    /// The bytes of a batch. None: each value is stored as soon as it is made.
    #[inline]
    pub(crate) fn step(&self) -> Option<usize> {
        match self.nontemporal {
            true => Some(FOLD_BATCH_BYTES),
            false => cpu::has_strings().then_some(FOLD_STRING_BATCH_BYTES),
        }
    }

    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    #[inline]
    pub(crate) unsafe fn publish(&self, source: *const u8, target: *mut u8, len: usize) {
        let copy = if self.nontemporal { lines::copy_nontemporal } else { lines::copy };
        // SAFETY: the caller's promise.
        unsafe { copy(source, target, len) };
    }

    /// The same from a buffer that other threads may write meanwhile.
    ///
    /// # Safety
    /// As there; whatever of Rust writes the source meanwhile is atomic.
    #[inline]
    pub(crate) unsafe fn publish_raw(&self, source: *const u8, target: *mut u8, len: usize) {
        let stores = if self.nontemporal { Stores::NonTemporal } else { Stores::Cached };
        // SAFETY: the caller's promise.
        unsafe { raw::copy(source, target, len, stores) };
    }
}

impl Drop for Batches {
    #[inline]
    fn drop(&mut self) {
        if self.nontemporal {
            lines::fence();
        }
    }
}

impl Sink<'_> {
    /// Copies `bytes` to the start of the view. They are visible to all that see a later arrival of this rank.
    ///
    /// # Panics
    /// When they reach past the end of the view.
    #[inline]
    pub(crate) fn publish(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= self.len);
        // SAFETY: I1 and I2: the range is inside the view, which is ours to write. I8: a private slice does not
        // overlap with it.
        unsafe { publish(bytes.as_ptr(), self.start, bytes.len()) };
    }

    /// The same of a buffer that other threads may write meanwhile.
    ///
    /// # Panics
    /// As [`publish`](Self::publish).
    #[inline]
    pub(crate) fn publish_raw(&mut self, source: RawSource<'_, u8>) {
        let len = source.len();
        assert!(len <= self.len);
        // SAFETY: I1 and I2: the range is inside the view, which is ours to write. I8: the buffer can be read, and does not
        // overlap with it.
        unsafe { publish_large(source.start(), self.start, len, Batches::publish_raw) };
    }
}

/// Has the next `len` bytes stored non-temporally, unless a measurement comes in between.
#[cfg(test)]
pub(crate) fn force_nontemporal(len: usize) {
    STORE_COST.nontemporal.store(len, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bytes_are_published_by_either_kind_of_store() {
        let source = crate::copy::pattern(3 * PUBLISH_MEASURE_BYTES + 1);
        for len in [
            0,
            1,
            PUBLISH_MEASURE_FROM_BYTES - 1,
            PUBLISH_MEASURE_FROM_BYTES,
            PUBLISH_MEASURE_BYTES,
            PUBLISH_MEASURE_BYTES + 1,
            2 * PUBLISH_MEASURE_BYTES + PUBLISH_MEASURE_FROM_BYTES - 1,
            3 * PUBLISH_MEASURE_BYTES + 1,
        ] {
            for bytes in [0, PUBLISH_MEASURE_BYTES, 1 << 20] {
                STORE_COST.unmeasured.store(0, Relaxed);
                force_nontemporal(bytes);
                let mut target = vec![0xEE; len + 1];
                // SAFETY: both vectors are at least so long, and distinct.
                unsafe { publish(source.as_ptr(), target.as_mut_ptr(), len) };
                assert_eq!(target[..len], source[..len]);
                assert_eq!(target[len], 0xEE);
            }
        }
    }

    /// Copies until each of these costs of a line, in ns, was measured.
    fn measure(cost: &StoreCost, costs: &[u64]) {
        for line in costs {
            while cost.is_nontemporal(LEN) || !cost.measures(LEN) {}
            cost.record(LEN, Duration::from_nanos(line * (LEN / LINE) as u64));
        }
    }

    const LEN: usize = 64 << 10;

    #[test]
    fn expensive_lines_make_the_next_stores_nontemporal() {
        let cost = StoreCost::new();
        // One that was interrupted does not.
        measure(&cost, &[2, 2, 1000, 2]);
        assert!(!cost.is_nontemporal(LEN));
        let nontemporal = || (0..10_000).filter(|_| cost.is_nontemporal(LEN)).count();
        measure(&cost, &[25, 25, 25]);
        assert!(nontemporal() >= PUBLISH_NON_TEMPORAL_LEAST_BYTES / LEN);
        // The first one after that is measured, and decides whether it goes on.
        assert!(cost.measures(LEN));
        measure(&cost, &[25; 10]);
        assert!(nontemporal() >= PUBLISH_NON_TEMPORAL_BYTES / LEN);
        measure(&cost, &[2]);
        assert_eq!(nontemporal(), 0);
    }

    #[test]
    fn held_lines_are_told_by_several_measurements_in_a_row() {
        let cost = StoreCost::new();
        let held = |costs: &[u64]| {
            measure(&cost, costs);
            cost.held.load(Relaxed)
        };
        assert_eq!(held(&[2, 8, 10]), 2);
        // Those of distant readers, and of one copy that was not measured to be dear.
        assert_eq!([held(&[25]), held(&[8, 8, 8, 5])], [0, 0]);
        assert_eq!(held(&[7, 11, 9]), PUBLISH_HELD_MEASUREMENTS);
    }

    /// The pages of what is used for the first time are made meanwhile.
    #[test]
    fn memory_that_is_used_for_the_first_time_is_soon_forgotten() {
        let cost = StoreCost::new();
        let mut nontemporal = 0;
        for line in [30, 30, 30, 30, 30, 2] {
            measure(&cost, &[line]);
            while cost.is_nontemporal(LEN) {
                nontemporal += LEN;
            }
        }
        assert!((1..PUBLISH_NON_TEMPORAL_BYTES).contains(&nontemporal), "{nontemporal}");
    }

    #[test]
    fn copies_for_near_readers_do_not_hide_those_for_far_ones() {
        let cost = StoreCost::new();
        measure(&cost, &[2, 27, 2, 27, 2, 27]);
        assert!(cost.is_nontemporal(LEN));
    }

    #[test]
    fn not_always_the_same_copy_of_a_pattern_is_measured() {
        let cost = StoreCost::new();
        let mut measured = [false; 2];
        for turn in 0..1000 {
            if cost.measures(16 << 10) {
                measured[turn % 2] = true;
                cost.record(16 << 10, Duration::from_nanos(400 + turn as u64));
            }
        }
        assert_eq!(measured, [true; 2]);
    }
}
