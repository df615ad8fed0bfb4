//! Numbers that Python gives: one that is negative, or too large, is a `ValueError` that says so.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

use crate::errors;

pub(crate) struct Rank(pub(crate) usize);

pub(crate) struct TagNumber(pub(crate) u64);

impl<'py> FromPyObject<'_, 'py> for Rank {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        object.extract().map(Rank).map_err(|error| {
            unfit(
                object,
                error,
                "is no rank: ranks count from 0, and ANY_SOURCE and PROC_NULL stand for others",
            )
        })
    }
}

impl<'py> FromPyObject<'_, 'py> for TagNumber {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        object.extract().map(TagNumber).map_err(|error| {
            unfit(object, error, "is no tag: tags are at least 0 and less than 2^64; a receive takes ANY_TAG")
        })
    }
}

/// The rank, or the number of ranks, with which a rank joins. `allowed` is for the message.
pub(crate) fn setting(value: &Bound<'_, PyAny>, name: &str, allowed: impl Fn() -> String) -> PyResult<usize> {
    value.extract().map_err(|error: PyErr| {
        let py = value.py();
        match error.is_instance_of::<PyOverflowError>(py) {
            true => errors::invalid(py, name, value, &allowed()).unwrap_or_else(|failed| failed),
            false => error,
        }
    })
}

/// The exit code of an abort.
pub(crate) struct Code(pub(crate) i32);

impl<'py> FromPyObject<'_, 'py> for Code {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        object.extract().map(Code).map_err(|error| {
            unfit(object, error, "is no exit code: it has 32 bits, of which the system keeps the last 8")
        })
    }
}

fn unfit(object: Borrowed<'_, '_, PyAny>, error: PyErr, text: &str) -> PyErr {
    match error.is_instance_of::<PyOverflowError>(object.py()) {
        true => PyValueError::new_err(format!("{} {text}", &*object)),
        false => error,
    }
}
