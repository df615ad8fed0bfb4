//! Messages of which the receiver does not know beforehand what they are: finding them, and receiving what was found.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;

use crate::collective::vectors::room;
use crate::error::{Error, Operation};
use crate::message::core::Core;
use crate::message::envelope::{Envelope, Pattern, Source, Tag};
use crate::message::messages::Messages;
use crate::message::request::{Receiving, Request};
use crate::message::state::{State, Wait, is_whole};

/// A message that [`Messages::take`] has found: no other receive gets it. Dropped, it is there for other receives again.
///
/// ```
/// use intranode::{Source, Tag};
///
/// let results = intranode::threads(1, |comm| {
///     let mut messages = comm.messages()?;
///     messages.send(&[1u8, 2, 3], 0, 1)?;
///     let message = messages.take(Source::Any, Tag::Any)?.expect("it was sent");
///     assert!(messages.try_probe(Source::Any, Tag::Any)?.is_none());
///     let mut data = vec![0u8; message.envelope().bytes];
///     messages.recv_taken(message, &mut data)?;
///     Ok::<_, intranode::Error>(data)
/// })?;
/// assert!(matches!(&results[0], Ok(data) if data == &[1, 2, 3]));
/// # Ok::<(), intranode::Error>(())
/// ```
#[must_use = "dropped, it is there for other receives"]
pub struct Message {
    core: Arc<Core>,
    id: Option<u64>,
    envelope: Envelope,
}

impl Message {
    /// Who sent it, with which tag, and how long it is. Example: [`Message`].
    pub fn envelope(&self) -> Envelope {
        self.envelope
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        if let Some(id) = self.id
            && !self.core.rank_state.mapped.forked()
        {
            self.core.drop_receive(id);
        }
    }
}

impl fmt::Debug for Message {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Message").field("envelope", &self.envelope).finish_non_exhaustive()
    }
}

