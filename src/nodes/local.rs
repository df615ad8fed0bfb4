//! Leaders that meet in a segment of their own: simulated nodes on one machine.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};

use crate::collective::pending::Pending;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::message::envelope::Source;
use crate::message::messages::Messages;
use crate::message::request::Request;
use crate::nodes::desk::pause;
use crate::nodes::leaders::Leaders;
use crate::nodes::places::packed;
use crate::nodes::roll_call::{Awaited, RollCall};
use crate::nodes::waiting::{LeadersError, Waiting, roll_call_within};

const DATA: u64 = 1;
const CONTROL: u64 = 2;

/// The first byte of a control message: a failure, whose notice follows; a question whom a leader waits for, and the answer, with what
/// the sender awaits itself.
const FAILED: u8 = 0;
const ASKED: u8 = 1;
const HERE: u8 = 2;

/// Leaders that meet in a second segment: [`Leaders`] between the nodes that [`Hierarchical::simulated`] makes of one machine.
/// Node `n` is rank `n` of a communicator of the leaders.
///
/// ```
/// use intranode::{Leaders, LocalLeaders};
///
/// let nodes = intranode::threads(2, |comm| LocalLeaders::new(comm).map(|leaders| (leaders.node(), leaders.nodes())))?;
/// assert!(matches!(nodes[..], [Ok((0, 2)), Ok((1, 2))]));
/// # Ok::<(), intranode::Error>(())
/// ```
///
/// [`Hierarchical::simulated`]: crate::Hierarchical::simulated
pub struct LocalLeaders {
    /// What was started and is not complete.
    started: Option<Started>,
    // Before the communicator, which ends when it is dropped.
    mail: Arc<Mutex<Mail>>,
    comm: Arc<Communicator>,
}

impl fmt::Debug for LocalLeaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalLeaders").field("comm", &self.comm).finish_non_exhaustive()
    }
}

/// A call that is tested.
struct Started {
    call: Pin<Box<dyn Future<Output = Result<Vec<u8>, Error>> + Send>>,
    /// Of a message: the other node. A collective has a time-out of its own.
    message: Option<usize>,
    /// Since when a test has found nothing.
    missed: Option<Instant>,
}

/// The messages between leaders.
#[derive(Debug)]
struct Mail {
    messages: Messages,
    own: usize,
    nodes: usize,
    /// What a leader has told of the failure of its node, while this one could still complete a call.
    heard: Option<Vec<u8>>,
    /// What this leader awaits: the other node of a message, and since when.
    awaits: (Option<usize>, Instant),
}

impl LocalLeaders {
    /// Leaders over a communicator of theirs. Collective over it. Example: [`LocalLeaders`].
    ///
    /// # Errors
    /// As [`Communicator::messages`].
    pub fn new(comm: Communicator) -> Result<Self, Error> {
        let (messages, awaits) = (comm.messages()?, (None, Instant::now()));
        let mail = Mail { messages, own: comm.rank(), nodes: comm.size(), heard: None, awaits };
        Ok(LocalLeaders { started: None, mail: Arc::new(Mutex::new(mail)), comm: Arc::new(comm) })
    }
}

impl Leaders for LocalLeaders {
    fn node(&self) -> usize {
        self.comm.rank()
    }

    fn nodes(&self) -> usize {
        self.comm.size()
    }

    fn allgatherv(
        &mut self,
        data: &mut [u8],
        counts: &[usize],
        wait: &mut Waiting<'_>,
    ) -> Result<(), LeadersError> {
        let (mut mail, displs, rank) = (lock(&self.mail), packed(counts), self.comm.rank());
        let own = &data[displs[rank]..][..counts[rank]];
        let pending = self.comm.start_allgatherv(own, data.to_vec(), counts, &displs);
        let pending = pending.map_err(|error| mail.blamed(error))?;
        data.copy_from_slice(&mail.complete(pending, wait)?);
        Ok(())
    }

    fn broadcast(&mut self, data: &mut [u8], root: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        let mut mail = lock(&self.mail);
        let pending = self.comm.start_broadcast(data.to_vec(), root).map_err(|error| mail.blamed(error))?;
        data.copy_from_slice(&mail.complete(pending, wait)?);
        Ok(())
    }

    fn send(&mut self, data: &[u8], to: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        let mut mail = lock(&self.mail);
        let sent = match mail.messages.start_send(data, to, DATA) {
            Ok(request) => mail.attend(request, to, wait),
            Err(error) => Err(mail.blamed(error)),
        };
        drop(mail);
        self.with_cause(sent)
    }

