//! SIGUSR2 requests a report on the state of this process's jobs.
//!
//! A handler may call async-signal-safe functions only. This one increments a futex word, on which the watchers sleep among
//! others, and wakes them. They write the report.

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::handler;
use super::wait::futex;

/// The number of requests.
static REQUESTS: AtomicU32 = AtomicU32::new(0);

/// The program's own action, to which the handler chains.
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler once and for good: a handler that was installed later may chain to it.
pub(crate) fn install() -> io::Result<()> {
    static RESULT: OnceLock<Result<(), i32>> = OnceLock::new();
    let install = || {
        // Set before the handler can run.
        let _ = PREVIOUS.set(handler::current(libc::SIGUSR2)?);
        // SA_RESTART: system calls of the program that the signal interrupts are restarted.
        handler::set(libc::SIGUSR2, handle, libc::SA_RESTART)
    };
    let result =
        RESULT.get_or_init(|| install().map_err(|error: io::Error| error.raw_os_error().unwrap_or_default()));
    result.map_err(io::Error::from_raw_os_error)
}

/// The number of requests, as a futex word for the watchers. None without the handler.
pub(crate) fn count() -> Option<&'static AtomicU32> {
    PREVIOUS.get().map(|_| &REQUESTS)
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    handler::keep_errno(|| {
        REQUESTS.fetch_add(1, Ordering::Relaxed);
        futex::wake_all(&REQUESTS);
        if let Some(previous) = PREVIOUS.get() {
            handler::call(previous, signal, info, context);
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
        let before = REQUESTS.load(Ordering::Relaxed);
        set_errno(libc::ENOTTY);
        // SAFETY: the signal is handled before the call returns.
        unsafe { libc::raise(libc::SIGUSR2) };
        assert_eq!(io::Error::last_os_error().raw_os_error(), Some(libc::ENOTTY));
        assert_eq!(REQUESTS.load(Ordering::Relaxed), before + 1);
    }
}
