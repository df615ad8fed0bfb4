//! Pickles of objects, by the interpreter's module.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;

/// `pickle.dumps`, its protocol, and `pickle.loads`.
static PICKLE: PyOnceLock<(Py<PyAny>, Py<PyAny>, Py<PyAny>)> = PyOnceLock::new();

fn pickle(py: Python<'_>) -> PyResult<&(Py<PyAny>, Py<PyAny>, Py<PyAny>)> {
    PICKLE.get_or_try_init(py, || {
        let module = py.import("pickle")?;
        let find = |name: &str| module.getattr(name).map(Bound::unbind);
        Ok((find("dumps")?, find("HIGHEST_PROTOCOL")?, find("loads")?))
    })
}

/// The pickle of an object.
pub(crate) fn dumps<'py>(py: Python<'py>, obj: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyBytes>> {
    let (dumps, protocol, _) = pickle(py)?;
    Ok(dumps.bind(py).call1((obj, protocol.bind(py)))?.cast_into::<PyBytes>()?)
}

/// The object of a pickle.
pub(crate) fn loads<'py>(data: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyAny>> {
    let py = data.py();
    let (_, _, loads) = pickle(py)?;
    loads.bind(py).call1((data,))
}
