//! Handlers of signals that leave room for those of the program.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

/// A handler that is told all that the system knows.
pub(crate) type Handler = extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void);

/// What happens at a signal now.
pub(crate) fn current(signal: c_int) -> io::Result<libc::sigaction> {
    let mut current = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: I7: it only writes what is there.
    if unsafe { libc::sigaction(signal, ptr::null(), current.as_mut_ptr()) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: I7: the call has succeeded, so it has written all of it.
    Ok(unsafe { current.assume_init() })
}

/// Puts a handler of this library in place. It does only what a handler may do: I11.
pub(crate) fn set(signal: c_int, handler: Handler, flags: c_int) -> io::Result<()> {
    // On the stack for signals: the signal may be about the other one being full.
    put(signal, handler as libc::sighandler_t, flags | libc::SA_SIGINFO | libc::SA_ONSTACK)
}

/// Puts the system's own action in place.
pub(crate) fn set_default(signal: c_int) -> io::Result<()> {
    put(signal, libc::SIG_DFL, 0)
}

fn put(signal: c_int, handler: libc::sighandler_t, flags: c_int) -> io::Result<()> {
    // SAFETY: I7: a plain structure for which zeros are valid: no other signals are blocked.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    // SAFETY: I11: the handler is the default, or does only what a handler may do.
    match unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Does what a handler does, and leaves `errno` as the code has it that the signal has interrupted.
pub(crate) fn keep_errno<R>(work: impl FnOnce() -> R) -> R {
    let errno = errno();
    // SAFETY: I7: the calling thread's own, and live.
    let before = unsafe { errno.read() };
    let result = work();
    // SAFETY: I7: as above.
    unsafe { errno.write(before) };
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

/// Calls the handler that was there before. False: there was none.
pub(crate) fn call(
    before: &libc::sigaction,
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut c_void,
) -> bool {
    if matches!(before.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
        return false;
    }
    if before.sa_flags & libc::SA_SIGINFO == 0 {
        // SAFETY: I11: the program has installed it as such a handler.
        let handler = unsafe { std::mem::transmute::<usize, extern "C" fn(c_int)>(before.sa_sigaction) };
        handler(signal);
    } else {
        // SAFETY: I11: the program has installed it as such a handler.
        let handler = unsafe { std::mem::transmute::<usize, Handler>(before.sa_sigaction) };
        handler(signal, info, context);
    }
    true
}
