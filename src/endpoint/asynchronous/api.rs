//! The endpoint that the tasks of a tokio runtime share.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use crate::endpoint::address::Address;
use crate::endpoint::api::Endpoint;
use crate::endpoint::asynchronous::attempt::wait;
use crate::endpoint::asynchronous::driver::Driver;
use crate::endpoint::asynchronous::shared::Shared;
use crate::endpoint::asynchronous::waiters::Interest;
use crate::endpoint::dialling::dial_again;
use crate::endpoint::error::{EndpointError, system};
use crate::endpoint::peer::{Event, Peer};

/// An [`Endpoint`] among the tasks of a tokio runtime, with the feature `tokio`.
///
/// * Calls that wait are futures, and take `&self`: any number of tasks use one endpoint, by a reference or an
///   [`Arc`]. Who waits for a message of another peer or tag is not woken.
/// * A future that is dropped loses nothing: a message that was not returned stays, and one that was not sent completely was not
///   sent at all. So `tokio::time::timeout` and `select!` can be used with all of them; there is no time-out of its own.
/// * A task of the runtime takes in what comes and sleeps otherwise: peers are accepted and get what is shared with them also while
///   nobody waits. While nothing happens nothing runs. Of a peer of which 128 messages are not received nothing more is taken in, and so
///   nothing is answered, until a task receives some, or waits for one that may be behind them.
/// * What peers have sent before they end is kept, up to 64 MiB, as by an [`Endpoint`]: a server whose clients send and leave has to receive
///   as fast as they come.
/// * [`get`](AsyncEndpoint::get) and [`put`](AsyncEndpoint::put) own the memory of a transfer, and give it back.
///
/// It belongs to the runtime in which it was made, which has to have enabled its input and output, and takes one descriptor more than
/// an [`Endpoint`].
///
/// ```
/// use intranode::{AsyncEndpoint, EndpointError};
/// use std::sync::Arc;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), EndpointError> {
/// let server = AsyncEndpoint::listen(&format!("async-example-{}", std::process::id()))?;
/// let address = server.address().expect("it listens").clone();
/// tokio::spawn(async move {
///     let mut question = [0; 64];
///     while let Ok(call) = server.recv_unexpected(&mut question).await {
///         question[..call.bytes].reverse();
///         server.send_expected(call.peer, call.tag, &question[..call.bytes]).await?;
///     }
///     Ok::<_, EndpointError>(())
/// });
///
/// let client = Arc::new(AsyncEndpoint::client()?);
/// let peer = client.connect(&address).await?;
/// let calls: Vec<_> = (0..4u8).map(|number| {
///     let client = Arc::clone(&client);
///     tokio::spawn(async move {
///         client.send_unexpected(peer, number.into(), &[number, 7]).await?;
///         let mut answer = [0; 64];
///         let bytes = client.recv_expected(peer, number.into(), &mut answer).await?;
///         assert_eq!(answer[..bytes], [7, number]);
///         Ok::<_, EndpointError>(())
///     })
/// }).collect();
/// for call in calls {
///     call.await.expect("no panic")?;
/// }
/// # Ok(())
/// # }
/// ```
pub struct AsyncEndpoint {
    pub(super) shared: Arc<Shared>,
    driver: AbortHandle,
    address: Option<Address>,
    /// How long connecting waits where very many wait to be accepted.
    timeout: Option<Duration>,
}

impl AsyncEndpoint {
    /// Takes an endpoint into the runtime of the caller, for one that was made with [settings](Endpoint::builder). Its time-out and
    /// its spinning are not used.
    ///
    /// ```
    /// use intranode::{AsyncEndpoint, Endpoint, EndpointError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), EndpointError> {
    /// let endpoint = Endpoint::builder().max_peers(100).client()?;
    /// let client = AsyncEndpoint::new(endpoint)?;
    /// assert!(client.address().is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`EndpointError::NoRuntime`] outside of a runtime; [`EndpointError::System`] if the descriptor is refused.
    ///
    /// # Panics
    /// In a runtime that has not enabled its input and output.
    pub fn new(endpoint: Endpoint) -> Result<Self, EndpointError> {
        let runtime = Handle::try_current().map_err(|_| EndpointError::NoRuntime)?;
        let (address, timeout) = (endpoint.address().cloned(), endpoint.timeout);
        let shared = Shared::new(endpoint).map_err(system("new", "to wait for the descriptor"))?;
        let shared = Arc::new(shared);
        let driver = runtime.spawn(Driver(Arc::clone(&shared))).abort_handle();
        Ok(AsyncEndpoint { shared, driver, address, timeout })
    }

