//! A rank's messages: the calls.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;

use crate::error::{Error, Operation};
use crate::message::core::Core;
use crate::message::envelope::{Envelope, Pattern, Source, Tag};
use crate::message::notifier::Notifier;
use crate::message::outgoing;
use crate::message::request::{Receiving, Request, Sending};
use crate::message::state::{State, Wait, is_whole};
use crate::rank::rank_state::RankState;
use crate::segment::message_memory::ChannelLayout;
use crate::symmetric::handle::Symmetric;

/// A rank's messages: it sends to other ranks and to itself, and receives what was sent to it, as by MPI's point-to-point
/// communication. [`Communicator::messages`](crate::Communicator::messages) makes it.
///
/// * Messages from one rank to another are received in the order in which they were sent, if they match: a receive gets the
///   earliest.
/// * A message of up to 64 KiB (less with more than 16 ranks) is copied when it is sent, and `send` returns without its
///   receiver, as long as the channel has room. A longer one is copied once, by the receiver from the sender's memory
///   (`process_vm_readv`), or in parts through the channel where the system does not allow that, or where both sides together
///   are faster; `send` returns when it is received.
/// * Messages go on in calls only: there is no thread. A rank that waits takes in what comes from all ranks. What nobody has
///   received stays in its sender's channel, or takes up to 16 MiB of private memory.
/// * What a rank has sent before it leaves or dies is received. After that, calls that wait for this rank fail with the cause.
///   Other ranks go on after a rank has left, or has dropped its messages; a death ends the communicator for all.
/// * Time-outs are not fatal here: after [`Error::TimedOut`] calls can go on.
///
/// ```
/// let results = intranode::threads(3, |comm| {
///     let mut messages = comm.messages()?;
///     let (next, previous) = ((comm.rank() + 1) % 3, (comm.rank() + 2) % 3);
///     messages.send(&[comm.rank() as u32; 4], next, 7)?;
///     let mut from_previous = [0u32; 4];
///     let envelope = messages.recv(&mut from_previous, previous, 7)?;
///     assert_eq!((envelope.source, envelope.bytes), (previous, 16));
///     Ok::<_, intranode::Error>(from_previous[0])
/// })?;
/// let results: Vec<u32> = results.into_iter().collect::<Result<_, _>>()?;
/// assert_eq!(results, [2, 0, 1]);
/// # Ok::<(), intranode::Error>(())
/// ```
pub struct Messages {
    core: Arc<Core>,
    state: State,
}

