//! Gets and puts that are started, and completed by later calls.
//!
//! A request owns the memory of its transfer, and the endpoint knows no more of it than the numbers of what was asked of the peer.
//! What a request that is dropped has still asked, it [leaves behind](Left).

use std::fmt;
use std::sync::Arc;

use crate::endpoint::api::Endpoint;
use crate::endpoint::completing::EndpointRequest;
use crate::endpoint::completing::sealed::{Advance, Advanced};
use crate::endpoint::ended::Ended;
use crate::endpoint::error::EndpointError;
use crate::endpoint::getting::Get;
use crate::endpoint::handle::Handle;
use crate::endpoint::left::Left;
use crate::endpoint::peer::Peer;
use crate::endpoint::putting::Put;
use crate::endpoint::requests::{Moved, Transfer};
use crate::endpoint::state::{BATCHES_BEHIND, State};
use crate::endpoint::steps::{Gets, Puts, Steps};

/// How a transfer has ended.
#[derive(Clone, Copy)]
enum End {
    Done,
    OutOfBounds { offset: u64, bytes: u64, len: u64 },
    NotShared,
    NotWritable,
    Fault { bytes: u64 },
    Gone(Ended),
    Unknown,
}

/// A get or a put.
struct Started<T: Steps> {
    /// `None` once its memory is given back.
    transfer: Option<T>,
    peer: Peer,
    len: usize,
    end: Option<End>,
    reported: bool,
    left: Arc<Left>,
}

impl<T: Steps> Started<T> {
    fn new(state: &State, transfer: Transfer, steps: T) -> Self {
        let Transfer { peer, len, .. } = transfer;
        let left = Arc::clone(&state.left);
        Started { transfer: Some(steps), peer, len, end: None, reported: false, left }
    }

    /// Asks for what can be asked for at once, and moves nothing. What fails is found again when it is tested.
    fn begin(&mut self, state: &mut State) {
        let moves = self.transfer.as_ref().is_some_and(|transfer| transfer.moves(state));
        let advanced = if moves { None } else { self.advance(state).ok() };
        // Otherwise it is gone on with when something comes.
        state.goes_on |= !matches!(advanced, Some(Advanced::Waits | Advanced::Asked));
    }

    /// Makes the next step.
    fn advance(&mut self, state: &mut State) -> Result<Advanced, EndpointError> {
        if !Arc::ptr_eq(&self.left, &state.left) {
            return Err(EndpointError::ForeignRequest);
        }
        let (None, Some(transfer)) = (self.end, &mut self.transfer) else { return Ok(Advanced::Ended) };
        let end = match transfer.step(state) {
            Ok(None) => return Ok(Advanced::Waits),
            Ok(Some(Moved::Asked)) => return Ok(Advanced::Asked),
            Ok(Some(Moved::Some)) => {
                state.goes_on = true;
                return Ok(Advanced::Moved);
            }
            Ok(Some(Moved::All)) => End::Done,
            Err(EndpointError::OutOfBounds { offset, bytes, len, .. }) => {
                End::OutOfBounds { offset, bytes, len }
            }
            Err(EndpointError::NotShared { .. }) => End::NotShared,
            Err(EndpointError::NotWritable { .. }) => End::NotWritable,
            Err(EndpointError::Fault { bytes, .. }) => End::Fault { bytes },
            Err(EndpointError::PeerGone { ended, .. }) => End::Gone(ended),
            Err(EndpointError::UnknownPeer { .. }) => End::Unknown,
            // It can be tested again.
            Err(error) => return Err(error),
        };
        transfer.requests().abandon(state, None);
        self.end = Some(end);
        Ok(Advanced::Ended)
    }

    fn result(&self) -> Result<Option<usize>, EndpointError> {
        let peer = self.peer;
        match self.end {
            None => Ok(None),
            Some(End::Done) => Ok(Some(self.len)),
            Some(End::OutOfBounds { offset, bytes, len }) => {
                Err(EndpointError::OutOfBounds { peer, offset, bytes, len })
            }
            Some(End::NotShared) => Err(EndpointError::NotShared { peer }),
            Some(End::NotWritable) => Err(EndpointError::NotWritable { peer }),
            Some(End::Fault { bytes }) => Err(EndpointError::Fault { peer, bytes }),
            Some(End::Gone(ended)) => Err(EndpointError::PeerGone { peer, ended }),
            Some(End::Unknown) => Err(EndpointError::UnknownPeer { peer }),
        }
    }

