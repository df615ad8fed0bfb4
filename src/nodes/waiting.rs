//! How a leader waits for others, and why that fails.

use std::thread;
use std::time::{Duration, Instant};

use crate::sys::wait::progress;

/// Why a call of [`Leaders`](crate::Leaders) has failed. It names a node where one is to blame.
///
/// ```
/// let error: Box<dyn std::error::Error> = intranode::LeadersError::Left { node: 1 }.into();
/// assert_eq!(error.to_string(), "the leader of node 1 has left");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LeadersError {
    /// The leader of a node did not come within the time-out.
    #[error("the leader of node {node} did not come within the time-out")]
    Late {
        /// The first node that is late.
        node: usize,
    },
    /// The leader of a node has died.
    #[error("the leader of node {node} has died, process {pid}")]
    Died {
        /// Its node.
        node: usize,
        /// Its process there; 0 if that is unknown.
        pid: u32,
    },
    /// The leader of a node has left, and calls no more.
    #[error("the leader of node {node} has left")]
    Left {
        /// Its node.
        node: usize,
    },
    /// The leader of a node has ended the job.
    #[error("the leader of node {node} aborted the job with code {code}")]
    Aborted {
        /// Its node.
        node: usize,
        /// The exit code that it asks for.
        code: i32,
    },
    /// The leader of a node has ended what connects the leaders, as by a panic.
    #[error("the leader of node {node} has made it unusable: {reason}")]
    Unusable {
        /// Its node.
        node: usize,
        /// What has happened there.
        reason: String,
    },
    /// A node has failed, as its leader has told by [`fail`](crate::Leaders::fail).
    #[error("a node has failed, as its leader has told")]
    Failed {
        /// What it has told.
        notice: Vec<u8>,
    },
    /// The ranks of this leader's own node have failed: what [`Waiting::pause`] returns.
    #[error("the ranks of this leader's own node have failed")]
    OwnNode,
    /// What connects the leaders has failed.
    #[error("what connects the leaders has failed: {reason}")]
    Transport {
        /// The reason.
        reason: String,
    },
}

/// What a leader does while it waits for others: it keeps the ranks of its own node from giving it up, and asks its program whether
/// to go on ([`Config::interrupt`](crate::Config::interrupt)).
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
///
/// /// The same for two, of which each may take as long as the time-out.
/// fn receive_two(from: &Receiver<Vec<u8>>, node: usize, wait: &mut Waiting<'_>) -> Result<[Vec<u8>; 2], LeadersError> {
///     let first = receive(from, node, wait)?;
///     wait.restart();
///     Ok([first, receive(from, node, wait)?])
/// }
/// # let _ = receive_two;
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

/// A leader that waits shows the ranks of its node that it lives at least so often; so a death among them ends its wait too. It
/// asks its program as often.
const PULSE: Duration = Duration::from_millis(50);

/// For how long a thread waits until another one, which waits for other leaders, has seen that their node's communicator has ended.
pub(super) const SEEN_WITHIN: Duration = PULSE.saturating_mul(10);

/// How long leaders have for an answer, if the time-out is much longer.
const ROLL_CALL: Duration = Duration::from_millis(500);

impl<'a> Waiting<'a> {
    /// A wait that begins now. `pulse` shows the ranks of the node that this leader lives; false: they have failed, or this leader is
    /// to wait no longer.
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
        pause_since(self.begun);
        Ok(())
    }

    /// Since when the current message has been awaited.
    pub(super) fn begun(&self) -> Instant {
        self.begun
    }

    /// The time-out, if there is one. Example: [`RollCall`](crate::RollCall).
    pub fn timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// Begins the time-out again: what was awaited has come, and something else is awaited from now on. The library does so before each
    /// call of a [`Leaders`](crate::Leaders); an implementation whose call waits for several messages does so after each. Example: [`Waiting`].
    pub fn restart(&mut self) {
        self.begun = Instant::now();
    }

    /// For how long the current message has been awaited: what a leader answers in a [`RollCall`](crate::RollCall). Example:
    /// [`RollCall`](crate::RollCall).
    pub fn waited(&self) -> Duration {
        self.begun.elapsed()
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

/// Waits for a moment in a wait that has begun then.
pub(super) fn pause_since(begun: Instant) {
    progress::go_on();
    // What connects leaders wakes nobody in general, MPI does not; so there is nothing to sleep on.
    if begun.elapsed() < POLLS { thread::yield_now() } else { thread::sleep(SLEEP) }
}

/// How long a leader waits for answers, when its time-out is over. The ranks of its node wait meanwhile, and are not to give it up.
pub(super) fn roll_call_within(timeout: Duration) -> Duration {
    ROLL_CALL.min(timeout / 4)
}

/// Several times within the time-out of the ranks that wait.
pub(super) fn pulse_every(timeout: Option<Duration>) -> Duration {
    timeout.map_or(PULSE, |timeout| PULSE.min(timeout / 8))
}
