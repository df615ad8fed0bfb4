//! Copies that do not go through the cache.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// From how many bytes on it can pay to publish past the cache.
const LARGE: usize = 2 << 10;

/// What a line may cost before it is dear. Between cores that share a cache it takes some 6 ns to take a line back from
/// a reader, between others 25; storing past the cache, and reading from memory afterwards, costs about 6.
const DEAR: Duration = Duration::from_nanos(12);

/// How many bytes are copied before the cost of a copy is measured again: looking at the clock takes a while itself.
const UNMEASURED: usize = 64 << 10;

/// How many bytes go past the cache before the ordinary way is measured again.
const STREAMED: usize = 16 << 20;

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

/// # Safety
/// As for [`core::ptr::copy_nonoverlapping`].
unsafe fn publish_large(source: *const u8, target: *mut u8, len: usize) {
    if FOUND.streams(len) {
        // SAFETY: the caller's promise.
        unsafe { stream(source, target, len) };
        fence();
        return;
    }
    let start = FOUND.measures(len).then(Instant::now);
    // SAFETY: the caller's promise.
    unsafe { copy(source, target, len) };
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

    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    #[inline(always)]
    pub(crate) unsafe fn publish(&self, source: *const u8, target: *mut u8, len: usize) {
        #[cfg(target_arch = "x86_64")]
        if self.streams && x86::is_lanes(target, len) {
            // SAFETY: the caller's promise; they are lanes.
            return unsafe { x86::stream_lanes(source, target, len) };
        }
        // SAFETY: the caller's promise.
        unsafe { core::ptr::copy_nonoverlapping(source, target, len) };
    }
}

impl Drop for Pieces {
    #[inline]
    fn drop(&mut self) {
        if self.streams {
            fence();
        }
    }
}

