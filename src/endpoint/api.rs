//! An endpoint: making it, connecting, sending and receiving.

use std::fmt;
use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::endpoint::address::Address;
use crate::endpoint::builder::EndpointBuilder;
use crate::endpoint::error::{EndpointError, system};
use crate::endpoint::hello::Hello;
use crate::endpoint::link::{LONGEST, Stage};
use crate::endpoint::listener::Listener;
use crate::endpoint::peer::{Incoming, Peer};
use crate::endpoint::state::State;
use crate::protocol::message::Kind;
use crate::segment::pair_memory::PairMemory;
use crate::sys::{process, socket};

/// Messages between processes that are not ranks of one job: a server listens, clients come and go, all of one user on one
/// machine.
///
/// * A message has a tag and 0 to [`MAX_MESSAGE_BYTES`](Endpoint::MAX_MESSAGE_BYTES) bytes. An *unexpected* one is received by
///   whoever asks for the next, with its sender; an *expected* one by who asks for this peer and this tag. None is lost that
///   nobody has asked for yet.
/// * Each connection has memory of its own, with room for 64 messages in each direction. A peer that does not receive, has
///   stopped or writes nonsense stands in the way of nobody else.
/// * What a peer has sent before it ends is received; then calls fail with the reason.
/// * There is no thread: things go on in calls only. While nothing happens nothing runs, and a sender makes no system call if its
///   receiver is awake. [`as_fd`](AsFd::as_fd) is one descriptor for an event loop: see [`arm`](Endpoint::arm).
/// * Nothing is in the file system. A name is free again when its endpoint is gone, however it ends.
///
/// The other side is not trusted with more than its own messages: docs/endpoint.md says what that means. An endpoint belongs to one
/// process: in a forked child its calls fail. It takes a descriptor, one more for the name, and two for each peer.
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
    timeout: Option<Duration>,
}

