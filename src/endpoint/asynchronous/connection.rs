//! A client's connection, local or remote: the same calls for both.

use std::fmt;
use std::future::Future;
use std::io;

use crate::endpoint::address::Address;
use crate::endpoint::asynchronous::api::AsyncEndpoint;
use crate::endpoint::error::EndpointError;
use crate::endpoint::peer::Peer;
use crate::endpoint::routes::Route;
use crate::endpoint::short::LONGEST;

/// What a transport to other machines must do, so that a program talks through it as through an endpoint. The library has none of its
/// own; examples/key_value/over_tcp.rs is one over TCP, of some 60 lines.
///
/// A message arrives whole, with its tag, and once; messages with one tag arrive in the order in which they were sent. Up to
/// [`Endpoint::MAX_MESSAGE_BYTES`](crate::Endpoint::MAX_MESSAGE_BYTES) bytes are sent; longer ones do not reach the transport. What
/// comes with another tag than the one that is asked for is kept. Example: [`Connection`].
pub trait RemoteTransport: Sized {
    /// Connects to the remote part of an address, as it stands there: `tcp://10.0.0.7:4000`.
    ///
    /// # Errors
    /// The transport's own: the address is no address of this transport, or cannot be reached.
    fn connect(remote: &str) -> impl Future<Output = io::Result<Self>> + Send;

    /// Sends a message that the server receives as the next one of any client.
    ///
    /// # Errors
    /// The transport's own: the connection has ended.
    fn send_unexpected(&mut self, tag: u64, data: &[u8]) -> impl Future<Output = io::Result<()>> + Send;

    /// Receives the next message that the server has sent with this tag.
    ///
    /// # Errors
    /// The transport's own: the connection has ended.
    fn recv_expected(&mut self, tag: u64) -> impl Future<Output = io::Result<Vec<u8>>> + Send;
}

/// A client's connection to a server that one [`Address`] names, over shared memory or by a [`RemoteTransport`]: the same program
/// gets the same results. It belongs to one task; when it is dropped it has ended. Handles of shared memory are for
/// [local](Connection::is_local) peers only.
///
/// ```
/// use intranode::{AsyncEndpoint, Connection, EndpointError, RemoteTransport};
/// use std::io;
///
/// /// In place of one that reaches another machine: it answers by itself.
/// struct Echo(Vec<(u64, Vec<u8>)>);
///
/// impl RemoteTransport for Echo {
///     async fn connect(remote: &str) -> io::Result<Self> {
///         assert_eq!(remote, "echo://nowhere");
///         Ok(Echo(Vec::new()))
///     }
///     async fn send_unexpected(&mut self, tag: u64, data: &[u8]) -> io::Result<()> {
///         self.0.push((tag, data.to_vec()));
///         Ok(())
///     }
///     async fn recv_expected(&mut self, tag: u64) -> io::Result<Vec<u8>> {
///         let found = self.0.iter().position(|message| message.0 == tag);
///         found.map(|at| self.0.remove(at).1).ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), EndpointError> {
/// let server = AsyncEndpoint::listen(&format!("connection-example-{}", std::process::id()))?;
/// let local = server.address().expect("it listens").clone().with_remote("echo://nowhere")?;
/// let remote = "echo://nowhere#intranode=0a1b-2c3d/store".parse()?;
/// tokio::spawn(async move {
///     let call = server.recv_unexpected(&mut [0; 8]).await?;
///     server.send_expected(call.peer, call.tag, b"hello").await?;
///     server.next_event().await
/// });
/// let client = AsyncEndpoint::client()?;
/// for (address, is_local) in [(local, true), (remote, false)] {
///     let mut connection = Connection::<Echo>::open(&client, &address).await?;
///     connection.send_unexpected(1, b"hello").await?;
///     assert_eq!(connection.recv_expected(1).await?, b"hello");
///     assert_eq!(connection.is_local(), is_local);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Connection<'a, R>(Way<'a, R>);

enum Way<'a, R> {
    Local(Local<'a>),
    Remote { to: String, transport: R },
}

struct Local<'a> {
    endpoint: &'a AsyncEndpoint,
    peer: Peer,
}

impl Drop for Local<'_> {
    fn drop(&mut self) {
        // An error means that there is no connection any more.
        let _ = self.endpoint.disconnect(self.peer);
    }
}

impl<'a, R: RemoteTransport> Connection<'a, R> {
    /// Connects by the way that [`AsyncEndpoint::route`] finds. Example: [`Connection`].
    ///
    /// # Errors
    /// Those of [`AsyncEndpoint::route`]; [`EndpointError::Remote`].
    pub async fn open(endpoint: &'a AsyncEndpoint, address: &Address) -> Result<Self, EndpointError> {
        Ok(Connection(match endpoint.route(address).await? {
            Route::Local(peer) => Way::Local(Local { endpoint, peer }),
            Route::Remote(to) => {
                let transport = R::connect(to).await.map_err(failed("open", to))?;
                Way::Remote { to: to.to_owned(), transport }
            }
        }))
    }

    /// Whether it is over shared memory. Example: [`Connection`].
    #[must_use]
    pub fn is_local(&self) -> bool {
        matches!(self.0, Way::Local(_))
    }

    /// Sends a message of up to 4096 bytes that the server receives as the next one; waits for room. Example: [`Connection`].
    ///
    /// # Errors
    /// Those of [`AsyncEndpoint::send_unexpected`]; [`EndpointError::Remote`].
    pub async fn send_unexpected(&mut self, tag: u64, data: &[u8]) -> Result<(), EndpointError> {
        match &mut self.0 {
            Way::Local(Local { endpoint, peer }) => endpoint.send_unexpected(*peer, tag, data).await,
            Way::Remote { .. } if data.len() > LONGEST => {
                Err(EndpointError::TooLong { bytes: data.len(), max: LONGEST })
            }
            Way::Remote { to, transport } => {
                transport.send_unexpected(tag, data).await.map_err(failed("send_unexpected", to))
            }
        }
    }

    /// Receives the next message that the server has sent as expected with this tag: up to 4096 bytes. Example: [`Connection`].
    ///
    /// # Errors
    /// Those of [`AsyncEndpoint::recv_expected`]; [`EndpointError::Remote`].
    pub async fn recv_expected(&mut self, tag: u64) -> Result<Vec<u8>, EndpointError> {
        match &mut self.0 {
            Way::Local(Local { endpoint, peer }) => {
                let mut buffer = vec![0; LONGEST];
                let bytes = endpoint.recv_expected(*peer, tag, &mut buffer).await?;
                buffer.truncate(bytes);
                Ok(buffer)
            }
            Way::Remote { to, transport } => {
                transport.recv_expected(tag).await.map_err(failed("recv_expected", to))
            }
        }
    }
}

fn failed(operation: &'static str, to: &str) -> impl FnOnce(io::Error) -> EndpointError {
    move |source| EndpointError::Remote { operation, remote: to.to_owned(), source }
}

impl<R> fmt::Debug for Connection<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Way::Local(local) => f.debug_tuple("Local").field(&local.peer).finish(),
            Way::Remote { to, .. } => f.debug_tuple("Remote").field(to).finish(),
        }
    }
}
