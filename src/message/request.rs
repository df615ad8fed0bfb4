//! Requests: sends and receives that were started, and are completed by later calls.

use std::fmt;
use std::sync::Arc;

use bytemuck::Pod;

use crate::error::{Error, Operation};
use crate::message::core::Core;
use crate::message::envelope::{Envelope, Pattern};
use crate::message::outgoing::{self, How, Served, Started, Ticket};
use crate::message::state::{Kept, Receive, State, Target, Wait};
use crate::protocol::Failure;
use crate::protocol::message::Settled;

/// A request: a [`Sending`] or a [`Receiving`]. Example: [`Messages::wait_all`](crate::Messages::wait_all).
pub trait Request: sealed::Poll {}

impl Request for Sending<'_> {}
impl Request for Receiving<'_> {}

pub(crate) mod sealed {
    use crate::error::Error;
    use crate::message::core::Core;
    use crate::message::envelope::Envelope;
    use crate::message::state::{State, Wait};

    pub trait Poll {
        /// Goes on as far as possible without waiting. `None`: it is not complete.
        fn poll(&mut self, core: &Core, state: &mut State) -> Option<Result<Envelope, Error>>;

        /// Who waits for what, for an error and for where to look.
        fn wait(&self) -> Wait;

        /// The ranks that it waits for.
        fn awaited(&self) -> Vec<usize>;

        /// How far it has come: a number that changes.
        fn progress(&self) -> usize;

        /// Whether `wait_any` has reported it.
        fn reported(&mut self) -> &mut bool;

        /// Takes it back. False: it is, or will be, complete.
        fn withdraw(&mut self, core: &Core, state: &mut State) -> bool;
    }
}

/// A message that is being sent, from memory that it borrows. It goes on in calls of the [`Messages`](crate::Messages) that it
/// comes from; where the system lets no other process read that memory, only in those that it is passed to.
///
/// A message that fits into the channel, and has room there, is complete at once. Any other is withdrawn if the request is
/// dropped before it is complete: the receiver does not get it. If the request is forgotten (`std::mem::forget`) the message
/// remains, and the receiver gets what is at its place by then, or nothing.
///
/// ```
/// let sums = intranode::threads(2, |comm| {
///     let mut messages = comm.messages()?;
///     let (own, other) = (vec![comm.rank() as u64; 100_000], 1 - comm.rank());
///     let mut received = vec![0u64; 100_000];
///     let mut sending = messages.start_send(&own, other, 1)?;
///     messages.recv(&mut received, other, 1)?;
///     messages.wait(&mut sending)?;
///     Ok::<u64, intranode::Error>(received.iter().sum())
/// })?;
/// assert_eq!((*sums[0].as_ref().unwrap(), *sums[1].as_ref().unwrap()), (100_000, 0));
/// # Ok::<(), intranode::Error>(())
/// ```
#[must_use = "a message that is not sent yet is withdrawn when its request is dropped"]
pub struct Sending<'a> {
    core: Arc<Core>,
    target: usize,
    tag: u64,
    data: &'a [u8],
    stage: Stage,
    reported: bool,
}

enum Stage {
    Sent,
    Offered(Arc<Ticket>, Served),
    Withdrawn,
}

impl<'a> Sending<'a> {
    pub(crate) fn start<T: Pod>(
        core: &Arc<Core>,
        state: &mut State,
        data: &'a [T],
        target: usize,
        tag: u64,
        how: How,
    ) -> Result<Self, Error> {
        let data: &[u8] = bytemuck::cast_slice(data);
        let started = state.peers[target].outgoing.start(core, target, tag, data, how);
        let stage = match started.map_err(|killed| outgoing::failed(core, killed))? {
            Started::Sent => Stage::Sent,
            Started::Offered(ticket) => Stage::Offered(ticket, Served::default()),
        };
        Ok(Sending { core: Arc::clone(core), target, tag, data, stage, reported: false })
    }

    fn envelope(&self) -> Envelope {
        Envelope { source: self.core.rank(), tag: self.tag, bytes: self.data.len() }
    }
}

