//! Copies that do not go through the cache.

use core::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// From how many bytes on it can pay to publish past the cache.
const LARGE: usize = 1 << 10;

/// From how many bytes on the cost of publishing can be measured.
const MEASURED: usize = 16 << 10;

/// What a line may cost before it is dear. Between cores that share a cache it takes some 6 ns to take a line back from
/// a reader, between others 25; storing past the cache, and reading from memory afterwards, costs about 10.
const DEAR: Duration = Duration::from_nanos(12);

/// How many copies go past the cache before the ordinary way is measured again.
const STREAMED: u32 = 64;

/// How many copies are still to go past the cache. Of the process, since it is about its processors.
static TO_STREAM: AtomicU32 = AtomicU32::new(0);

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
    let to_stream = TO_STREAM.load(Relaxed);
    if to_stream > 0 {
        // SAFETY: the caller's promise.
        unsafe { stream(source, target, len) };
        fence();
        if len >= MEASURED {
            TO_STREAM.store(to_stream - 1, Relaxed);
        }
        return;
    }
    let start = (len >= MEASURED).then(Instant::now);
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(source, target, len) };
    let lines = u32::try_from(len / 64).unwrap_or(u32::MAX);
    if start.is_some_and(|start| start.elapsed() > DEAR * lines) {
        TO_STREAM.store(STREAMED, Relaxed);
    }
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

/// Orders streamed stores before everything that follows. Without it another thread of this process could see the
/// call's end, and not the data.
pub(crate) fn fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: I7: x86-64 has SSE.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_stream_si128};

    const LANE: usize = size_of::<__m128i>();
    const LINE: usize = 4 * LANE;

    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    pub(super) unsafe fn stream(source: *const u8, target: *mut u8, len: usize) {
        let head = target.align_offset(LINE).min(len);
        // SAFETY: the caller's promise; `head` is at most `len`.
        unsafe { core::ptr::copy_nonoverlapping(source, target, head) };
        let lines = (len - head) / LINE;
        for line in 0..lines {
            let at = head + line * LINE;
            let (source, target) = (source.wrapping_add(at), target.wrapping_add(at));
            // SAFETY: the caller's promise; `at + LINE` is at most `len`; `target` is aligned: `head` saw to that.
            unsafe { stream_line(source, target) };
        }
        let done = head + lines * LINE;
        let (source, target) = (source.wrapping_add(done), target.wrapping_add(done));
        // SAFETY: the caller's promise; the rest of `len`.
        unsafe { core::ptr::copy_nonoverlapping(source, target, len - done) };
    }

    /// # Safety
    /// `LINE` bytes can be read at `source` and written at `target`, which is aligned to `LINE`.
    #[inline]
    unsafe fn stream_line(source: *const u8, target: *mut u8) {
        let (source, target) = (source.cast::<__m128i>(), target.cast::<__m128i>());
        for lane in 0..LINE / LANE {
            let (source, target) = (source.wrapping_add(lane), target.wrapping_add(lane));
            // SAFETY: the caller's promise, for this lane; an unaligned load.
            let bytes = unsafe { _mm_loadu_si128(source) };
            // SAFETY: the caller's promise; `target` is aligned to a lane.
            unsafe { _mm_stream_si128(target, bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_any_length_at_any_alignment() {
        let source: Vec<u8> = (0..1000u32).map(|i| (i * 7 % 251) as u8).collect();
        for offset in [0, 1, 15, 16, 63, 64] {
            for len in [0, 1, 63, 64, 65, 127, 128, 700] {
                let mut target = vec![0xEE; 1000];
                let from = source[3..3 + len].as_ptr();
                // SAFETY: both ranges are inside their vectors, which are distinct.
                unsafe { stream(from, target[offset..offset + len].as_mut_ptr(), len) };
                fence();
                assert_eq!(target[offset..offset + len], source[3..3 + len]);
                assert!(target[..offset].iter().all(|byte| *byte == 0xEE));
                assert!(target[offset + len..].iter().all(|byte| *byte == 0xEE));
            }
        }
    }
}
