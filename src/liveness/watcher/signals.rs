//! Starting a thread that no signal interrupts.

use core::mem::MaybeUninit;
use core::ptr;

/// What a thread does to itself: blocked, it would end the process without a handler's having been asked.
const OWN: [libc::c_int; 4] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE];

/// Calls `spawn` with all signals blocked that come from elsewhere: a thread that it starts inherits that, so that there
/// is no moment in which the thread could run a signal's handler.
pub(super) fn blocked<R>(spawn: impl FnOnce() -> R) -> R {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: I7: it writes the whole set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    for signal in OWN {
        // SAFETY: I7: it changes a set that was just filled.
        unsafe { libc::sigdelset(all.as_mut_ptr(), signal) };
    }
    // SAFETY: I7: it reads one set, which was just filled, and writes the other.
    let status = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr()) };
    debug_assert_eq!(status, 0, "the arguments are valid");
    let result = spawn();
    // SAFETY: I7: it reads the set that the first call has written.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut()) };
    result
}
