//! Messages: their data go by way of private memory, as those of collectives do.

use std::sync::{Mutex, MutexGuard, PoisonError};

use intranode::{Cancelled, Communicator, Envelope, Error, Request, Source, Tag};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::buffer::View;
use crate::collectives;
use crate::requests::{Data, Pending};

/// A rank's messages.
#[pyclass(frozen, module = "intranode._core")]
pub(crate) struct Messages(Mutex<intranode::Messages>);

/// The source, the tag, and the length in bytes.
type Known = (usize, u64, usize);

fn known(envelope: Envelope) -> Known {
    (envelope.source, envelope.tag, envelope.bytes)
}

fn source(rank: Option<usize>) -> Source {
    rank.map_or(Source::Any, Source::Rank)
}

fn tag(tag: Option<u64>) -> Tag {
    tag.map_or(Tag::Any, Tag::Is)
}

impl Messages {
    pub(crate) fn new(py: Python<'_>, comm: &Communicator) -> PyResult<Self> {
        let messages = py.detach(|| comm.messages());
        collectives::finish(py, messages).map(|messages| Messages(Mutex::new(messages)))
    }

    /// Runs a call while the interpreter is detached; those of other threads wait for it.
    fn call<R: Send>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&mut intranode::Messages) -> Result<R, Error> + Send,
    ) -> PyResult<R> {
        let result = py.detach(|| call(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner)));
        collectives::finish(py, result)
    }
}

#[pymethods]
impl Messages {
    fn send(&self, py: Python<'_>, data: &Bound<'_, PyAny>, to: usize, tag: u64) -> PyResult<()> {
        let view = View::source(data)?;
        self.call(py, |messages| messages.send(Data::of(&view).as_slice(), to, tag))
    }

    fn recv(
        &self,
        py: Python<'_>,
        buffer: &Bound<'_, PyAny>,
        sender: Option<usize>,
        tag: Option<u64>,
    ) -> PyResult<Known> {
        let view = View::target(buffer)?;
        self.call(py, |messages| {
            let mut data = Data::for_(&view);
            let envelope = messages.recv(data.as_mut_slice(), source(sender), self::tag(tag))?;
            view.write(&data.as_slice()[..envelope.bytes]);
            Ok(known(envelope))
        })
    }

    /// A message of any length.
    fn recv_bytes<'py>(
        &self,
        py: Python<'py>,
        sender: Option<usize>,
        tag: Option<u64>,
    ) -> PyResult<(Bound<'py, PyBytes>, Known)> {
        let (data, envelope) =
            self.call(py, |messages| messages.recv_vec::<u8>(source(sender), self::tag(tag)))?;
        Ok((PyBytes::new(py, &data), known(envelope)))
    }

    fn probe(&self, py: Python<'_>, sender: Option<usize>, tag: Option<u64>) -> PyResult<Known> {
        self.call(py, |messages| messages.probe(source(sender), self::tag(tag))).map(known)
    }

    fn try_probe(&self, py: Python<'_>, sender: Option<usize>, tag: Option<u64>) -> PyResult<Option<Known>> {
        let found = self.call(py, |messages| messages.try_probe(source(sender), self::tag(tag)))?;
        Ok(found.map(known))
    }

    /// `synchronous`: it is complete only when it is received.
    fn start_send(
        slf: Bound<'_, Self>,
        data: &Bound<'_, PyAny>,
        to: usize,
        tag: u64,
        synchronous: bool,
    ) -> PyResult<Started> {
        let (py, view) = (slf.py(), View::source(data)?);
        let pending = slf.get().call(py, |messages| {
            Pending::sending(Data::of(&view), |data| match synchronous {
                true => messages.start_send_synchronous(data, to, tag),
                false => messages.start_send(data, to, tag),
            })
        })?;
        Ok(Started::new(slf, pending, None))
    }

    /// Receives into a buffer, when it completes.
    fn start_recv(
        slf: Bound<'_, Self>,
        buffer: &Bound<'_, PyAny>,
        sender: Option<usize>,
        tag: Option<u64>,
    ) -> PyResult<Started> {
        let (py, view) = (slf.py(), View::target(buffer)?);
        let pending = slf.get().call(py, |messages| {
            Pending::receiving(Data::for_(&view), |data| {
                messages.start_recv(data, source(sender), self::tag(tag))
            })
        })?;
        Ok(Started::new(slf, pending, Some(view)))
    }

    /// Waits until all of these requests are complete.
    fn wait_all(&self, py: Python<'_>, requests: Vec<Bound<'_, Started>>) -> PyResult<()> {
        let requests: Vec<&Started> = requests.iter().map(Bound::get).collect();
        self.call(py, |messages| {
            let mut locked: Vec<_> = requests.iter().map(|request| request.lock()).collect();
            let mut open: Vec<&mut dyn Request> =
                locked.iter_mut().filter_map(|pending| pending.request()).collect();
            let envelopes = messages.wait_all(&mut open)?;
            drop(open);
            let open = requests.iter().zip(&mut locked).filter(|(_, pending)| pending.done().is_none());
            for ((request, pending), envelope) in open.zip(envelopes) {
                request.deliver(pending, envelope);
            }
            Ok(())
        })
    }

    /// Waits until one of these requests, none of which is complete, is. Returns its place.
    fn wait_any(&self, py: Python<'_>, requests: Vec<Bound<'_, Started>>) -> PyResult<Option<usize>> {
        let requests: Vec<&Started> = requests.iter().map(Bound::get).collect();
        self.call(py, |messages| {
            let mut locked: Vec<_> = requests.iter().map(|request| request.lock()).collect();
            let mut open: Vec<&mut dyn Request> =
                locked.iter_mut().filter_map(|pending| pending.request()).collect();
            let found = messages.wait_any(&mut open)?;
            drop(open);
            Ok(found.map(|(place, envelope)| {
                requests[place].deliver(&mut locked[place], envelope);
                place
            }))
        })
    }
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
