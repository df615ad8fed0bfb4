//! One address for local and remote, among the tasks of a runtime.

use crate::endpoint::address::Address;
use crate::endpoint::asynchronous::api::AsyncEndpoint;
use crate::endpoint::asynchronous::attempt::wait;
use crate::endpoint::asynchronous::waiters::Interest;
use crate::endpoint::error::EndpointError;
use crate::endpoint::peer::Peer;
use crate::endpoint::routes::{Route, is_accepted, remote_unless_own};

impl AsyncEndpoint {
    /// Finds out how an address is reached, as [`Endpoint::route`](crate::Endpoint::route); without a time-out. A future that is
    /// dropped leaves no connection.
    ///
    /// ```
    /// use intranode::{AsyncEndpoint, EndpointError, Route};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), EndpointError> {
    /// let server = AsyncEndpoint::listen(&format!("async-route-{}", std::process::id()))?;
    /// let address = server.address().expect("it listens").clone().with_remote("tcp://127.0.0.1:4000")?;
    /// let client = AsyncEndpoint::client()?;
    /// assert!(matches!(client.route(&address).await?, Route::Local(_)));
    /// drop(server);
    /// assert_eq!(client.route(&address).await?, Route::Remote("tcp://127.0.0.1:4000"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Endpoint::route`](crate::Endpoint::route), without the time-out; [`EndpointError::NoRuntime`].
    ///
    /// # Panics
    /// As [`connect`](AsyncEndpoint::connect).
    pub async fn route<'a>(&self, address: &'a Address) -> Result<Route<'a>, EndpointError> {
        let mut asked = match self.connect(address).await {
            Ok(peer) => Asked { endpoint: self, peer: Some(peer) },
            Err(error) => return remote_unless_own(address, error),
        };
        let Some(peer) = asked.peer else { return Err(EndpointError::NoRuntime) };
        match wait(&self.shared, Interest::Accepted(peer), |endpoint| is_accepted(&mut endpoint.state, peer))
            .await
        {
            Ok(()) => {
                asked.peer = None;
                Ok(Route::Local(peer))
            }
            Err(error) => remote_unless_own(address, error),
        }
    }
}

/// A connection of which the program has not been told.
struct Asked<'a> {
    endpoint: &'a AsyncEndpoint,
    peer: Option<Peer>,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        if let Some(peer) = self.peer {
            // An error means that there is no connection any more.
            let _ = self.endpoint.shared.call(|endpoint| {
                endpoint.state.check()?;
                endpoint.state.give_up(peer);
                Ok(())
            });
        }
    }
}
