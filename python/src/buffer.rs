//! Python's buffers: what a call sends, and where it receives.

use std::borrow::Cow;
use std::ffi::{CStr, c_void};

use bytemuck::Pod;
use intranode::{RawSource, RawTarget};
use pyo3::exceptions::{PyBufferError, PyTypeError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::foreign;

/// The type of an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    I1,
    I2,
    I4,
    I8,
    U1,
    U2,
    U4,
    U8,
    F4,
    F8,
    C8,
    C16,
    Bool,
    /// Moved as bytes, and never combined.
    Opaque,
}

impl Kind {
    /// Of a format of the module `struct`, and as NumPy extends it.
    fn of(format: &str, width: usize) -> Kind {
        let foreign_order = if cfg!(target_endian = "little") { ['>', '!'] } else { ['<', '<'] };
        if width > 1 && format.starts_with(foreign_order) {
            return Kind::Opaque;
        }
        match (format.trim_start_matches(['@', '=', '<', '>', '!']), width) {
            ("b" | "h" | "i" | "l" | "q" | "n", 1) => Kind::I1,
            ("b" | "h" | "i" | "l" | "q" | "n", 2) => Kind::I2,
            ("b" | "h" | "i" | "l" | "q" | "n", 4) => Kind::I4,
            ("b" | "h" | "i" | "l" | "q" | "n", 8) => Kind::I8,
            ("B" | "c" | "H" | "I" | "L" | "Q" | "N", 1) => Kind::U1,
            ("B" | "H" | "I" | "L" | "Q" | "N", 2) => Kind::U2,
            ("B" | "H" | "I" | "L" | "Q" | "N", 4) => Kind::U4,
            ("B" | "H" | "I" | "L" | "Q" | "N", 8) => Kind::U8,
            ("f" | "d", 4) => Kind::F4,
            ("f" | "d", 8) => Kind::F8,
            ("Zf" | "F" | "Zd" | "D", 8) => Kind::C8,
            ("Zf" | "F" | "Zd" | "D", 16) => Kind::C16,
            ("?", 1) => Kind::Bool,
            _ => Kind::Opaque,
        }
    }
}

/// Whether elements of this format are, or have in them, addresses of objects. The names of fields stand between colons.
fn has_objects(format: &str) -> bool {
    format.split(':').step_by(2).any(|codes| codes.contains('O'))
}

/// A contiguous buffer of Python. It is given back when this is dropped.
pub(crate) struct View {
    /// It may refer to itself.
    raw: Box<ffi::Py_buffer>,
    pub(crate) kind: Kind,
    /// The length of an element, in bytes.
    pub(crate) width: usize,
    /// The format that the caller has given instead of the exporter's.
    given: Option<String>,
}

// SAFETY: while a call runs on a thread that is detached only the pointer and the length are used, by the copies of `foreign`;
// the exporter keeps both valid until the buffer is given back, which is done attached.
unsafe impl Send for View {}
// SAFETY: the same; nothing in it changes.
unsafe impl Sync for View {}

