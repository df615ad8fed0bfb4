//! Copies between private memory and memory that Python owns.
//!
//! While a call runs, the interpreter is detached, and another thread may write the buffer that it was passed: from Python
//! that is a mistake of the program, but it must not be undefined behaviour here. So no reference to such memory is ever
//! made. It is read and written as memory that other processes share is: in Rust's terms by a loop of Relaxed accesses.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

const WORD: usize = size_of::<u64>();

/// From here on the string instruction is faster than the loop.
#[cfg(target_arch = "x86_64")]
const STRING_FROM_BYTES: usize = 256;

/// Copies `target.len()` bytes from `source`.
///
/// # Safety
/// They can be read.
pub(crate) unsafe fn read(source: *const u8, target: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if target.len() >= STRING_FROM_BYTES {
        // SAFETY: the caller's promise for the source; the target is a slice.
        return unsafe { string(source, target.as_mut_ptr(), target.len()) };
    }
    let words = if source.align_offset(WORD) == 0 { target.len() / WORD } else { 0 };
    for word in 0..words {
        // SAFETY: the caller's promise: the word lies inside, and is aligned, since the first one is. It may be read-only: no `from_ptr`.
        let value = unsafe { &*source.cast::<AtomicU64>().wrapping_add(word) };
        target[word * WORD..][..WORD].copy_from_slice(&value.load(Relaxed).to_ne_bytes());
    }
    for (at, byte) in target.iter_mut().enumerate().skip(words * WORD) {
        // SAFETY: the caller's promise: the byte lies inside.
        let value = unsafe { &*source.cast::<AtomicU8>().wrapping_add(at) };
        *byte = value.load(Relaxed);
    }
}

/// Copies `source` to `target`.
///
/// # Safety
/// As many bytes can be written.
pub(crate) unsafe fn write(source: &[u8], target: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    if source.len() >= STRING_FROM_BYTES {
        // SAFETY: the caller's promise for the target; the source is a slice.
        return unsafe { string(source.as_ptr(), target, source.len()) };
    }
    let words = if target.align_offset(WORD) == 0 { source.len() / WORD } else { 0 };
    let (whole, rest) = source.split_at(words * WORD);
    for (word, bytes) in whole.chunks_exact(WORD).enumerate() {
        // SAFETY: the caller's promise: the word lies inside, and is aligned, since the first one is.
        let place = unsafe { AtomicU64::from_ptr(target.cast::<u64>().wrapping_add(word)) };
        place.store(u64::from_ne_bytes(bytes.try_into().expect("a word")), Relaxed);
    }
    for (at, byte) in rest.iter().enumerate() {
        // SAFETY: the caller's promise: the byte lies inside.
        let place = unsafe { AtomicU8::from_ptr(target.wrapping_add(words * WORD + at)) };
        place.store(*byte, Relaxed);
    }
}

/// By the string instruction: for the compiler, a loop of Relaxed accesses, of which it knows nothing more.
///
/// # Safety
/// `source` can be read and `target` written for `len` bytes. They do not overlap.
#[cfg(target_arch = "x86_64")]
unsafe fn string(source: *const u8, target: *mut u8, len: usize) {
    // SAFETY: the caller's promise: it reads and writes `len` bytes, upwards, since the direction flag is clear.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rsi") source => _,
            inout("rdi") target => _,
            inout("rcx") len => _,
            options(nostack, preserves_flags),
        );
    }
}
