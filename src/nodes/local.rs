//! Leaders that meet in a segment of their own: simulated nodes on one machine.

use crate::collective::pending::Pending;
use crate::communicator::Communicator;
use crate::error::Error;
use crate::message::envelope::Source;
use crate::message::messages::Messages;
use crate::message::request::Request;
use crate::nodes::leaders::{Leaders, LeadersError, Waiting};

const DATA: u64 = 1;
const NOTICE: u64 = 2;

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
#[derive(Debug)]
pub struct LocalLeaders {
    // Before the communicator, which ends when it is dropped.
    mail: Mail,
    comm: Communicator,
}

/// The messages between leaders.
#[derive(Debug)]
struct Mail {
    messages: Messages,
    /// What a leader has told of the failure of its node, while this one could still complete a call.
    heard: Option<Vec<u8>>,
}

impl LocalLeaders {
    /// Leaders over a communicator of theirs. Collective over it. Example: [`LocalLeaders`].
    ///
    /// # Errors
    /// As [`Communicator::messages`].
    pub fn new(comm: Communicator) -> Result<Self, Error> {
        Ok(LocalLeaders { mail: Mail { messages: comm.messages()?, heard: None }, comm })
    }
}

impl Leaders for LocalLeaders {
    fn node(&self) -> usize {
        self.comm.rank()
    }

    fn nodes(&self) -> usize {
        self.comm.size()
    }

    fn barrier(&mut self, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        let LocalLeaders { mail, comm } = self;
        let pending = comm.start_barrier().map_err(|error| mail.blamed(error))?;
        mail.complete(pending, wait)
    }

    fn allgatherv(
        &mut self,
        data: &mut [u8],
        counts: &[usize],
        wait: &mut Waiting<'_>,
    ) -> Result<(), LeadersError> {
        let LocalLeaders { mail, comm } = self;
        let displs: Vec<usize> = counts
            .iter()
            .scan(0, |end, count| {
                *end += count;
                Some(*end - count)
            })
            .collect();
        let own = &data[displs[comm.rank()]..][..counts[comm.rank()]];
        let pending = comm.start_allgatherv(own, data.to_vec(), counts, &displs);
        let pending = pending.map_err(|error| mail.blamed(error))?;
        data.copy_from_slice(&mail.complete(pending, wait)?);
        Ok(())
    }

    fn broadcast(&mut self, data: &mut [u8], root: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        let LocalLeaders { mail, comm } = self;
        let pending = comm.start_broadcast(data.to_vec(), root).map_err(|error| mail.blamed(error))?;
        data.copy_from_slice(&mail.complete(pending, wait)?);
        Ok(())
    }

    fn send(&mut self, data: &[u8], to: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        let sent = match self.mail.messages.start_send(data, to, DATA) {
            Ok(request) => self.mail.attend(request, to, wait),
            Err(error) => Err(self.mail.blamed(error)),
        };
        self.with_cause(sent)
    }

    fn recv(&mut self, data: &mut [u8], from: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        let received = match self.mail.messages.start_recv(data, from, DATA) {
            Ok(request) => self.mail.attend(request, from, wait),
            Err(error) => Err(self.mail.blamed(error)),
        };
        self.with_cause(received)
    }

    fn fail(&mut self, notice: &[u8]) {
        for node in (0..self.comm.size()).filter(|node| *node != self.comm.rank()) {
            // Where it finds no room, or has ended, the node learns from what ends with this leader.
            let _ = self.mail.messages.try_send(notice, node, NOTICE);
        }
    }
}

impl LocalLeaders {
    /// A leader may have left because the communicator had ended, so that it could not tell why: then its cause says more.
    fn with_cause(&mut self, result: Result<(), LeadersError>) -> Result<(), LeadersError> {
        match result {
            Err(LeadersError::Left { node }) => match self.comm.barrier() {
                Err(error) => Err(self.mail.blamed(error)),
                Ok(()) => Err(LeadersError::Left { node }),
            },
            other => other,
        }
    }
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
            let told = self.look();
            match self.messages.test(&mut request) {
                Ok(Some(_)) => return Ok(()),
                Ok(None) if told => return Err(self.failed()),
                Ok(None) if wait.is_over() => return Err(LeadersError::Late { node }),
                Ok(None) => wait.pause()?,
                Err(error) => return Err(self.blamed(error)),
            }
        }
    }

    /// Completes a collective. Its own time-out names who is late.
    fn complete<R>(&mut self, mut pending: Pending<'_, R>, wait: &mut Waiting<'_>) -> Result<R, LeadersError> {
        loop {
            // In this order: the call may be complete on a node that has failed in the next one.
            let told = self.look();
            if pending.test() {
                return pending.wait().map_err(|error| self.blamed(error));
            }
            if told {
                return Err(self.failed());
            }
            wait.pause()?;
        }
    }

    /// Whether a leader has told of the failure of its node.
    fn look(&mut self) -> bool {
        if self.heard.is_none()
            && let Ok(Some(envelope)) = self.messages.try_probe(Source::Any, NOTICE)
            && let Ok((notice, _)) = self.messages.recv_vec(envelope.source, NOTICE)
        {
            self.heard = Some(notice);
        }
        self.heard.is_some()
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
            Error::TimedOut { late, .. } if !late.is_empty() => LeadersError::Late { node: late[0] },
            other => LeadersError::Transport { reason: other.to_string() },
        }
    }
}
