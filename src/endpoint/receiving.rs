//! Receives that are started, and completed by later calls.

use std::fmt;
use std::sync::Arc;

use crate::endpoint::api::Endpoint;
use crate::endpoint::completing::EndpointRequest;
use crate::endpoint::completing::sealed::{Advance, Advanced};
use crate::endpoint::ended::Ended;
use crate::endpoint::error::EndpointError;
use crate::endpoint::left::Left;
use crate::endpoint::link::Stage;
use crate::endpoint::peer::Peer;
use crate::endpoint::postings::Posting;
use crate::endpoint::state::{BATCHES_BEHIND, State};

/// A receive that was started: of the next expected message of a peer with a tag. It has its buffer, borrowed (`&mut [u8]`) or of
/// its own (`Vec<u8>`, an array). Bytes are copied into it only in calls that the request is passed to, so the endpoint refers to
/// no buffer, however the request ends.
///
/// * Receives of one peer and tag have its messages in the order in which they were started, whichever is asked for first; a
///   [`recv_expected`](Endpoint::recv_expected) meanwhile comes behind them.
/// * A request that is dropped withdraws its receive: the message is there for the next one. One that is forgotten
///   (`std::mem::forget`) keeps the message that it would have received, which stays in the channel until the connection ends.
/// * There is no such request for sending: [`try_send_expected`](Endpoint::try_send_expected) has copied the data, or says that
///   there is no room.
///
/// ```
/// use intranode::{Endpoint, EndpointError};
///
/// let name = format!("request-example-{}", std::process::id());
/// let mut server = Endpoint::listen(&name)?;
/// let mut client = Endpoint::client()?;
/// let to_server = client.connect(server.address().expect("it listens"))?;
/// // Three calls at once, and answers in another order.
/// let mut buffers = [[0; 16]; 3];
/// let mut requests = Vec::new();
/// for (tag, buffer) in (0..).zip(&mut buffers) {
///     requests.push(client.start_recv_expected(to_server, tag, buffer)?);
///     client.send_unexpected(to_server, tag, b"a call")?;
/// }
/// assert!(client.test(&mut requests[1])?.is_none());
/// let calls = [(); 3].map(|()| server.recv_unexpected(&mut [0; 16]));
/// for call in calls.into_iter().rev() {
///     let call = call?;
///     server.send_expected(call.peer, call.tag, &call.tag.to_ne_bytes())?;
/// }
/// while let Some(place) = client.wait_any(&mut requests)? {
///     assert_eq!(client.test(&mut requests[place])?, Some(8));
/// }
/// drop(requests);
/// assert_eq!(buffers.map(|buffer| buffer[0]), [0, 1, 2]);
/// # Ok::<(), EndpointError>(())
/// ```
#[must_use = "a receive is withdrawn when its request is dropped"]
pub struct RecvRequest<B> {
    from: Peer,
    tag: u64,
    /// Until it has ended.
    posting: Option<Arc<Posting>>,
    end: Option<End>,
    /// Whether `wait_any` has named it.
    reported: bool,
    /// By this its endpoint is known.
    left: Arc<Left>,
    buffer: B,
}

#[derive(Clone, Copy)]
enum End {
    Received(usize),
    Truncated { bytes: usize, room: usize },
    Gone(Ended),
    Unknown,
}

impl<B> RecvRequest<B> {
    /// Whose message it receives. Example: [`RecvRequest::into_buffer`].
    #[must_use]
    pub fn from(&self) -> Peer {
        self.from
    }

    /// With which tag. Example: [`RecvRequest::into_buffer`].
    #[must_use]
    pub fn tag(&self) -> u64 {
        self.tag
    }

    /// The buffer. Before the request has ended this withdraws it.
    ///
    /// ```
    /// use intranode::{Endpoint, EndpointError};
    ///
    /// let name = format!("into-buffer-example-{}", std::process::id());
    /// let mut own = Endpoint::listen(&name)?;
    /// let address = own.address().expect("it listens").clone();
    /// let peer = own.connect(&address)?;
    /// own.send_unexpected(peer, 0, b"")?;
    /// let back = own.recv_unexpected(&mut [])?.peer;
    /// let mut request = own.start_recv_expected(peer, 7, vec![0; 100])?;
    /// assert_eq!((request.from(), request.tag()), (peer, 7));
    /// own.send_expected(back, 7, b"to myself")?;
    /// let bytes = own.wait_for(&mut request)?;
    /// assert_eq!(&request.into_buffer()[..bytes], b"to myself");
    /// # Ok::<(), EndpointError>(())
    /// ```
    pub fn into_buffer(self) -> B {
        self.buffer
    }

