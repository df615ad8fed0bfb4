//! Sending and receiving.

use crate::endpoint::api::Endpoint;
use crate::endpoint::direct::Direct;
use crate::endpoint::error::EndpointError;
use crate::endpoint::link::Stage;
use crate::endpoint::peer::{Incoming, Peer};
use crate::endpoint::short::LONGEST;
use crate::endpoint::state::{BATCHES_BEHIND, State};
use crate::tuning::ENDPOINT_POLLS_PER_CALL;

impl Endpoint {
    /// Sends a message of up to 4096 bytes that the peer receives as the next one. Waits for room, if the peer has not received 64 or more
    /// before. Example: [`Endpoint`].
    ///
    /// # Errors
    /// [`EndpointError::TooLong`], [`EndpointError::PeerGone`], [`EndpointError::UnknownPeer`],
    /// [`EndpointError::TimedOut`], [`EndpointError::Forked`].
    pub fn send_unexpected(&mut self, to: Peer, tag: u64, data: &[u8]) -> Result<(), EndpointError> {
        self.send::<false>("send_unexpected", to, tag, data)
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
        self.try_send::<false>(to, tag, data)
    }

    /// Sends a message of up to 4096 bytes to a peer that receives it by its sender and tag. Waits for room. Example: [`Endpoint`].
    ///
    /// # Errors
    /// Those of [`send_unexpected`](Endpoint::send_unexpected).
    pub fn send_expected(&mut self, to: Peer, tag: u64, data: &[u8]) -> Result<(), EndpointError> {
        self.send::<true>("send_expected", to, tag, data)
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
        self.try_send::<true>(to, tag, data)
    }

    #[inline(always)]
    pub(super) fn try_send<const EXPECTS: bool>(
        &mut self,
        to: Peer,
        tag: u64,
        data: &[u8],
    ) -> Result<bool, EndpointError> {
        if data.len() > LONGEST {
            return Err(EndpointError::TooLong { bytes: data.len(), max: LONGEST });
        }
        self.state.check()?;
        Ok(self.state.links.find_open(to)?.send::<EXPECTS>(tag, data))
    }

    #[inline(always)]
    fn send<const EXPECTS: bool>(
        &mut self,
        operation: &'static str,
        to: Peer,
        tag: u64,
        data: &[u8],
    ) -> Result<(), EndpointError> {
        if self.try_send::<EXPECTS>(to, tag, data)? {
            return Ok(());
        }
        self.send_later::<EXPECTS>(operation, to, tag, data)
    }

    #[inline(never)]
    fn send_later<const EXPECTS: bool>(
        &mut self,
        operation: &'static str,
        to: Peer,
        tag: u64,
        data: &[u8],
    ) -> Result<(), EndpointError> {
        self.block(operation, Some(to), |state| {
            Ok(state.links.find_open(to)?.send::<EXPECTS>(tag, data).then_some(()))
        })
    }

    /// Receives the next message that was sent as unexpected, from whichever peer; waits for it. It is found behind expected ones of its sender
    /// that nobody has received, of which up to 1 MiB, and 4096, are looked through: what a peer sends behind more is not found until some are
    /// received, and others are received meanwhile. Example: [`Endpoint`].
    ///
    /// # Errors
    /// [`EndpointError::Truncated`] if the buffer is too short: the message stays; [`EndpointError::TimedOut`],
    /// [`EndpointError::Forked`]. Peers that are gone are no error: others may connect.
    pub fn recv_unexpected(&mut self, buffer: &mut [u8]) -> Result<Incoming, EndpointError> {
        if let Some(message) = self.state.receive_at_once(None, buffer)? {
            return Ok(message);
        }
        let found =
            self.state.block_polling(self.timeout, |state, polls| poll_for_unexpected(state, polls, buffer))?;
        found.ok_or_else(|| self.timed_out("recv_unexpected", None))
    }