impl EndpointBuilder {
    /// An endpoint that others can connect to, as [`Endpoint::listen`](crate::Endpoint::listen) makes it. Example:
    /// [`EndpointBuilder`].
    ///
    /// # Errors
    /// Those of [`Endpoint::listen`](crate::Endpoint::listen).
    pub fn listen(self, name: &str) -> Result<Endpoint, EndpointError> {
        let listener = Listener::new(Address::local(name)?)?;
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
        const CONNECT: &str = "connect";
        self.state.check()?;
        self.state.check_room_for_peer()?;
        if !address.is_local() {
            return Err(EndpointError::NotLocal { address: address.to_string() });
        }
        let name = || address.name().to_owned();
        let socket =
            socket::connect(&address.socket_name(), self.timeout).map_err(|source| match source.kind() {
                io::ErrorKind::ConnectionRefused => EndpointError::NobodyListens { name: name() },
                io::ErrorKind::WouldBlock => {
                    EndpointError::TimedOut { operation: CONNECT, timeout: self.timeout.unwrap_or_default() }
                }
                _ => system(CONNECT, "the connection")(source),
            })?;
        let peer = socket::credentials(socket.as_fd()).map_err(system(CONNECT, "to say who listens"))?;
        if peer.user != process::user() {
            return Err(EndpointError::ForeignUser { name: name(), process: peer.process, user: peer.user });
        }
        let (memory, file) = PairMemory::create().map_err(system(CONNECT, "the memory of the connection"))?;
        let started = process::start_time(std::process::id()).unwrap_or(0);
        let hello = Hello { started, memory: PairMemory::file_len() as u64 }.encode();
        match socket::send_with(socket.as_fd(), &hello, file.as_fd()) {
            // The other side has refused already, and says why.
            Err(error)
                if [io::ErrorKind::BrokenPipe, io::ErrorKind::ConnectionReset].contains(&error.kind()) => {}
            sent => sent.map_err(system(CONNECT, "the hello"))?,
        }
        // Only where the system says for certain which process listens.
        let process = socket::process(socket.as_fd(), peer.process).ok().filter(|(_, certain)| *certain);
        let process = (process.map(|(process, _)| process), peer.process);
        self.state
            .add(Stage::Asked, socket, process, memory)
            .map_err(system(CONNECT, "to wait for a descriptor"))
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

    /// Sends a message of up to 4096 bytes that the peer receives as the next one. Waits for room, if the peer has not received 64
    /// before. Example: [`Endpoint`].
    ///
    /// # Errors
    /// [`EndpointError::TooLong`], [`EndpointError::PeerGone`], [`EndpointError::UnknownPeer`],
    /// [`EndpointError::TimedOut`], [`EndpointError::Forked`].
    pub fn send_unexpected(&mut self, to: Peer, tag: u64, data: &[u8]) -> Result<(), EndpointError> {
        self.send("send_unexpected", Kind::Message, to, tag, data)
    }

    /// The same without waiting. Returns whether there was room; if not, [`Event::Room`](crate::Event::Room) says when.
    ///
    /// ```
    /// use intranode::{Endpoint, EndpointError};
    ///
    /// let name = format!("try-send-example-{}", std::process::id());
    /// let server = Endpoint::listen(&name)?;
    /// let mut client = Endpoint::client()?;
    /// let peer = client.connect(server.address().expect("it listens"))?;
    /// let mut sent = 0;
    /// while client.try_send_unexpected(peer, 0, b"nobody receives this")? {
    ///     sent += 1;
    /// }
    /// assert_eq!(sent, 64);
    /// # Ok::<(), EndpointError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`send_unexpected`](Endpoint::send_unexpected), without the time-out.
    pub fn try_send_unexpected(&mut self, to: Peer, tag: u64, data: &[u8]) -> Result<bool, EndpointError> {
        self.try_send(Kind::Message, to, tag, data)
    }

    /// Sends a message of up to 4096 bytes to a peer that receives it by its sender and tag. Waits for room. Example: [`Endpoint`].
    ///
    /// # Errors
    /// Those of [`send_unexpected`](Endpoint::send_unexpected).
    pub fn send_expected(&mut self, to: Peer, tag: u64, data: &[u8]) -> Result<(), EndpointError> {
        self.send("send_expected", Kind::Expected, to, tag, data)
    }

    /// The same without waiting. Returns whether there was room.
    ///
    /// ```
    /// use intranode::{Endpoint, EndpointError};
    ///
    /// let name = format!("try-expected-example-{}", std::process::id());
    /// let mut server = Endpoint::listen(&name)?;
    /// let mut client = Endpoint::client()?;
    /// let to_server = client.connect(server.address().expect("it listens"))?;
    /// client.send_unexpected(to_server, 0, b"")?;
    /// let to_client = server.recv_unexpected(&mut [])?.peer;
    /// assert!(server.try_send_expected(to_client, 1, b"first")? && server.try_send_expected(to_client, 2, b"second")?);
    /// let mut buffer = [0; 16];
    /// assert_eq!(client.try_recv_expected(to_server, 3, &mut buffer)?, None);
    /// assert_eq!(client.try_recv_expected(to_server, 2, &mut buffer)?, Some(6));
    /// assert_eq!(&buffer[..6], b"second");
    /// # Ok::<(), EndpointError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`try_send_unexpected`](Endpoint::try_send_unexpected).
    pub fn try_send_expected(&mut self, to: Peer, tag: u64, data: &[u8]) -> Result<bool, EndpointError> {
        self.try_send(Kind::Expected, to, tag, data)
    }

    fn try_send(&mut self, kind: Kind, to: Peer, tag: u64, data: &[u8]) -> Result<bool, EndpointError> {
        if data.len() > LONGEST {
            return Err(EndpointError::TooLong { bytes: data.len(), max: LONGEST });
        }
        self.state.check()?;
        Ok(self.state.links.find_open(to)?.send(kind, tag, data))
    }

    fn send(
        &mut self,
        operation: &'static str,
        kind: Kind,
        to: Peer,
        tag: u64,
        data: &[u8],
    ) -> Result<(), EndpointError> {
        if self.try_send(kind, to, tag, data)? {
            return Ok(());
        }
        self.block(operation, |state| Ok(state.links.find_open(to)?.send(kind, tag, data).then_some(())))
    }

    /// Receives the next message that was sent as unexpected, from whichever peer; waits for it. Example: [`Endpoint`].
    ///
    /// # Errors
    /// [`EndpointError::Truncated`] if the buffer is too short: the message stays; [`EndpointError::TimedOut`],
    /// [`EndpointError::Forked`]. Peers that are gone are no error: others may connect.
    pub fn recv_unexpected(&mut self, buffer: &mut [u8]) -> Result<Incoming, EndpointError> {
        self.block("recv_unexpected", |state| next_unexpected(state, buffer))
    }

    /// The same without waiting. `None`: there is none.
    ///
    /// ```
    /// use intranode::{Endpoint, EndpointError};
    ///
    /// let mut server = Endpoint::listen(&format!("try-recv-example-{}", std::process::id()))?;
    /// assert_eq!(server.try_recv_unexpected(&mut [0; 16])?, None);
    /// # Ok::<(), EndpointError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`recv_unexpected`](Endpoint::recv_unexpected), without the time-out.
    pub fn try_recv_unexpected(&mut self, buffer: &mut [u8]) -> Result<Option<Incoming>, EndpointError> {
        self.state.progress()?;
        next_unexpected(&mut self.state, buffer)
    }

    /// Receives the next message that this peer has sent as expected with this tag; waits for it. Returns its length in bytes.
    /// Example: [`Endpoint`].
    ///
    /// # Errors
    /// [`EndpointError::Truncated`] if the buffer is too short: the message stays; [`EndpointError::PeerGone`] when all that the
    /// peer has sent was looked at; [`EndpointError::UnknownPeer`]; [`EndpointError::TooManyUnreceived`] if it may be behind
    /// very many others; [`EndpointError::TimedOut`], [`EndpointError::Forked`].
    pub fn recv_expected(&mut self, from: Peer, tag: u64, buffer: &mut [u8]) -> Result<usize, EndpointError> {
        self.block("recv_expected", |state| next_expected(state, from, tag, buffer))
    }

    /// The same without waiting. `None`: it has not come yet. Example:
    /// [`Endpoint::try_send_expected`](crate::Endpoint::try_send_expected).
    ///
    /// # Errors
    /// Those of [`recv_expected`](Endpoint::recv_expected), without the time-out.
    pub fn try_recv_expected(
        &mut self,
        from: Peer,
        tag: u64,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, EndpointError> {
        self.state.progress()?;
        next_expected(&mut self.state, from, tag, buffer)
    }

    pub(super) fn block<R>(
        &mut self,
        operation: &'static str,
        attempt: impl FnMut(&mut State) -> Result<Option<R>, EndpointError>,
    ) -> Result<R, EndpointError> {
        let found = self.state.block(self.timeout, attempt)?;
        let timeout = self.timeout.unwrap_or_default();
        found.ok_or(EndpointError::TimedOut { operation, timeout })
    }
}

fn next_unexpected(state: &mut State, buffer: &mut [u8]) -> Result<Option<Incoming>, EndpointError> {
    while let Some(peer) = state.unexpected.front().copied() {
        let found = state.links.get(peer).and_then(|link| Some((link.first_unexpected()?, link)));
        // Otherwise the peer is gone, and with it what nobody has received.
        if let Some((index, link)) = found {
            let (tag, bytes) = link.receive(index, buffer)?;
            state.unexpected.pop_front();
            state.received(peer);
            return Ok(Some(Incoming { peer, tag, bytes }));
        }
        state.unexpected.pop_front();
    }
    Ok(None)
}

fn next_expected(
    state: &mut State,
    from: Peer,
    tag: u64,
    buffer: &mut [u8],
) -> Result<Option<usize>, EndpointError> {
    loop {
        let link = state.links.find(from)?;
        if let Some(index) = link.first_expected(tag) {
            let (_, bytes) = link.receive(index, buffer)?;
            state.received(from);
            return Ok(Some(bytes));
        }
        if let Stage::Ended(ended) = link.stage {
            return Err(EndpointError::PeerGone { peer: from, ended });
        }
        // It may be behind others, which nobody has asked for.
        if !state.take_in_behind(from)? {
            return Ok(None);
        }
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
