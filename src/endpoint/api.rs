//! An endpoint: making it, connecting and disconnecting.

use std::fmt;
use std::time::Duration;

use crate::endpoint::address::Address;
use crate::endpoint::builder::EndpointBuilder;
use crate::endpoint::dialling::dial;
use crate::endpoint::error::EndpointError;
use crate::endpoint::listener::Listener;
use crate::endpoint::peer::Peer;
use crate::endpoint::short::LONGEST;
use crate::endpoint::state::State;

/// Messages between processes that are not ranks of one job: a server listens, clients come and go, all of one user on one
/// machine.
///
/// * A message has a tag and 0 to [`MAX_MESSAGE_BYTES`](Endpoint::MAX_MESSAGE_BYTES) bytes. An *unexpected* one is received by
///   the receive that asks for the next, with its sender; an *expected* one by the receive that asks for this peer and this tag. None is lost that
///   nobody has asked for yet.
/// * Each connection has memory of its own, with room for 64 messages in each direction. A peer that does not receive, has
///   stopped or writes nonsense stands in the way of nobody else.
/// * What a peer has sent before it ends is received; then calls fail with the reason. Of peers that are gone with messages that nobody has
///   received up to 64 MiB are kept; the messages of those before them are thrown away, first those of the process whose take the
///   most, and their end is still reported.
/// * There is no thread: things go on in calls only. While nothing happens nothing runs, and a sender makes no system call if its
///   receiver is awake. [`as_fd`](std::os::fd::AsFd::as_fd) is one descriptor for an event loop: see [`arm`](Endpoint::arm). With the feature `tokio`
///   there is `AsyncEndpoint`.
/// * Nothing is in the file system. A name is free again when its endpoint is gone, however it ends.
///
/// The other side is not trusted with more than its own messages: docs/endpoint.md says what that means. An endpoint belongs to one
/// process: in a forked child its calls fail. It takes a descriptor, two more for the name, and two for each peer.
///
/// ```
/// use intranode::{Endpoint, EndpointError};
///
/// let name = format!("endpoint-example-{}", std::process::id());
/// let mut server = Endpoint::listen(&name)?;
/// let address = server.address().expect("it listens").clone();
/// let client = std::thread::spawn(move || {
///     let mut client = Endpoint::client()?;
///     let server = client.connect(&address)?;
///     client.send_unexpected(server, 1, b"what is 6 times 7?")?;
///     let mut answer = [0; 64];
///     let bytes = client.recv_expected(server, 1, &mut answer)?;
///     Ok::<_, EndpointError>(answer[..bytes].to_vec())
/// });
/// let mut question = [0; 64];
/// let call = server.recv_unexpected(&mut question)?;
/// server.send_expected(call.peer, call.tag, b"42")?;
/// assert_eq!(client.join().expect("no panic")?, b"42");
/// # Ok::<(), EndpointError>(())
/// ```
pub struct Endpoint {
    pub(super) state: State,
    pub(super) timeout: Option<Duration>,
}

impl EndpointBuilder {
    /// An endpoint that others can connect to, as [`Endpoint::listen`](crate::Endpoint::listen) makes it. Example:
    /// [`EndpointBuilder`].
    ///
    /// # Errors
    /// Those of [`Endpoint::listen`](crate::Endpoint::listen).
    pub fn listen(self, name: &str) -> Result<Endpoint, EndpointError> {
        let listener = Listener::new(Address::local_for("listen", name)?)?;
        Ok(Endpoint { timeout: self.chosen_timeout(), state: self.make(Some(listener))? })
    }

    /// An endpoint that connects to others only. Example: [`EndpointBuilder`].
    ///
    /// # Errors
    /// Those of [`Endpoint::client`](crate::Endpoint::client).
    pub fn client(self) -> Result<Endpoint, EndpointError> {
        Ok(Endpoint { timeout: self.chosen_timeout(), state: self.make(None)? })
    }
}

impl Endpoint {
    /// The longest message, in bytes.
    ///
    /// ```
    /// assert_eq!(intranode::Endpoint::MAX_MESSAGE_BYTES, 4096);
    /// ```
    pub const MAX_MESSAGE_BYTES: usize = LONGEST;

    /// An endpoint to which others of this user connect, by a name that no other endpoint of this user has in this network
    /// namespace. Example: [`Endpoint`].
    ///
    /// # Errors
    /// [`EndpointError::InvalidName`], [`EndpointError::NameTaken`]; [`EndpointError::System`] without descriptors.
    pub fn listen(name: &str) -> Result<Self, EndpointError> {
        Self::builder().listen(name)
    }

    /// An endpoint that connects to others only. Example: [`Endpoint`].
    ///
    /// # Errors
    /// [`EndpointError::System`] without descriptors.
    pub fn client() -> Result<Self, EndpointError> {
        Self::builder().client()
    }

    /// Settings for an endpoint. Example: [`EndpointBuilder`].
    pub fn builder() -> EndpointBuilder {
        EndpointBuilder::new()
    }

    /// Where it listens; `None` if it does not. Example: [`Address`].
    #[must_use]
    pub fn address(&self) -> Option<&Address> {
        self.state.listener.as_ref().map(|listener| &listener.address)
    }

    /// Connects to an endpoint that listens. Returns at once, and messages can be sent at once; whether the other side accepts is
    /// reported as an [`Event`](crate::Event). It does so in its next call. Example: [`Endpoint`].
    ///
    /// # Errors
    /// [`EndpointError::NotLocal`], [`EndpointError::NobodyListens`], [`EndpointError::ForeignUser`],
    /// [`EndpointError::TooManyPeers`]; [`EndpointError::TimedOut`] if very many wait to be accepted;
    /// [`EndpointError::System`] without descriptors or memory; [`EndpointError::Forked`].
    pub fn connect(&mut self, address: &Address) -> Result<Peer, EndpointError> {
        self.state.check()?;
        self.state.check_room_for_peer()?;
        let dialled = dial(address, self.timeout)?;
        self.state.introduce(dialled)
    }

    /// Ends a connection. What was sent to the peer is received there; what has come from it and was not received is thrown
    /// away. Without such a peer it does nothing.
    ///
    /// ```
    /// use intranode::{Endpoint, EndpointError};
    ///
    /// let name = format!("disconnect-example-{}", std::process::id());
    /// let server = Endpoint::listen(&name)?;
    /// let mut client = Endpoint::client()?;
    /// let peer = client.connect(server.address().expect("it listens"))?;
    /// client.disconnect(peer);
    /// assert!(matches!(client.send_unexpected(peer, 0, b"?"), Err(EndpointError::PeerGone { .. })));
    /// # Ok::<(), EndpointError>(())
    /// ```
    pub fn disconnect(&mut self, peer: Peer) {
        if self.state.check().is_ok() {
            self.state.disconnect(peer);
        }
    }

    pub(super) fn block<R>(
        &mut self,
        operation: &'static str,
        peer: Option<Peer>,
        attempt: impl FnMut(&mut State) -> Result<Option<R>, EndpointError>,
    ) -> Result<R, EndpointError> {
        let found = self.state.block(self.timeout, attempt)?;
        found.ok_or_else(|| self.timed_out(operation, peer))
    }

    pub(super) fn timed_out(&self, operation: &'static str, peer: Option<Peer>) -> EndpointError {
        EndpointError::TimedOut { operation, peer, timeout: self.timeout.unwrap_or_default() }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let peers = self.state.links.alive();
        f.debug_struct("Endpoint")
            .field("address", &self.address())
            .field("peers", &peers)
            .finish_non_exhaustive()
    }
}