    fn outcome(&self) -> Result<Option<usize>, EndpointError> {
        let peer = self.from;
        match self.end {
            None => Ok(None),
            Some(End::Received(bytes)) => Ok(Some(bytes)),
            Some(End::Truncated { bytes, room }) => Err(EndpointError::Truncated { peer, bytes, room }),
            Some(End::Gone(ended)) => Err(EndpointError::PeerGone { peer, ended }),
            Some(End::Unknown) => Err(EndpointError::UnknownPeer { peer }),
        }
    }
}

impl<B: AsMut<[u8]>> RecvRequest<B> {
    fn try_end(&mut self, state: &mut State) -> Result<Option<End>, EndpointError> {
        let Some(posting) = &self.posting else { return Ok(self.end) };
        let mut batches = 0..BATCHES_BEHIND;
        loop {
            let link = match state.links.find(self.from) {
                Ok(link) => link,
                Err(EndpointError::PeerGone { ended, .. }) => return Ok(Some(End::Gone(ended))),
                Err(_) => return Ok(Some(End::Unknown)),
            };
            let before = link.postings.before(self.tag, posting).ok_or(EndpointError::ForeignRequest)?;
            if let Some(index) = link.expected(self.tag, before) {
                return match link.receive(index, self.buffer.as_mut()) {
                    Ok((_, bytes)) => Ok(Some(End::Received(bytes))),
                    Err(EndpointError::Truncated { bytes, room, .. }) => {
                        Ok(Some(End::Truncated { bytes, room }))
                    }
                    Err(error) => Err(error),
                };
            }
            if let Stage::Ended(ended) = link.stage {
                return Ok(Some(End::Gone(ended)));
            }
            // It may be behind others, which nobody has asked for.
            if batches.next().is_none() || !state.take_in_behind(self.from)? {
                return Ok(None);
            }
        }
    }
}

impl<B: AsMut<[u8]>> EndpointRequest for RecvRequest<B> {}

impl<B: AsMut<[u8]>> Advance for RecvRequest<B> {
    /// Receives the message, if it is there.
    fn advance(&mut self, state: &mut State) -> Result<Advanced, EndpointError> {
        if !Arc::ptr_eq(&self.left, &state.left) {
            return Err(EndpointError::ForeignRequest);
        }
        if self.end.is_none() {
            self.end = self.try_end(state)?;
            if self.end.is_none() {
                return Ok(Advanced::Waits);
            }
            // Those behind it move up.
            self.posting = None;
            state.received(self.from);
        }
        Ok(Advanced::Ended)
    }

    fn result(&self) -> Result<Option<usize>, EndpointError> {
        self.outcome()
    }

    fn reported(&mut self) -> &mut bool {
        &mut self.reported
    }

    fn peer(&self) -> Peer {
        self.from
    }
}

impl Endpoint {
    /// Starts to receive the next expected message of a peer with this tag. It does not wait; [`test`](Endpoint::test),
    /// [`wait_for`](Endpoint::wait_for) and [`wait_any`](Endpoint::wait_any) complete it. Any number may be under way. Example:
    /// [`RecvRequest`].
    ///
    /// # Errors
    /// [`EndpointError::PeerGone`] if nothing is left of what the peer has sent, [`EndpointError::UnknownPeer`],
    /// [`EndpointError::Forked`].
    pub fn start_recv_expected<B: AsMut<[u8]>>(
        &mut self,
        from: Peer,
        tag: u64,
        buffer: B,
    ) -> Result<RecvRequest<B>, EndpointError> {
        self.state.check()?;
        let posting = Some(self.state.links.find(from)?.postings.add(tag));
        let left = Arc::clone(&self.state.left);
        Ok(RecvRequest { from, tag, posting, end: None, reported: false, left, buffer })
    }
}

impl<B> fmt::Debug for RecvRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RecvRequest")
            .field("from", &self.from)
            .field("tag", &self.tag)
            .field("result", &self.outcome())
            .finish_non_exhaustive()
    }
}