/// Copies between private memory and memory that other cores use, through the cache. Where there is AVX2, by a plain loop:
/// where lines come from other caches, the C library's copy takes up to a half longer.
///
/// # Safety
/// As for [`core::ptr::copy_nonoverlapping`].
#[inline]
pub(crate) unsafe fn copy(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if super::wide::is_for_avx2(len) {
        // SAFETY: the caller's promise; I7: the processor has just said that it has AVX2.
        return unsafe { x86::copy(source, target, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(source, target, len) };
}

/// Copies `len` bytes with stores that bypass the cache where the machine has them.
///
/// # Safety
/// As for [`core::ptr::copy_nonoverlapping`].
pub(crate) unsafe fn stream(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the caller's promise.
    unsafe {
        x86::stream(source, target, len);
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: the caller's promise.
    unsafe {
        core::ptr::copy_nonoverlapping(source, target, len);
    }
}

/// [`stream`] for slices.
///
/// # Panics
/// When they differ in length.
pub(crate) fn stream_slice(source: &[u8], target: &mut [u8]) {
    assert!(source.len() == target.len());
    // SAFETY: I8: both are slices, so they are valid and do not overlap.
    unsafe { stream(source.as_ptr(), target.as_mut_ptr(), source.len()) };
}

/// Orders streamed stores before everything that follows. Without it another thread of this process could see the
/// call's end, and not the data.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: I7: x86-64 has SSE.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
}

/// Begins to take the line at `place` from those that have read it, without waiting for it. Only a hint: it changes
/// nothing, and any address will do.
#[inline(always)]
pub(crate) fn own(place: *const u8) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: I7: a prefetch never faults; processors without it ignore it.
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) place, options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = place;
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};
    use core::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_store_si256};

    const LANE: usize = size_of::<__m128i>();
    const LINE: usize = 4 * LANE;

    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    pub(super) unsafe fn stream(source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: I7: x86-64 has SSE2; `by_lines` gives whole lines.
        let line = |source, target| unsafe { stream_line(source, target) };
        // SAFETY: the caller's promise.
        unsafe { by_lines(source, target, len, line) };
    }

    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn copy(source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: I7: AVX2 is there; `by_lines` gives whole lines.
        let line = |source, target| unsafe { copy_line(source, target) };
        // SAFETY: the caller's promise.
        unsafe { by_lines(source, target, len, line) };
    }

    /// Copies as many lines as there are in the target by `line`, which gets a readable line and a writable one that is
    /// aligned to its size.
    ///
    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    #[inline(always)]
    unsafe fn by_lines(source: *const u8, target: *mut u8, len: usize, line: impl Fn(*const u8, *mut u8)) {
        let head = target.align_offset(LINE).min(len);
        // SAFETY: the caller's promise; `head` is at most `len`.
        unsafe { core::ptr::copy_nonoverlapping(source, target, head) };
        let lines = (len - head) / LINE;
        for at in (0..lines).map(|index| head + index * LINE) {
            line(source.wrapping_add(at), target.wrapping_add(at));
        }
        let done = head + lines * LINE;
        let (source, target) = (source.wrapping_add(done), target.wrapping_add(done));
        // SAFETY: the caller's promise; the rest of `len`.
        unsafe { core::ptr::copy_nonoverlapping(source, target, len - done) };
    }

    /// # Safety
    /// `LINE` bytes can be read at `source` and written at `target`, which is aligned to `LINE`.
    #[inline(always)]
    unsafe fn stream_line(source: *const u8, target: *mut u8) {
        // SAFETY: the caller's promise.
        unsafe { stream_lanes(source, target, LINE) };
    }

    /// Whether `len` bytes at `target` are whole lanes.
    #[inline(always)]
    pub(super) fn is_lanes(target: *mut u8, len: usize) -> bool {
        target.addr().is_multiple_of(LANE) && len.is_multiple_of(LANE)
    }

    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`]; [`is_lanes`].
    #[inline(always)]
    pub(super) unsafe fn stream_lanes(source: *const u8, target: *mut u8, len: usize) {
        let (source, target) = (source.cast::<__m128i>(), target.cast::<__m128i>());
        for lane in 0..len / LANE {
            // SAFETY: the caller's promise, for this lane; an unaligned load.
            let bytes = unsafe { _mm_loadu_si128(source.wrapping_add(lane)) };
            // SAFETY: the caller's promise; `target` is aligned to a lane.
            unsafe { _mm_stream_si128(target.wrapping_add(lane), bytes) };
        }
    }

    /// # Safety
    /// As for [`stream_line`].
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn copy_line(source: *const u8, target: *mut u8) {
        let (source, target) = (source.cast::<__m256i>(), target.cast::<__m256i>());
        // Both halves are loaded before one is stored: a loop of one would be made a call of the C library again.
        // SAFETY: the caller's promise; unaligned loads.
        let first = unsafe { _mm256_loadu_si256(source) };
        // SAFETY: the caller's promise, as above.
        let second = unsafe { _mm256_loadu_si256(source.wrapping_add(1)) };
        // SAFETY: the caller's promise; `target` is aligned to a half.
        unsafe { _mm256_store_si256(target, first) };
        // SAFETY: the caller's promise, as above.
        unsafe { _mm256_store_si256(target.wrapping_add(1), second) };
    }
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

    #[test]
    fn copies_any_length_at_any_alignment() {
        let source: Vec<u8> = (0..1000u32).map(|i| (i * 7 % 251) as u8).collect();
        for offset in [0, 1, 15, 16, 63, 64] {
            for len in [0, 1, 63, 64, 65, 127, 128, 700] {
                for way in [copy, stream] {
                    let mut target = vec![0xEE; 1000];
                    let (from, to) = (source[3..3 + len].as_ptr(), target[offset..offset + len].as_mut_ptr());
                    // SAFETY: both ranges are inside their vectors, which are distinct.
                    unsafe { way(from, to, len) };
                    fence();
                    assert_eq!(target[offset..offset + len], source[3..3 + len]);
                    assert!(target[..offset].iter().all(|byte| *byte == 0xEE));
                    assert!(target[offset + len..].iter().all(|byte| *byte == 0xEE));
                }
            }
        }
    }
}
