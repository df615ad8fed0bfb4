//! A rank's messages: sending and receiving.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;

use crate::codes::Codes;
use crate::error::{Error, Operation};
use crate::message::core::Core;
use crate::message::direct::Incoming;
use crate::message::envelope::{Envelope, Pattern, Source, Tag};
use crate::message::notifier::Notifier;
use crate::message::outgoing::{self, How};
use crate::message::request::{Receiving, Request, Sending};
use crate::message::state::{State, Wait};
use crate::protocol::message::channel::{INLINE, Slot};
use crate::rank::comm_tree::CommTree;
use crate::rank::rank_state::RankState;
use crate::segment::message_memory::ChannelLayout;
use crate::segment::recorder::Lane;
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
    pub(super) core: Arc<Core>,
    pub(super) state: State,
    /// Fields are dropped after `drop`: as long as there are messages the death of a rank is noticed.
    tree: Arc<CommTree>,
}

impl Messages {
    pub(crate) fn new(
        rank_state: &Arc<RankState>,
        tree: &Arc<CommTree>,
        memory: Symmetric<u64>,
        layout: ChannelLayout,
    ) -> Self {
        let core = Core::new(Arc::clone(rank_state), memory, layout);
        Messages {
            state: State::new(&core.rank_state.co_located),
            core: Arc::new(core),
            tree: Arc::clone(tree),
        }
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
        match self.core.recorder() {
            None => self.send_now(data, to, tag),
            Some(lane) => self.recorded(
                (lane, Operation::Send),
                |messages| messages.send_now(data, to, tag),
                |()| size_of_val(data),
            ),
        }
    }

    /// Makes a call with `INTRANODE_REPORT`. `bytes`: those of its result.
    #[cold]
    #[inline(never)]
    pub(super) fn recorded<R>(
        &mut self,
        (lane, operation): (&Lane, Operation),
        call: impl FnOnce(&mut Self) -> Result<R, Error>,
        bytes: impl FnOnce(&R) -> usize,
    ) -> Result<R, Error> {
        let entered = lane.enter(operation.code());
        let result = call(self);
        lane.leave(&entered, result.as_ref().map_or(0, bytes));
        result
    }

    #[inline]
    fn send_now<T: Pod>(&mut self, data: &[T], to: usize, tag: u64) -> Result<(), Error> {
        if self.try_slot(data, to, tag) { Ok(()) } else { self.send_cell(data, to, tag) }
    }

    #[inline(never)]
    fn send_cell<T: Pod>(&mut self, data: &[T], to: usize, tag: u64) -> Result<(), Error> {
        if self.try_cell(data, to, tag) { Ok(()) } else { self.send_longer(data, to, tag) }
    }

    /// Sends what has no room in a cell, or cannot be sent at once.
    #[inline(never)]
    fn send_longer<T: Pod>(&mut self, data: &[T], to: usize, tag: u64) -> Result<(), Error> {
        if self.try_eager(data, to, tag)? {
            return Ok(());
        }
        let bytes = size_of_val(data);
        if to == self.core.rank() {
            return Err(self.no_room(to, bytes));
        }
        if bytes > self.core.eager() {
            let mut sending = Sending::start(&self.core, &mut self.state, data, to, tag, How::Attended)?;
            let sent = self.wait(&mut sending);
            let request: &mut dyn Request = &mut sending;
            return match sent {
                // It was received in the last moment.
                Err(Error::TimedOut { .. }) if !request.withdraw(&self.core, &mut self.state) => Ok(()),
                other => other.map(drop),
            };
        }
        let Messages { core, state, .. } = self;
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
    /// assert!(matches!(sent[0], Ok(64))); // a buffer of 32 KiB each, of 64
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`send`](Messages::send); [`Error::NoRoom`] for a message that is too long for an empty channel.
    pub fn try_send<T: Pod>(&mut self, data: &[T], to: usize, tag: u64) -> Result<bool, Error> {
        let sent = self.try_slot(data, to, tag) || self.try_eager(data, to, tag)?;
        let bytes = size_of_val(data);
        if sent {
            self.core.count(Operation::Send, bytes);
        }
        if !sent && bytes > self.core.eager() { Err(self.no_room(to, bytes)) } else { Ok(sent) }
    }

    /// Sends what fits into a slot if nothing stands in the way. All of it is in one place, so that a short message takes few
    /// instructions.
    #[inline(always)]
    fn try_slot<T: Pod>(&mut self, data: &[T], to: usize, tag: u64) -> bool {
        let (Messages { core, state, .. }, data) = (self, bytemuck::cast_slice(data));
        let Some((post, channel)) = Slot::fits(tag, data).then(|| core.reach(to)).flatten() else {
            return false;
        };
        let outgoing = &mut state.peers[to].outgoing;
        // An error occurs in tests only.
        outgoing.is_flushed() && matches!(outgoing.try_slot(&post, &channel, to, tag, data), Ok(true))
    }

