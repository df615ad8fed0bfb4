//! Copies into memory that other cores have read: through the cache, or past it.

use crate::tuning::{
    FOLD_BATCH_BYTES, FOLD_STRING_BATCH_BYTES, PUBLISH_MAX_PS, PUBLISH_MEASURE_BYTES,
    PUBLISH_MEASURE_EVERY_BYTES, PUBLISH_MEASURE_FROM_BYTES, PUBLISH_NON_TEMPORAL_BYTES,
    PUBLISH_NON_TEMPORAL_FROM_PS,
};
use core::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::view::Sink;
use super::{cpu, lines};

/// What costs are stated for: so many bytes.
const LINE: usize = 64;

/// What this process has found out about its processors.
static STORE_COST: StoreCost = StoreCost::nothing();

struct StoreCost {
    /// How many bytes are still to be copied without a look at the clock.
    unmeasured: AtomicUsize,
    /// How many bytes are still to go past the cache.
    to_stream: AtomicUsize,
    /// What a line has cost of late. Some readers may be near, and others far.
    cost: AtomicU64,
}

impl StoreCost {
    const fn nothing() -> Self {
        let [unmeasured, to_stream] = [const { AtomicUsize::new(0) }; 2];
        StoreCost { unmeasured, to_stream, cost: AtomicU64::new(0) }
    }

    /// Whether the next `len` bytes are to go past the cache.
    fn streams(&self, len: usize) -> bool {
        take(&self.to_stream, len) > 0
    }

    /// Whether the next `len` bytes are to be measured.
    fn measures(&self, len: usize) -> bool {
        take(&self.unmeasured, len) <= len
    }

    /// It took so long to copy `len` bytes in the ordinary way.
    fn measured(&self, len: usize, time: Duration) {
        let line = 1000 * time.as_nanos() / (len / LINE) as u128;
        let line = u64::try_from(line).map_or(PUBLISH_MAX_PS, |line| line.min(PUBLISH_MAX_PS));
        let cost = (3 * self.cost.load(Relaxed) + line) / 4;
        self.cost.store(cost, Relaxed);
        // Copies may follow one another in a pattern, of which not always the same one is to be measured.
        let more = line as usize % PUBLISH_MEASURE_EVERY_BYTES;
        let (streamed, unmeasured) = if cost > PUBLISH_NON_TEMPORAL_FROM_PS {
            (PUBLISH_NON_TEMPORAL_BYTES + more, 0)
        } else {
            (0, PUBLISH_MEASURE_EVERY_BYTES / 2 + more)
        };
        self.to_stream.store(streamed, Relaxed);
        self.unmeasured.store(unmeasured, Relaxed);
    }
}

/// Takes `len` from what is left, as far as there is, and returns what was. Threads that do so at a time may take the same.
fn take(left: &AtomicUsize, len: usize) -> usize {
    let before = left.load(Relaxed);
    if before > 0 {
        left.store(before.saturating_sub(len), Relaxed);
    }
    before
}

/// Copies into memory that other cores have read since it was written last, and makes it ready to be read again.
///
/// An ordinary store has to take each line back from its readers; a store past the cache does not wait for that. Which
/// is better depends on how far apart the cores are, and that can change, so it is measured as it goes.
///
/// # Safety
/// As for [`core::ptr::copy_nonoverlapping`].
#[inline]
pub(crate) unsafe fn publish(source: *const u8, target: *mut u8, len: usize) {
    if len < PUBLISH_MEASURE_FROM_BYTES {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(source, target, len) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { publish_large(source, target, len) };
    }
}

/// Its pieces may have different readers, so that each is measured for itself.
///
/// # Safety
/// As for [`core::ptr::copy_nonoverlapping`].
unsafe fn publish_large(source: *const u8, target: *mut u8, len: usize) {
    for at in (0..len).step_by(PUBLISH_MEASURE_BYTES) {
        let (source, target) = (source.wrapping_add(at), target.wrapping_add(at));
        let len = (len - at).min(PUBLISH_MEASURE_BYTES);
        let pieces = Pieces::of(len);
        let measures = !pieces.streams && len >= PUBLISH_MEASURE_FROM_BYTES && STORE_COST.measures(len);
        let start = measures.then(Instant::now);
        // SAFETY: the caller's promise, for this piece.
        unsafe { pieces.publish(source, target, len) };
        if let Some(start) = start {
            STORE_COST.measured(len, start.elapsed());
        }
    }
}

