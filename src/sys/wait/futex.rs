//! The Linux futex, on a word that several processes map.

use core::sync::atomic::AtomicU32;

use super::TimedOut;
use super::clock::Moment;

/// Sleeps while the word holds `expected`, at most until the deadline. May return at any time.
///
/// Without `FUTEX_PRIVATE_FLAG`: the word is shared between processes. The deadline is absolute, so signals, which
/// interrupt the sleep, do not extend it.
pub(crate) fn wait(word: &AtomicU32, expected: u32, deadline: Option<Moment>) -> Result<(), TimedOut> {
    let timeout = deadline.map(Moment::timespec);
    let timeout_ptr = timeout.as_ref().map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: I3 and I7: the word is a live atomic; the time-out is null or a live timespec; nothing else is accessed.
    let status = unsafe {
        libc::syscall(
            libc::SYS_futex,
            word.as_ptr(),
            libc::FUTEX_WAIT_BITSET,
            expected,
            timeout_ptr,
            core::ptr::null::<u32>(),
            libc::FUTEX_BITSET_MATCH_ANY,
        )
    };
    // Woken, interrupted, or the word had changed: the caller loads it again.
    if status == 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ETIMEDOUT) {
        return Ok(());
    }
    Err(TimedOut)
}

/// Wakes all sleepers on the word.
pub(crate) fn wake_all(word: &AtomicU32) {
    // SAFETY: I3 and I7: the word is a live atomic; nothing else is accessed.
    let status = unsafe { libc::syscall(libc::SYS_futex, word.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    debug_assert!(status >= 0, "waking needs only a mapped, aligned word");
}
