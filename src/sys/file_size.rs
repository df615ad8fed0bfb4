//! Growing files under RLIMIT_FSIZE.
//!
//! A call that would exceed the limit fails with EFBIG, and the kernel sends SIGXFSZ, whose default action ends the process.
//! Shared memory is made of files, and standard error may be one, so the limit would kill ranks that never write a file of
//! their own. Here the signal is withheld and only the error remains.

use core::mem::MaybeUninit;
use core::ptr;
use std::io::{self, Write};

/// Runs `calls`, which may make files longer, with SIGXFSZ blocked. Discards the signal that they raise.
pub(crate) fn without_sigxfsz<R>(calls: impl FnOnce() -> R) -> R {
    let sigxfsz = set_of(libc::SIGXFSZ);
    // A signal that was pending before belongs to the program.
    let was_pending = is_pending();
    let previous = change_mask(libc::SIG_BLOCK, &sigxfsz);
    let result = calls();
    if is_pending() && !was_pending {
        let mut signal = 0;
        // SAFETY: I7: it reads a live set, and writes one number. The signal is pending, so the call does not block.
        unsafe { libc::sigwait(&raw const sigxfsz, &raw mut signal) };
    }
    change_mask(libc::SIG_SETMASK, &previous);
    result
}

/// Writes to standard error, and ignores errors.
pub(crate) fn write_stderr(text: &str) {
    without_sigxfsz(|| drop(io::stderr().write_all(text.as_bytes())));
}

fn set_of(signal: libc::c_int) -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: I7: it writes the whole set.
    unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    // SAFETY: I7: it changes a set that was just written.
    unsafe { libc::sigaddset(set.as_mut_ptr(), signal) };
    // SAFETY: I7: written above.
    unsafe { set.assume_init() }
}

/// Changes the calling thread's signal mask, and returns the previous one.
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut previous = MaybeUninit::uninit();
    // SAFETY: I7: it reads one live set, and writes all of the other.
    let status = unsafe { libc::pthread_sigmask(how, ptr::from_ref(set), previous.as_mut_ptr()) };
    debug_assert_eq!(status, 0, "the arguments are valid");
    // SAFETY: I7: with valid arguments it has succeeded.
    unsafe { previous.assume_init() }
}

/// Whether a SIGXFSZ is pending for the calling thread.
fn is_pending() -> bool {
    let mut pending = MaybeUninit::uninit();
    // SAFETY: I7: it writes the whole set, and cannot fail.
    unsafe { libc::sigpending(pending.as_mut_ptr()) };
    // SAFETY: I7: it reads the set that the call has written.
    unsafe { libc::sigismember(pending.as_ptr(), libc::SIGXFSZ) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::in_forked_child;

    /// The limit holds for the whole process, so each test sets it in a forked child.
    fn limit(bytes: libc::rlim_t) {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: I7: it reads a live limit.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    }

    #[test]
    fn a_file_beyond_the_limit_is_an_error_and_no_signal() {
        let file = tempfile::tempfile().unwrap();
        assert!(in_forked_child(|| {
            limit(4096);
            let grow = |len| without_sigxfsz(|| file.set_len(len));
            let too_long = grow(4097).err().and_then(|error| error.raw_os_error());
            too_long == Some(libc::EFBIG) && !is_pending() && grow(4096).is_ok()
        }));
    }

    #[test]
    fn a_signal_that_was_pending_before_stays() {
        let file = tempfile::tempfile().unwrap();
        assert!(in_forked_child(|| {
            limit(0);
            change_mask(libc::SIG_BLOCK, &set_of(libc::SIGXFSZ));
            // SAFETY: I7: the signal is blocked.
            unsafe { libc::raise(libc::SIGXFSZ) };
            without_sigxfsz(|| file.set_len(1)).is_err() && is_pending()
        }));
    }

    #[test]
    fn the_mask_is_restored() {
        without_sigxfsz(|| ());
        let previous = change_mask(libc::SIG_BLOCK, &set_of(libc::SIGXFSZ));
        // SAFETY: I7: it reads a live set.
        assert_eq!(unsafe { libc::sigismember(&raw const previous, libc::SIGXFSZ) }, 0);
        change_mask(libc::SIG_SETMASK, &previous);
    }
}
