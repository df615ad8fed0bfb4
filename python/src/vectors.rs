//! Bytes whose lengths only their senders know: what objects are pickled to.

use intranode::{Communicator, Operation};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::buffer::View;
use crate::collectives;
use crate::errors;
use crate::scratch::zeros;

/// The bytes of a buffer, private.
pub(crate) fn bytes(
    py: Python<'_>,
    comm: &Communicator,
    operation: Operation,
    data: &Bound<'_, PyAny>,
) -> PyResult<Vec<u8>> {
    let copy = || {
        let view = View::source(data)?;
        let mut bytes = zeros(operation, view.bytes()).map_err(|error| errors::exception(py, &error))?;
        view.read(&mut bytes);
        Ok(bytes)
    };
    copy().map_err(|error| collectives::refuse(py, comm, operation, error))
}

/// The blocks of all ranks, by rank.
pub(crate) fn blocks<'py>(py: Python<'py>, all: &[u8], counts: &[usize]) -> PyResult<Bound<'py, PyList>> {
    let mut rest = all;
    PyList::new(
        py,
        counts
            .iter()
            .map(|count| {
                let (block, after) = rest.split_at(*count);
                rest = after;
                PyBytes::new(py, block)
            })
            .collect::<Vec<_>>(),
    )
}
