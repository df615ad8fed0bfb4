//! Who an endpoint is connected to, and what it says of that.

use std::fmt;

use crate::endpoint::ended::Ended;

/// A connection of an endpoint. One that is made later never has the same: what is meant for a peer that is gone reaches nobody.
///
/// ```
/// use intranode::{Endpoint, EndpointError, Event};
///
/// let name = format!("peer-example-{}", std::process::id());
/// let mut server = Endpoint::listen(&name)?;
/// let mut client = Endpoint::client()?;
/// let to_server = client.connect(server.address().expect("it listens"))?;
/// client.send_unexpected(to_server, 7, b"hello")?;
/// let mut buffer = [0; 16];
/// let message = server.recv_unexpected(&mut buffer)?;
/// assert_eq!((message.tag, &buffer[..message.bytes]), (7, &b"hello"[..]));
/// server.send_expected(message.peer, 8, b"and back")?;
/// assert_eq!(client.recv_expected(to_server, 8, &mut buffer)?, 8);
/// # Ok::<(), EndpointError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Peer {
    pub(crate) slot: u32,
    pub(crate) generation: u32,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "peer {}.{}", self.slot, self.generation)
    }
}

/// A message that was received without having been expected. Example: [`Peer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Incoming {
    /// Who has sent it.
    pub peer: Peer,
    /// The sender's tag.
    pub tag: u64,
    /// Its length, in bytes.
    pub bytes: usize,
}

/// What has happened at an endpoint.
///
/// ```
/// use intranode::{Endpoint, EndpointError, Event};
///
/// let name = format!("event-example-{}", std::process::id());
/// let mut server = Endpoint::listen(&name)?;
/// let mut client = Endpoint::client()?;
/// let peer = client.connect(server.address().expect("it listens"))?;
/// client.send_unexpected(peer, 7, b"hello")?;
/// let Some(Event::Connected { peer }) = server.wait(None)? else { panic!("a client has connected") };
/// let Some(Event::Message { peer: from, expected: false, tag: 7, bytes: 5 }) = server.wait(None)? else {
///     panic!("it has sent a message")
/// };
/// assert_eq!(from, peer);
/// # Ok::<(), EndpointError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A connection was accepted: by this endpoint, or by the one that it has connected to.
    Connected {
        /// The other side.
        peer: Peer,
    },
    /// A message has come. It stays until it is received, and is reported once.
    Message {
        /// Its sender.
        peer: Peer,
        /// Whether it was sent as expected.
        expected: bool,
        /// The sender's tag.
        tag: u64,
        /// Its length, in bytes.
        bytes: usize,
    },
    /// There may be room for a message again, after there was none: for the shortest of those that were refused.
    Room {
        /// Whom it can be sent to.
        peer: Peer,
    },
    /// A peer is gone. All of its messages have been reported before, and can still be received, unless others have gone since whose
    /// messages take more than 64 MiB: then those of the first are thrown away, of the process whose take the most.
    Closed {
        /// The peer.
        peer: Peer,
        /// Why.
        ended: Ended,
    },
}

impl Event {
    /// Whom it is about.
    ///
    /// ```
    /// use intranode::{Endpoint, EndpointError};
    ///
    /// let mut server = Endpoint::listen(&format!("event-peer-example-{}", std::process::id()))?;
    /// let mut client = Endpoint::client()?;
    /// let to_server = client.connect(server.address().expect("it listens"))?;
    /// server.wait(None)?;
    /// assert_eq!(client.wait(None)?.map(|event| event.peer()), Some(to_server));
    /// # Ok::<(), EndpointError>(())
    /// ```
    #[must_use]
    pub fn peer(&self) -> Peer {
        match *self {
            Event::Connected { peer }
            | Event::Message { peer, .. }
            | Event::Room { peer }
            | Event::Closed { peer, .. } => peer,
        }
    }
}

/// Whether an endpoint may sleep. Example: [`Endpoint::arm`](crate::Endpoint::arm).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Armed {
    /// There is something to do: call [`poll`](crate::Endpoint::poll) until it returns nothing, and [`test`](crate::Endpoint::test) what
    /// was started.
    Work,
    /// There is nothing to do; as soon as there is, the descriptor becomes readable.
    Sleep,
}
