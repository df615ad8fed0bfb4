//! Regions: one copy of data for all ranks, as memory of Python's buffers.

use std::ffi::c_int;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, PoisonError};

use intranode::{Blocks, Communicator, Operation, Region, Shared};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::collectives;
use crate::joined::Joined;

/// An epoch of a region, in bytes. `publish` and `reclaim` end it, and return the next one.
#[pyclass(frozen, module = "intranode._core")]
pub(crate) struct Memory {
    joined: Py<Joined>,
    epoch: Mutex<Epoch>,
    /// How many buffers of this object Python has. They begin and end while its lock is held, or after a look at it.
    exports: AtomicUsize,
    /// The process that has it mapped.
    pid: u32,
}

enum Epoch {
    Writable(Region<u8>),
    Published(Shared<u8>),
    /// It has ended, or is ending.
    Over,
}

impl Memory {
    pub(crate) fn new(py: Python<'_>, joined: Py<Joined>, bytes: usize) -> PyResult<Self> {
        let comm = joined.get().for_call(py)?;
        let region = py.detach(|| comm.region::<u8>(bytes));
        let region = collectives::finish(py, region)?;
        Ok(Memory::of(joined, Epoch::Writable(region)))
    }

    fn of(joined: Py<Joined>, epoch: Epoch) -> Self {
        Memory { joined, epoch: Mutex::new(epoch), exports: AtomicUsize::new(0), pid: std::process::id() }
    }

    /// Takes the epoch for a call that ends or changes it, if all ranks can: a round comes first, which a rank with exports
    /// refuses. Then all ranks have an error, and all still have the region.
    fn take(&self, py: Python<'_>, operation: Operation) -> PyResult<Epoch> {
        // Python's name.
        let called = if operation == Operation::SetOwnership { "distribute" } else { operation.as_str() };
        let taken = {
            let mut epoch = self.epoch.lock().unwrap_or_else(PoisonError::into_inner);
            let fits = match &*epoch {
                Epoch::Writable(_) => operation != Operation::Reclaim,
                Epoch::Published(_) => operation == Operation::Reclaim,
                Epoch::Over => return Err(over()),
            };
            match (fits, self.exports.load(SeqCst)) {
                (true, 0) => Ok(std::mem::replace(&mut *epoch, Epoch::Over)),
                (true, exports) => Err(PyBufferError::new_err(format!(
                    "{called}: {exports} arrays or memoryviews of this region still exist on this rank: delete them before \
                     (del x), and what was sliced from them"
                ))),
                (false, _) => Err(PyValueError::new_err(format!("{called}: the region is in the other epoch"))),
            }
        };
        let comm = match self.joined.get().for_call(py) {
            Ok(comm) => comm,
            Err(error) => {
                taken.into_iter().for_each(|epoch| self.put_back(epoch));
                return Err(error);
            }
        };
        // The lock is free while others are waited for: another thread, attached, may ask for a buffer.
        let epoch = taken.map_err(|error| collectives::refuse(py, &comm, Operation::Barrier, error))?;
        match collectives::run(py, &comm, 0, Communicator::barrier) {
            Ok(()) => Ok(epoch),
            Err(error) => {
                self.put_back(epoch);
                Err(error)
            }
        }
    }

    fn put_back(&self, epoch: Epoch) {
        *self.epoch.lock().unwrap_or_else(PoisonError::into_inner) = epoch;
    }
}

fn over() -> PyErr {
    PyValueError::new_err("this epoch of the region is over: use what publish() or reclaim() has returned")
}

#[pymethods]
impl Memory {
    /// Ends the write epoch.
    fn publish(&self, py: Python<'_>) -> PyResult<Self> {
        let Epoch::Writable(region) = self.take(py, Operation::Publish)? else { return Err(over()) };
        let shared = collectives::finish(py, py.detach(|| region.publish()))?;
        Ok(Memory::of(self.joined.clone_ref(py), Epoch::Published(shared)))
    }

    /// Ends the read epoch.
    fn reclaim(&self, py: Python<'_>) -> PyResult<Self> {
        let Epoch::Published(shared) = self.take(py, Operation::Reclaim)? else { return Err(over()) };
        let region = collectives::finish(py, py.detach(|| shared.reclaim()))?;
        Ok(Memory::of(self.joined.clone_ref(py), Epoch::Writable(region)))
    }

    /// Gives each rank its block of rows, each of this number of bytes. Returns which bytes this rank has.
    fn distribute(&self, py: Python<'_>, row_bytes: usize) -> PyResult<(usize, usize)> {
        let mut epoch = self.take(py, Operation::SetOwnership)?;
        let Epoch::Writable(region) = &mut epoch else { return Err(over()) };
        let rows = region.len().checked_div(row_bytes).unwrap_or(0);
        let (rank, size) = self.joined.get().position();
        let own = Blocks::new(rows, size).range(rank);
        let own = own.start * row_bytes..own.end * row_bytes;
        let result = py.detach(|| region.set_ownership(Some(own.clone())));
        self.put_back(epoch);
        collectives::finish(py, result)?;
        Ok((own.start, own.end))
    }

    /// # Safety
    /// As the interpreter calls it: `view` is to be filled.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let this = slf.get();
        if this.pid != std::process::id() {
            return Err(PyBufferError::new_err("this process was forked from a rank, and has no region"));
        }
        let mut epoch = this.epoch.lock().unwrap_or_else(PoisonError::into_inner);
        let (start, len, readonly) = match &mut *epoch {
            Epoch::Writable(region) => {
                let own = region.as_mut_slice();
                (own.as_mut_ptr(), own.len(), false)
            }
            Epoch::Published(shared) => (shared.as_ptr().cast_mut(), shared.len(), true),
            Epoch::Over => return Err(PyBufferError::new_err(over().value(slf.py()).to_string())),
        };
        let len = ffi::Py_ssize_t::try_from(len)?;
        // SAFETY: the memory stays mapped, and this rank's to use in this way, until the epoch is taken out of this object. That
        // does not happen while `exports` is not 0, nor is the object dropped, which the view holds.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start.cast(), len, c_int::from(readonly), flags)
        };
        if filled != 0 {
            return Err(PyErr::fetch(slf.py()));
        }
        this.exports.fetch_add(1, SeqCst);
        Ok(())
    }

    /// # Safety
    /// As the interpreter calls it, once for each buffer.
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.exports.fetch_sub(1, SeqCst);
    }
}
