//! Copies by the string instruction, which writes whole lines without having read them on [some](super::cpu::has_strings) processors.

/// Copies `len` bytes. To the compiler it is a loop of Relaxed accesses.
///
/// # Safety
/// `source` can be read and `target` written for `len` bytes. They do not overlap. What others access meanwhile they access
/// atomically, or it is code of another language.
#[inline]
pub(super) unsafe fn copy(source: *const u8, target: *mut u8, len: usize) {
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