impl sealed::Poll for Sending<'_> {
    fn poll(&mut self, core: &Core, state: &mut State) -> Option<Result<Envelope, Error>> {
        assert_own(core, &self.core);
        if let Stage::Offered(ticket, served) = &mut self.stage {
            let outgoing = &mut state.peers[self.target].outgoing;
            match outgoing.serve(core, self.target, ticket, self.data, served) {
                Ok(true) => self.stage = Stage::Sent,
                Ok(false) => return None,
                Err(killed) => return Some(Err(outgoing::failed(core, killed))),
            }
        }
        Some(Ok(self.envelope()))
    }

    fn wait(&self) -> Wait {
        Wait::to(self.target)
    }

    fn awaited(&self) -> Vec<usize> {
        vec![self.target]
    }

    fn progress(&self) -> usize {
        if let Stage::Offered(_, served) = &self.stage { served.position() } else { self.data.len() }
    }

    fn reported(&mut self) -> &mut bool {
        &mut self.reported
    }

    fn withdraw(&mut self, core: &Core, _: &mut State) -> bool {
        assert_own(core, &self.core);
        let Stage::Offered(ticket, _) = &self.stage else { return matches!(self.stage, Stage::Withdrawn) };
        let withdrawn = ticket.withdraw(core, self.target) == Settled::Withdrawn;
        self.stage = if withdrawn { Stage::Withdrawn } else { Stage::Sent };
        withdrawn
    }
}

impl Drop for Sending<'_> {
    fn drop(&mut self) {
        if let Stage::Offered(ticket, _) = &self.stage
            && !self.core.rank_state.mapped.forked()
        {
            ticket.withdraw(&self.core, self.target);
        }
    }
}

impl fmt::Debug for Sending<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let complete = !matches!(self.stage, Stage::Offered(..));
        f.debug_struct("Sending").field("to", &self.target).field("complete", &complete).finish_non_exhaustive()
    }
}

/// A receive that was started, into memory that it borrows. Bytes are copied only in calls that it is passed to, so nothing
/// refers to this memory when it is dropped or forgotten.
///
/// If it is dropped before it is complete, its message is there for other receives. If it is forgotten
/// (`std::mem::forget`) it takes the message that it would have received.
///
/// ```
/// let received = intranode::threads(2, |comm| {
///     let mut messages = comm.messages()?;
///     if comm.rank() == 0 {
///         messages.send(&[1u8, 2, 3], 1, 5)?;
///         return Ok([0; 3]);
///     }
///     let mut data = [0u8; 3];
///     let mut receiving = messages.start_recv(&mut data, 0, 5)?;
///     messages.wait(&mut receiving)?;
///     Ok::<_, intranode::Error>(data)
/// })?;
/// assert_eq!(*received[1].as_ref().unwrap(), [1, 2, 3]);
/// # Ok::<(), intranode::Error>(())
/// ```
#[must_use = "a receive is withdrawn when its request is dropped"]
pub struct Receiving<'a> {
    posted: Posted,
    /// The only rank whose message it gets, if it asks for one.
    source: Option<usize>,
    target: Target<'a>,
    element: usize,
    reported: bool,
    progress: usize,
}

/// A receive without its buffer. It is this that is withdrawn when a request is dropped, so that the buffer can be used as soon
/// as the request is not.
struct Posted {
    core: Arc<Core>,
    id: u64,
    /// The rank whose message it has taken: it gets no other.
    taken_of: Option<usize>,
    end: Option<End>,
}

#[derive(Clone, Copy)]
enum End {
    Received(Envelope),
    Kept(Kept),
    /// By this rank.
    Withdrawn,
    /// By the sender of the message that was taken.
    TakenBack(usize),
}

impl<'a> Receiving<'a> {
    pub(crate) fn start<T: Pod>(
        core: &Arc<Core>,
        state: &mut State,
        target: &'a mut [T],
        pattern: Pattern,
    ) -> Self {
        Receiving::started(core, (state.arrivals.start(pattern), None), target, pattern.rank())
    }

    /// That of a message that was taken, with this id.
    pub(crate) fn of_taken<T: Pod>(core: &Arc<Core>, id: u64, target: &'a mut [T], message: Envelope) -> Self {
        let source = Some(message.source);
        Receiving::started(core, (id, source), target, source)
    }

    fn started<T: Pod>(
        core: &Arc<Core>,
        (id, taken_of): (u64, Option<usize>),
        target: &'a mut [T],
        source: Option<usize>,
    ) -> Self {
        let target = Target::Lent(bytemuck::cast_slice_mut(target));
        let posted = Posted { core: Arc::clone(core), id, taken_of, end: None };
        Receiving { posted, source, target, element: size_of::<T>(), reported: false, progress: 0 }
    }

