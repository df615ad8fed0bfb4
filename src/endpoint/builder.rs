//! The settings of an endpoint.

use std::time::Duration;

use crate::endpoint::error::EndpointError;
use crate::endpoint::listener::Listener;
use crate::endpoint::state::State;
use crate::sys::memory::rlimit;
use crate::sys::processors::Processors;
use crate::sys::wait::spin::SpinPolicy;

/// The descriptors that an endpoint leaves to its program.
const DESCRIPTORS_LEFT: u64 = 64;

/// The descriptors of a peer: a connection, and its process.
const DESCRIPTORS_OF_A_PEER: u64 = 2;

/// How an endpoint is made. [`Endpoint::builder`](crate::Endpoint::builder) makes it.
///
/// ```
/// use intranode::{Endpoint, EndpointError};
/// use std::time::Duration;
///
/// let name = format!("builder-example-{}", std::process::id());
/// let server = Endpoint::builder()
///     .timeout(Duration::from_secs(10))
///     .spin(Duration::from_micros(50))
///     .max_peers(100)
///     .listen(&name)?;
/// let client = Endpoint::builder().timeout(None).client()?;
/// # Ok::<(), EndpointError>(())
/// ```
#[derive(Clone, Copy, Debug)]
#[must_use]
pub struct EndpointBuilder {
    timeout: Option<Duration>,
    spin: Option<Duration>,
    max_peers: Option<usize>,
}

impl EndpointBuilder {
    pub(crate) fn new() -> Self {
        EndpointBuilder { timeout: Some(Duration::from_secs(60)), spin: None, max_peers: None }
    }

    /// How long a call waits that has no time-out of its own: 60 s unless set; `None`: without limit. Example:
    /// [`EndpointBuilder`].
    pub fn timeout(self, timeout: impl Into<Option<Duration>>) -> Self {
        EndpointBuilder { timeout: timeout.into(), ..self }
    }

    /// How long a call that waits polls before it sleeps: 4 ms unless set, if this process has two processors. Example:
    /// [`EndpointBuilder`].
    pub fn spin(self, spin: Duration) -> Self {
        EndpointBuilder { spin: Some(spin), ..self }
    }

    /// The most peers at a time. Unless set: as many as the soft limit of descriptors allows, two for each, if 64 are left to
    /// the program. Those that have connected and have not said hello yet count for up to 5 s. Each takes a little more than 4 MiB of
    /// shared memory, which the side that connects has made, page by page as it is used. Example: [`EndpointBuilder`].
    pub fn max_peers(self, peers: usize) -> Self {
        EndpointBuilder { max_peers: Some(peers), ..self }
    }

    /// The time-out, which belongs to the calls.
    pub(crate) fn chosen_timeout(&self) -> Option<Duration> {
        self.timeout
    }

    /// An endpoint with these settings.
    pub(crate) fn make(self, listener: Option<Listener>) -> Result<State, EndpointError> {
        let processors = Processors::count(&[Processors::available()]);
        let spin = SpinPolicy::chosen(self.spin, 2, processors);
        let max_peers = self.max_peers.unwrap_or_else(|| {
            let peers = |limit: u64| limit.saturating_sub(DESCRIPTORS_LEFT) / DESCRIPTORS_OF_A_PEER;
            let peers = rlimit::descriptors().map_or(u64::MAX, peers).max(1);
            usize::try_from(peers).unwrap_or(usize::MAX)
        });
        State::new(listener, spin, max_peers)
    }
}