    /// The same without waiting. `None`: there is none, but for a message of a peer that was asleep, which a later call finds: see
    /// [`poll`](Endpoint::poll).
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
        poll_for_unexpected(&mut self.state, Some(ENDPOINT_POLLS_PER_CALL), buffer)
    }

    /// Receives the next message that this peer has sent as expected with this tag; waits for it. Returns its length in bytes.
    /// Example: [`Endpoint`].
    ///
    /// # Errors
    /// [`EndpointError::Truncated`] if the buffer is too short: the message stays; [`EndpointError::PeerGone`] when all that the
    /// peer has sent was looked at; [`EndpointError::UnknownPeer`]; [`EndpointError::TooManyUnreceived`] if it may be behind
    /// very many others; [`EndpointError::TimedOut`], [`EndpointError::Forked`].
    pub fn recv_expected(&mut self, from: Peer, tag: u64, buffer: &mut [u8]) -> Result<usize, EndpointError> {
        if let Some(message) = self.state.receive_at_once(Some((from, tag)), buffer)? {
            return Ok(message.bytes);
        }
        let found = self
            .state
            .block_polling(self.timeout, |state, polls| poll_for_expected(state, polls, (from, tag), buffer))?;
        found.ok_or_else(|| self.timed_out("recv_expected", Some(from)))
    }

    /// The same without waiting. `None`: it has not come yet, or a later call finds it, as by
    /// [`try_recv_unexpected`](Endpoint::try_recv_unexpected). Example:
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
        poll_for_expected(&mut self.state, Some(ENDPOINT_POLLS_PER_CALL), (from, tag), buffer)
    }
}

/// Takes in what has come, as this number of polls, and receives. `None`: all was taken in.
#[inline(never)]
fn poll_for_unexpected(
    state: &mut State,
    polls: Option<u32>,
    buffer: &mut [u8],
) -> Result<Option<Incoming>, EndpointError> {
    match state.receive_directly(polls, None, buffer, false)? {
        Direct::Received(message) => Ok(Some(message)),
        Direct::Nothing => Ok(None),
        Direct::Kept => poll_for_kept(state, polls, |state| next_unexpected(state, buffer)),
    }
}

/// The same for a message that is expected from a peer with a tag.
#[inline(never)]
fn poll_for_expected(
    state: &mut State,
    polls: Option<u32>,
    (from, tag): (Peer, u64),
    buffer: &mut [u8],
) -> Result<Option<usize>, EndpointError> {
    match state.receive_directly(polls, Some((from, tag)), buffer, false)? {
        Direct::Received(message) => Ok(Some(message.bytes)),
        Direct::Nothing => Ok(None),
        Direct::Kept => poll_for_kept(state, polls, |state| next_expected(state, from, tag, buffer)),
    }
}

/// What is kept is received before more is taken in. Otherwise a channel that is never empty would never again be received from
/// directly: with 16 calls in flight each took twice as long.
#[inline(never)]
fn poll_for_kept<R>(
    state: &mut State,
    polls: Option<u32>,
    mut receive: impl FnMut(&mut State) -> Result<Option<R>, EndpointError>,
) -> Result<Option<R>, EndpointError> {
    if let Some(polls) = polls {
        let is_due = state.is_due(polls);
        state.polls += polls;
        if !is_due && let Some(received) = receive(state)? {
            return Ok(Some(received));
        }
        state.take_in_awake(is_due)?;
    }
    receive(state)
}

pub(super) fn next_unexpected(state: &mut State, buffer: &mut [u8]) -> Result<Option<Incoming>, EndpointError> {
    let mut batches = 0..BATCHES_BEHIND;
    loop {
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
        // It may be behind expected ones, which nobody has asked for.
        if batches.next().is_none() || !state.take_in_behind_all() {
            return Ok(None);
        }
    }
}

pub(super) fn next_expected(
    state: &mut State,
    from: Peer,
    tag: u64,
    buffer: &mut [u8],
) -> Result<Option<usize>, EndpointError> {
    let mut batches = 0..BATCHES_BEHIND;
    loop {
        let link = state.links.find(from)?;
        // Receives that were started before have the first ones.
        let before = link.postings.of(tag);
        if let Some(index) = link.expected(tag, before) {
            let (_, bytes) = link.receive(index, buffer)?;
            state.received(from);
            return Ok(Some(bytes));
        }
        if let Stage::Ended(ended) = link.stage {
            return Err(EndpointError::PeerGone { peer: from, ended });
        }
        // It may be behind others, which nobody has asked for.
        if batches.next().is_none() || !state.take_in_behind(from)? {
            return Ok(None);
        }
    }
}
