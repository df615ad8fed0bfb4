//! Sending and receiving.

use crate::endpoint::asynchronous::api::AsyncEndpoint;
use crate::endpoint::asynchronous::attempt::wait;
use crate::endpoint::asynchronous::waiters::Interest;
use crate::endpoint::error::EndpointError;
use crate::endpoint::messages::{next_expected, next_unexpected};
use crate::endpoint::peer::{Incoming, Peer};

impl AsyncEndpoint {
    /// Sends a message of up to 4096 bytes that the peer receives as the next one; waits for room. Example: [`AsyncEndpoint`].
    ///
    /// # Errors
    /// Those of [`Endpoint::send_unexpected`](crate::Endpoint::send_unexpected), without the time-out; [`EndpointError::NoRuntime`].
    pub async fn send_unexpected(&self, to: Peer, tag: u64, data: &[u8]) -> Result<(), EndpointError> {
        self.send::<false>(to, tag, data).await
    }

    /// Sends a message of up to 4096 bytes to a peer that receives it by its sender and tag; waits for room. Example:
    /// [`AsyncEndpoint`].
    ///
    /// # Errors
    /// Those of [`Endpoint::send_expected`](crate::Endpoint::send_expected), without the time-out; [`EndpointError::NoRuntime`].
    pub async fn send_expected(&self, to: Peer, tag: u64, data: &[u8]) -> Result<(), EndpointError> {
        self.send::<true>(to, tag, data).await
    }

    /// Sends a message as [`send_unexpected`](AsyncEndpoint::send_unexpected) without waiting. Returns whether there was room.
    ///
    /// ```
    /// use intranode::{AsyncEndpoint, EndpointError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), EndpointError> {
    /// let server = AsyncEndpoint::listen(&format!("async-try-{}", std::process::id()))?;
    /// let client = AsyncEndpoint::client()?;
    /// let peer = client.connect(server.address().expect("it listens")).await?;
    /// while client.try_send_unexpected(peer, 1, b"as many as there is room for")? {}
    /// let call = server.recv_unexpected(&mut [0; 64]).await?;
    /// assert!(server.try_send_expected(call.peer, call.tag, b"one has come")?);
    /// assert_eq!(client.recv_expected(peer, 1, &mut [0; 64]).await?, 12);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Endpoint::try_send_unexpected`](crate::Endpoint::try_send_unexpected); [`EndpointError::NoRuntime`].
    pub fn try_send_unexpected(&self, to: Peer, tag: u64, data: &[u8]) -> Result<bool, EndpointError> {
        self.shared.call(|endpoint| endpoint.try_send::<false>(to, tag, data))
    }

    /// The same as [`send_expected`](AsyncEndpoint::send_expected) without waiting: for answers to a client that may not take them.
    /// Example: [`AsyncEndpoint::try_send_unexpected`].
    ///
    /// # Errors
    /// Those of [`Endpoint::try_send_expected`](crate::Endpoint::try_send_expected); [`EndpointError::NoRuntime`].
    pub fn try_send_expected(&self, to: Peer, tag: u64, data: &[u8]) -> Result<bool, EndpointError> {
        self.shared.call(|endpoint| endpoint.try_send::<true>(to, tag, data))
    }

    async fn send<const EXPECTS: bool>(&self, to: Peer, tag: u64, data: &[u8]) -> Result<(), EndpointError> {
        wait(&self.shared, Interest::Room(to, data.len()), |endpoint| {
            Ok(endpoint.try_send::<EXPECTS>(to, tag, data)?.then_some(()))
        })
        .await
    }

    /// Receives the next message of any peer that was not sent as expected. Of several tasks that wait one gets it. Example:
    /// [`AsyncEndpoint`].
    ///
    /// # Errors
    /// Those of [`Endpoint::recv_unexpected`](crate::Endpoint::recv_unexpected), without the time-out; [`EndpointError::NoRuntime`].
    pub async fn recv_unexpected(&self, buffer: &mut [u8]) -> Result<Incoming, EndpointError> {
        wait(&self.shared, Interest::Unexpected, |endpoint| {
            endpoint.state.check()?;
            next_unexpected(&mut endpoint.state, buffer)
        })
        .await
    }

    /// Receives the next message that this peer has sent as expected with this tag. Returns its length in bytes. Example:
    /// [`AsyncEndpoint`].
    ///
    /// # Errors
    /// Those of [`Endpoint::recv_expected`](crate::Endpoint::recv_expected), without the time-out; [`EndpointError::NoRuntime`].
    pub async fn recv_expected(&self, from: Peer, tag: u64, buffer: &mut [u8]) -> Result<usize, EndpointError> {
        wait(&self.shared, Interest::Expected(from, tag), |endpoint| {
            endpoint.state.check()?;
            next_expected(&mut endpoint.state, from, tag, buffer)
        })
        .await
    }
}