    /// Ends it. Its memory, unless the peer may still read it.
    fn end(&mut self) -> Option<T> {
        let transfer = self.transfer.take()?;
        if self.end.is_some() {
            return Some(transfer);
        }
        let (mut requests, kept) = transfer.into_parts();
        self.left.put(requests.unanswered(kept));
        None
    }
}

impl<T: Steps> Drop for Started<T> {
    fn drop(&mut self) {
        self.end();
    }
}

impl State {
    /// Whether a transfer that was started may go on, of which nobody has been told. It is told once of each thing that has come: a request
    /// may have been forgotten, and nobody goes on with that.
    pub(super) fn transfers_go_on(&mut self) -> bool {
        self.look_behind_for_answers();
        let mut goes_on = core::mem::take(&mut self.goes_on);
        if core::mem::take(&mut self.has_answers) {
            self.links.all().for_each(|link| goes_on |= link.calls.take_new());
        }
        goes_on
    }

    /// Once the peers are parked: they do not ring for an answer that came before, behind messages that nobody has received. It may make room
    /// for a request, too.
    fn look_behind_for_answers(&mut self) {
        let full: Vec<_> = self.full.iter().copied().collect();
        for peer in full {
            if self.links.get(peer).is_some_and(|link| link.calls.awaits_answers() || link.calls.wants_room) {
                // Of an error the request is told when it is tested. A peer that never stops sending holds up nobody.
                self.goes_on |=
                    (0..BATCHES_BEHIND).all(|_| self.take_in_behind(peer).is_ok_and(|has_come| has_come));
            }
        }
    }
}

/// A get that was started, into buffers that it owns (`Vec<u8>`, `Box<[u8]>`, `&mut [u8]` and their like). They are written in calls
/// only that the request is passed to, so the endpoint refers to no memory, however the request ends. [`test`](Endpoint::test) goes on
/// with it, and copies up to 1 MiB; [`wait_for`](Endpoint::wait_for) and [`wait_any`](Endpoint::wait_any) complete it, and say how many
/// bytes were moved. Any number may be under way.
///
/// A request that is dropped ends its transfer. One that is forgotten (`std::mem::forget`) keeps what its peer has lent it until the
/// connection ends.
///
/// ```
/// use intranode::{Access, Endpoint, EndpointError};
///
/// let mut server = Endpoint::listen(&format!("start-get-{}", std::process::id()))?;
/// let memory = server.share(vec![vec![7; 100_000].into()], Access::ReadWrite);
/// let mut client = Endpoint::client()?;
/// let peer = client.connect(server.address().expect("it listens"))?;
/// let mut get = client.start_get(peer, &memory.handle(), 0, vec![vec![0; 60_000], vec![0; 40_000]])?;
/// let mut put = client.start_put(peer, &memory.handle(), 99_996, vec!["late"])?;
/// while client.test(&mut get)?.is_none() || client.test(&mut put)?.is_none() {
///     server.poll()?;
/// }
/// assert_eq!((client.wait_for(&mut get)?, client.wait_for(&mut put)?), (100_000, 4));
/// assert_eq!(get.into_buffers()[0][59_999], 7);
/// assert_eq!(put.into_data(), Some(vec!["late"]));
/// # Ok::<(), EndpointError>(())
/// ```
#[must_use = "a transfer ends when its request is dropped"]
pub struct GetRequest<B: AsMut<[u8]>>(Started<Gets<B>>);

impl<B: AsMut<[u8]>> GetRequest<B> {
    /// The buffers. Before the transfer has ended this ends it, and they may have any content. Example: [`GetRequest`].
    #[must_use]
    pub fn into_buffers(mut self) -> Vec<B> {
        let buffers = self.0.transfer.as_mut().map(|gets| core::mem::take(&mut gets.buffers));
        buffers.unwrap_or_default()
    }
}

/// A put that was started, of data that it owns (`Vec<u8>`, `Box<[u8]>`, `&'static str` and their like). It is completed as a
/// [`GetRequest`] is.
///
/// The peer may read the data at any moment until it has answered. So a request that is dropped before leaves its data with the
/// endpoint until then, or until the connection ends; one that is forgotten (`std::mem::forget`) leaves it for ever. Example:
/// [`GetRequest`].
#[must_use = "a transfer ends when its request is dropped"]
pub struct PutRequest<B: AsRef<[u8]> + Send + Sync + 'static>(Started<Puts<B>>);

