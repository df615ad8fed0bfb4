//! Copies to and from memory that other ranks may access meanwhile: in Rust's terms, a loop of Relaxed accesses of a unit.
//!
//! The compiler must not make anything else of it, so what is more than such a loop is written in assembly. That a vector is
//! stored, or loaded, in parts of at least 8 bytes that are each atomic where they are aligned to their size is an assumption
//! about the processor (SAFETY.md, I15). Under Miri and the thread sanitizer, and elsewhere than on x86-64, the caller's loop
//! does all of it.

use core::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use bytemuck::Pod;

#[cfg(target_arch = "x86_64")]
use super::cpu::{WATCHED, has_strings};
use super::policy::Stores;
use crate::tuning::PUT_NON_TEMPORAL_FROM_BYTES;
#[cfg(target_arch = "x86_64")]
use crate::tuning::{PUT_STRINGS_FROM_BYTES, PUT_VECTORS_FROM_BYTES};

/// Copies as many bytes from the front as vectors can: a multiple of 64. Returns their number; the caller's loop does the rest.
/// `target` is aligned to a line.
///
/// # Safety
/// `source` can be read and `target` written for `len` bytes. They do not overlap. What others access meanwhile they access
/// atomically, in units of at most 8 bytes that are aligned to their size, in both.
#[inline]
pub(crate) unsafe fn copy_lines(source: *const u8, target: *mut u8, len: usize) -> usize {
    let stores = if len >= PUT_NON_TEMPORAL_FROM_BYTES { Stores::NonTemporal } else { Stores::Cached };
    // SAFETY: the caller's promise.
    unsafe { copy_lines_by(stores, source, target, len) }
}

/// The same with these stores, and by the string instruction only on processors that copy lines of other cores well by it: on others it was
/// measured at up to five times the time of the loop.
///
/// # Safety
/// As [`copy_lines`].
#[inline]
pub(crate) unsafe fn copy_lines_by(stores: Stores, source: *const u8, target: *mut u8, len: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if len >= PUT_VECTORS_FROM_BYTES && !WATCHED && std::arch::is_x86_feature_detected!("avx2") {
        let lines = len - len % LINE;
        let by_lines = match stores {
            Stores::NonTemporal => x86::non_temporal,
            Stores::Cached if len >= PUT_STRINGS_FROM_BYTES && has_strings() => super::strings::copy,
            Stores::Cached => x86::cached,
        };
        // SAFETY: the caller's promise; I7: the processor has just said that it has AVX2.
        unsafe { by_lines(source, target, lines) };
        return lines;
    }
    let _ = (stores, source, target, len);
    0
}

/// Loads a byte that others may write meanwhile. No [`AtomicU8::from_ptr`], which demands that it may be written here, too: it may lie behind a
/// `&[T]`.
///
/// # Safety
/// It can be read. Others access it meanwhile atomically, or it is code of another language.
#[inline(always)]
pub(super) unsafe fn load_byte(source: *const u8) -> u8 {
    // SAFETY: I8: the caller's promise; the atomic is only loaded.
    unsafe { &*source.cast::<AtomicU8>() }.load(Relaxed)
}

/// Loads a word, likewise.
///
/// # Safety
/// As [`load_byte`]; it is aligned.
#[inline(always)]
pub(super) unsafe fn load_word(source: *const u64) -> u64 {
    // SAFETY: I8: as above.
    unsafe { &*source.cast::<AtomicU64>() }.load(Relaxed)
}

/// Loads `N` values that others may write meanwhile, by accesses of any alignment. `wide`: this is compiled for AVX2.
///
/// # Safety
/// They can be read. What others access meanwhile they access atomically, or it is code of another language.
#[inline(always)]
pub(crate) unsafe fn load<T: Pod, const N: usize>(source: *const u8, wide: bool) -> [T; N] {
    let mut values = [T::zeroed(); N];
    let target: *mut u8 = values.as_mut_ptr().cast();
    let (len, mut done) = (size_of::<[T; N]>(), 0);
    #[cfg(target_arch = "x86_64")]
    while wide && !WATCHED && len - done >= x86::VECTOR {
        // SAFETY: the caller's promise: the vector lies inside; I7: this is compiled for AVX2 where the processor has it.
        let vector = unsafe { x86::load(source.wrapping_add(done)) };
        // SAFETY: I8: the values are private, and have room for the vector.
        unsafe { target.wrapping_add(done).cast::<x86::Vector>().write_unaligned(vector) };
        done += x86::VECTOR;
    }
    #[cfg(target_arch = "x86_64")]
    while !WATCHED && len - done >= size_of::<u64>() {
        // SAFETY: the caller's promise: the word lies inside.
        let word = unsafe { x86::load_word(source.wrapping_add(done)) };
        // SAFETY: I8: as above.
        unsafe { target.wrapping_add(done).cast::<u64>().write_unaligned(word) };
        done += size_of::<u64>();
    }
    while done < len {
        // SAFETY: the caller's promise: the byte lies inside.
        let byte = unsafe { load_byte(source.wrapping_add(done)) };
        // SAFETY: I8: as above.
        unsafe { target.wrapping_add(done).write(byte) };
        done += 1;
    }
    let _ = wide;
    values
}

