//! A buffer seen as bytes, whatever its format.

use std::ffi::c_int;

use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;

use crate::buffer::View;

/// A contiguous buffer as bytes, in the order in which they lie: `memoryview.cast` refuses formats such as that of complex
/// numbers. It is as read-only as the buffer.
#[pyclass(frozen, module = "intranode._core")]
pub(crate) struct Flat(View);

#[pymethods]
impl Flat {
    #[new]
    fn new(buffer: &Bound<'_, PyAny>) -> PyResult<Self> {
        View::source(buffer).map(Flat)
    }

    /// # Safety
    /// As the interpreter calls it: `view` is to be filled.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (start, len, readonly) = slf.get().0.memory();
        // SAFETY: the memory is kept by the buffer that the object holds, and the view holds the object.
        let filled =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, c_int::from(readonly), flags) };
        if filled == 0 {
            Ok(())
        } else {
            Err(PyErr::take(slf.py()).unwrap_or_else(|| PyBufferError::new_err("no buffer")))
        }
    }
}