    fn recv(&mut self, data: &mut [u8], from: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        let mut mail = lock(&self.mail);
        let received = match mail.messages.start_recv(data, from, DATA) {
            Ok(request) => mail.attend(request, from, wait),
            Err(error) => Err(mail.blamed(error)),
        };
        drop(mail);
        self.with_cause(received)
    }

    fn start_allgatherv(&mut self, data: Vec<u8>, counts: &[usize]) -> Result<(), LeadersError> {
        let (comm, counts) = (Arc::clone(&self.comm), counts.to_vec());
        self.start(None, async move {
            let (displs, rank) = (packed(&counts), comm.rank());
            let own = data[displs[rank]..][..counts[rank]].to_vec();
            completed(comm.start_allgatherv(&own, data, &counts, &displs)?).await
        })
    }

    fn start_broadcast(&mut self, data: Vec<u8>, root: usize) -> Result<(), LeadersError> {
        let comm = Arc::clone(&self.comm);
        self.start(None, async move { completed(comm.start_broadcast(data, root)?).await })
    }

    fn start_send(&mut self, data: Vec<u8>, to: usize) -> Result<(), LeadersError> {
        let mail = Arc::clone(&self.mail);
        self.start(Some(to), async move {
            let mut request = lock(&mail).messages.start_send(&data, to, DATA)?;
            finished(&mail, &mut request).await?;
            drop(request);
            Ok(data)
        })
    }

    fn start_recv(&mut self, mut data: Vec<u8>, from: usize) -> Result<(), LeadersError> {
        let mail = Arc::clone(&self.mail);
        self.start(Some(from), async move {
            let mut request = lock(&mail).messages.start_recv(&mut data, from, DATA)?;
            finished(&mail, &mut request).await?;
            drop(request);
            Ok(data)
        })
    }

    fn test(&mut self, timeout: Option<Duration>) -> Result<Option<Vec<u8>>, LeadersError> {
        let Some(Started { call, message, missed }) = &mut self.started else {
            return Err(LeadersError::Transport { reason: "no call of the leaders was started".to_owned() });
        };
        // In this order: the call may be complete on a node that has failed in the next one.
        let told = lock(&self.mail).look_awaiting(*message, missed.unwrap_or_else(Instant::now));
        let result = match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => result,
            Poll::Pending if told => return Err(lock(&self.mail).failed()),
            Poll::Pending => {
                let since = *missed.get_or_insert_with(Instant::now);
                if let (Some(node), Some(timeout)) = (*message, timeout)
                    && since.elapsed() >= timeout
                {
                    lock(&self.mail).roll_call(node, timeout)?;
                    *missed = None;
                }
                return Ok(None);
            }
        };
        let is_message = message.is_some();
        self.started = None;
        let result = result.map(Some).map_err(|error| lock(&self.mail).blamed(error));
        if is_message { self.with_cause(result) } else { result }
    }

    fn fail(&mut self, notice: &[u8]) {
        self.started = None;
        // Where it finds no room, or has ended, a node learns from what ends with this leader.
        lock(&self.mail).tell_all(&[&[FAILED], notice].concat());
    }
}

impl LocalLeaders {
    /// A leader may have left because the communicator had ended, so that it could not tell why: then its cause says more.
    fn with_cause<R>(&mut self, result: Result<R, LeadersError>) -> Result<R, LeadersError> {
        match result {
            Err(LeadersError::Left { node }) => match self.comm.barrier() {
                Err(error) => Err(lock(&self.mail).blamed(error)),
                Ok(()) => Err(LeadersError::Left { node }),
            },
            other => other,
        }
    }

    /// Starts a call, which begins when it is tested first. `message`: the other node of a message.
    fn start(
        &mut self,
        message: Option<usize>,
        call: impl Future<Output = Result<Vec<u8>, Error>> + Send + 'static,
    ) -> Result<(), LeadersError> {
        self.started = Some(Started { call: Box::pin(call), message, missed: None });
        Ok(())
    }
}

/// Completes a collective, in tests.
async fn completed<R>(mut pending: Pending<'_, R>) -> Result<R, Error> {
    while !pending.test() {
        pause().await;
    }
    pending.wait()
}

/// Completes a message, in tests.
async fn finished(mail: &Mutex<Mail>, request: &mut impl Request) -> Result<(), Error> {
    while lock(mail).messages.test(request)?.is_none() {
        pause().await;
    }
    Ok(())
}

