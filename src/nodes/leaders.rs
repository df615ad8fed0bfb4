//! What connects the leaders of the nodes.

use std::thread;
use std::time::{Duration, Instant};

/// What connects the leaders of the nodes: one rank of each. The library has it over a second segment
/// ([`LocalLeaders`](crate::LocalLeaders)), to simulate nodes on one machine; over a network it is to be written over MPI.
///
/// All leaders make the same collective calls in the same order. A call returns when this leader's part is complete. While it
/// waits it calls [`Waiting::pause`] again and again, which keeps the ranks of its node from giving it up, so an
/// implementation starts what it does and tests it. After an error it is used no more.
///
/// ```
/// use intranode::{Leaders, LeadersError, Waiting};
///
/// /// A single node: there is nobody to wait for.
/// struct Alone;
///
/// impl Leaders for Alone {
///     fn node(&self) -> usize {
///         0
///     }
///     fn nodes(&self) -> usize {
///         1
///     }
///     fn barrier(&mut self, _: &mut Waiting<'_>) -> Result<(), LeadersError> {
///         Ok(())
///     }
///     fn allgatherv(&mut self, _: &mut [u8], _: &[usize], _: &mut Waiting<'_>) -> Result<(), LeadersError> {
///         Ok(())
///     }
///     fn broadcast(&mut self, _: &mut [u8], _: usize, _: &mut Waiting<'_>) -> Result<(), LeadersError> {
///         Ok(())
///     }
///     fn send(&mut self, _: &[u8], to: usize, _: &mut Waiting<'_>) -> Result<(), LeadersError> {
///         Err(LeadersError::Transport { reason: format!("there is no node {to}") })
///     }
///     fn recv(&mut self, _: &mut [u8], from: usize, _: &mut Waiting<'_>) -> Result<(), LeadersError> {
///         Err(LeadersError::Transport { reason: format!("there is no node {from}") })
///     }
///     fn fail(&mut self, _: &[u8]) {}
/// }
///
/// assert_eq!((Alone.node(), Alone.nodes()), (0, 1));
/// ```
pub trait Leaders: Send {
    /// The node of this leader: 0 to `nodes() - 1`.
    fn node(&self) -> usize;

    /// The number of nodes.
    fn nodes(&self) -> usize;

    /// Returns when all leaders have called it.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn barrier(&mut self, wait: &mut Waiting<'_>) -> Result<(), LeadersError>;

    /// Gathers the blocks of all nodes on every leader: `counts[n]` bytes of node `n`, one after the other in `data`, in which the
    /// own block is already. `counts` is the same on all.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn allgatherv(
        &mut self,
        data: &mut [u8],
        counts: &[usize],
        wait: &mut Waiting<'_>,
    ) -> Result<(), LeadersError>;

    /// Copies `data` of the leader of node `root` to all leaders. It has the same length on all.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn broadcast(&mut self, data: &mut [u8], root: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError>;

    /// Sends `data` to the leader of node `to`. It may wait until that receives it.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn send(&mut self, data: &[u8], to: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError>;

    /// Receives the next message of the leader of node `from`, which is as long as `data`.
    ///
    /// # Errors
    /// Any [`LeadersError`].
    fn recv(&mut self, data: &mut [u8], from: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError>;

    /// Tells all other leaders that this node has failed, without waiting for them: the calls that they are in, or make next,
    /// return [`LeadersError::Failed`] with `notice`. It is the last call.
    fn fail(&mut self, notice: &[u8]);
}

/// Why a call of [`Leaders`] has failed. It names a node where one is to blame. Example: [`Leaders`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeadersError {
    /// The leader of a node did not come within the time-out.
    Late {
        /// The first node that is late.
        node: usize,
    },
    /// The leader of a node has died.
    Died {
        /// Its node.
        node: usize,
        /// Its process there; 0 if that is unknown.
        pid: u32,
    },
    /// The leader of a node has left, and calls no more.
    Left {
        /// Its node.
        node: usize,
    },
    /// A node has failed, as its leader has told by [`fail`](Leaders::fail).
    Failed {
        /// What it has told.
        notice: Vec<u8>,
    },
    /// The ranks of this leader's own node have failed: what [`Waiting::pause`] returns.
    OwnNode,
    /// What connects the leaders has failed.
    Transport {
        /// The reason.
        reason: String,
    },
}

