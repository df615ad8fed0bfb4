//! One address for local and remote: which of the two it is.

use crate::endpoint::address::Address;
use crate::endpoint::api::Endpoint;
use crate::endpoint::error::EndpointError;
use crate::endpoint::link::Stage;
use crate::endpoint::peer::Peer;
use crate::endpoint::state::State;

/// How an address is reached: what [`Endpoint::route`](crate::Endpoint::route) has found out.
///
/// ```
/// use intranode::{Address, Endpoint, EndpointError, Route};
///
/// // As it might have come from a server of another machine.
/// let address: Address = "tcp://10.0.0.7:4000#intranode=0a1b-2c3d/store".parse()?;
/// let mut client = Endpoint::client()?;
/// match client.route(&address)? {
///     Route::Local(peer) => client.send_unexpected(peer, 1, b"over shared memory")?,
///     Route::Remote(remote) => assert_eq!(remote, "tcp://10.0.0.7:4000"),
///     _ => {}
/// }
/// # Ok::<(), EndpointError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Route<'a> {
    /// Over shared memory: a peer of this endpoint, which has accepted.
    Local(Peer),
    /// By another transport, to the remote part of the address.
    Remote(&'a str),
}

impl Endpoint {
    /// Finds out how an address is reached. It is local only if it is of this machine, somebody listens there, and has accepted this
    /// endpoint: containers of a machine share its boot identifier, and do not always reach each other. Otherwise it is remote, if it
    /// has a remote part.
    ///
    /// ```
    /// use intranode::{Endpoint, EndpointError, Route};
    ///
    /// let mut server = Endpoint::listen(&format!("route-example-{}", std::process::id()))?;
    /// let address = server.address().expect("it listens").clone().with_remote("tcp://127.0.0.1:4000")?;
    /// let client = std::thread::spawn(move || {
    ///     let mut client = Endpoint::client()?;
    ///     let Route::Local(peer) = client.route(&address)? else { panic!("the server is of this machine") };
    ///     client.send_unexpected(peer, 1, b"hello")
    /// });
    /// assert_eq!(server.recv_unexpected(&mut [0; 8])?.bytes, 5);
    /// client.join().expect("no panic")?;
    /// # Ok::<(), EndpointError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`connect`](Endpoint::connect), and [`EndpointError::PeerGone`] if the other side refuses: where the address has a
    /// remote part, only what is due to this endpoint, as [`EndpointError::TooManyPeers`]. [`EndpointError::TimedOut`] if the other
    /// side does not answer at all, and there is no remote part.
    pub fn route<'a>(&mut self, address: &'a Address) -> Result<Route<'a>, EndpointError> {
        let peer = match self.connect(address) {
            Ok(peer) => peer,
            Err(error) => return remote_unless_own(address, error),
        };
        match self.block("route", None, |state| is_accepted(state, peer)) {
            Ok(()) => Ok(Route::Local(peer)),
            Err(error) => {
                self.state.give_up(peer);
                remote_unless_own(address, error)
            }
        }
    }
}

/// Whether the other side has accepted.
pub(super) fn is_accepted(state: &mut State, peer: Peer) -> Result<Option<()>, EndpointError> {
    match state.links.find(peer)?.stage {
        Stage::Asked => Ok(None),
        Stage::Open => Ok(Some(())),
        Stage::Ended(ended) => Err(EndpointError::PeerGone { peer, ended }),
    }
}

/// The remote part of an address whose local part leads nowhere. What is due to this endpoint would be so the next time too, and
/// is an error.
pub(super) fn remote_unless_own(address: &Address, error: EndpointError) -> Result<Route<'_>, EndpointError> {
    let is_others = match &error {
        EndpointError::NotLocal { .. }
        | EndpointError::NobodyListens { .. }
        | EndpointError::ForeignUser { .. }
        | EndpointError::PeerGone { .. }
        | EndpointError::TimedOut { .. } => true,
        // A security module may keep it from connecting.
        EndpointError::System { source, .. } => source.kind() == std::io::ErrorKind::PermissionDenied,
        _ => false,
    };
    address.remote().filter(|_| is_others).map(Route::Remote).ok_or(error)
}

impl State {
    /// Ends a connection of which the program has not been told, and reports nothing of it.
    pub(super) fn give_up(&mut self, peer: Peer) {
        self.disconnect(peer);
        self.links.forget(peer);
    }
}