/// Only this leader's thread locks it. A panic inside has ended the communicator.
fn lock(mail: &Mutex<Mail>) -> MutexGuard<'_, Mail> {
    mail.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Mail {
    /// Completes a message to or from a node.
    fn attend(
        &mut self,
        mut request: impl Request,
        node: usize,
        wait: &mut Waiting<'_>,
    ) -> Result<(), LeadersError> {
        loop {
            let told = self.look_awaiting(Some(node), wait.begun());
            match self.messages.test(&mut request) {
                Ok(Some(_)) => return Ok(()),
                Ok(None) if told => return Err(self.failed()),
                Ok(None) => match wait.timeout().filter(|timeout| wait.waited() >= *timeout) {
                    Some(timeout) => {
                        self.roll_call(node, timeout)?;
                        wait.restart();
                    }
                    None => wait.pause()?,
                },
                Err(error) => return Err(self.blamed(error)),
            }
        }
    }

    /// Completes a collective. Its own time-out names who is late.
    fn complete<R>(&mut self, mut pending: Pending<'_, R>, wait: &mut Waiting<'_>) -> Result<R, LeadersError> {
        loop {
            // In this order: the call may be complete on a node that has failed in the next one.
            let told = self.look_awaiting(None, wait.begun());
            if pending.test() {
                return pending.wait().map_err(|error| self.blamed(error));
            }
            if told {
                return Err(self.failed());
            }
            wait.pause()?;
        }
    }

    /// Looks while a message to or from a node has been awaited since then, or a collective.
    fn look_awaiting(&mut self, node: Option<usize>, since: Instant) -> bool {
        self.awaits = (node, since);
        self.look()
    }

    /// Whether a leader has told of the failure of its node. Answers those who ask.
    fn look(&mut self) -> bool {
        while self.heard.is_none()
            && let Some((from, control)) = self.control()
        {
            self.hear(from, &control);
        }
        self.heard.is_some()
    }

    /// A control message that has come, and from where.
    fn control(&mut self) -> Option<(usize, Vec<u8>)> {
        let from = self.messages.try_probe(Source::Any, CONTROL).ok()??.source;
        let (control, _) = self.messages.recv_vec(from, CONTROL).ok()?;
        Some((from, control))
    }

    /// Returns what the sender awaits, if it says that.
    fn hear(&mut self, from: usize, control: &[u8]) -> Option<Awaited> {
        let (kind, rest) = control.split_first()?;
        match *kind {
            FAILED => {
                self.heard = Some(rest.to_vec());
                return None;
            }
            ASKED => self.tell(from, &self.awaited(HERE)),
            _ => {}
        }
        Awaited::from_bytes(rest)
    }

    /// What this leader awaits, in a message.
    fn awaited(&self, kind: u8) -> Vec<u8> {
        let (node, since) = self.awaits;
        [&[kind][..], &Awaited::new(node, since.elapsed()).to_bytes()].concat()
    }

    fn tell(&mut self, node: usize, control: &[u8]) {
        let _ = self.messages.try_send(control, node, CONTROL);
    }

    fn tell_all(&mut self, control: &[u8]) {
        let own = self.own;
        (0..self.nodes).filter(|node| *node != own).for_each(|node| self.tell(node, control));
    }

    /// Whether somebody is late where this leader waits for `node`: see [`RollCall`].
    fn roll_call(&mut self, node: usize, timeout: Duration) -> Result<(), LeadersError> {
        self.tell_all(&self.awaited(ASKED));
        let mut roll_call = RollCall::new(self.nodes, self.own, Some(node), timeout);
        let begun = Instant::now();
        loop {
            let is_over = begun.elapsed() >= roll_call_within(timeout);
            match self.control() {
                Some((from, control)) => {
                    // Who asks is there too.
                    if let Some(awaited) = self.hear(from, &control) {
                        roll_call.hear(from, awaited);
                    }
                }
                None => thread::yield_now(),
            }
            if self.heard.is_some() {
                return Err(self.failed());
            }
            if let Some(outcome) = roll_call.outcome(is_over) {
                return outcome;
            }
        }
    }

    fn failed(&mut self) -> LeadersError {
        LeadersError::Failed { notice: self.heard.take().unwrap_or_default() }
    }

    /// Why a call has failed: what a leader has told before it left says more than that it has left.
    fn blamed(&mut self, error: Error) -> LeadersError {
        if self.look() {
            return self.failed();
        }
        match error {
            Error::RankDied { rank, pid, .. } => LeadersError::Died { node: rank, pid },
            Error::RankLeft { rank, .. } => LeadersError::Left { node: rank },
            Error::Aborted { rank, code, .. } => LeadersError::Aborted { node: rank, code },
            Error::Poisoned { rank, reason, .. } => {
                LeadersError::Unusable { node: rank, reason: reason.to_owned() }
            }
            Error::TimedOut { late, .. } if !late.is_empty() => LeadersError::Late { node: late[0] },
            other => LeadersError::Transport { reason: other.to_string() },
        }
    }
}
