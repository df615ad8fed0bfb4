//! Which interpreter of the process this is.

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;

/// Refuses a sub-interpreter: what is found once here, such as the classes of exceptions, is of one interpreter, and attaching in the
/// middle of a call, as for a handler of a signal, finds the first one's state.
pub(crate) fn is_first(py: Python<'_>) -> PyResult<()> {
    // SAFETY: this thread is attached, so it has an interpreter.
    let interpreter = unsafe { ffi::PyInterpreterState_Get() };
    // SAFETY: the interpreter of this thread, which runs.
    match unsafe { ffi::PyInterpreterState_GetID(interpreter) } {
        0 => Ok(()),
        -1 => Err(PyErr::fetch(py)),
        _ => Err(PyImportError::new_err(
            "intranode cannot be used in a sub-interpreter: import it in the first interpreter of a process",
        )),
    }
}
