//! Messages: their data go by way of private memory, as those of collectives do.

use std::collections::HashSet;
use std::ptr;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Duration;

use intranode::{Cancelled, Communicator, Envelope, Error, Operation, Request, Source, Tag};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::View;
use crate::collectives;
use crate::errors;
use crate::numbers::{Rank, TagNumber};
use crate::requests::{Data, Pending};

/// How long a thread sleeps between two looks whether another one's call is over.
const LOOK: Duration = Duration::from_millis(1);

/// A rank's messages.
#[pyclass(frozen, module = "intranode._core")]
pub(crate) struct Messages {
    messages: Mutex<intranode::Messages>,
    /// The thread whose call runs, as `own_thread` names it; 0: none.
    caller: AtomicUsize,
    /// The process that has made them.
    pid: u32,
}

/// A number of this thread, which is not 0.
fn own_thread() -> usize {
    thread_local!(static OWN: u8 = const { 0 });
    OWN.with(|own| ptr::from_ref(own).addr())
}

/// Ends a call, also by a panic.
struct Caller<'a>(&'a AtomicUsize);

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        self.0.store(0, Relaxed);
    }
}

/// The source, the tag, and the length in bytes.
type Known = (usize, u64, usize);

fn known(envelope: Envelope) -> Known {
    (envelope.source, envelope.tag, envelope.bytes)
}

fn source(rank: Option<Rank>) -> Source {
    rank.map_or(Source::Any, |rank| Source::Rank(rank.0))
}

fn tag(tag: Option<TagNumber>) -> Tag {
    tag.map_or(Tag::Any, |tag| Tag::Is(tag.0))
}

impl Messages {
    pub(crate) fn new(py: Python<'_>, comm: &Communicator) -> PyResult<Self> {
        let messages = py.detach(|| comm.messages());
        let messages = Mutex::new(collectives::finish(py, messages)?);
        Ok(Messages { messages, caller: AtomicUsize::new(0), pid: std::process::id() })
    }

    /// Runs a call while the interpreter is detached; those of other threads wait for it.
    fn call<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut intranode::Messages) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        // A handler of a signal runs in the middle of the call that it interrupts.
        if self.caller.load(Relaxed) == own_thread() {
            return Err(PyRuntimeError::new_err(
                "a handler of a signal called on the messages of a communicator in the middle of another call on them",
            ));
        }
        let mut messages = self.lock(py)?;
        self.caller.store(own_thread(), Relaxed);
        let _caller = Caller(&self.caller);
        let messages = &mut *messages;
        let result = py.detach(|| call(messages));
        collectives::finish(py, result)
    }

    /// Waits for the calls of other threads, and lets Ctrl-C end that.
    fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, intranode::Messages>> {
        loop {
            match self.messages.try_lock() {
                Ok(messages) => return Ok(messages),
                Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) => {}
            }
            // In a forked child nobody ends the call of a thread that it does not have.
            if self.pid != std::process::id() {
                return Err(errors::exception(py, &Error::Forked { operation: Operation::Recv }));
            }
            py.detach(|| thread::sleep(LOOK));
            py.check_signals()?;
        }
    }
}

#[pymethods]
impl Messages {
    fn send(&self, py: Python<'_>, data: &Bound<'_, PyAny>, to: Rank, tag: TagNumber) -> PyResult<()> {
        let view = View::source(data)?;
        self.call(py, |messages| messages.send(Data::of(&view)?.as_slice(), to.0, tag.0))
    }

    fn recv(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        sender: Option<Rank>,
        tag: Option<TagNumber>,
    ) -> PyResult<Known> {
        let view = View::target(buffer)?;
        self.call(py, |messages| {
            let mut data = Data::for_(&view)?;
            let envelope = messages.recv(data.as_mut_slice(), source(sender), self::tag(tag))?;
            view.write(&data.as_slice()[..envelope.bytes]);
            Ok(known(envelope))
        })
    }

