//! Copies to and from memory that other ranks may access meanwhile: in Rust's terms, a loop of Relaxed accesses of a unit.
//!
//! The compiler must not make anything else of it, so what is more than such a loop is written in assembly. That a vector is
//! stored, or loaded, in parts of at least 8 bytes that are each atomic where they are aligned to their size is an assumption
//! about the processor (SAFETY.md, I15). Under Miri and the thread sanitizer, and elsewhere than on x86-64, the caller's loop
//! does all of it.

#[cfg(target_arch = "x86_64")]
use super::cpu::WATCHED;
#[cfg(target_arch = "x86_64")]
use crate::tuning::{PUT_NON_TEMPORAL_FROM_BYTES, PUT_STRINGS_FROM_BYTES, PUT_VECTORS_FROM_BYTES};

/// Copies as many bytes from the front as vectors can: a multiple of 64. Returns their number; the caller's loop does the rest.
/// `target` is aligned to a line.
///
/// # Safety
/// `source` can be read and `target` written for `len` bytes. They do not overlap. What others access meanwhile they access
/// atomically, in units of at most 8 bytes that are aligned to their size, in both.
#[inline]
pub(crate) unsafe fn copy_lines(source: *const u8, target: *mut u8, len: usize) -> usize {
    #[cfg(target_arch = "x86_64")]
    if len >= PUT_VECTORS_FROM_BYTES && !WATCHED && std::arch::is_x86_feature_detected!("avx2") {
        let lines = len - len % LINE;
        let by_lines = match len {
            PUT_NON_TEMPORAL_FROM_BYTES.. => x86::non_temporal,
            PUT_STRINGS_FROM_BYTES.. if std::arch::is_x86_feature_detected!("ermsb") => x86::string,
            _ => x86::cached,
        };
        // SAFETY: the caller's promise; I7: the processor has just said that it has AVX2.
        unsafe { by_lines(source, target, lines) };
        return lines;
    }
    let _ = (source, target, len);
    0
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

    macro_rules! by_lines {
        ($name:ident, $store:literal, $end:literal) => {
            /// # Safety
            /// As [`copy_lines`](super::copy_lines); `len` is a multiple of 64 and not 0; the processor has AVX2.
            pub(super) unsafe fn $name(source: *const u8, target: *mut u8, len: usize) {
                // SAFETY: the caller's promise: the loop reads and writes `len` bytes, a line each time.
                unsafe {
                    asm!(
                        "2:",
                        "vmovdqu ymm0, ymmword ptr [{source} + {at}]",
                        "vmovdqu ymm1, ymmword ptr [{source} + {at} + 32]",
                        concat!($store, " ymmword ptr [{target} + {at}], ymm0"),
                        concat!($store, " ymmword ptr [{target} + {at} + 32], ymm1"),
                        "add {at}, 64",
                        "cmp {at}, {len}",
                        "jb 2b",
                        "vzeroupper",
                        $end,
                        source = in(reg) source,
                        target = in(reg) target,
                        len = in(reg) len,
                        at = inout(reg) 0usize => _,
                        out("xmm0") _,
                        out("xmm1") _,
                        options(nostack),
                    );
                }
            }
        };
    }

    by_lines!(cached, "vmovdqa", "");
    /// By the string instruction, which writes whole lines without having read them.
    ///
    /// # Safety
    /// As [`copy_lines`](super::copy_lines).
    pub(super) unsafe fn string(source: *const u8, target: *mut u8, len: usize) {
        // SAFETY: the caller's promise: it reads and writes `len` bytes, upwards, since the direction flag is clear.
        unsafe {
            asm!(
                "rep movsb",
                inout("rsi") source => _,
                inout("rdi") target => _,
                inout("rcx") len => _,
                options(nostack, preserves_flags),
            );
        }
    }

    // The fence orders the stores before everything that follows, as other stores are.
    by_lines!(non_temporal, "vmovntdq", "sfence");
}
