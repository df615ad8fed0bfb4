//! Signal handlers that chain to those of the program.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// A handler with `SA_SIGINFO`.
pub(crate) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// The current action of a signal.
pub(crate) fn current(signal: c_int) -> io::Result<libc::sigaction> {
    let mut current = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: I7: it writes the current action, or fails.
    if unsafe { libc::sigaction(signal, ptr::null(), current.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: I7: the call has succeeded, so it has written all of it.
    Ok(unsafe { current.assume_init() })
}

/// Installs a handler of this library, which is async-signal-safe: I11.
pub(crate) fn set(signal: c_int, handler: Handler, flags: c_int) -> io::Result<()> {
    // SA_ONSTACK: a SIGSEGV may mean that the thread's stack has overflowed.
    set_action(signal, handler as libc::sighandler_t, flags | libc::SA_SIGINFO | libc::SA_ONSTACK)
}

/// Restores the default action.
pub(crate) fn set_default(signal: c_int) -> io::Result<()> {
    set_action(signal, libc::SIG_DFL, 0)
}

fn set_action(signal: c_int, handler: libc::sighandler_t, flags: c_int) -> io::Result<()> {
    // SAFETY: I7: a plain structure for which zeros are valid: no other signals are blocked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: I11: the handler is the default one, or async-signal-safe.
    match unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Runs `work` in a handler, and restores the `errno` of the interrupted code.
pub(crate) fn keep_errno<R>(work: impl FnOnce() -> R) -> R {
    let errno = errno();
    // SAFETY: I7: the calling thread's own, and live.
    let value = unsafe { errno.read() };
    let result = work();
    // SAFETY: I7: as above.
    unsafe { errno.write(value) };
    result
}

fn errno() -> *mut c_int {
    #[cfg(target_os = "linux")]
    // SAFETY: I7: always succeeds.
    let errno = unsafe { libc::__errno_location() };
    #[cfg(not(target_os = "linux"))]
    // SAFETY: I7: always succeeds.
    let errno = unsafe { libc::__error() };
    errno
}

/// Calls the handler that was installed before. Returns false if there was none.
pub(crate) fn call(
    previous: &libc::sigaction,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) -> bool {
    if matches!(previous.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        return false;
    }
    if previous.sa_flags & libc::SA_SIGINFO == 0 {
        // SAFETY: I11: the program has installed it as a handler of this type.
        let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(previous.sa_sigaction) };
        handler(signal);
    } else {
        // SAFETY: I11: the program has installed it as a handler of this type.
        let handler = unsafe { std::mem::transmute::<usize, Handler>(previous.sa_sigaction) };
        handler(signal, info, context);
    }
    true
}
