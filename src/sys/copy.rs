//! Copies into memory that other cores have read: through the cache, or past it.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use super::{lines, maker};

/// From how many bytes on it can pay to publish past the cache.
const LARGE: usize = 2 << 10;

/// What a line may cost before it is dear. Between cores that share a cache it takes some 6 ns to take a line back from
/// a reader, between others 25; storing past the cache, and reading from memory afterwards, costs about 6.
const DEAR: Duration = Duration::from_nanos(12);

/// How many bytes are copied before the cost of a copy is measured again: looking at the clock takes a while itself.
const UNMEASURED: usize = 64 << 10;

/// How many bytes go past the cache before the ordinary way is measured again.
const STREAMED: usize = 16 << 20;

/// How many bytes that go past the cache are made at a time, before they are published: few enough to be in the nearest
/// cache then.
const PIECE: usize = 2 << 10;

/// The same where they are published by the C library, which takes a while to begin.
const LONG_PIECE: usize = 8 << 10;

/// What this process has found out about its processors.
static FOUND: Found = Found::nothing();

struct Found {
    /// How many bytes are still to be copied without a look at the clock.
    unmeasured: AtomicUsize,
    /// How many bytes are still to go past the cache.
    to_stream: AtomicUsize,
    /// Whether the last copy that was measured was dear. One alone may have been interrupted.
    was_dear: AtomicUsize,
}

impl Found {
    const fn nothing() -> Self {
        let [unmeasured, to_stream, was_dear] = [const { AtomicUsize::new(0) }; 3];
        Found { unmeasured, to_stream, was_dear }
    }

    /// Whether the next `len` bytes are to go past the cache.
    fn streams(&self, len: usize) -> bool {
        take(&self.to_stream, len)
    }

    /// Whether the next `len` bytes are to be measured.
    fn measures(&self, len: usize) -> bool {
        !take(&self.unmeasured, len)
    }

    /// It took so long to copy `len` bytes in the ordinary way.
    fn measured(&self, len: usize, time: Duration) {
        self.unmeasured.store(UNMEASURED, Relaxed);
        let lines = u32::try_from(len / 64).unwrap_or(u32::MAX);
        let dear = usize::from(time > DEAR * lines);
        if dear + self.was_dear.swap(dear, Relaxed) == 2 {
            self.to_stream.store(STREAMED, Relaxed);
            // The first one after that decides whether it goes on.
            self.unmeasured.store(0, Relaxed);
        }
    }
}

/// Takes `len` from what is left, as far as there is; false if nothing was. Threads that do so at a time may take the same.
fn take(left: &AtomicUsize, len: usize) -> bool {
    let before = left.load(Relaxed);
    if before > 0 {
        left.store(before.saturating_sub(len), Relaxed);
    }
    before > 0
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
    if len < LARGE {
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(source, target, len) };
    } else {
        // SAFETY: the caller's promise.
        unsafe { publish_large(source, target, len) };
    }
}

/// Whether what is published next goes past the cache, if it is long enough.
pub(crate) fn streams() -> bool {
    FOUND.to_stream.load(Relaxed) > 0
}

/// # Safety
/// As for [`core::ptr::copy_nonoverlapping`].
unsafe fn publish_large(source: *const u8, target: *mut u8, len: usize) {
    let pieces = Pieces::of(len);
    let start = (!pieces.streams && FOUND.measures(len)).then(Instant::now);
    // SAFETY: the caller's promise.
    unsafe { pieces.publish(source, target, len) };
    if let Some(start) = start {
        FOUND.measured(len, start.elapsed());
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
        Pieces { streams: len >= LARGE && FOUND.streams(len) }
    }

    /// How many bytes to publish at a time of what is just being made. None: each as soon as it is made.
    #[inline]
    pub(crate) fn step(&self) -> Option<usize> {
        match self.streams {
            true => Some(PIECE),
            false => maker::has_fast_strings().then_some(LONG_PIECE),
        }
    }

    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    #[inline]
    pub(crate) unsafe fn publish(&self, source: *const u8, target: *mut u8, len: usize) {
        let way = if self.streams { lines::stream } else { lines::copy };
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

/// Lets the next `len` bytes go past the cache, if nobody finds out in between that they had better not.
#[cfg(test)]
pub(crate) fn stream_next(len: usize) {
    FOUND.to_stream.store(len, Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_dear_copies_in_a_row_make_the_next_ones_stream() {
        let (len, lines) = (1 << 16, 1 << 10);
        let found = Found::nothing();
        let measure = |nanoseconds: u64| {
            while !found.measures(len) {}
            found.measured(len, Duration::from_nanos(nanoseconds * lines));
        };
        for (cost, streams) in [(25, false), (3, false), (25, false), (25, true)] {
            measure(cost);
            assert_eq!(found.to_stream.load(Relaxed) > 0, streams);
        }
        assert_eq!((0..10_000).filter(|_| found.streams(len)).count(), STREAMED / len);
        // The next one alone decides.
        assert!(found.measures(len));
        found.measured(len, Duration::from_nanos(25 * lines));
        assert!(found.streams(len));
        found.to_stream.store(0, Relaxed);
        measure(3);
        assert!(!found.streams(len));
    }
}