/// What a leader does while it waits for others: it keeps the ranks of its own node from giving it up.
///
/// ```
/// use std::sync::mpsc::{Receiver, TryRecvError};
/// use intranode::{LeadersError, Waiting};
///
/// /// Waits for a message from the leader of `node`.
/// fn receive(from: &Receiver<Vec<u8>>, node: usize, wait: &mut Waiting<'_>) -> Result<Vec<u8>, LeadersError> {
///     loop {
///         match from.try_recv() {
///             Ok(message) => return Ok(message),
///             Err(TryRecvError::Disconnected) => return Err(LeadersError::Left { node }),
///             Err(TryRecvError::Empty) if wait.is_over() => return Err(LeadersError::Late { node }),
///             Err(TryRecvError::Empty) => wait.pause()?,
///         }
///     }
/// }
/// # let _ = receive;
/// ```
pub struct Waiting<'a> {
    timeout: Option<Duration>,
    begun: Instant,
    /// When the ranks of the node are shown again that this leader lives.
    next_pulse: Instant,
    pulse: &'a mut dyn FnMut() -> bool,
}

/// How long a leader polls before it sleeps between polls, and the time of such a sleep.
const POLLS: Duration = Duration::from_millis(4);
const SLEEP: Duration = Duration::from_micros(200);

/// A leader that waits shows the ranks of its node that it lives at least so often; so a death among them ends its wait too.
const PULSE: Duration = Duration::from_millis(50);

impl<'a> Waiting<'a> {
    /// A wait that begins now. `pulse` shows the ranks of the node that this leader lives; false: they have failed.
    pub(super) fn new(timeout: Option<Duration>, pulse: &'a mut dyn FnMut() -> bool) -> Self {
        let begun = Instant::now();
        Waiting { timeout, begun, next_pulse: begun + pulse_every(timeout), pulse }
    }

    /// Waits for a moment: to be called between two tests of what is awaited. At first it only lets other processes run, later
    /// it sleeps for a fraction of a millisecond. Example: [`Waiting`].
    ///
    /// # Errors
    /// [`LeadersError::OwnNode`].
    pub fn pause(&mut self) -> Result<(), LeadersError> {
        let now = Instant::now();
        if now >= self.next_pulse {
            self.next_pulse = now + pulse_every(self.timeout);
            if !(self.pulse)() {
                return Err(LeadersError::OwnNode);
            }
        }
        // What connects leaders wakes nobody in general, MPI does not; so there is nothing to sleep on.
        if now - self.begun < POLLS {
            thread::yield_now()
        } else {
            thread::sleep(SLEEP)
        }
        Ok(())
    }

    /// Whether the time-out is over: the call is to return [`LeadersError::Late`]. Example: [`Waiting`].
    pub fn is_over(&self) -> bool {
        self.timeout.is_some_and(|timeout| self.begun.elapsed() >= timeout)
    }
}

impl std::fmt::Debug for Waiting<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Waiting")
            .field("timeout", &self.timeout)
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}

/// Several times within the time-out of the ranks that wait.
fn pulse_every(timeout: Option<Duration>) -> Duration {
    timeout.map_or(PULSE, |timeout| PULSE.min(timeout / 8))
}

/// What is behind a pointer, so that a program can choose at run time.
impl<L: Leaders + ?Sized> Leaders for Box<L> {
    fn node(&self) -> usize {
        (**self).node()
    }

    fn nodes(&self) -> usize {
        (**self).nodes()
    }

    fn barrier(&mut self, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        (**self).barrier(wait)
    }

    fn allgatherv(
        &mut self,
        data: &mut [u8],
        counts: &[usize],
        wait: &mut Waiting<'_>,
    ) -> Result<(), LeadersError> {
        (**self).allgatherv(data, counts, wait)
    }

    fn broadcast(&mut self, data: &mut [u8], root: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        (**self).broadcast(data, root, wait)
    }

    fn send(&mut self, data: &[u8], to: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        (**self).send(data, to, wait)
    }

    fn recv(&mut self, data: &mut [u8], from: usize, wait: &mut Waiting<'_>) -> Result<(), LeadersError> {
        (**self).recv(data, from, wait)
    }

    fn fail(&mut self, notice: &[u8]) {
        (**self).fail(notice);
    }
}
