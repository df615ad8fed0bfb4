//! What has happened at an endpoint, and waiting until something does: by a call, or in somebody else's event loop.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use crate::endpoint::api::Endpoint;
use crate::endpoint::error::EndpointError;
use crate::endpoint::peer::{Armed, Event};

impl Endpoint {
    /// Takes in what has come, and reports the next that has happened; never waits. Each peer has its turn. `None`: there is
    /// nothing more. Messages stay until they are received. While peers are awake, every 64th call looks for new connections, ends,
    /// and messages of those that were asleep, or while messages come, one after 50 µs; [`arm`](Endpoint::arm) always does. Example:
    /// [`Endpoint::arm`].
    ///
    /// # Errors
    /// [`EndpointError::Forked`]; [`EndpointError::System`].
    pub fn poll(&mut self) -> Result<Option<Event>, EndpointError> {
        self.state.progress()?;
        Ok(self.state.links.next_event())
    }

    /// Whether an event loop may sleep: then the endpoint's descriptor becomes readable as soon as there is something to do. Until
    /// it is armed the descriptor says nothing. A loop goes through these steps:
    ///
    /// 1. [`poll`](Endpoint::poll) until there is nothing more, receive, and [`test`](Endpoint::test) what was started.
    /// 2. Arm. If there is work, go back to 1.
    /// 3. Wait for the descriptor by `poll`, `epoll` or its like, level-triggered or edge-triggered, and go back to 1.
    ///
    /// There is work, too, where a get or a put that was started can go on: an answer to it has come since it was tested, or it was
    /// only tested until it had moved something. This is said once of each such thing, so that a request that nobody tests does not keep
    /// the loop awake: test all that were started before the next `arm`.
    ///
    /// A peer that sends to an endpoint that is armed makes one system call; then none before it is armed again.
    ///
    /// ```
    /// use intranode::{Armed, Endpoint, EndpointError, Event};
    /// use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
    /// use std::os::fd::AsFd;
    ///
    /// let name = format!("arm-example-{}", std::process::id());
    /// let mut server = Endpoint::listen(&name)?;
    /// let address = server.address().expect("it listens").clone();
    /// let client = std::thread::spawn(move || {
    ///     let mut client = Endpoint::client()?;
    ///     let peer = client.connect(&address)?;
    ///     client.send_unexpected(peer, 7, b"hello")
    /// });
    /// 'events: loop {
    ///     while let Some(event) = server.poll()? {
    ///         if matches!(event, Event::Closed { .. }) {
    ///             break 'events;
    ///         }
    ///     }
    ///     if server.arm()? == Armed::Sleep {
    ///         // Here with whatever else the loop waits for.
    ///         poll(&mut [PollFd::new(server.as_fd(), PollFlags::POLLIN)], PollTimeout::NONE).expect("a descriptor");
    ///     }
    /// }
    /// // It is gone, and its message is not.
    /// assert_eq!(server.try_recv_unexpected(&mut [0; 16])?.map(|message| message.tag), Some(7));
    /// client.join().expect("no panic")?;
    /// # Ok::<(), EndpointError>(())
    /// ```
    ///
    /// # Errors
    /// As [`poll`](Endpoint::poll).
    pub fn arm(&mut self) -> Result<Armed, EndpointError> {
        let is_awake = self.state.park()?;
        // First: an answer may be behind messages, which are reported.
        let goes_on = self.state.transfers_go_on();
        let has_work = is_awake || goes_on || self.state.links.has_news();
        Ok(if has_work { Armed::Work } else { Armed::Sleep })
    }

    /// Reports the next that has happened; waits for it at most for so long, or without limit: it polls for a while, then it
    /// sleeps. `None`: nothing has happened in time. Example: [`Event`].
    ///
    /// # Errors
    /// As [`poll`](Endpoint::poll).
    pub fn wait(&mut self, timeout: Option<Duration>) -> Result<Option<Event>, EndpointError> {
        self.state.block(timeout, |state| Ok(state.links.next_event()))
    }
}

/// Readable when there is something to do, once the endpoint is [armed](Endpoint::arm).
impl AsFd for Endpoint {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.state.epoll.as_fd()
    }
}

impl AsRawFd for Endpoint {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
