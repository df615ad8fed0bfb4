//! Writing where the size of files is limited.
//!
//! A call that would make a file longer than RLIMIT_FSIZE allows fails, and the system sends the calling thread SIGXFSZ,
//! which ends the process unless the program has other plans. Memory that ranks share is made of files, and a message may
//! go to one, so the limit would kill ranks that never wrote a file of their own. Here it is an error like any other.

use core::mem::MaybeUninit;
use core::ptr;
use std::io::{self, Write};

/// Makes calls that may make a file longer. They fail with EFBIG at the limit, and nothing else happens.
pub(crate) fn without_signal<R>(calls: impl FnOnce() -> R) -> R {
    let own = set_of(libc::SIGXFSZ);
    // One that the program has blocked, and that waits already, is the program's.
    let waits_already = is_pending();
    let before = change_mask(libc::SIG_BLOCK, &own);
    let result = calls();
    if is_pending() && !waits_already {
        let mut signal = 0;
        // SAFETY: I7: it reads a live set, and writes one number. The signal is there, so it takes it at once.
        unsafe { libc::sigwait(&raw const own, &raw mut signal) };
    }
    change_mask(libc::SIG_SETMASK, &before);
    result
}

/// Says something on standard error, if it can be said. Nothing depends on whether anybody reads it.
pub(crate) fn complain(text: &str) {
    without_signal(|| drop(io::stderr().write_all(text.as_bytes())));
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

/// Changes what the calling thread blocks; what it blocked before.
fn change_mask(how: libc::c_int, set: &libc::sigset_t) -> libc::sigset_t {
    let mut before = MaybeUninit::uninit();
    // SAFETY: I7: it reads one live set, and writes all of the other.
    let status = unsafe { libc::pthread_sigmask(how, ptr::from_ref(set), before.as_mut_ptr()) };
    debug_assert_eq!(status, 0, "the arguments are valid");
    // SAFETY: I7: with valid arguments it has succeeded.
    unsafe { before.assume_init() }
}

/// Whether a SIGXFSZ waits for the calling thread to let it through.
fn is_pending() -> bool {
    let mut pending = MaybeUninit::uninit();
    // SAFETY: I7: it writes the whole set, and can not fail.
    unsafe { libc::sigpending(pending.as_mut_ptr()) };
    // SAFETY: I7: it reads the set that the call has written.
    unsafe { libc::sigismember(pending.as_ptr(), libc::SIGXFSZ) == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::in_forked_child;

    /// A limit is for a process: the checks are in a child of their own.
    fn limit(bytes: libc::rlim_t) {
        let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
        // SAFETY: I7: it reads a live limit.
        unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
    }

    #[test]
    fn a_file_that_grows_too_long_is_an_error_and_no_signal() {
        let file = tempfile::tempfile().unwrap();
        assert!(in_forked_child(|| {
            limit(4096);
            let grow = |len| without_signal(|| file.set_len(len));
            let too_long = grow(4097).err().and_then(|error| error.raw_os_error());
            too_long == Some(libc::EFBIG) && !is_pending() && grow(4096).is_ok()
        }));
    }

    #[test]
    fn a_signal_that_was_there_before_stays() {
        let file = tempfile::tempfile().unwrap();
        assert!(in_forked_child(|| {
            limit(0);
            change_mask(libc::SIG_BLOCK, &set_of(libc::SIGXFSZ));
            // SAFETY: I7: the signal is blocked.
            unsafe { libc::raise(libc::SIGXFSZ) };
            without_signal(|| file.set_len(1)).is_err() && is_pending()
        }));
    }

    #[test]
    fn the_mask_is_what_it_was() {
        without_signal(|| ());
        let before = change_mask(libc::SIG_BLOCK, &set_of(libc::SIGXFSZ));
        // SAFETY: I7: it reads a live set.
        assert_eq!(unsafe { libc::sigismember(&raw const before, libc::SIGXFSZ) }, 0);
        change_mask(libc::SIG_SETMASK, &before);
    }
}