    /// A message of any length.
    fn recv_bytes<'py>(
        &self,
        py: Python<'py>,
        sender: Option<Rank>,
        tag: Option<TagNumber>,
    ) -> PyResult<(Bound<'py, PyBytes>, Known)> {
        let (data, envelope) =
            self.call(py, |messages| messages.recv_vec::<u8>(source(sender), self::tag(tag)))?;
        Ok((PyBytes::new(py, &data), known(envelope)))
    }

    /// Meanwhile these requests go on.
    fn probe(
        &self,
        py: Python<'_>,
        sender: Option<Rank>,
        tag: Option<TagNumber>,
        requests: Vec<Bound<'_, Started>>,
    ) -> PyResult<Known> {
        let requests: Vec<&Started> = requests.iter().map(Bound::get).collect();
        let found = self.call(py, |messages| {
            let mut locked = open(&requests);
            let mut open = requests_of(&mut locked);
            messages.probe_with(source(sender), self::tag(tag), &mut open)
        })?;
        Ok(known(found))
    }

    fn try_probe(
        &self,
        py: Python<'_>,
        sender: Option<Rank>,
        tag: Option<TagNumber>,
    ) -> PyResult<Option<Known>> {
        let found = self.call(py, |messages| messages.try_probe(source(sender), self::tag(tag)))?;
        Ok(found.map(known))
    }

    /// Starts to receive a message that has come, of any length: no other receive finds it. `None`: none has come.
    fn try_take(
        slf: Bound<'_, Self>,
        sender: Option<Rank>,
        tag: Option<TagNumber>,
    ) -> PyResult<Option<(Started, Known)>> {
        let taken = slf.get().call(slf.py(), |messages| {
            let Some(found) = messages.try_probe(source(sender), self::tag(tag))? else { return Ok(None) };
            // The one that was found is the first of its sender with its tag.
            let request = messages.start_recv_bytes(found.source, found.tag)?;
            Ok(Some((Pending::receiving_bytes(request), found)))
        })?;
        Ok(taken.map(|(pending, found)| (Started::new(slf, pending, None), known(found))))
    }

    /// `synchronous`: it is complete only when it is received.
    fn start_send(
        slf: Bound<'_, Self>,
        data: &Bound<'_, PyAny>,
        to: Rank,
        tag: TagNumber,
        synchronous: bool,
    ) -> PyResult<Started> {
        let (py, view) = (slf.py(), View::source(data)?);
        let pending = slf.get().call(py, |messages| {
            Pending::sending(Data::of(&view)?, |data| match synchronous {
                true => messages.start_send_synchronous(data, to.0, tag.0),
                false => messages.start_send(data, to.0, tag.0),
            })
        })?;
        Ok(Started::new(slf, pending, None))
    }

    /// Receives into a buffer, when it completes.
    fn start_recv(
        slf: Bound<'_, Self>,
        buffer: &Bound<'_, PyAny>,
        sender: Option<Rank>,
        tag: Option<TagNumber>,
    ) -> PyResult<Started> {
        let (py, view) = (slf.py(), View::target(buffer)?);
        let pending = slf.get().call(py, |messages| {
            Pending::receiving(Data::for_(&view)?, |data| {
                messages.start_recv(data, source(sender), self::tag(tag))
            })
        })?;
        Ok(Started::new(slf, pending, Some(view)))
    }

    /// Receives a message of any length, which `Started.received` returns.
    fn start_recv_bytes(
        slf: Bound<'_, Self>,
        sender: Option<Rank>,
        tag: Option<TagNumber>,
    ) -> PyResult<Started> {
        let pending = slf.get().call(slf.py(), |messages| {
            messages.start_recv_bytes(source(sender), self::tag(tag)).map(Pending::receiving_bytes)
        })?;
        Ok(Started::new(slf, pending, None))
    }

    /// Waits until one of these requests that was not complete is. Returns its place; `None` if all are. A request may be there
    /// several times.
    fn wait_any(&self, py: Python<'_>, requests: Vec<Bound<'_, Started>>) -> PyResult<Option<usize>> {
        let requests: Vec<&Started> = requests.iter().map(Bound::get).collect();
        self.call(py, |messages| {
            let mut locked = open(&requests);
            let found = messages.wait_any(&mut requests_of(&mut locked))?;
            Ok(found.map(|(at, envelope)| {
                let (place, pending) = &mut locked[at];
                requests[*place].deliver(pending, envelope);
                *place
            }))
        })
    }
}

/// Those of these requests that are not complete, each once, with their places. The others are not kept locked while this rank waits:
/// `received` waits for the lock without detaching from the interpreter.
fn open<'r>(requests: &[&'r Started]) -> Vec<(usize, MutexGuard<'r, Pending>)> {
    let mut seen = HashSet::new();
    let firsts = requests.iter().enumerate().filter(|(_, request)| seen.insert(ptr::from_ref(**request)));
    let locked = firsts.map(|(place, request)| (place, request.lock()));
    locked.filter(|(_, pending)| pending.done().is_none()).collect()
}

fn requests_of<'a>(locked: &'a mut [(usize, MutexGuard<'_, Pending>)]) -> Vec<&'a mut dyn Request> {
    locked.iter_mut().filter_map(|(_, pending)| pending.request()).collect()
}

/// A request.
#[pyclass(frozen, module = "intranode._core")]
pub(crate) struct Started {
    messages: Py<Messages>,
    pending: Mutex<Pending>,
    /// Where a receive copies its message.
    target: Option<View>,
}

impl Started {
    fn new(messages: Bound<'_, Messages>, pending: Pending, target: Option<View>) -> Self {
        Started { messages: messages.unbind(), pending: Mutex::new(pending), target }
    }

    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It is complete: copies what was received.
    fn deliver(&self, pending: &mut Pending, envelope: Envelope) {
        if pending.done().is_none()
            && let Some(received) = pending.complete(envelope)
            && let Some(target) = &self.target
        {
            target.write(received);
        }
    }
}

#[pymethods]
impl Started {
    /// Those that it goes on with, also when this rank has left their communicator.
    #[getter]
    fn messages(&self, py: Python<'_>) -> Py<Messages> {
        self.messages.clone_ref(py)
    }

    fn wait(&self, py: Python<'_>) -> PyResult<Known> {
        self.messages.get().call(py, |messages| {
            let mut pending = self.lock();
            let envelope = pending.wait(messages)?;
            self.deliver(&mut pending, envelope);
            Ok(known(envelope))
        })
    }

    fn test(&self, py: Python<'_>) -> PyResult<Option<Known>> {
        self.messages.get().call(py, |messages| {
            let mut pending = self.lock();
            let found = pending.test(messages)?;
            Ok(found.map(|envelope| {
                self.deliver(&mut pending, envelope);
                known(envelope)
            }))
        })
    }

    /// The message of a complete receive of any length.
    fn received<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        self.lock().received().map(|data| PyBytes::new(py, data))
    }

    /// Whether it was taken back: nothing was sent, or received.
    fn cancel(&self, py: Python<'_>) -> PyResult<bool> {
        self.messages.get().call(py, |messages| {
            let mut pending = self.lock();
            Ok(match pending.cancel(messages)? {
                Cancelled::Yes => true,
                Cancelled::TooLate(envelope) => {
                    self.deliver(&mut pending, envelope);
                    false
                }
            })
        })
    }
}