/// Stores values where others may read meanwhile, likewise.
///
/// # Safety
/// As many bytes can be written. What others access meanwhile they access atomically, or it is code of another language.
#[inline(always)]
pub(crate) unsafe fn store<T: Pod, const N: usize>(values: &[T; N], target: *mut u8, wide: bool) {
    let source: *const u8 = values.as_ptr().cast();
    let (len, mut done) = (size_of::<[T; N]>(), 0);
    #[cfg(target_arch = "x86_64")]
    while wide && !WATCHED && len - done >= x86::VECTOR {
        // SAFETY: I8: the values are private, and have this number of bytes.
        let vector = unsafe { source.wrapping_add(done).cast::<x86::Vector>().read_unaligned() };
        // SAFETY: the caller's promise: the vector lies inside; I7: this is compiled for AVX2 where the processor has it.
        unsafe { x86::store(target.wrapping_add(done), vector) };
        done += x86::VECTOR;
    }
    #[cfg(target_arch = "x86_64")]
    while !WATCHED && len - done >= size_of::<u64>() {
        // SAFETY: I8: as above.
        let word = unsafe { source.wrapping_add(done).cast::<u64>().read_unaligned() };
        // SAFETY: the caller's promise: the word lies inside.
        unsafe { x86::store_word(target.wrapping_add(done), word) };
        done += size_of::<u64>();
    }
    while done < len {
        // SAFETY: I8: as above.
        let byte = unsafe { source.wrapping_add(done).read() };
        // SAFETY: I3: the caller's promise: the byte lies inside.
        let place = unsafe { AtomicU8::from_ptr(target.wrapping_add(done)) };
        place.store(byte, Relaxed);
        done += 1;
    }
    let _ = wide;
}

/// How many bytes of a copy to `target` come before its first whole line, if it is long enough for vectors.
#[inline]
pub(crate) fn head(target: *const u8, len: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if len >= PUT_VECTORS_FROM_BYTES && !WATCHED {
        return target.align_offset(LINE).min(len);
    }
    let _ = (target, len);
    0
}

#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

#[cfg(target_arch = "x86_64")]
mod x86 {
    use core::arch::asm;
    use core::arch::x86_64::__m256i;

    pub(super) type Vector = __m256i;

    /// The size of a vector, in bytes.
    pub(super) const VECTOR: usize = size_of::<Vector>();

    /// # Safety
    /// A vector can be read.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn load(source: *const u8) -> Vector {
        let vector;
        // SAFETY: the caller's promise; any alignment will do.
        unsafe {
            asm!(
                "vmovdqu {vector}, ymmword ptr [{source}]",
                source = in(reg) source,
                vector = lateout(ymm_reg) vector,
                options(nostack, preserves_flags, readonly),
            );
        }
        vector
    }

    /// # Safety
    /// A vector can be written.
    #[inline]
    #[target_feature(enable = "avx2")]
    pub(super) unsafe fn store(target: *mut u8, vector: Vector) {
        // SAFETY: the caller's promise; any alignment will do.
        unsafe {
            asm!(
                "vmovdqu ymmword ptr [{target}], {vector}",
                target = in(reg) target,
                vector = in(ymm_reg) vector,
                options(nostack, preserves_flags),
            );
        }
    }

    /// # Safety
    /// A word can be read.
    #[inline(always)]
    pub(super) unsafe fn load_word(source: *const u8) -> u64 {
        let word;
        // SAFETY: the caller's promise; any alignment will do.
        unsafe {
            asm!(
                "mov {word}, qword ptr [{source}]",
                source = in(reg) source,
                word = lateout(reg) word,
                options(nostack, preserves_flags, readonly),
            );
        }
        word
    }

    /// # Safety
    /// A word can be written.
    #[inline(always)]
    pub(super) unsafe fn store_word(target: *mut u8, word: u64) {
        // SAFETY: the caller's promise; any alignment will do.
        unsafe {
            asm!(
                "mov qword ptr [{target}], {word}",
                target = in(reg) target,
                word = in(reg) word,
                options(nostack, preserves_flags),
            );
        }
    }

    macro_rules! by_lines {
        ($name:ident, $fence:literal, $store:literal) => {
            /// # Safety
            /// As [`copy_lines`](super::copy_lines); `len` is a multiple of 64 and not 0; the processor has AVX2.
            pub(super) unsafe fn $name(source: *const u8, target: *mut u8, len: usize) {
                // SAFETY: the caller's promise: the loop reads and writes `len` bytes, a line each time.
                unsafe {
                    asm!(
                        $fence,
                        "2:",
                        "vmovdqu ymm0, ymmword ptr [{source} + {at}]",
                        "vmovdqu ymm1, ymmword ptr [{source} + {at} + 32]",
                        concat!($store, " ymmword ptr [{target} + {at}], ymm0"),
                        concat!($store, " ymmword ptr [{target} + {at} + 32], ymm1"),
                        "add {at}, 64",
                        "cmp {at}, {len}",
                        "jb 2b",
                        "vzeroupper",
                        $fence,
                        source = in(reg) source,
                        target = in(reg) target,
                        len = in(reg) len,
                        at = inout(reg) 0usize => _,
                        // `vzeroupper` changes the upper half of each.
                        out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
                        out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
                        out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
                        out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
                        options(nostack),
                    );
                }
            }
        };
    }

    by_lines!(cached, "", "vmovdqa");
    // Such a store may overtake stores before it too, across a release fence, which is no instruction here. The fences order the stores
    // between everything before and everything that follows, as other stores are.
    by_lines!(non_temporal, "sfence", "vmovntdq");
}
