//! Ctrl-C inside a call: the interpreter's handlers of signals run while the call waits.

use std::cell::RefCell;

use pyo3::prelude::*;

use crate::detach;

thread_local! {
    /// What a handler has raised, until the call returns.
    static RAISED: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Whether a handler of a signal has raised an exception: [`intranode::Config::interrupt`].
pub(crate) fn is_interrupted() -> bool {
    let raised = detach::attached(|py| py.check_signals().err()).flatten();
    match raised {
        Some(error) => {
            RAISED.set(Some(error));
            true
        }
        None => RAISED.with_borrow(Option::is_some),
    }
}

/// What a handler has raised in the call that has returned.
pub(crate) fn raised() -> Option<PyErr> {
    RAISED.take()
}
