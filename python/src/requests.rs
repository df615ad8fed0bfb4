//! Requests that own the memory which they send from, or receive into.

use std::mem::ManuallyDrop;

use intranode::{Cancelled, Envelope, Error, Messages, Operation, Receiving, Request, Sending};

use crate::buffer::View;
use crate::scratch::zeros;

/// Private memory that stays where it is while a request refers to it, whatever becomes of this handle.
pub(crate) struct Data(*mut [u8]);

// SAFETY: it owns its memory, as a box does.
unsafe impl Send for Data {}
// SAFETY: the same; through a shared handle it is only read.
unsafe impl Sync for Data {}

impl Data {
    fn new(bytes: Vec<u8>) -> Self {
        Data(Box::into_raw(bytes.into_boxed_slice()))
    }

    /// A copy of a buffer, which is sent.
    pub(crate) fn of(view: &View) -> Result<Self, Error> {
        let mut data = zeros(Operation::Send, view.bytes())?;
        view.read(&mut data);
        Ok(Data::new(data))
    }

    /// Room for what a buffer can take.
    pub(crate) fn for_(view: &View) -> Result<Self, Error> {
        zeros(Operation::Recv, view.bytes()).map(Data::new)
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        // SAFETY: it was made of a box, and is ours until this is dropped.
        unsafe { &*self.0 }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: the same; the handle is borrowed exclusively.
        unsafe { &mut *self.0 }
    }
}

impl Drop for Data {
    fn drop(&mut self) {
        // SAFETY: it was made of a box, and nothing refers to it any more.
        drop(unsafe { Box::from_raw(self.0) });
    }
}

enum Stage {
    Sending(Sending<'static>),
    Receiving(Receiving<'static>),
    /// The request is gone, so that nothing refers to the memory.
    Done(Envelope),
}

/// A request, and its memory.
pub(crate) struct Pending {
    /// Dropped before the memory. While it is a receive nothing else of this refers to the memory.
    stage: ManuallyDrop<Stage>,
    data: ManuallyDrop<Data>,
}

impl Pending {
    pub(crate) fn sending(
        data: Data,
        start: impl FnOnce(&'static [u8]) -> Result<Sending<'static>, Error>,
    ) -> Result<Self, Error> {
        // SAFETY: the memory stays until `Drop` below has dropped the request, which is all that keeps this reference; on an error
        // nothing does.
        let sent: &'static [u8] = unsafe { &*data.0 };
        start(sent).map(|request| Pending::new(Stage::Sending(request), data))
    }

    pub(crate) fn receiving(
        data: Data,
        start: impl FnOnce(&'static mut [u8]) -> Result<Receiving<'static>, Error>,
    ) -> Result<Self, Error> {
        // SAFETY: the same, and until the request is complete nothing else refers to the memory.
        let target: &'static mut [u8] = unsafe { &mut *data.0 };
        start(target).map(|request| Pending::new(Stage::Receiving(request), data))
    }

    fn new(stage: Stage, data: Data) -> Self {
        Pending { stage: ManuallyDrop::new(stage), data: ManuallyDrop::new(data) }
    }

    /// A receive of a message of any length.
    pub(crate) fn receiving_bytes(request: Receiving<'static>) -> Self {
        Pending::new(Stage::Receiving(request), Data::new(Vec::new()))
    }

    /// What a complete receive of a message of any length has received.
    pub(crate) fn received(&self) -> Option<&[u8]> {
        self.done().map(|_| self.data.as_slice())
    }

    /// The request, if it is not complete.
    pub(crate) fn request(&mut self) -> Option<&mut dyn Request> {
        match &mut *self.stage {
            Stage::Sending(request) => Some(request),
            Stage::Receiving(request) => Some(request),
            Stage::Done(_) => None,
        }
    }

    /// What its message is known by, if it is complete.
    pub(crate) fn done(&self) -> Option<Envelope> {
        if let Stage::Done(envelope) = &*self.stage { Some(*envelope) } else { None }
    }

    /// The request has been found to be complete. Returns what was received, if it is a receive.
    pub(crate) fn complete(&mut self, envelope: Envelope) -> Option<&[u8]> {
        let stage = std::mem::replace(&mut *self.stage, Stage::Done(envelope));
        let Stage::Receiving(request) = stage else { return None };
        if self.data.as_slice().is_empty() {
            *self.data = Data::new(request.into_bytes());
            return None;
        }
        drop(request);
        Some(self.data.as_slice().get(..envelope.bytes).unwrap_or_default())
    }

    pub(crate) fn wait(&mut self, messages: &mut Messages) -> Result<Envelope, Error> {
        match &mut *self.stage {
            Stage::Sending(request) => messages.wait(request),
            Stage::Receiving(request) => messages.wait(request),
            Stage::Done(envelope) => Ok(*envelope),
        }
    }

    pub(crate) fn test(&mut self, messages: &mut Messages) -> Result<Option<Envelope>, Error> {
        match &mut *self.stage {
            Stage::Sending(request) => messages.test(request),
            Stage::Receiving(request) => messages.test(request),
            Stage::Done(envelope) => Ok(Some(*envelope)),
        }
    }

    pub(crate) fn cancel(&mut self, messages: &mut Messages) -> Result<Cancelled, Error> {
        match &mut *self.stage {
            Stage::Sending(request) => messages.cancel(request),
            Stage::Receiving(request) => messages.cancel(request),
            Stage::Done(envelope) => Ok(Cancelled::TooLate(*envelope)),
        }
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        // SAFETY: here only, once: the request first, which refers to the memory.
        unsafe { ManuallyDrop::drop(&mut self.stage) };
        // SAFETY: here only, once.
        unsafe { ManuallyDrop::drop(&mut self.data) };
    }
}