impl Messages {
    /// Receives a message of any length. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(1, |comm| {
    ///     let mut messages = comm.messages()?;
    ///     messages.send(&[1.5, 2.5], 0, 1)?;
    ///     messages.recv_vec::<f64>(0, 1)
    /// })?;
    /// assert!(matches!(&results[0], Ok((data, envelope)) if data == &[1.5, 2.5] && envelope.bytes == 16));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Messages::recv), but for `Truncated`; [`Error::AllocationFailed`] if there is no memory for it: it is kept.
    pub fn recv_vec<T: Pod>(
        &mut self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<(Vec<T>, Envelope), Error> {
        let pattern = self.pattern(Operation::Recv, from, tag)?;
        match self.core.recorder() {
            None => self.recv_vec_now(pattern),
            Some(lane) => self.recorded(
                (lane, Operation::Recv),
                |messages| messages.recv_vec_now(pattern),
                |(_, envelope)| envelope.bytes,
            ),
        }
    }

    fn recv_vec_now<T: Pod>(&mut self, pattern: Pattern) -> Result<(Vec<T>, Envelope), Error> {
        loop {
            match self.recv_vec_once(pattern) {
                // Perhaps there is another one.
                Err(Error::Withdrawn { .. }) => {}
                done => return done,
            }
        }
    }

    fn recv_vec_once<T: Pod>(&mut self, pattern: Pattern) -> Result<(Vec<T>, Envelope), Error> {
        let message = self.await_message(Operation::Recv, pattern)?;
        let bytes = message.envelope.bytes;
        // A message that is no whole number of elements is found out by the receive.
        let len = bytes.checked_div(size_of::<T>()).unwrap_or(0);
        let mut data = room::<T>(Operation::Recv, Some(len))?;
        let element = size_of::<T>();
        if !is_whole(bytes, element) {
            return Err(Error::NotWhole {
                operation: Operation::Recv,
                rank: message.envelope.source,
                bytes,
                element,
            });
        }
        let envelope = self.recv_taken_now(message, &mut data)?;
        Ok((data, envelope))
    }

    /// Waits for a message, and returns what it is known by. The next receive that matches gets it. Not collective.
    ///
    /// ```
    /// use intranode::{Source, Tag};
    ///
    /// let results = intranode::threads(1, |comm| {
    ///     let mut messages = comm.messages()?;
    ///     messages.send(&[1u8; 10], 0, 4)?;
    ///     let envelope = messages.probe(Source::Any, Tag::Any)?;
    ///     let mut data = vec![0u8; envelope.bytes];
    ///     messages.recv(&mut data, envelope.source, envelope.tag)
    /// })?;
    /// assert!(matches!(&results[0], Ok(envelope) if envelope.bytes == 10 && envelope.tag == 4));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Messages::recv), but for those of the buffer.
    pub fn probe(&mut self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Envelope, Error> {
        let pattern = self.pattern(Operation::Probe, from, tag)?;
        match self.core.recorder() {
            None => self.probe_now(pattern),
            Some(lane) => {
                self.recorded((lane, Operation::Probe), |messages| messages.probe_now(pattern), |_| 0)
            }
        }
    }

    fn probe_now(&mut self, pattern: Pattern) -> Result<Envelope, Error> {
        let Messages { core, state, .. } = self;
        let wait = Wait::from(Operation::Probe, pattern.rank());
        let found = state.wait(core, wait, |state| state.find(core, pattern).map(Ok))?;
        found.ok_or_else(|| core.timed_out(Operation::Probe, core.awaited(pattern.rank())))
    }

    /// The same while these requests go on, which sends and receives do only in calls that they are passed to: another rank may wait for one of
    /// them before it sends what is looked for. Those that have completed, or failed, say so when they are tested or waited for. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let mut messages = comm.messages()?;
    ///     if comm.rank() == 1 {
    ///         messages.send(&vec![1u8; 1 << 20], 0, 1)?; // returns when it is received
    ///         return messages.send(&[2u8], 0, 2).map(|()| 0);
    ///     }
    ///     let mut data = vec![0u8; 1 << 20];
    ///     let mut receiving = messages.start_recv(&mut data, 1, 1)?;
    ///     let envelope = messages.probe_with(1, 2, &mut [&mut receiving])?;
    ///     messages.wait(&mut receiving)?;
    ///     Ok::<usize, intranode::Error>(envelope.bytes)
    /// })?;
    /// assert!(matches!(results[..], [Ok(1), Ok(0)]));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`probe`](Messages::probe). As long as one of the requests goes on, no time-out passes.
    ///
    /// # Panics
    /// When a request belongs to other messages.
    pub fn probe_with(
        &mut self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
        requests: &mut [&mut dyn Request],
    ) -> Result<Envelope, Error> {
        let pattern = self.pattern(Operation::Probe, from, tag)?;
        match self.core.recorder() {
            None => self.probe_with_now(pattern, requests),
            Some(lane) => self.recorded(
                (lane, Operation::Probe),
                |messages| messages.probe_with_now(pattern, requests),
                |_| 0,
            ),
        }
    }

    fn probe_with_now(
        &mut self,
        pattern: Pattern,
        requests: &mut [&mut dyn Request],
    ) -> Result<Envelope, Error> {
        let Messages { core, state, .. } = self;
        // The requests may wait for any rank.
        let wait = Wait { focus: None, ..Wait::from(Operation::Probe, pattern.rank()) };
        loop {
            let (mut first, mut last) = (None, (0, 0));
            let found = state.wait(core, wait, |state| {
                // Their results stay with them.
                let done = requests.iter_mut().filter_map(|request| request.poll(core, state)).count();
                last = (done, requests.iter().map(|request| request.progress()).sum::<usize>());
                first.get_or_insert(last);
                state.find(core, pattern).map(Ok)
            })?;
            if let Some(envelope) = found {
                return Ok(envelope);
            }
            if first == Some(last) {
                return Err(core.timed_out(Operation::Probe, core.awaited(pattern.rank())));
            }
        }
    }

    /// The same without waiting: `None` if no message that matches has come. Not collective. Example: [`Message`].
    ///
    /// # Errors
    /// As [`probe`](Messages::probe), but for time-outs.
    pub fn try_probe(
        &mut self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Option<Envelope>, Error> {
        let pattern = self.pattern(Operation::Probe, from, tag)?;
        self.look(Operation::Probe, pattern, |core, state| state.find(core, pattern))
    }

    /// Takes a message that has come, for [`recv_taken`](Messages::recv_taken): no other receive or probe finds it. It does not
    /// wait: `None` if no message that matches has come. Not collective. Example: [`Message`].
    ///
    /// # Errors
    /// As [`try_probe`](Messages::try_probe).
    pub fn take(&mut self, from: impl Into<Source>, tag: impl Into<Tag>) -> Result<Option<Message>, Error> {
        let pattern = self.pattern(Operation::Probe, from, tag)?;
        let core = Arc::clone(&self.core);
        let found = self.look(Operation::Probe, pattern, |core, state| state.take(core, pattern))?;
        Ok(found.map(|(id, envelope)| Message { core, id: Some(id), envelope }))
    }

    /// Receives a message that was taken. Not collective. Example: [`Message`].
    ///
    /// # Errors
    /// As [`recv`](Messages::recv): the message is there for other receives then, unless its sender has died with it. [`Error::Withdrawn`] if its
    /// sender has withdrawn it.
    ///
    /// # Panics
    /// When it was taken from other messages.
    pub fn recv_taken<T: Pod>(&mut self, message: Message, buffer: &mut [T]) -> Result<Envelope, Error> {
        let received = match self.core.recorder() {
            None => self.recv_taken_now(message, buffer),
            Some(lane) => self.recorded(
                (lane, Operation::Recv),
                |messages| messages.recv_taken_now(message, buffer),
                |envelope| envelope.bytes,
            ),
        };
        match received {
            // The message has gone with its sender.
            Err(Error::Withdrawn { rank, .. }) if self.core.has_died(rank) => {
                self.core.check(Operation::Recv, Some(rank), || false).and(received)
            }
            _ => received,
        }
    }

    fn recv_taken_now<T: Pod>(&mut self, mut message: Message, buffer: &mut [T]) -> Result<Envelope, Error> {
        assert!(
            Arc::ptr_eq(&message.core, &self.core),
            "a message belongs to the messages that it was taken from"
        );
        let envelope = message.envelope;
        self.pattern(Operation::Recv, envelope.source, envelope.tag)?;
        let Some(id) = message.id.take() else { unreachable!("it is taken out here only") };
        let mut receiving = Receiving::of_taken(&self.core, id, buffer, envelope);
        self.wait(&mut receiving)
    }

    /// Looks for something, and takes in what has come if it is not there.
    fn look<R>(
        &mut self,
        operation: Operation,
        pattern: Pattern,
        mut find: impl FnMut(&Core, &mut State) -> Option<R>,
    ) -> Result<Option<R>, Error> {
        let Messages { core, state, .. } = self;
        if let Some(found) = find(core, state) {
            return Ok(Some(found));
        }
        let wait = Wait::from(operation, pattern.rank());
        let look = |state: &mut State| state.poll_or_gone(core, wait, |state| find(core, state).map(Ok));
        state.take_in_until(core, wait, look).transpose()
    }

    /// Waits for a message, and takes it.
    fn await_message(&mut self, operation: Operation, pattern: Pattern) -> Result<Message, Error> {
        let Messages { core, state, .. } = self;
        let wait = Wait::from(operation, pattern.rank());
        let found = state.wait(core, wait, |state| state.take(core, pattern).map(Ok))?;
        let (id, envelope) = found.ok_or_else(|| core.timed_out(operation, core.awaited(pattern.rank())))?;
        Ok(Message { core: Arc::clone(core), id: Some(id), envelope })
    }
}
