//! Calls on plain buffers: they need nothing of the package's Python, and small ones have no time for it.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyList, PyTuple};
use pyo3::{PyTypeCheck, intern};

static IN_PLACE: PyOnceLock<Py<PyAny>> = PyOnceLock::new();

/// `intranode.IN_PLACE`.
fn in_place(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    let found = IN_PLACE.get_or_try_init(py, || {
        Ok::<_, PyErr>(py.import("intranode._message")?.getattr("IN_PLACE")?.unbind())
    })?;
    Ok(found.bind(py))
}

/// Whether it is one of mpi4py's descriptions of a buffer, such as `[data, count, datatype]`.
fn is_description(object: &Bound<'_, PyAny>) -> bool {
    PyTuple::type_check(object) || PyList::type_check(object)
}

/// What is sent, `None` for in place, and the number of the operation, without one that of the sum. `None`: a buffer is described, or
/// the operation is not one of the library's, so the call is for the Python part.
#[expect(clippy::type_complexity, reason = "two optional things")]
pub(crate) fn reduction<'a, 'py>(
    send: &'a Bound<'py, PyAny>,
    recv: &Bound<'py, PyAny>,
    op: Option<&Bound<'py, PyAny>>,
) -> PyResult<Option<(Option<&'a Bound<'py, PyAny>>, u8)>> {
    let py = send.py();
    let in_place = in_place(py)?;
    if is_description(send) || is_description(recv) || recv.is(in_place) {
        return Ok(None);
    }
    let code = match op {
        None => Some(intranode::ReduceOp::Sum as u8),
        // What is no operation at all the Python part refuses.
        Some(op) => op.getattr_opt(intern!(py, "code"))?.and_then(|code| code.extract().ok()),
    };
    Ok(code.map(|code| ((!send.is(in_place) && !send.is_none()).then_some(send), code)))
}
