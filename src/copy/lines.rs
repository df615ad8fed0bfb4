//! Copies line by line, with the widest vectors of the processor, and prefetches.

#[cfg(target_arch = "x86_64")]
use super::cpu::WATCHED;
use super::view::Source;
#[cfg(target_arch = "x86_64")]
use crate::tuning::{COPY_VECTORS_FROM_BYTES, READ_STRING_BYTES};
use crate::tuning::{PREFETCH_READ_BYTES, READ_STREAM_BYTES};

/// The bytes that one write-combining buffer collects. Non-temporal stores of less would be merged with the rest of the
/// line from memory.
const LINE: usize = 64;

/// Copies between private memory and memory that other cores use, through the cache. Where there is AVX2, by a plain loop,
/// unless the processor has string instructions that are [faster](super::cpu::has_strings). On Intel's the C library chooses.
///
/// # Safety
/// As for [`core::ptr::copy_nonoverlapping`].
#[inline]
pub(crate) unsafe fn copy(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if super::dispatch::is_for_avx2(len) && !super::cpu::is_intel() {
        let by = if super::cpu::has_strings() { super::strings::copy } else { x86::copy };
        // SAFETY: the caller's promise; I7: the processor has just said that it has AVX2.
        return unsafe { by(source, target, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(source, target, len) };
}

/// Copies what another core has written into private memory.
///
/// # Safety
/// As for [`core::ptr::copy_nonoverlapping`].
#[inline]
pub(crate) unsafe fn fetch(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if super::dispatch::is_for_avx2(len) {
        let way = if prefetches_reads() {
            x86::fetch
        } else if len >= READ_STRING_BYTES && super::cpu::has_strings() {
            super::strings::copy
        } else {
            x86::fetch_streams
        };
        // SAFETY: the caller's promise; I7: the processor has just said that it has AVX2.
        return unsafe { way(source, target, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(source, target, len) };
}

/// Whether software prefetch pays: on Intel's processors, whose hardware prefetchers fetch too little of such lines.
#[inline(always)]
pub(crate) fn prefetches_reads() -> bool {
    super::cpu::is_intel()
}

/// Into which cache lines are prefetched that a fold will read, if that pays. Measured: docs/adr/0049-folds-prefetch.md.
#[inline(always)]
pub(crate) fn prefetches_folds() -> Option<Level> {
    if prefetches_reads() { Some(Level::Second) } else { super::cpu::has_strings().then_some(Level::First) }
}

/// From how many places at a time what another core has written is read, of `bytes` in all: each has a hardware prefetcher of
/// its own, which ends with its page. Not for where software prefetch pays.
#[inline(always)]
pub(crate) fn streams(bytes: usize) -> usize {
    (bytes / READ_STREAM_BYTES).clamp(1, 4)
}

/// A level of the caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    First,
    Second,
}

/// Prefetches for read the lines [`PREFETCH_READ_BYTES`] ahead of a value, if it has whole ones. A hint. Not to be used
/// beyond what will be read: the writer of those lines would pay an RFO.
#[inline(always)]
pub(crate) fn prefetch_read<T>(place: *const T, level: Level) {
    for line in 0..size_of::<T>() / LINE {
        prefetch_line(place.cast::<u8>().wrapping_add(PREFETCH_READ_BYTES + line * LINE), level);
    }
}

/// Prefetches a line for read. A hint; any address will do.
#[inline(always)]
fn prefetch_line(place: *const u8, level: Level) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _MM_HINT_T1, _mm_prefetch};

        match level {
            // SAFETY: I7: a prefetch never faults.
            Level::First => unsafe { _mm_prefetch::<_MM_HINT_T0>(place.cast()) },
            // SAFETY: I7, as above.
            Level::Second => unsafe { _mm_prefetch::<_MM_HINT_T1>(place.cast()) },
        }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = (place, level);
}

/// Copies `len` bytes by non-temporal stores, where the machine has them.
///
/// # Safety
/// As for [`core::ptr::copy_nonoverlapping`].
pub(crate) unsafe fn copy_nontemporal(source: *const u8, target: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    if super::dispatch::is_for_avx2(len) {
        // SAFETY: the caller's promise; I7: the processor has just said that it has AVX2.
        return unsafe { x86::copy_nontemporal_wide(source, target, len) };
    } else if !WATCHED {
        // SAFETY: the caller's promise.
        return unsafe { x86::copy_nontemporal(source, target, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(source, target, len) };
}

impl Source<'_> {
    /// Prefetches the first `len` bytes of the view for read. A hint.
    #[inline(always)]
    pub(crate) fn prefetch(&self, len: usize) {
        for offset in (0..len.min(self.len)).step_by(LINE) {
            prefetch_line(self.start.wrapping_add(offset), Level::First);
        }
    }

    /// Copies bytes from the start of the view into a private buffer.
    ///
    /// # Panics
    /// When they reach past the end of the view.
    #[inline]
    pub(crate) fn fetch(&self, target: &mut [u8]) {
        let source = self.range(0, target.len());
        // SAFETY: I1 and I2: the range is inside the view, which nobody writes meanwhile. I8: a private slice
        // does not overlap with it.
        unsafe { fetch(source, target.as_mut_ptr(), target.len()) };
    }

    /// The same with non-temporal stores. Pays where the target is larger than the cache.
    /// The bytes are visible to other threads only after [`fence`].
    ///
    /// # Panics
    /// When they reach past the end of the view.
    pub(crate) fn fetch_nontemporal(&self, target: &mut [u8]) {
        let source = self.range(0, target.len());
        // SAFETY: I1 and I2, as in `fetch`.
        unsafe { copy_nontemporal(source, target.as_mut_ptr(), target.len()) };
    }
}

/// Copies from private memory to private memory, through the cache.
///
/// # Panics
/// When they differ in length.
#[inline(always)]
pub(crate) fn copy_slice(source: &[u8], target: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if source.len() >= COPY_VECTORS_FROM_BYTES {
        return copy_long_slice(source, target);
    }
    target.copy_from_slice(source);
}

/// By a plain loop on processors whose string instruction is [slow](super::cpu::has_strings), which the C library may use all the same: on some it takes
/// more than ten times as long where the target begins a few bytes further on in its page than the source does.
#[cfg(target_arch = "x86_64")]
#[inline(never)]
fn copy_long_slice(source: &[u8], target: &mut [u8]) {
    assert!(source.len() == target.len());
    if super::cpu::has_strings() || !super::dispatch::is_for_avx2(source.len()) {
        return target.copy_from_slice(source);
    }
    // SAFETY: I8: both are slices, so they are valid and do not overlap. I7: the processor has just said that it has AVX2.
    unsafe { x86::copy(source.as_ptr(), target.as_mut_ptr(), source.len()) };
}

/// [`copy_nontemporal`] for slices.
///
/// # Panics
/// When they differ in length.
pub(crate) fn copy_slice_nontemporal(source: &[u8], target: &mut [u8]) {
    assert!(source.len() == target.len());
    // SAFETY: I8: both are slices, so they are valid and do not overlap.
    unsafe { copy_nontemporal(source.as_ptr(), target.as_mut_ptr(), source.len()) };
}

/// Orders non-temporal stores, which are weakly ordered, before everything that follows. Without it another thread of
/// this process could see the call's end, and not the data.
pub(crate) fn fence() {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: I7: x86-64 has SSE.
    unsafe {
        core::arch::x86_64::_mm_sfence();
    }
}

/// Prefetches the line at `place` for write: the RFO begins, and nothing waits for it. A hint; any address will do.
#[inline(always)]
pub(crate) fn prefetchw(place: *const u8) {
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
    use core::arch::x86_64::{__m256i, _mm256_loadu_si256, _mm256_store_si256, _mm256_stream_si256};

    use super::{LINE, Level, PREFETCH_READ_BYTES, prefetch_read, prefetchw, streams};

    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    pub(super) unsafe fn copy_nontemporal(source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: I7: x86-64 has SSE2; `by_lines` gives whole lines.
        let line = |source, target| unsafe { stream_line(source, target) };
        // SAFETY: the caller's promise.
        unsafe { by_lines(source, target, len, line) };
    }

    /// [`copy_nontemporal`] with fewer stores a line, which takes much less time where a core is far from the others.
    ///
    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn copy_nontemporal_wide(source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: I7: AVX2 is there; `by_lines` gives whole lines.
        let line = |source, target| unsafe { stream_line_wide(source, target) };
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

    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn fetch(source: *const u8, target: *mut u8, len: usize) {
        let near = source.addr() + len.saturating_sub(PREFETCH_READ_BYTES);
        let line = |source: *const u8, target: *mut u8| {
            if source.addr() < near {
                prefetch_read(source.cast::<[u8; LINE]>(), Level::Second);
                prefetchw(target.wrapping_add(PREFETCH_READ_BYTES / 2));
            }
            // SAFETY: I7: AVX2 is there; `by_lines` gives whole lines.
            unsafe { copy_line(source, target) }
        };
        // SAFETY: the caller's promise.
        unsafe { by_lines(source, target, len, line) };
    }

    /// [`copy`] from as many places at a time as there are [`streams`].
    ///
    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn fetch_streams(source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: I7: AVX2 is there; `by_streams` gives whole lines.
        let line = |source, target| unsafe { copy_line(source, target) };
        match streams(len) {
            // SAFETY: the caller's promise.
            4.. => unsafe { by_streams::<4>(source, target, len, line) },
            // SAFETY: the caller's promise.
            2 | 3 => unsafe { by_streams::<2>(source, target, len, line) },
            // SAFETY: the caller's promise.
            _ => unsafe { by_lines(source, target, len, line) },
        }
    }

    /// Copies as many lines as there are in the target by `line`, which gets a readable line and a writable one that is
    /// aligned to its size.
    ///
    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    #[inline(always)]
    unsafe fn by_lines(source: *const u8, target: *mut u8, len: usize, line: impl Fn(*const u8, *mut u8)) {
        // SAFETY: the caller's promise.
        unsafe { by_streams::<1>(source, target, len, line) };
    }

    /// The same, a line of each of several equal parts in turn.
    ///
    /// # Safety
    /// As for [`core::ptr::copy_nonoverlapping`].
    #[inline(always)]
    unsafe fn by_streams<const STREAMS: usize>(
        source: *const u8,
        target: *mut u8,
        len: usize,
        line: impl Fn(*const u8, *mut u8),
    ) {
        let head = target.align_offset(LINE).min(len);
        if head > 0 {
            // SAFETY: the caller's promise; `head` is at most `len`.
            unsafe { core::ptr::copy_nonoverlapping(source, target, head) };
        }
        let part = (len - head) / LINE / STREAMS * LINE;
        for start in (0..part / LINE).map(|index| head + index * LINE) {
            for at in (0..STREAMS).map(|stream| start + stream * part) {
                line(source.wrapping_add(at), target.wrapping_add(at));
            }
        }
        let done = head + STREAMS * part;
        if done < len {
            let (source, target) = (source.wrapping_add(done), target.wrapping_add(done));
            // SAFETY: the caller's promise; the rest of `len`.
            unsafe { core::ptr::copy_nonoverlapping(source, target, len - done) };
        }
    }

    /// # Safety
    /// A line can be read at `source` and written at `target`, which is aligned to it.
    #[inline(always)]
    unsafe fn stream_line(source: *const u8, target: *mut u8) {
        let (source, target) = (source.cast::<__m128i>(), target.cast::<__m128i>());
        for lane in 0..LINE / size_of::<__m128i>() {
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
    unsafe fn stream_line_wide(source: *const u8, target: *mut u8) {
        // SAFETY: the caller's promise.
        let [first, second] = unsafe { load_line(source) };
        let target = target.cast::<__m256i>();
        // SAFETY: the caller's promise; `target` is aligned to a half.
        unsafe { _mm256_stream_si256(target, first) };
        // SAFETY: the caller's promise, as above.
        unsafe { _mm256_stream_si256(target.wrapping_add(1), second) };
    }

    /// # Safety
    /// As for [`stream_line`].
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn copy_line(source: *const u8, target: *mut u8) {
        // Both halves are loaded before one is stored: a loop of one would be made a call of the C library again.
        // SAFETY: the caller's promise.
        let [first, second] = unsafe { load_line(source) };
        let target = target.cast::<__m256i>();
        // SAFETY: the caller's promise; `target` is aligned to a half.
        unsafe { _mm256_store_si256(target, first) };
        // SAFETY: the caller's promise, as above.
        unsafe { _mm256_store_si256(target.wrapping_add(1), second) };
    }

    /// # Safety
    /// A line can be read at `source`.
    #[inline]
    #[target_feature(enable = "avx2")]
    unsafe fn load_line(source: *const u8) -> [__m256i; 2] {
        let source = source.cast::<__m256i>();
        // SAFETY: the caller's promise; an unaligned load.
        let first = unsafe { _mm256_loadu_si256(source) };
        // SAFETY: the caller's promise, as above.
        let second = unsafe { _mm256_loadu_si256(source.wrapping_add(1)) };
        [first, second]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slices_are_copied_whole() {
        let source = crate::copy::pattern(30_000);
        for len in [0, 1, 63, 2047, 2048, 2112, 3000, 4096, 8300, 29_000] {
            for offset in [0, 1, 16, 64] {
                let mut target = vec![0xEE; offset + len + 1];
                copy_slice(&source[3..3 + len], &mut target[offset..offset + len]);
                assert_eq!(target[offset..offset + len], source[3..3 + len]);
                assert!(target[..offset].iter().chain(&target[offset + len..]).all(|byte| *byte == 0xEE));
            }
        }
    }

    #[test]
    fn slices_of_other_lengths_are_refused() {
        for (source, target) in [(7, 8), (8, 7), (5000, 4999), (2047, 2048), (2048, 2047), (5000, 8000)] {
            let refused = std::panic::catch_unwind(|| copy_slice(&vec![1; source], &mut vec![0; target]));
            assert!(refused.is_err(), "{source} to {target}");
        }
    }

    #[test]
    fn copies_any_length_at_any_alignment() {
        let (source, before) = (crate::copy::pattern(30_000), vec![0xEE; 30_000]);
        type Way = unsafe fn(*const u8, *mut u8, usize);
        // Which way `copy` is depends on the processor.
        #[cfg(target_arch = "x86_64")]
        let vectors = if std::arch::is_x86_feature_detected!("avx2") {
            let copy: Way = |source, target, len| {
                // SAFETY: I7: the processor has just said that it has AVX2; the rest is the caller's promise.
                unsafe { x86::copy(source, target, len) }
            };
            let fetch_streams: Way = |source, target, len| {
                // SAFETY: I7: as above; the rest is the caller's promise.
                unsafe { x86::fetch_streams(source, target, len) }
            };
            vec![copy, fetch_streams]
        } else {
            vec![]
        };
        #[cfg(not(target_arch = "x86_64"))]
        let vectors: Vec<Way> = vec![];
        let ways: Vec<Way> = [copy as Way, fetch, copy_nontemporal].into_iter().chain(vectors).collect();
        for offset in [0, 1, 15, 16, 63, 64] {
            for len in [0, 1, 63, 64, 65, 127, 128, 700, 8192, 8300, 12_345, 16_384, 16_500, 29_000] {
                for way in &ways {
                    let mut target = before.clone();
                    let (from, to) = (source[3..3 + len].as_ptr(), target[offset..offset + len].as_mut_ptr());
                    // SAFETY: both ranges are inside their vectors, which are distinct.
                    unsafe { way(from, to, len) };
                    fence();
                    assert_eq!(target[offset..offset + len], source[3..3 + len]);
                    assert_eq!(target[..offset], before[..offset]);
                    assert_eq!(target[offset + len..], before[offset + len..]);
                }
            }
        }
    }
}
