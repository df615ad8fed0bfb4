//! Collectives that are started now and completed later. Their data are private memory of the call, so nothing refers to a
//! buffer of Python meanwhile.

use std::ffi::c_int;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytemuck::{NoUninit, Pod};
use intranode::{Communicator, Error, Operation, Pending};
use pyo3::exceptions::{PyBufferError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::arguments::Buffers;
use crate::buffer::View;
use crate::collectives;
use crate::scratch;
use crate::typed::of_kind;

/// A call that is not complete, whatever the type of its elements.
pub(crate) trait Open: Send {
    /// Whether `wait` returns at once.
    fn test(&mut self) -> bool;

    fn wait(self: Box<Self>) -> Result<Box<dyn Data>, Error>;
}

/// What a call has received.
pub(crate) trait Data: Send + Sync {
    fn bytes(&self) -> &[u8];
}

impl<R: Data + 'static> Open for Pending<'static, R> {
    fn test(&mut self) -> bool {
        Pending::test(self)
    }

    fn wait(self: Box<Self>) -> Result<Box<dyn Data>, Error> {
        Pending::wait(*self).map(|data| Box::new(data) as Box<dyn Data>)
    }
}

impl<T: NoUninit + Send + Sync> Data for Vec<T> {
    fn bytes(&self) -> &[u8] {
        bytemuck::cast_slice(self)
    }
}

/// What only the root has received.
impl<T: NoUninit + Send + Sync> Data for Option<Vec<T>> {
    fn bytes(&self) -> &[u8] {
        self.as_deref().map_or(&[], bytemuck::cast_slice)
    }
}

impl Data for () {
    fn bytes(&self) -> &[u8] {
        &[]
    }
}

/// A call that was started. When it is complete it is a buffer: the bytes that it has received.
#[pyclass(frozen, module = "intranode._core")]
pub(crate) struct Begun(Mutex<Stage>);

enum Stage {
    /// The call refers to the communicator, and is dropped before it.
    Open(Box<dyn Open>, Arc<Communicator>),
    /// It never changes again.
    Done(Arc<dyn Data>),
    /// The call has failed, or another thread waits for it.
    Gone,
}

impl Begun {
    pub(crate) fn start(
        py: Python<'_>,
        comm: Arc<Communicator>,
        start: impl FnOnce(&'static Communicator) -> Result<Box<dyn Open>, Error> + Send,
    ) -> PyResult<Self> {
        // SAFETY: the communicator stays where it is as long as the `Arc` beside the call; the call is dropped first, and is not
        // taken out without it.
        let lent: &'static Communicator = unsafe { &*Arc::as_ptr(&comm) };
        let open = collectives::finish(py, py.detach(|| start(lent)))?;
        Ok(Begun(Mutex::new(Stage::Open(open, comm))))
    }

    pub(crate) fn barrier(py: Python<'_>, comm: Arc<Communicator>) -> PyResult<Self> {
        Begun::start(py, comm, |comm| Ok(Box::new(comm.start_barrier()?)))
    }

    fn lock(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Begun {
    /// Goes on as far as that takes no waiting. Whether `wait` returns at once.
    fn test(&self, py: Python<'_>) -> PyResult<bool> {
        let stage = std::mem::replace(&mut *self.lock(), Stage::Gone);
        let Stage::Open(mut open, comm) = stage else {
            *self.lock() = stage;
            return Ok(true);
        };
        let done = py.detach(|| open.test());
        *self.lock() = Stage::Open(open, comm);
        collectives::finish(py, Ok(done))
    }

    /// Waits until it is complete.
    fn wait(&self, py: Python<'_>) -> PyResult<()> {
        let stage = std::mem::replace(&mut *self.lock(), Stage::Gone);
        let Stage::Open(open, comm) = stage else {
            *self.lock() = stage;
            return Ok(());
        };
        let result = py.detach(|| open.wait());
        drop(comm);
        let data = collectives::finish(py, result)?;
        *self.lock() = Stage::Done(data.into());
        Ok(())
    }

    /// # Safety
    /// As the interpreter calls it: `view` is to be filled.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let data = match &*slf.get().lock() {
            Stage::Done(data) => Arc::clone(data),
            _ => return Err(PyBufferError::new_err("the call is not complete")),
        };
        let bytes = data.bytes();
        let len = ffi::Py_ssize_t::try_from(bytes.len())?;
        // SAFETY: a complete call keeps its data, and the view holds the object.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), bytes.as_ptr().cast_mut().cast(), len, 1, flags)
        };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// The buffers of a call of which this rank sends this number of bytes.
pub(crate) fn sending(
    send: Option<&Bound<'_, PyAny>>,
    recv: Option<&Bound<'_, PyAny>>,
    bytes: usize,
) -> PyResult<Buffers> {
    let buffers = Buffers::any(send, recv)?;
    let given = source(&buffers).map_or(0, View::bytes);
    match bytes <= given && bytes.is_multiple_of(buffers.width) {
        true => Ok(buffers),
        false => Err(PyValueError::new_err(format!(
            "a block of {bytes} bytes is sent from a buffer of {given} bytes, with elements of {}",
            buffers.width
        ))),
    }
}

/// Checks that what is received, of this number of bytes, fits.
pub(crate) fn receiving(buffers: &Buffers, bytes: usize) -> PyResult<()> {
    match buffers.recv.as_ref().map(View::bytes) {
        Some(room) if room < bytes => {
            Err(PyValueError::new_err(format!("{bytes} bytes are received into a buffer of {room} bytes")))
        }
        _ => Ok(()),
    }
}

/// What is sent, or, in place, where it lies.
fn source(buffers: &Buffers) -> Option<&View> {
    buffers.send.as_ref().or(buffers.recv.as_ref())
}

/// A call that is started, and needs private memory. Without that this rank refuses it, so that the others do not wait.
#[derive(Clone, Copy)]
struct Starting<'a>(&'a Communicator, Operation);

impl Starting<'_> {
    /// Of this number of bytes.
    fn zeros<T: Pod>(self, bytes: usize) -> Result<Vec<T>, Error> {
        let Starting(comm, operation) = self;
        scratch::zeros(operation, bytes / size_of::<T>()).or_else(|error| {
            comm.refuse_call(operation)?;
            Err(error)
        })
    }

    /// The first bytes of a buffer as elements.
    fn elements<T: Pod>(self, view: Option<&View>, bytes: usize) -> Result<Vec<T>, Error> {
        let mut elements = self.zeros(bytes)?;
        if let Some(view) = view {
            view.read(bytemuck::cast_slice_mut(&mut elements));
        }
        Ok(elements)
    }

    /// All elements of a buffer.
    fn all<T: Pod>(self, view: Option<&View>) -> Result<Vec<T>, Error> {
        self.elements(view, view.map_or(0, View::bytes))
    }
}

pub(crate) fn allreduce(comm: &'static Communicator, buffers: &Buffers) -> Result<Box<dyn Open>, Error> {
    let starting = Starting(comm, Operation::StartAllreduce);
    of_kind!(buffers.kind, T, {
        Ok(Box::new(comm.start_allreduce::<T>(starting.all(source(buffers))?, buffers.op)?))
    })
}

pub(crate) fn reduce(
    comm: &'static Communicator,
    buffers: &Buffers,
    root: usize,
) -> Result<Box<dyn Open>, Error> {
    let starting = Starting(comm, Operation::StartReduce);
    of_kind!(buffers.kind, T, {
        Ok(Box::new(comm.start_reduce::<T>(starting.all(source(buffers))?, buffers.op, root)?))
    })
}

pub(crate) fn scan(
    comm: &'static Communicator,
    buffers: &Buffers,
    is_exclusive: bool,
) -> Result<Box<dyn Open>, Error> {
    let starting = Starting(comm, if is_exclusive { Operation::StartExscan } else { Operation::StartScan });
    of_kind!(buffers.kind, T, {
        let data = starting.all::<T>(source(buffers))?;
        Ok(Box::new(if is_exclusive {
            comm.start_exscan(data, buffers.op)?
        } else {
            comm.start_scan(data, buffers.op)?
        }))
    })
}

pub(crate) fn reduce_scatter(
    comm: &'static Communicator,
    buffers: &Buffers,
    counts: &[usize],
) -> Result<Box<dyn Open>, Error> {
    let starting = Starting(comm, Operation::StartReduceScatter);
    of_kind!(buffers.kind, T, {
        Ok(Box::new(comm.start_reduce_scatter::<T>(starting.all(source(buffers))?, counts, buffers.op)?))
    })
}

/// `bytes`: those of a block.
pub(crate) fn gather(
    comm: &'static Communicator,
    buffers: &Buffers,
    bytes: usize,
    root: usize,
) -> Result<Box<dyn Open>, Error> {
    // In place the own block has others before it.
    let before = if buffers.send.is_some() { 0 } else { comm.rank() * bytes };
    let starting = Starting(comm, Operation::StartGather);
    of_kind!(buffers.kind, T, {
        let send = starting.elements::<T>(source(buffers), before + bytes)?;
        let recv = (comm.rank() == root).then(|| starting.zeros(bytes * comm.size())).transpose()?;
        Ok(Box::new(comm.start_gather::<T>(&send[before / size_of::<T>()..], recv, root)?))
    })
}

/// `bytes`: those of a block.
pub(crate) fn scatter(
    comm: &'static Communicator,
    buffers: &Buffers,
    bytes: usize,
    root: usize,
) -> Result<Box<dyn Open>, Error> {
    let starting = Starting(comm, Operation::StartScatter);
    of_kind!(buffers.kind, T, {
        let send = || starting.elements::<T>(buffers.send.as_ref(), bytes * comm.size());
        let send = (comm.rank() == root).then(send).transpose()?;
        Ok(Box::new(comm.start_scatter::<T>(send, starting.zeros(bytes)?, root)?))
    })
}

/// `bytes`: those of all blocks.
pub(crate) fn alltoall(
    comm: &'static Communicator,
    buffers: &Buffers,
    bytes: usize,
) -> Result<Box<dyn Open>, Error> {
    let starting = Starting(comm, Operation::StartAlltoall);
    of_kind!(buffers.kind, T, {
        let send = starting.elements::<T>(source(buffers), bytes)?;
        Ok(Box::new(comm.start_alltoall::<T>(send, starting.zeros(bytes)?)?))
    })
}

/// Lengths and beginnings are in bytes. What is received in gaps is what was there.
pub(crate) fn alltoallv(
    comm: &'static Communicator,
    buffers: &Buffers,
    sent: &(Vec<usize>, Vec<usize>),
    received: &(Vec<usize>, Vec<usize>),
) -> Result<Box<dyn Open>, Error> {
    let starting = Starting(comm, Operation::StartAlltoallv);
    of_kind!(buffers.kind, T, {
        let in_elements =
            |bytes: &[usize]| bytes.iter().map(|bytes| bytes / size_of::<T>()).collect::<Vec<_>>();
        let [sent, received] =
            [sent, received].map(|(lengths, starts)| [in_elements(lengths), in_elements(starts)]);
        let (send, recv) = (starting.all::<T>(source(buffers))?, starting.all(buffers.recv.as_ref())?);
        Ok(Box::new(comm.start_alltoallv(send, &sent[0], &sent[1], recv, &received[0], &received[1])?))
    })
}

pub(crate) fn broadcast(
    comm: &'static Communicator,
    buffers: &Buffers,
    bytes: usize,
    root: usize,
) -> Result<Box<dyn Open>, Error> {
    let source = source(buffers).filter(|_| comm.rank() == root);
    let starting = Starting(comm, Operation::StartBroadcast);
    of_kind!(buffers.kind, T, {
        Ok(Box::new(comm.start_broadcast::<T>(starting.elements(source, bytes)?, root)?))
    })
}

pub(crate) fn allgatherv(
    comm: &'static Communicator,
    buffers: &Buffers,
    bytes: &[usize],
) -> Result<Box<dyn Open>, Error> {
    let rank = comm.rank();
    let own = bytes.get(rank).copied().unwrap_or(0);
    // In place the own block has others before it.
    let before = if buffers.send.is_some() { 0 } else { bytes.iter().take(rank).sum() };
    let starting = Starting(comm, Operation::StartAllgatherv);
    of_kind!(buffers.kind, T, {
        let counts: Vec<usize> = bytes.iter().map(|count| count / size_of::<T>()).collect();
        let starts = counts.iter().scan(0, |end, count| {
            *end += count;
            Some(*end - count)
        });
        let displs: Vec<usize> = starts.collect();
        let send = starting.elements::<T>(source(buffers), before + own)?;
        let recv = starting.zeros(counts.iter().sum::<usize>() * size_of::<T>())?;
        Ok(Box::new(comm.start_allgatherv::<T>(&send[before / size_of::<T>()..], recv, &counts, &displs)?))
    })
}
