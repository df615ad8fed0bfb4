//! Ranks and tags that Python gives: one that is negative, or too large, is a `ValueError` that says so.

use pyo3::exceptions::{PyOverflowError, PyValueError};
use pyo3::prelude::*;

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

fn unfit(object: Borrowed<'_, '_, PyAny>, error: PyErr, text: &str) -> PyErr {
    match error.is_instance_of::<PyOverflowError>(object.py()) {
        true => PyValueError::new_err(format!("{} {text}", &*object)),
        false => error,
    }
}