impl<B: AsRef<[u8]> + Send + Sync + 'static> PutRequest<B> {
    /// The data. Before the transfer has ended this ends it, and there is none: the peer may still read it. Example: [`GetRequest`].
    #[must_use]
    pub fn into_data(mut self) -> Option<Vec<B>> {
        self.0.end().map(|puts| puts.data)
    }
}

impl<B: AsMut<[u8]>> EndpointRequest for GetRequest<B> {}
impl<B: AsRef<[u8]> + Send + Sync + 'static> EndpointRequest for PutRequest<B> {}

impl<B: AsMut<[u8]>> Advance for GetRequest<B> {
    fn advance(&mut self, state: &mut State) -> Result<Advanced, EndpointError> {
        self.0.advance(state)
    }

    fn result(&self) -> Result<Option<usize>, EndpointError> {
        self.0.result()
    }

    fn reported(&mut self) -> &mut bool {
        &mut self.0.reported
    }

    fn peer(&self) -> Peer {
        self.0.peer
    }
}

impl<B: AsRef<[u8]> + Send + Sync + 'static> Advance for PutRequest<B> {
    fn advance(&mut self, state: &mut State) -> Result<Advanced, EndpointError> {
        self.0.advance(state)
    }

    fn result(&self) -> Result<Option<usize>, EndpointError> {
        self.0.result()
    }

    fn reported(&mut self) -> &mut bool {
        &mut self.0.reported
    }

    fn peer(&self) -> Peer {
        self.0.peer
    }
}

impl Endpoint {
    /// Starts to read memory that a peer shares, from an offset in bytes on, into buffers that count as one, as
    /// [`get`](Endpoint::get) does. It does not wait. Example: [`GetRequest`].
    ///
    /// # Errors
    /// [`EndpointError::OutOfBounds`], [`EndpointError::PeerGone`], [`EndpointError::UnknownPeer`], [`EndpointError::Forked`].
    ///
    /// # Panics
    /// Later, when a buffer is shorter the next time that it is asked for its bytes.
    pub fn start_get<B: AsMut<[u8]>>(
        &mut self,
        from: Peer,
        handle: &Handle,
        offset: u64,
        mut buffers: Vec<B>,
    ) -> Result<GetRequest<B>, EndpointError> {
        let len = buffers.iter_mut().map(|buffer| buffer.as_mut().len()).sum();
        let transfer = Transfer { peer: from, handle: *handle, offset, len };
        let get = Get::new(&mut self.state, transfer, false)?;
        let mut request = GetRequest(Started::new(&self.state, transfer, Gets { get, buffers }));
        request.0.begin(&mut self.state);
        Ok(request)
    }

    /// Starts to write to memory that a peer shares for that, from an offset in bytes on: data that counts as one, as
    /// [`put`](Endpoint::put) does. It does not wait. Example: [`GetRequest`].
    ///
    /// # Errors
    /// Those of [`start_get`](Endpoint::start_get); [`EndpointError::NotWritable`].
    ///
    /// # Panics
    /// Later, when a part of the data is shorter the next time that it is asked for its bytes.
    pub fn start_put<B: AsRef<[u8]> + Send + Sync + 'static>(
        &mut self,
        to: Peer,
        handle: &Handle,
        offset: u64,
        data: Vec<B>,
    ) -> Result<PutRequest<B>, EndpointError> {
        let len = data.iter().map(|data| data.as_ref().len()).sum();
        let transfer = Transfer { peer: to, handle: *handle, offset, len };
        let put = Put::new(&mut self.state, transfer, false)?;
        let mut request = PutRequest(Started::new(&self.state, transfer, Puts { put, data }));
        request.0.begin(&mut self.state);
        Ok(request)
    }
}

impl<B: AsMut<[u8]>> fmt::Debug for GetRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GetRequest")
            .field("from", &self.0.peer)
            .field("result", &self.0.result())
            .finish_non_exhaustive()
    }
}