    /// Into memory of its own.
    pub(crate) fn start_bytes(core: &Arc<Core>, state: &mut State, pattern: Pattern) -> Self {
        let receiving = Receiving::start::<u8>(core, state, &mut [], pattern);
        Receiving { target: Target::Own(Vec::new()), ..receiving }
    }

    /// What a complete receive of a message of any length has received; of any other, nothing. Example:
    /// [`Messages::start_recv_bytes`](crate::Messages::start_recv_bytes).
    pub fn into_bytes(self) -> Vec<u8> {
        match (self.target, self.posted.end) {
            (Target::Own(bytes), Some(End::Received(_))) => bytes,
            _ => Vec::new(),
        }
    }
}

impl sealed::Poll for Receiving<'_> {
    fn poll(&mut self, core: &Core, state: &mut State) -> Option<Result<Envelope, Error>> {
        assert_own(core, &self.posted.core);
        let Receiving { element, posted: Posted { id, taken_of, .. }, .. } = *self;
        if self.posted.end.is_none() {
            let mut receive = Receive { id, target: &mut self.target, element };
            match state.receive(core, &mut receive) {
                Ok(None) => match taken_of.filter(|_| state.arrivals.index_of(id).is_none()) {
                    Some(rank) => self.posted.end = Some(End::TakenBack(rank)),
                    None => {
                        self.progress = state.received_of(id);
                        return None;
                    }
                },
                Ok(Some(Ok(envelope))) => {
                    core.received(envelope.bytes);
                    self.posted.end = Some(End::Received(envelope));
                }
                Ok(Some(Err(kept))) => self.posted.end = Some(End::Kept(kept)),
                Err(killed) => return Some(Err(core.failed(Operation::Recv, Failure::from(killed)))),
            }
        }
        match self.posted.end? {
            End::Received(envelope) => Some(Ok(envelope)),
            End::Kept(kept) => Some(Err(kept_error(Operation::Recv, kept, self.target.bytes().len(), element))),
            End::Withdrawn => Some(Ok(Envelope { source: core.rank(), tag: 0, bytes: 0 })),
            End::TakenBack(rank) => Some(Err(Error::Withdrawn { operation: Operation::Recv, rank })),
        }
    }

    fn wait(&self) -> Wait {
        Wait { receive: Some(self.posted.id), ..Wait::from(Operation::Recv, self.source) }
    }

    fn awaited(&self) -> Vec<usize> {
        self.posted.core.awaited(self.source)
    }

    fn progress(&self) -> usize {
        self.progress
    }

    fn reported(&mut self) -> &mut bool {
        &mut self.reported
    }

    fn withdraw(&mut self, core: &Core, state: &mut State) -> bool {
        assert_own(core, &self.posted.core);
        if let Some(end) = self.posted.end {
            return matches!(end, End::Withdrawn);
        }
        // An error occurs in tests only.
        if !matches!(state.standing(core, self.posted.id), Ok(None)) {
            return false;
        }
        state.withdraw(core, self.posted.id);
        self.posted.end = Some(End::Withdrawn);
        true
    }
}

impl Drop for Posted {
    fn drop(&mut self) {
        if self.end.is_none() && !self.core.rank_state.mapped.forked() {
            self.core.drop_receive(self.id);
        }
    }
}

impl fmt::Debug for Receiving<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiving").field("complete", &self.posted.end.is_some()).finish_non_exhaustive()
    }
}

/// A request is gone on with by the messages that started it.
fn assert_own(core: &Core, own: &Arc<Core>) {
    assert!(std::ptr::eq(core, &**own), "a request belongs to the messages that started it");
}

/// The error of a receive whose message stays where it is.
#[cold]
fn kept_error(operation: Operation, kept: Kept, capacity: usize, element: usize) -> Error {
    match kept {
        Kept::Truncated(Envelope { source: rank, bytes, .. }) => {
            Error::Truncated { operation, rank, bytes, capacity }
        }
        Kept::NotWhole(Envelope { source: rank, bytes, .. }) => {
            Error::NotWhole { operation, rank, bytes, element }
        }
    }
}
