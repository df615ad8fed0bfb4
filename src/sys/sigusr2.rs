//! Being asked, by SIGUSR2, what the state of this process's jobs is.
//!
//! A handler may hardly do anything. This one counts, and wakes the watchers, which sleep on the count among other things.
//! They look, and have the answer written.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::handler;
use super::wait::futex;

/// How often.
static ASKED: AtomicU32 = AtomicU32::new(0);

/// What was there before the handler.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Puts the handler in place, once and for good: taking it out could break a chain.
pub(crate) fn install() -> io::Result<()> {
    static RESULT: OnceLock<Result<(), i32>> = OnceLock::new();
    let install = || {
        // Before the handler can run.
        let _ = BEFORE.set(handler::current(libc::SIGUSR2)?);
        // Calls of the program that the signal interrupts are taken up again.
        handler::set(libc::SIGUSR2, handle, libc::SA_RESTART)
    };
    let result =
        RESULT.get_or_init(|| install().map_err(|error: io::Error| error.raw_os_error().unwrap_or_default()));
    result.map_err(io::Error::from_raw_os_error)
}

/// How often this process was asked: a word that a watcher can sleep on. None: nobody wants to know.
pub(crate) fn count() -> Option<&'static AtomicU32> {
    BEFORE.get().map(|_| &ASKED)
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    handler::keep_errno(|| {
        ASKED.fetch_add(1, Ordering::Relaxed);
        futex::wake_all(&ASKED);
        if let Some(before) = BEFORE.get() {
            handler::call(before, signal, info, context);
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set_errno(value: c_int) {
        // SAFETY: always succeeds.
        let errno = unsafe { libc::__errno_location() };
        // SAFETY: the thread's own.
        unsafe { errno.write(value) };
    }

    #[test]
    fn the_interrupted_code_keeps_its_errno() {
        extern "C" fn spoils(_: c_int, _: *mut libc::siginfo_t, _: *mut c_void) {
            set_errno(libc::EBADMSG);
        }
        handler::set(libc::SIGUSR2, spoils, 0).unwrap();
        install().unwrap();
        let before = ASKED.load(Ordering::Relaxed);
        set_errno(libc::ENOTTY);
        // SAFETY: it is handled before the call returns.
        unsafe { libc::raise(libc::SIGUSR2) };
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(ASKED.load(Ordering::Relaxed), before + 1);
    }
}