impl<B: AsRef<[u8]> + Send + Sync + 'static> fmt::Debug for PutRequest<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutRequest")
            .field("to", &self.0.peer)
            .field("result", &self.0.result())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::os::fd::AsFd;
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;
    use crate::endpoint::handle::Access;
    use crate::endpoint::peer::{Armed, Event};
    use crate::tuning::ENDPOINT_UNRECEIVED;

    const LEN: usize = 16 << 10;

    /// A server that shares [`LEN`] bytes, and its client.
    fn pair(name: &str) -> Result<(Endpoint, Handle, Endpoint, Peer), EndpointError> {
        let mut server = Endpoint::listen(&format!("started-{name}-{}", std::process::id()))?;
        let handle = server.share(vec![vec![1; LEN].into()], Access::ReadWrite).handle();
        let mut client = Endpoint::client()?;
        let peer = client.connect(server.address().expect("it listens"))?;
        Ok((server, handle, client, peer))
    }

    fn await_end(client: &mut Endpoint) -> Result<(), EndpointError> {
        loop {
            let event = client.wait(Some(Duration::from_secs(10)))?;
            if matches!(event.expect("its end comes in time"), Event::Closed { .. }) {
                return Ok(());
            }
        }
    }

    #[test]
    fn what_was_answered_before_the_peer_left_is_done() -> Result<(), EndpointError> {
        let (mut server, handle, mut client, peer) = pair("left")?;
        let get = |client: &mut Endpoint| client.start_get(peer, &handle, 0, vec![vec![0; LEN]]);
        let mut put = client.start_put(peer, &handle, 0, vec![[9; 4]])?;
        let (mut first, dropped) = (get(&mut client)?, get(&mut client)?);
        for _ in 0..1000 {
            server.poll()?;
        }
        let mut late = get(&mut client)?;
        drop(server);
        await_end(&mut client)?;
        assert_eq!(client.test(&mut put)?, Some(4));
        while client.test(&mut first)?.is_none() {}
        assert_eq!(first.into_buffers()[0], [&[9; 4], &[1; LEN - 4][..]].concat());
        let unanswered = client.test(&mut late);
        assert!(matches!(unanswered, Err(EndpointError::PeerGone { .. })), "{unanswered:?}");
        // The answer to the last one is kept for as long as that is there, and the connection with it.
        assert!(client.state.links.get(peer).is_some());
        drop(dropped);
        client.arm()?;
        assert!(client.state.links.get(peer).is_none());
        Ok(())
    }

    #[test]
    fn a_connection_that_has_ended_is_gone_with_its_last_answer() -> Result<(), EndpointError> {
        let (mut server, handle, mut client, peer) = pair("last")?;
        let mut put = client.start_put(peer, &handle, 0, vec![[9; 4]])?;
        for _ in 0..1000 {
            server.poll()?;
        }
        drop(server);
        await_end(&mut client)?;
        assert_eq!(client.test(&mut put)?, Some(4));
        assert!(client.state.links.get(peer).is_none());
        let gone = client.send_unexpected(peer, 0, b"");
        assert!(matches!(gone, Err(EndpointError::PeerGone { ended: Ended::Left, .. })), "{gone:?}");
        Ok(())
    }

    fn is_readable(endpoint: &Endpoint) -> bool {
        let mut descriptors = [PollFd::new(endpoint.as_fd(), PollFlags::POLLIN)];
        poll(&mut descriptors, PollTimeout::ZERO).expect("a descriptor") > 0
    }

    /// Goes on with a request as an event loop does, which sleeps when it is told to. `tests_first`: before it polls.
    fn run_armed<R: EndpointRequest>(
        (client, server): (&mut Endpoint, &mut Endpoint),
        request: &mut R,
        tests_first: bool,
    ) -> Result<usize, EndpointError> {
        // Before the first test, too.
        let mut is_asleep = client.arm()? == Armed::Sleep;
        for _ in 0..1000 {
            for _ in 0..100 {
                server.poll()?;
            }
            assert!(!is_asleep || is_readable(client), "it sleeps, and {:?}", client.test(request));
            let mut result = if tests_first { client.test(request)? } else { None };
            // What it asks for is answered before it polls.
            for _ in 0..100 {
                server.poll()?;
            }
            while client.poll()?.is_some() {}
            if !tests_first {
                result = client.test(request)?;
            }
            if let Some(bytes) = result {
                return Ok(bytes);
            }
            is_asleep = client.arm()? == Armed::Sleep;
        }
        panic!("it does not end");
    }

    #[test]
    fn an_event_loop_that_arms_completes_transfers() -> Result<(), EndpointError> {
        const LARGE: usize = 3 << 20;
        let (mut server, small, mut client, peer) = pair("armed")?;
        let large = server.share(vec![vec![1; LARGE].into()], Access::ReadWrite).handle();
        for (handle, len) in [(small, 4), (small, LEN), (large, LARGE), (large, LARGE)] {
            for tests_first in [true, false] {
                let mut get = client.start_get(peer, &handle, 0, vec![vec![0; len]])?;
                assert_eq!(run_armed((&mut client, &mut server), &mut get, tests_first)?, len);
                let mut put = client.start_put(peer, &handle, 0, vec![vec![1; len]])?;
                assert_eq!(run_armed((&mut client, &mut server), &mut put, tests_first)?, len);
            }
        }
        Ok(())
    }

    #[test]
    fn an_answer_behind_messages_is_work() -> Result<(), EndpointError> {
        let (mut server, handle, mut client, peer) = pair("behind")?;
        client.send_unexpected(peer, 0, b"")?;
        let to_client = server.recv_unexpected(&mut [])?.peer;
        while client.state.links.find(peer)?.arrived.len() < ENDPOINT_UNRECEIVED {
            assert!(server.try_send_unexpected(to_client, 0, b"message")?);
            while client.poll()?.is_some() {}
        }
        let mut get = client.start_get(peer, &handle, 0, vec![[0; 4]])?;
        assert_eq!(client.test(&mut get)?, None);
        for _ in 0..1000 {
            server.poll()?;
        }
        assert_eq!(client.arm()?, Armed::Work);
        assert_eq!(client.test(&mut get)?, Some(4));
        // Messages that nobody receives are none.
        assert_eq!(client.arm()?, Armed::Sleep);
        Ok(())
    }

    #[test]
    fn requests_that_nobody_tests_keep_no_event_loop_awake() -> Result<(), EndpointError> {
        let (mut server, handle, mut client, peer) = pair("untested")?;
        let get = |client: &mut Endpoint| client.start_get(peer, &handle, 0, vec![[0; 4]]);
        std::mem::forget(get(&mut client)?);
        let (dropped, mut last) = (get(&mut client)?, get(&mut client)?);
        for _ in 0..1000 {
            server.poll()?;
        }
        drop(dropped);
        let mut armed = Vec::new();
        for _ in 0..5 {
            while client.poll()?.is_some() {}
            armed.push(client.arm()?);
        }
        assert_eq!((armed[0], &armed[2..]), (Armed::Work, &[Armed::Sleep; 3][..]));
        assert_eq!(client.test(&mut last)?, Some(4));
        assert_eq!(client.arm()?, Armed::Sleep);
        Ok(())
    }

    #[test]
    fn the_end_of_a_peer_is_work_for_who_waits_for_its_answers() -> Result<(), EndpointError> {
        let (server, handle, mut client, peer) = pair("end")?;
        let mut get = client.start_get(peer, &handle, 0, vec![[0; 4]])?;
        drop(server);
        await_end(&mut client)?;
        assert_eq!(client.arm()?, Armed::Work);
        assert!(client.test(&mut get).is_err());
        assert_eq!(client.arm()?, Armed::Sleep);
        Ok(())
    }

    /// For one that was missing it.
    #[test]
    fn room_for_a_request_is_work() -> Result<(), EndpointError> {
        for polls in [false, true] {
            let (mut server, handle, mut client, peer) = pair("room")?;
            server.wait(None)?;
            while client.poll()?.is_none() {}
            let start = |client: &mut Endpoint| {
                while client.state.links.find(peer)?.finds_room(0) {
                    assert!(client.try_send_unexpected(peer, 0, b"")?);
                }
                let mut get = client.start_get(peer, &handle, 0, vec![[0; 4]])?;
                assert_eq!(client.test(&mut get)?, None);
                Ok::<_, EndpointError>(get)
            };
            let mut get = start(&mut client)?;
            for _ in 0..1000 {
                server.poll()?;
            }
            if polls {
                assert_eq!(client.poll()?, None);
            }
            assert_eq!(client.arm()?, Armed::Work, "polls: {polls}");
            assert_eq!(client.test(&mut get)?, None);
            drop(get);
            // So is that none comes any more.
            let mut last = start(&mut client)?;
            drop(server);
            await_end(&mut client)?;
            assert_eq!(client.arm()?, Armed::Work);
            assert!(client.test(&mut last).is_err());
        }
        Ok(())
    }
}