/// Whether a request was taken back.
///
/// ```
/// use intranode::Cancelled;
///
/// let results = intranode::threads(1, |comm| {
///     let mut messages = comm.messages()?;
///     let mut data = [0u8; 4];
///     let mut receiving = messages.start_recv(&mut data, 0, 1)?;
///     let early = messages.cancel(&mut receiving)?;
///     let mut receiving = messages.start_recv(&mut data, 0, 1)?;
///     messages.send(&[1u8, 2], 0, 1)?;
///     Ok::<_, intranode::Error>((early, messages.cancel(&mut receiving)?))
/// })?;
/// let Ok((early, late)) = results[0] else { panic!("{results:?}") };
/// assert_eq!(early, Cancelled::Yes);
/// assert!(matches!(late, Cancelled::TooLate(envelope) if envelope.bytes == 2));
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It was: nothing was sent, or received.
    Yes,
    /// It is complete.
    TooLate(Envelope),
}

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
    pub(crate) fn new(rank_state: &Arc<RankState>, memory: Symmetric<u64>, layout: ChannelLayout) -> Self {
        let core = Core::new(Arc::clone(rank_state), memory, layout);
        Messages { state: State::new(core.size()), core: Arc::new(core) }
    }

    /// Sends `data` to a rank, with a tag. Returns when `data` may be changed again: at once if the message fits into the
    /// channel, otherwise when it is received. Not collective. Example: [`Messages`].
    ///
    /// To the own rank only what fits can be sent in this way: see [`start_send`](Messages::start_send).
    ///
    /// # Errors
    /// [`Error::InvalidRank`]; [`Error::NoRoom`] for a message to the own rank that would wait for ever;
    /// [`Error::TimedOut`], which names the rank and is not fatal, if it does not receive within the time-out: the message
    /// is not sent then. After the communicator has ended, its cause, as of [`barrier`](crate::Communicator::barrier).
    pub fn send<T: Pod>(&mut self, data: &[T], to: usize, tag: u64) -> Result<(), Error> {
        if self.try_eager(data, to, tag)? {
            return Ok(());
        }
        let bytes = size_of_val(data);
        if to == self.core.rank() {
            return Err(self.no_room(to, bytes));
        }
        if bytes > self.core.eager() {
            let mut sending = Sending::start(&self.core, &mut self.state, data, to, tag, true)?;
            let sent = self.wait(&mut sending);
            let request: &mut dyn Request = &mut sending;
            return match sent {
                // It was received in the last moment.
                Err(Error::TimedOut { .. }) if !request.withdraw(&self.core, &mut self.state) => Ok(()),
                other => other.map(drop),
            };
        }
        let Messages { core, state } = self;
        let data = bytemuck::cast_slice(data);
        let sent = state.wait(core, Wait::to(to), |state| {
            let sent = state.peers[to].outgoing.try_eager(core, to, tag, data);
            sent.map(|sent| sent.then_some(())).map_err(|killed| outgoing::failed(core, killed)).transpose()
        })?;
        sent.ok_or_else(|| core.timed_out(Operation::Send, vec![to]))
    }

    /// Sends `data` if there is room for it in the channel now. Returns whether there was. It never waits. Not collective.
    ///
    /// ```
    /// let sent = intranode::threads(1, |comm| {
    ///     let mut messages = comm.messages()?;
    ///     let mut sent = 0;
    ///     while messages.try_send(&[0u8; 10_000], 0, 1)? {
    ///         sent += 1;
    ///     }
    ///     Ok::<_, intranode::Error>(sent)
    /// })?;
    /// assert!(matches!(sent[0], Ok(21))); // three buffers of 4 KiB each, of 64
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`send`](Messages::send); [`Error::NoRoom`] for a message that is too long for an empty channel.
    pub fn try_send<T: Pod>(&mut self, data: &[T], to: usize, tag: u64) -> Result<bool, Error> {
        let sent = self.try_eager(data, to, tag)?;
        let bytes = size_of_val(data);
        if !sent && bytes > self.core.eager() { Err(self.no_room(to, bytes)) } else { Ok(sent) }
    }

    #[inline]
    fn try_eager<T: Pod>(&mut self, data: &[T], to: usize, tag: u64) -> Result<bool, Error> {
        let Messages { core, state } = self;
        core.check_rank(Operation::Send, Some(to))?;
        state.begin(core);
        core.post().check().map_err(|failure| core.failed(Operation::Send, failure))?;
        core.check_gone(Operation::Send, Some(to))?;
        let data: &[u8] = bytemuck::cast_slice(data);
        if data.len() > core.eager() {
            return Ok(false);
        }
        let sent = state.peers[to].outgoing.try_eager(core, to, tag, data);
        sent.map_err(|killed| outgoing::failed(core, killed))
    }

    #[cold]
    fn no_room(&self, rank: usize, bytes: usize) -> Error {
        Error::NoRoom { operation: Operation::Send, rank, bytes, most: self.core.eager() }
    }

    /// Receives a message into the beginning of `buffer`: the first that has come from this rank, or from any, with this tag,
    /// or with any. Not collective. Example: [`Messages`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`]; [`Error::Truncated`] and [`Error::NotWhole`] for a message that does not fit into `buffer`, or
    /// is no whole number of elements: it is kept, and `buffer` is unchanged. [`Error::TimedOut`], which names the rank and
    /// is not fatal; [`Error::TooManyUnreceived`]. After the communicator has ended, and if no message matches, its cause.
    pub fn recv<T: Pod>(
        &mut self,
        buffer: &mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Envelope, Error> {
        let pattern = self.pattern(Operation::Recv, from, tag)?;
        let Messages { core, state } = self;
        if let Some(source) = pattern.rank() {
            let target = bytemuck::cast_slice_mut(buffer);
            let received = state.receive_next(core, source, pattern, target, size_of::<T>());
            if let Some(received) = received {
                return received;
            }
        }
        let mut receiving = Receiving::start(core, state, buffer, pattern);
        self.wait(&mut receiving)
    }

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
        let message = self.await_message(Operation::Recv, pattern)?;
        let bytes = message.envelope.bytes;
        // A message that is no whole number of elements is found out by the receive.
        let len = bytes.checked_div(size_of::<T>()).unwrap_or(0);
        let mut data: Vec<T> = Vec::new();
        data.try_reserve_exact(len).map_err(|error| Error::AllocationFailed {
            operation: Operation::Recv,
            requested_bytes: bytes,
            reason: error.to_string().into_boxed_str(),
        })?;
        data.resize(len, T::zeroed());
        let element = size_of::<T>();
        if !is_whole(bytes, element) {
            return Err(Error::NotWhole {
                operation: Operation::Recv,
                rank: message.envelope.source,
                bytes,
                element,
            });
        }
        let envelope = self.recv_taken(message, &mut data)?;
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
        let Messages { core, state } = self;
        let wait = Wait::from(Operation::Probe, pattern.rank());
        let found = state.wait(core, wait, |state| state.find(core, pattern).map(Ok))?;
        found.ok_or_else(|| core.timed_out(Operation::Probe, core.awaited(pattern.rank())))
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
    /// As [`recv`](Messages::recv): the message is there for other receives then.
    ///
    /// # Panics
    /// When it was taken from other messages.
    pub fn recv_taken<T: Pod>(&mut self, mut message: Message, buffer: &mut [T]) -> Result<Envelope, Error> {
        assert!(
            Arc::ptr_eq(&message.core, &self.core),
            "a message belongs to the messages that it was taken from"
        );
        let Envelope { source, tag, .. } = message.envelope;
        self.pattern(Operation::Recv, source, tag)?;
        let Some(id) = message.id.take() else { unreachable!("it is taken out here only") };
        let pattern = Pattern { source: Source::Rank(source), tag: Tag::Is(tag) };
        let mut receiving = Receiving::started(&self.core, id, buffer, pattern);
        self.wait(&mut receiving)
    }

    /// Sends to one rank and receives from another, or the same, at the same time: neither waits for the other. Not
    /// collective.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let mut messages = comm.messages()?;
    ///     let (own, other) = (vec![comm.rank(); 50_000], 1 - comm.rank());
    ///     let mut received = vec![0usize; 50_000];
    ///     messages.sendrecv(&own, other, &mut received, other, 3)?;
    ///     Ok::<_, intranode::Error>(received[49_999])
    /// })?;
    /// assert!(matches!(results[..], [Ok(1), Ok(0)]), "{results:?}");
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`send`](Messages::send) and [`recv`](Messages::recv).
    pub fn sendrecv<T: Pod, U: Pod>(
        &mut self,
        data: &[T],
        to: usize,
        buffer: &mut [U],
        from: impl Into<Source>,
        tag: u64,
    ) -> Result<Envelope, Error> {
        let mut receiving = self.start_recv(buffer, from, tag)?;
        let mut sending = self.start_sending(data, to, tag, true)?;
        let envelopes = self.wait_all(&mut [&mut receiving, &mut sending])?;
        Ok(envelopes[0])
    }

    /// Starts to send `data`, and returns at once. Not collective. Example: [`Sending`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`]. After the communicator has ended, its cause.
    pub fn start_send<'a, T: Pod>(&mut self, data: &'a [T], to: usize, tag: u64) -> Result<Sending<'a>, Error> {
        self.start_sending(data, to, tag, false)
    }

    /// `attended`: the call that starts it also completes it.
    fn start_sending<'a, T: Pod>(
        &mut self,
        data: &'a [T],
        to: usize,
        tag: u64,
        attended: bool,
    ) -> Result<Sending<'a>, Error> {
        let Messages { core, state } = self;
        core.check_rank(Operation::Send, Some(to))?;
        state.begin(core);
        core.post().check().map_err(|failure| core.failed(Operation::Send, failure))?;
        core.check_gone(Operation::Send, Some(to))?;
        Sending::start(core, state, data, to, tag, attended)
    }

    /// Starts to receive into the beginning of `buffer`, and returns at once. Receives get messages in the order in which they
    /// were started. Not collective. Example: [`Receiving`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`].
    pub fn start_recv<'a, T: Pod>(
        &mut self,
        buffer: &'a mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Receiving<'a>, Error> {
        let pattern = self.pattern(Operation::Recv, from, tag)?;
        Ok(Receiving::start(&self.core, &mut self.state, buffer, pattern))
    }

    /// What this request's message is known by, if it is complete; of a message that was sent, the source is this rank. It never
    /// waits. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(1, |comm| {
    ///     let mut messages = comm.messages()?;
    ///     let mut data = [0u8; 4];
    ///     let mut receiving = messages.start_recv(&mut data, 0, 1)?;
    ///     assert!(messages.test(&mut receiving)?.is_none());
    ///     messages.send(&[1u8], 0, 1)?;
    ///     Ok::<_, intranode::Error>(messages.test(&mut receiving)?.is_some())
    /// })?;
    /// assert!(matches!(results[0], Ok(true)));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`send`](Messages::send) and [`recv`](Messages::recv), but for time-outs.
    ///
    /// # Panics
    /// When the request belongs to other messages.
    pub fn test(&mut self, request: &mut impl Request) -> Result<Option<Envelope>, Error> {
        let Messages { core, state } = self;
        let wait = request.wait();
        core.check_rank(wait.operation, None)?;
        state.begin(core);
        if let Some(done) = request.poll(core, state) {
            return done.map(Some);
        }
        state.take_in(core, Wait { focus: None, ..wait })?;
        if let Some(done) = poll(core, state, request) {
            return done.map(Some);
        }
        core.post().check().map(|()| None).map_err(|failure| core.failed(wait.operation, failure))
    }

    /// Waits until a request is complete. Not collective. Example: [`Sending`].
    ///
    /// # Errors
    /// As [`send`](Messages::send) and [`recv`](Messages::recv). After a time-out the request can be waited for again.
    ///
    /// # Panics
    /// When the request belongs to other messages.
    pub fn wait(&mut self, request: &mut impl Request) -> Result<Envelope, Error> {
        let request: &mut dyn Request = request;
        self.wait_for(request.wait(), &mut [request], |core, state, requests| {
            poll(core, state, &mut *requests[0])
        })
    }

    /// Waits until all of these requests are complete. Returns what their messages are known by, in the order of the requests. Not
    /// collective.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let mut messages = comm.messages()?;
    ///     let (own, other) = ([comm.rank() as u8; 8], 1 - comm.rank());
    ///     let mut received = [9u8; 8];
    ///     let mut receiving = messages.start_recv(&mut received, other, 1)?;
    ///     let mut sending = messages.start_send(&own, other, 1)?;
    ///     messages.wait_all(&mut [&mut receiving, &mut sending])?;
    ///     Ok::<_, intranode::Error>(received[7])
    /// })?;
    /// assert!(matches!(results[..], [Ok(1), Ok(0)]));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// The first that one of them has, as of [`wait`](Messages::wait). The others can be waited for again.
    ///
    /// # Panics
    /// When a request belongs to other messages.
    pub fn wait_all(&mut self, requests: &mut [&mut dyn Request]) -> Result<Vec<Envelope>, Error> {
        let mut done: Vec<Option<Envelope>> = vec![None; requests.len()];
        let operation = requests.first().map_or(Operation::Recv, |request| request.wait().operation);
        self.wait_for(Wait::from(operation, None), requests, |core, state, requests| {
            for (request, done) in requests.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
                match poll(core, state, &mut **request) {
                    Some(Ok(envelope)) => *done = Some(envelope),
                    Some(Err(error)) => return Some(Err(error)),
                    None => {}
                }
            }
            let all: Option<Vec<Envelope>> = done.iter().copied().collect();
            all.map(Ok)
        })
    }

    /// Waits until one of these requests is complete that it has not reported before. Returns its place in the list, and what its
    /// message is known by; `None` if all were reported. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(1, |comm| {
    ///     let mut messages = comm.messages()?;
    ///     let (mut one, mut two) = ([0u8; 4], [0u8; 4]);
    ///     let mut first = messages.start_recv(&mut one, 0, 1)?;
    ///     let mut second = messages.start_recv(&mut two, 0, 2)?;
    ///     let mut order = Vec::new();
    ///     for tag in [2, 1] {
    ///         messages.send(&[1u8], 0, tag)?;
    ///         order.extend(messages.wait_any(&mut [&mut first, &mut second])?.map(|(place, _)| place));
    ///     }
    ///     assert!(messages.wait_any(&mut [&mut first, &mut second])?.is_none());
    ///     Ok::<_, intranode::Error>(order)
    /// })?;
    /// assert!(matches!(&results[0], Ok(order) if order == &[1, 0]));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Messages::wait).
    ///
    /// # Panics
    /// When a request belongs to other messages.
    pub fn wait_any(&mut self, requests: &mut [&mut dyn Request]) -> Result<Option<(usize, Envelope)>, Error> {
        if requests.iter_mut().all(|request| *request.reported()) {
            return Ok(None);
        }
        let operation = requests.first().map_or(Operation::Recv, |request| request.wait().operation);
        let found = self.wait_for(Wait::from(operation, None), requests, |core, state, requests| {
            let mut unreported = requests
                .iter_mut()
                .enumerate()
                .filter_map(|(place, request)| if *request.reported() { None } else { Some((place, request)) });
            unreported.find_map(|(place, request)| {
                poll(core, state, &mut **request).map(|done| done.map(|envelope| (place, envelope)))
            })
        })?;
        *requests[found.0].reported() = true;
        Ok(Some(found))
    }

    /// Takes a request back, if it is not too late: exactly one of both happens, the message is not sent or received, or the
    /// request is complete. A receive is too late once its message has begun to come; then it is waited for. Not collective.
    /// Example: [`Cancelled`].
    ///
    /// # Errors
    /// As [`wait`](Messages::wait), if it is too late.
    ///
    /// # Panics
    /// When the request belongs to other messages.
    pub fn cancel(&mut self, request: &mut impl Request) -> Result<Cancelled, Error> {
        let Messages { core, state } = self;
        core.check_rank(request.wait().operation, None)?;
        state.begin(core);
        // What has come has come before.
        let _ = state.take_in(core, Wait { focus: None, ..request.wait() });
        if request.withdraw(core, state) {
            return Ok(Cancelled::Yes);
        }
        self.wait(request).map(Cancelled::TooLate)
    }

    /// A descriptor for event loops (`poll`, epoll, mio, tokio), and what makes it readable when something has happened to these
    /// messages. Not collective. Example: [`Notifier`].
    ///
    /// # Errors
    /// [`Error::NotifierRefused`] if the system refuses its descriptors or its thread: messages go on without it.
    /// [`Error::Forked`].
    pub fn notifier(&self) -> Result<Notifier, Error> {
        self.core.check_rank(Operation::Messages, None)?;
        Notifier::start(&self.core)
    }

    fn pattern(
        &mut self,
        operation: Operation,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Pattern, Error> {
        let pattern = Pattern { source: from.into(), tag: tag.into() };
        self.core.check_rank(operation, pattern.rank())?;
        self.state.begin(&self.core);
        Ok(pattern)
    }

    /// Looks for something, and takes in what has come if it is not there.
    fn look<R>(
        &mut self,
        operation: Operation,
        pattern: Pattern,
        mut find: impl FnMut(&Core, &mut State) -> Option<R>,
    ) -> Result<Option<R>, Error> {
        let Messages { core, state } = self;
        if let Some(found) = find(core, state) {
            return Ok(Some(found));
        }
        let wait = Wait { focus: None, ..Wait::from(operation, pattern.rank()) };
        state.take_in(core, wait)?;
        match state.poll_or_gone(core, wait, |state| find(core, state).map(Ok)) {
            Some(found) => found.map(Some),
            None => core.post().check().map(|()| None).map_err(|failure| core.failed(operation, failure)),
        }
    }

    /// Waits for a message, and takes it.
    fn await_message(&mut self, operation: Operation, pattern: Pattern) -> Result<Message, Error> {
        let Messages { core, state } = self;
        let wait = Wait::from(operation, pattern.rank());
        let found = state.wait(core, wait, |state| state.take(core, pattern).map(Ok))?;
        let (id, envelope) = found.ok_or_else(|| core.timed_out(operation, core.awaited(pattern.rank())))?;
        Ok(Message { core: Arc::clone(core), id: Some(id), envelope })
    }

    /// Waits until `poll` has a result. As long as bytes come through the channels, no time-out passes.
    fn wait_for<R>(
        &mut self,
        wait: Wait,
        requests: &mut [&mut dyn Request],
        mut poll: impl FnMut(&Core, &mut State, &mut [&mut dyn Request]) -> Option<Result<R, Error>>,
    ) -> Result<R, Error> {
        let Messages { core, state } = self;
        core.check_rank(wait.operation, None)?;
        state.begin(core);
        loop {
            let before: usize = requests.iter().map(|request| request.progress()).sum();
            if let Some(done) = state.wait(core, wait, |state| poll(core, state, requests))? {
                return Ok(done);
            }
            if before == requests.iter().map(|request| request.progress()).sum::<usize>() {
                break;
            }
        }
        let mut late: Vec<usize> = Vec::new();
        for request in requests {
            if !*request.reported() && request.poll(core, state).is_none() {
                late.extend(request.awaited());
            }
        }
        late.sort_unstable();
        late.dedup();
        Err(core.timed_out(wait.operation, late))
    }
}

/// Goes on with a request, and finds out if those are gone that it waits for.
fn poll(core: &Core, state: &mut State, request: &mut dyn Request) -> Option<Result<Envelope, Error>> {
    let wait = request.wait();
    state.poll_or_gone(core, wait, |state| request.poll(core, state))
}

impl Drop for Messages {
    fn drop(&mut self) {
        let Messages { core, state } = self;
        if core.rank_state.mapped.forked() {
            return;
        }
        for (target, peer) in state.peers.iter_mut().enumerate() {
            // An error occurs in tests only.
            let _ = peer.outgoing.flush(core, target);
        }
        core.close();
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("rank", &self.core.rank()).field("size", &self.core.size()).finish()
    }
}