    /// The same of what fits into a cell.
    #[inline(always)]
    fn try_cell<T: Pod>(&mut self, data: &[T], to: usize, tag: u64) -> bool {
        let (Messages { core, state, .. }, data) = (self, bytemuck::cast_slice::<T, u8>(data));
        let Some((post, channel)) = (data.len() <= INLINE).then(|| core.reach(to)).flatten() else {
            return false;
        };
        let outgoing = &mut state.peers[to].outgoing;
        // An error occurs in tests only.
        outgoing.is_flushed() && matches!(outgoing.try_cell(&post, &channel, to, tag, data), Ok(true))
    }

    fn try_eager<T: Pod>(&mut self, data: &[T], to: usize, tag: u64) -> Result<bool, Error> {
        if self.core.reach(to).is_none() {
            self.begin_send(to)?;
        }
        let Messages { core, state, .. } = self;
        let data: &[u8] = bytemuck::cast_slice(data);
        if data.len() > INLINE && data.len() > core.eager() {
            return Ok(false);
        }
        let sent = state.peers[to].outgoing.try_eager(core, to, tag, data);
        sent.map_err(|killed| outgoing::failed(core, killed))
    }

    #[cold]
    fn begin_send(&mut self, to: usize) -> Result<(), Error> {
        let Messages { core, state, .. } = self;
        core.check_rank(Operation::Send, Some(to))?;
        state.begin(core);
        core.check(Operation::Send, Some(to), || false)
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
    /// is no whole number of elements: it is kept, and nothing of it is in `buffer`. (Parts of another message may be there, also
    /// behind one that is received: of one that was withdrawn while it came, or that another rank's overtook.)
    /// [`Error::TimedOut`], which names the rank; [`Error::RankLeft`] for a rank that has dropped its messages: neither is fatal.
    /// [`Error::TooManyUnreceived`]. After the communicator has ended, and if no message matches, its cause.
    pub fn recv<T: Pod>(
        &mut self,
        buffer: &mut [T],
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Envelope, Error> {
        let pattern = Pattern { source: from.into(), tag: tag.into() };
        match self.core.recorder() {
            None => self.recv_now(buffer, pattern),
            Some(lane) => self.recorded(
                (lane, Operation::Recv),
                |messages| messages.recv_now(buffer, pattern),
                |envelope| envelope.bytes,
            ),
        }
    }

    #[inline]
    fn recv_now<T: Pod>(&mut self, buffer: &mut [T], pattern: Pattern) -> Result<Envelope, Error> {
        let Some(source) = pattern.rank() else { return self.recv_any(buffer, pattern) };
        let Messages { core, state, .. } = self;
        if !core.is_ready(Some(source)) {
            return self.recv_slowly(buffer, pattern);
        }
        let incoming = Incoming::new(core, source);
        let Some((peer, word)) = state.next_of(core, &incoming, source) else {
            return self.recv_slowly(buffer, pattern);
        };
        let target = bytemuck::cast_slice_mut(buffer);
        match peer.receive_slot(&incoming, (source, word), pattern, target, size_of::<T>()) {
            Some(received) => Ok(received),
            None => self.recv_cell(buffer, pattern, (source, word)),
        }
    }

    #[inline(never)]
    fn recv_any<T: Pod>(&mut self, buffer: &mut [T], pattern: Pattern) -> Result<Envelope, Error> {
        let Messages { core, state, .. } = self;
        let next = core.is_ready(None).then(|| state.next_of_any(core)).flatten();
        let Some((source, word)) = next else { return self.recv_slowly(buffer, pattern) };
        let target = bytemuck::cast_slice_mut(buffer);
        let incoming = Incoming::new(core, source);
        match state.peers[source].receive_slot(&incoming, (source, word), pattern, target, size_of::<T>()) {
            Some(received) => Ok(received),
            None => self.recv_cell(buffer, pattern, (source, word)),
        }
    }

    /// The same of what is not in a slot.
    #[inline(never)]
    fn recv_cell<T: Pod>(
        &mut self,
        buffer: &mut [T],
        pattern: Pattern,
        arrived: (usize, u64),
    ) -> Result<Envelope, Error> {
        let Messages { core, state, .. } = self;
        let target = bytemuck::cast_slice_mut(buffer);
        match state.receive_cell(core, arrived, pattern, target, size_of::<T>()) {
            Some(received) => received,
            None => self.recv_slowly(buffer, pattern),
        }
    }

    /// Receives what has not come at once.
    #[inline(never)]
    fn recv_slowly<T: Pod>(&mut self, buffer: &mut [T], pattern: Pattern) -> Result<Envelope, Error> {
        self.begin(Operation::Recv, pattern)?;
        let mut receiving = Receiving::start(&self.core, &mut self.state, buffer, pattern);
        self.wait(&mut receiving)
    }

    /// Sends to one rank and receives from another, or the same, at the same time: neither waits for the other. What is sent has
    /// the tag `tag`, and so has what is received; where they differ, see [`start_recv`](Messages::start_recv). Not collective.
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
    /// As [`send`](Messages::send) and [`recv`](Messages::recv). Where the receive fails, a long message that was not received yet is taken
    /// back; after a time-out of the receive it may have been received. Where the send fails, `buffer` may have got a message all the same:
    /// who has to know which starts both, and [waits for each](Messages::wait).
    pub fn sendrecv<T: Pod, U: Pod>(
        &mut self,
        data: &[T],
        to: usize,
        buffer: &mut [U],
        from: impl Into<Source>,
        tag: u64,
    ) -> Result<Envelope, Error> {
        let mut receiving = self.start_recv(buffer, from, tag)?;
        let mut sending = self.start_sending(data, to, tag, How::Attended)?;
        let envelopes = self.wait_all(&mut [&mut receiving, &mut sending])?;
        Ok(envelopes[0])
    }

    /// Starts to send `data`, and returns at once. Not collective. Example: [`Sending`].
    ///
    /// # Errors
    /// [`Error::InvalidRank`]; [`Error::RankLeft`] for a rank that has dropped its messages. After the communicator has ended, its cause.
    pub fn start_send<'a, T: Pod>(&mut self, data: &'a [T], to: usize, tag: u64) -> Result<Sending<'a>, Error> {
        self.start_sending(data, to, tag, How::Started)
    }