impl View {
    /// What is sent. A pair of a buffer, a format, and the length of an element in bytes replaces the buffer's own format.
    pub(crate) fn source(object: &Bound<'_, PyAny>) -> PyResult<View> {
        let Ok(given) = object.cast::<PyTuple>() else { return View::new(object, None) };
        let (buffer, format, width): (Bound<'_, PyAny>, String, usize) = given.extract()?;
        View::new(&buffer, Some((format, width)))
    }

    /// Where is received.
    pub(crate) fn target(object: &Bound<'_, PyAny>) -> PyResult<View> {
        let view = View::source(object)?;
        if view.raw.readonly != 0 {
            let text = "the receive buffer is read-only: pass a writable one, such as a bytearray or an array that owns its data";
            return Err(PyBufferError::new_err(text));
        }
        Ok(view)
    }

    fn new(object: &Bound<'_, PyAny>, given: Option<(String, usize)>) -> PyResult<View> {
        let py = object.py();
        // SAFETY: the interpreter's structure in C, of pointers and numbers: zeros are what it says is empty.
        let mut raw: Box<ffi::Py_buffer> = Box::new(unsafe { std::mem::zeroed() });
        // SAFETY: the structure is ours, stays where it is, and is given back by `Drop` below if this succeeds.
        let found = unsafe { ffi::PyObject_GetBuffer(object.as_ptr(), &mut *raw, ffi::PyBUF_FULL_RO) };
        if found != 0 {
            let error = PyErr::fetch(py);
            if error.is_instance_of::<PyValueError>(py) {
                // Of NumPy: the array has a type that formats of buffers do not know, such as a date.
                let text = format!(
                    "{}: pass its numbers, as x.view(\"i8\") of dates and times, or use the methods in small letters, which \
                     pickle",
                    error.value(py)
                );
                return Err(PyValueError::new_err(text));
            }
            if !error.is_instance_of::<PyTypeError>(py) {
                return Err(error);
            }
            let text = format!(
                "a buffer is needed (bytes, bytearray, array.array, memoryview, numpy.ndarray), not {}; for other objects there \
                 are the methods in small letters",
                object.get_type().name()?
            );
            return Err(PyTypeError::new_err(text));
        }
        let mut view = View { raw, kind: Kind::U1, width: 1, given: None };
        // SAFETY: the structure was filled by the call above.
        if unsafe { ffi::PyBuffer_IsContiguous(&*view.raw, b'A' as _) } == 0 {
            let text = "the array is not contiguous in memory: pass numpy.ascontiguousarray(x) to send, and receive into a new \
                        array that is then assigned";
            return Err(PyBufferError::new_err(text));
        }
        match given {
            Some((format, width)) if width > 0 => (view.given, view.width) = (Some(format), width),
            Some(_) => return Err(PyTypeError::new_err("an element has at least one byte")),
            None => view.width = usize::try_from(view.raw.itemsize).unwrap_or(1).max(1),
        }
        let format = view.format();
        if has_objects(&format) {
            let text = "an array of Python objects cannot be sent as a buffer: its elements are addresses; use the methods in \
                        small letters, which pickle";
            return Err(PyTypeError::new_err(text));
        }
        view.kind = Kind::of(&format, view.width);
        Ok(view)
    }

    /// The format of its elements: as the caller, or else the exporter, has written it.
    pub(crate) fn format(&self) -> Cow<'_, str> {
        match &self.given {
            Some(given) => Cow::Borrowed(given),
            None if self.raw.format.is_null() => Cow::Borrowed("B"),
            // SAFETY: a string of the exporter, which it keeps until the buffer is given back.
            None => unsafe { CStr::from_ptr(self.raw.format) }.to_string_lossy(),
        }
    }

    /// It as elements of `T`, to be sent.
    pub(crate) fn raw_source<T: Pod>(&self) -> RawSource<'_, T> {
        // SAFETY: the exporter keeps the memory readable until the buffer is given back; nothing in Rust refers to it, and whatever
        // writes it is code of Python.
        unsafe { RawSource::new(self.raw.buf.cast(), self.bytes() / size_of::<T>()) }
    }

    /// It as elements of `T`, to be received into.
    ///
    /// # Panics
    /// When the buffer is read-only.
    pub(crate) fn raw_target<T: Pod>(&self) -> RawTarget<'_, T> {
        assert!(self.raw.readonly == 0);
        // SAFETY: the exporter keeps the memory writable until the buffer is given back; nothing in Rust refers to it, and whatever
        // accesses it is code of Python.
        unsafe { RawTarget::new(self.raw.buf.cast(), self.bytes() / size_of::<T>()) }
    }

    /// Whether both are the same memory.
    pub(crate) fn is_same(&self, other: &View) -> bool {
        (self.raw.buf, self.bytes()) == (other.raw.buf, other.bytes())
    }

    /// Whether some byte belongs to both.
    pub(crate) fn overlaps(&self, other: &View) -> bool {
        let range = |view: &View| (view.raw.buf.addr(), view.raw.buf.addr().saturating_add(view.bytes()));
        let ((start, end), (other_start, other_end)) = (range(self), range(other));
        start < other_end && other_start < end
    }

    /// Its whole elements, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        let bytes = usize::try_from(self.raw.len).unwrap_or(0);
        bytes - bytes % self.width
    }

    /// Where it lies, how many bytes it has, and whether it is read-only.
    pub(crate) fn memory(&self) -> (*mut c_void, ffi::Py_ssize_t, bool) {
        (self.raw.buf, self.raw.len, self.raw.readonly != 0)
    }

    /// Copies the beginning of the buffer.
    pub(crate) fn read(&self, target: &mut [u8]) {
        assert!(target.len() <= self.bytes());
        // SAFETY: the exporter keeps the memory readable, for this length, until the buffer is given back.
        unsafe { foreign::read(self.raw.buf.cast(), target) };
    }

    /// Copies to the beginning of the buffer.
    ///
    /// # Panics
    /// When the buffer is read-only.
    pub(crate) fn write(&self, source: &[u8]) {
        assert!(self.raw.readonly == 0 && source.len() <= self.bytes());
        // SAFETY: the exporter keeps the memory writable, for this length, until the buffer is given back.
        unsafe { foreign::write(source, self.raw.buf.cast()) };
    }
}

impl Drop for View {
    fn drop(&mut self) {
        // Nobody else knows the buffer; after the interpreter's end there is nothing to give back.
        // SAFETY: it was filled by `PyObject_GetBuffer`, and is given back once.
        Python::try_attach(|_| unsafe { ffi::PyBuffer_Release(&mut *self.raw) });
    }
}