    /// An endpoint to which others of this user connect, as [`Endpoint::listen`] makes it. Example: [`AsyncEndpoint`].
    ///
    /// # Errors
    /// Those of [`Endpoint::listen`] and of [`new`](AsyncEndpoint::new).
    ///
    /// # Panics
    /// As [`new`](AsyncEndpoint::new).
    pub fn listen(name: &str) -> Result<Self, EndpointError> {
        AsyncEndpoint::new(Endpoint::listen(name)?)
    }

    /// An endpoint that connects to others only. Example: [`AsyncEndpoint`].
    ///
    /// # Errors
    /// Those of [`Endpoint::client`] and of [`new`](AsyncEndpoint::new).
    ///
    /// # Panics
    /// As [`new`](AsyncEndpoint::new).
    pub fn client() -> Result<Self, EndpointError> {
        AsyncEndpoint::new(Endpoint::client()?)
    }

    /// Where it listens; `None` if it does not. Example: [`AsyncEndpoint`].
    #[must_use]
    pub fn address(&self) -> Option<&Address> {
        self.address.as_ref()
    }

    /// Connects to an endpoint that listens, as [`Endpoint::connect`]: messages can be sent at once. Example: [`AsyncEndpoint`].
    ///
    /// # Errors
    /// Those of [`Endpoint::connect`]; [`EndpointError::NoRuntime`].
    ///
    /// # Panics
    /// Where very many wait to be accepted, in a runtime that has not enabled its timers.
    pub async fn connect(&self, address: &Address) -> Result<Peer, EndpointError> {
        self.shared.call(|endpoint| {
            endpoint.state.check()?;
            endpoint.state.check_room_for_peer()
        })?;
        let dialled = dial_again(address, self.timeout).await?;
        self.shared.call(|endpoint| endpoint.state.introduce(dialled))
    }

    /// Ends a connection, as [`Endpoint::disconnect`]. Who waits for its messages gets an error.
    ///
    /// ```
    /// use intranode::{AsyncEndpoint, EndpointError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), EndpointError> {
    /// let server = AsyncEndpoint::listen(&format!("async-disconnect-{}", std::process::id()))?;
    /// let client = AsyncEndpoint::client()?;
    /// let peer = client.connect(server.address().expect("it listens")).await?;
    /// let mut buffer = [0; 8];
    /// let (received, ()) = tokio::join!(client.recv_expected(peer, 1, &mut buffer), async {
    ///     client.disconnect(peer).expect("the runtime is there");
    /// });
    /// assert!(matches!(received, Err(EndpointError::PeerGone { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`EndpointError::NoRuntime`], [`EndpointError::Forked`].
    pub fn disconnect(&self, peer: Peer) -> Result<(), EndpointError> {
        self.shared.call(|endpoint| {
            endpoint.state.check()?;
            endpoint.state.disconnect(peer);
            Ok(())
        })
    }

    /// Waits for the next that happens, as [`Endpoint::poll`] reports it. A program that does not ask is not told, and nothing
    /// grows meanwhile.
    ///
    /// ```
    /// use intranode::{AsyncEndpoint, EndpointError, Event};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), EndpointError> {
    /// let server = AsyncEndpoint::listen(&format!("async-event-{}", std::process::id()))?;
    /// let client = AsyncEndpoint::client()?;
    /// let peer = client.connect(server.address().expect("it listens")).await?;
    /// assert_eq!(client.next_event().await?, Event::Connected { peer });
    /// drop(client);
    /// assert!(matches!(server.next_event().await?, Event::Connected { .. }));
    /// assert!(matches!(server.next_event().await?, Event::Closed { .. }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`EndpointError::NoRuntime`], [`EndpointError::Forked`], [`EndpointError::System`].
    pub async fn next_event(&self) -> Result<Event, EndpointError> {
        wait(&self.shared, Interest::Event, |endpoint| {
            endpoint.state.check()?;
            Ok(endpoint.state.links.next_event())
        })
        .await
    }
}

impl Drop for AsyncEndpoint {
    /// Its name is free, and its peers are told, when this returns.
    fn drop(&mut self) {
        // First: what is dropped with the endpoint may be the program's, and panic.
        self.driver.abort();
        self.shared.close();
    }
}

impl fmt::Debug for AsyncEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncEndpoint").field("address", &self.address).finish_non_exhaustive()
    }
}