    /// The same for a message that is complete only when it has been received, or has begun to be: MPI's synchronous mode. However
    /// short, it is copied from `data` by its receiver. Not collective.
    ///
    /// ```
    /// let results = intranode::threads(2, |comm| {
    ///     let mut messages = comm.messages()?;
    ///     if comm.rank() == 1 {
    ///         comm.barrier()?;
    ///         return messages.recv_vec::<u8>(0, 1).map(|(data, _)| data);
    ///     }
    ///     let mut sending = messages.start_send_synchronous(&[7u8], 1, 1)?;
    ///     assert!(messages.test(&mut sending)?.is_none());
    ///     comm.barrier()?;
    ///     messages.wait(&mut sending)?; // rank 1 has received it
    ///     Ok::<_, intranode::Error>(vec![7])
    /// })?;
    /// for result in results {
    ///     assert_eq!(result?, [7]);
    /// }
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`start_send`](Messages::start_send).
    pub fn start_send_synchronous<'a, T: Pod>(
        &mut self,
        data: &'a [T],
        to: usize,
        tag: u64,
    ) -> Result<Sending<'a>, Error> {
        self.start_sending(data, to, tag, How::Synchronous)
    }

    fn start_sending<'a, T: Pod>(
        &mut self,
        data: &'a [T],
        to: usize,
        tag: u64,
        how: How,
    ) -> Result<Sending<'a>, Error> {
        self.begin_send(to)?;
        let Messages { core, state, .. } = self;
        core.count(Operation::Send, size_of_val(data));
        Sending::start(core, state, data, to, tag, how)
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
        self.core.count(Operation::Recv, 0);
        Ok(Receiving::start(&self.core, &mut self.state, buffer, pattern))
    }

    /// Starts to receive a message of any length, into memory of its own; otherwise as [`start_recv`](Messages::start_recv).
    ///
    /// ```
    /// let received = intranode::threads(1, |comm| {
    ///     let mut messages = comm.messages()?;
    ///     let mut receiving = messages.start_recv_bytes(0, 5)?;
    ///     messages.send(&[1u8, 2, 3], 0, 5)?;
    ///     messages.wait(&mut receiving)?;
    ///     Ok::<_, intranode::Error>(receiving.into_bytes())
    /// })?;
    /// assert_eq!(*received[0].as_ref().unwrap(), [1, 2, 3]);
    /// # Ok::<(), intranode::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::InvalidRank`]. A message for which there is no memory is [`Error::Truncated`], and kept.
    pub fn start_recv_bytes(
        &mut self,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Receiving<'static>, Error> {
        let pattern = self.pattern(Operation::Recv, from, tag)?;
        self.core.count(Operation::Recv, 0);
        Ok(Receiving::start_bytes(&self.core, &mut self.state, pattern))
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

    pub(super) fn pattern(
        &mut self,
        operation: Operation,
        from: impl Into<Source>,
        tag: impl Into<Tag>,
    ) -> Result<Pattern, Error> {
        let pattern = Pattern { source: from.into(), tag: tag.into() };
        self.begin(operation, pattern).map(|()| pattern)
    }

    fn begin(&mut self, operation: Operation, pattern: Pattern) -> Result<(), Error> {
        self.core.check_rank(operation, pattern.rank())?;
        self.state.begin(&self.core);
        Ok(())
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        let Messages { core, state, tree, .. } = self;
        if core.rank_state.mapped.forked() {
            return;
        }
        for (target, peer) in state.peers.iter_mut().enumerate() {
            // An error occurs in tests only.
            let _ = peer.outgoing.flush(core, target);
        }
        tree.pass_on();
        core.close();
    }
}

impl fmt::Debug for Messages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Messages").field("rank", &self.core.rank()).field("size", &self.core.size()).finish()
    }
}
