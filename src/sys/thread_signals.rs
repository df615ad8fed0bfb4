//! Starting a thread with signals blocked.

use core::mem::MaybeUninit;
use core::ptr;

/// The synchronous signals: if they are blocked, a fault ends the process without calling its handler.
const SYNCHRONOUS: [libc::c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// Calls `spawn` with all asynchronous signals blocked. The new thread inherits the mask, so it never runs their handlers.
pub(crate) fn blocked<R>(spawn: impl FnOnce() -> R) -> R {
    let (mut all, mut previous) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: I7: it writes the whole set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    for signal in SYNCHRONOUS {
        // SAFETY: I7: it changes a set that was just filled.
        unsafe { libc::sigdelset(all.as_mut_ptr(), signal) };
    }
    // SAFETY: I7: it reads one set, which was just filled, and writes the other.
    let status = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), previous.as_mut_ptr()) };
    debug_assert_eq!(status, 0, "the arguments are valid");
    let result = spawn();
    // SAFETY: I7: it reads the set that the first call has written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, previous.as_ptr(), ptr::null_mut()) };
    result
}
