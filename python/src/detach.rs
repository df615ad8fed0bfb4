//! When a call gives away the interpreter's lock.
//!
//! Detaching and attaching take the lock's own mutex and its condition variables, which a barrier of ranks that have all arrived would
//! notice. So a short call begins attached, and detaches when the library says that it has to wait for longer than a moment
//! ([`intranode::Config::long_wait`]), for the rest of the call.

use std::cell::Cell;

use pyo3::ffi;
use pyo3::prelude::*;

/// The most bytes that a call moves while it is attached: some microseconds.
const SHORT_BYTES: usize = 32 << 10;

#[derive(Clone, Copy)]
enum Lock {
    /// No short call runs on this thread, or what runs has suspended it.
    Unused,
    /// The call has not had to wait.
    Held,
    /// The call has detached, and attaches at its end with this state.
    Given(*mut ffi::PyThreadState),
}

thread_local! {
    static LOCK: Cell<Lock> = const { Cell::new(Lock::Unused) };
}

/// Runs a call of the library, which moves this number of bytes. It must not use the interpreter.
#[inline]
pub(crate) fn during<T: Send>(py: Python<'_>, bytes: usize, call: impl FnOnce() -> T + Send) -> T {
    if bytes > SHORT_BYTES {
        return py.detach(call);
    }
    let _end = End(LOCK.replace(Lock::Held));
    call()
}

/// Ends a short call, also by a panic.
struct End(Lock);

impl Drop for End {
    #[inline]
    fn drop(&mut self) {
        if let Lock::Given(state) = LOCK.replace(self.0) {
            // SAFETY: the state of this thread, from the call in `give`; only here, or in `attached`, is it given back, once.
            unsafe { ffi::PyEval_RestoreThread(state) };
        }
    }
}

/// A call is about to wait: [`intranode::Config::long_wait`].
pub(crate) fn give() {
    if let Lock::Held = LOCK.get() {
        // SAFETY: a short call began attached, by its `Python`, and nothing has detached since.
        LOCK.set(Lock::Given(unsafe { ffi::PyEval_SaveThread() }));
    }
}

/// Runs something attached in the middle of a call. `None`: the interpreter is ending.
pub(crate) fn attached<T>(run: impl FnOnce(Python<'_>) -> T) -> Option<T> {
    let before = LOCK.replace(Lock::Unused);
    let Lock::Given(state) = before else {
        let result = Python::try_attach(run);
        LOCK.set(before);
        return result;
    };
    // SAFETY: the state of this thread, from the call in `give`, which is given back here, once.
    unsafe { ffi::PyEval_RestoreThread(state) };
    // For PyO3 this thread was attached all the time.
    let result = Python::try_attach(run);
    // SAFETY: attached two lines above. A panic in between leaves the thread attached, and `Unused`.
    LOCK.set(Lock::Given(unsafe { ffi::PyEval_SaveThread() }));
    result
}