/// [`publish`], piece by piece, as they come.
pub(crate) struct Pieces {
    streams: bool,
}

impl Pieces {
    /// For so many bytes in all.
    #[inline]
    pub(crate) fn of(len: usize) -> Self {
        Pieces { streams: len >= PUBLISH_MEASURE_FROM_BYTES && STORE_COST.streams(len) }
    }

    /// How many bytes to publish at a time of what is just being made. None: each as soon as it is made.
    #[inline]
    pub(crate) fn step(&self) -> Option<usize> {
        match self.streams {
            true => Some(FOLD_BATCH_BYTES),
            false => cpu::is_intel().then_some(FOLD_STRING_BATCH_BYTES),
        }
    }

    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    #[inline]
    pub(crate) unsafe fn publish(&self, source: *const u8, target: *mut u8, len: usize) {
        let way = if self.streams { lines::copy_nontemporal } else { lines::copy };
        // SAFETY: the caller's promise.
        unsafe { way(source, target, len) };
    }
}

impl Drop for Pieces {
    #[inline]
    fn drop(&mut self) {
        if self.streams {
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
}

/// Lets the next `len` bytes go past the cache, if nobody finds out in between that they had better not.
#[cfg(test)]
pub(crate) fn stream_next(len: usize) {
    STORE_COST.to_stream.store(len, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_the_length_and_the_way_all_is_published() {
        let source: Vec<u8> = (0..3 * PUBLISH_MEASURE_BYTES + 1).map(|i| (i * 7 % 251) as u8).collect();
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
            for stream in [0, PUBLISH_MEASURE_BYTES, 1 << 20] {
                STORE_COST.unmeasured.store(0, Relaxed);
                stream_next(stream);
                let mut target = vec![0xEE; len + 1];
                // SAFETY: both vectors are at least so long, and distinct.
                unsafe { publish(source.as_ptr(), target.as_mut_ptr(), len) };
                assert_eq!(target[..len], source[..len]);
                assert_eq!(target[len], 0xEE);
            }
        }
    }

    /// Copies until as many copies were measured, in each of which a line took so many nanoseconds.
    fn measure(found: &StoreCost, costs: &[u64]) {
        for cost in costs {
            while found.streams(LEN) || !found.measures(LEN) {}
            found.measured(LEN, Duration::from_nanos(cost * (LEN / LINE) as u64));
        }
    }

    const LEN: usize = 64 << 10;

    #[test]
    fn dear_copies_make_the_next_ones_stream() {
        let found = StoreCost::nothing();
        // One that was interrupted does not.
        measure(&found, &[2, 2, 1000, 2]);
        assert!(!found.streams(LEN));
        measure(&found, &[25, 25, 25]);
        assert!((0..10_000).filter(|_| found.streams(LEN)).count() >= PUBLISH_NON_TEMPORAL_BYTES / LEN);
        // The first one after that is measured, and decides whether it goes on.
        assert!(found.measures(LEN));
        measure(&found, &[25]);
        assert!(found.streams(LEN));
        measure(&found, &[2, 2, 2]);
        assert!(!found.streams(LEN));
    }

    #[test]
    fn copies_for_near_readers_do_not_hide_those_for_far_ones() {
        let found = StoreCost::nothing();
        measure(&found, &[2, 27, 2, 27, 2, 27]);
        assert!(found.streams(LEN));
    }

    #[test]
    fn not_always_the_same_of_some_copies_is_measured() {
        let found = StoreCost::nothing();
        let mut measured = [false; 2];
        for turn in 0..1000 {
            if found.measures(16 << 10) {
                measured[turn % 2] = true;
                found.measured(16 << 10, Duration::from_nanos(400 + turn as u64));
            }
        }
        assert_eq!(measured, [true; 2]);
    }
}
