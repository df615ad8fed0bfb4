//! Large transfers: what tasks get from memory that peers share, and put there.
//!
//! The memory of a transfer is given away for it, and comes back with the result. That of a get is written in the polls of its future
//! only. That of a put a peer may read at any moment until it has answered: if the future is dropped before, the endpoint keeps it
//! until then, so that what the peer reads is never memory of something else.

use tokio::task::yield_now;

use crate::endpoint::asynchronous::api::AsyncEndpoint;
use crate::endpoint::asynchronous::attempt::wait;
use crate::endpoint::asynchronous::shared::Shared;
use crate::endpoint::asynchronous::waiters::Interest;
use crate::endpoint::error::EndpointError;
use crate::endpoint::getting::Get;
use crate::endpoint::handle::Handle;
use crate::endpoint::peer::Peer;
use crate::endpoint::putting::Put;
use crate::endpoint::requests::{Moved, Transfer};
use crate::endpoint::steps::{Gets, Puts, Steps};

/// A transfer that is under way. Dropped before its end it leaves nothing behind.
struct UnderWay<'a, T: Steps> {
    shared: &'a Shared,
    /// `None` once it has ended.
    transfer: Option<T>,
}

impl<T: Steps> UnderWay<'_, T> {
    /// Goes on until nothing is left to be done.
    async fn run(&mut self) -> Result<(), EndpointError> {
        let Some(transfer) = &mut self.transfer else { return Ok(()) };
        loop {
            let peer = transfer.requests().transfer.peer;
            let now = self.shared.call(|endpoint| {
                endpoint.state.check()?;
                transfer.step(&mut endpoint.state)
            })?;
            let moved = match now {
                Some(moved) => moved,
                None => {
                    let is_asked = transfer.requests().are_under_way();
                    let interest = if is_asked { Interest::Answer(peer) } else { Interest::Place(peer) };
                    wait(self.shared, interest, |endpoint| {
                        endpoint.state.check()?;
                        transfer.step(&mut endpoint.state)
                    })
                    .await?
                }
            };
            match moved {
                Moved::All => return Ok(()),
                // Up to a mebibyte was copied: others go first.
                Moved::Some => yield_now().await,
                Moved::Asked => {}
            }
        }
    }
}

impl<T: Steps> Drop for UnderWay<'_, T> {
    fn drop(&mut self) {
        if let Some(transfer) = self.transfer.take() {
            let (mut requests, kept) = transfer.into_parts();
            self.shared.leave(|endpoint| requests.abandon(&mut endpoint.state, kept));
        }
    }
}

impl AsyncEndpoint {
    /// Makes a transfer, and gives back its memory.
    async fn transfer<T: Steps, R>(
        &self,
        transfer: T,
        memory: impl FnOnce(T) -> R,
    ) -> (Result<(), EndpointError>, R) {
        let mut under_way = UnderWay { shared: &self.shared, transfer: Some(transfer) };
        let result = under_way.run().await;
        let mut transfer = under_way.transfer.take().expect("it ends here, and nowhere else");
        if result.is_err() {
            self.shared.leave(|endpoint| transfer.requests().abandon(&mut endpoint.state, None));
        }
        (result, memory(transfer))
    }

    /// Reads memory that a peer shares, from an offset in bytes on, into buffers that count as one, as
    /// [`Endpoint::get`](crate::Endpoint::get) does. The buffers (`Vec<u8>`, `Box<[u8]>` and their like) are given away, and come
    /// back with the result. Any number of transfers may be under way; up to 1 MiB is copied in one go, in which the other tasks of
    /// that thread wait.
    ///
    /// A future that is dropped ends the transfer; the buffers are dropped with it.
    ///
    /// ```
    /// use intranode::{Access, AsyncEndpoint, EndpointError};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), EndpointError> {
    /// let server = AsyncEndpoint::listen(&format!("async-get-{}", std::process::id()))?;
    /// let memory = server.share(vec![vec![7; 100_000].into()], Access::ReadWrite)?;
    /// let client = AsyncEndpoint::client()?;
    /// let peer = client.connect(server.address().expect("it listens")).await?;
    /// let (result, buffers) = client.get(peer, &memory.handle(), 0, vec![vec![0; 60_000], vec![0; 40_000]]).await;
    /// result?;
    /// assert_eq!((buffers[0][0], buffers[1][39_999]), (7, 7));
    /// let (result, _data) = client.put(peer, &memory.handle(), 99_994, vec!["middle"]).await;
    /// result?;
    /// assert_eq!(&server.revoke(memory)?[0][99_990..], b"\x07\x07\x07\x07middle");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Those of [`Endpoint::get`](crate::Endpoint::get), without the time-out; [`EndpointError::NoRuntime`]. The buffers may have any
    /// content then.
    ///
    /// # Panics
    /// When a buffer is shorter the next time that it is asked for its bytes.
    pub async fn get<B: AsMut<[u8]>>(
        &self,
        from: Peer,
        handle: &Handle,
        offset: u64,
        mut buffers: Vec<B>,
    ) -> (Result<(), EndpointError>, Vec<B>) {
        let len = buffers.iter_mut().map(|buffer| buffer.as_mut().len()).sum();
        let transfer = Transfer { peer: from, handle: *handle, offset, len };
        match self.shared.call(|endpoint| Get::new(&mut endpoint.state, transfer, false)) {
            Ok(get) => self.transfer(Gets { get, buffers }, |gets| gets.buffers).await,
            Err(error) => (Err(error), buffers),
        }
    }

    /// Writes to memory that a peer shares for that, from an offset in bytes on: data that counts as one, as
    /// [`Endpoint::put`](crate::Endpoint::put) does. The data (`Vec<u8>`, `Box<[u8]>`, `&'static str` and their like) is given away,
    /// and comes back with the result. Any number of transfers may be under way. Example: [`AsyncEndpoint::get`].
    ///
    /// A future that is dropped ends the transfer. The peer may be reading then: the endpoint keeps the data until it has answered,
    /// or its connection has ended.
    ///
    /// # Errors
    /// Those of [`Endpoint::put`](crate::Endpoint::put), without the time-out; [`EndpointError::NoRuntime`]. The memory may have any
    /// content then.
    ///
    /// # Panics
    /// When a part of the data is shorter the next time that it is asked for its bytes.
    pub async fn put<B: AsRef<[u8]> + Send + Sync + 'static>(
        &self,
        to: Peer,
        handle: &Handle,
        offset: u64,
        data: Vec<B>,
    ) -> (Result<(), EndpointError>, Vec<B>) {
        let len = data.iter().map(|data| data.as_ref().len()).sum();
        let transfer = Transfer { peer: to, handle: *handle, offset, len };
        match self.shared.call(|endpoint| Put::new(&mut endpoint.state, transfer, false)) {
            Ok(put) => self.transfer(Puts { put, data }, |puts| puts.data).await,
            Err(error) => (Err(error), data),
        }
    }
}
