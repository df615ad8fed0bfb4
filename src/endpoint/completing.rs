//! Completing what was started: a receive, a get or a put.

use crate::endpoint::api::Endpoint;
use crate::endpoint::error::EndpointError;
use crate::endpoint::state::State;

/// What can be started at an endpoint, and completed later: a [`RecvRequest`](crate::RecvRequest), a
/// [`GetRequest`](crate::GetRequest) or a [`PutRequest`](crate::PutRequest). Example: [`RecvRequest`](crate::RecvRequest).
pub trait EndpointRequest: sealed::Advance {}

pub(crate) mod sealed {
    use crate::endpoint::error::EndpointError;
    use crate::endpoint::peer::Peer;
    use crate::endpoint::state::State;

    /// What has come of a step.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Advanced {
        /// Something has to come first.
        Waits,
        /// It has asked for something, and may go on.
        Asked,
        /// It has moved bytes, and may go on.
        Moved,
        Ended,
    }

    pub trait Advance {
        /// Makes a step, if it has not ended.
        fn advance(&mut self, state: &mut State) -> Result<Advanced, EndpointError>;

        /// How it has ended. `None`: it has not.
        fn result(&self) -> Result<Option<usize>, EndpointError>;

        /// Whether `wait_any` has named it.
        fn reported(&mut self) -> &mut bool;

        /// Whom it concerns.
        fn peer(&self) -> Peer;
    }
}

use sealed::Advanced;

impl Endpoint {
    /// The number of bytes that a request has received, got or put, if it has ended; goes on with it as far as it can without waiting, and
    /// at most until it has moved something: then [`arm`](Endpoint::arm) says once that there is work. Asked again it says the same.
    /// `None`: it has not ended. Example:
    /// [`RecvRequest`](crate::RecvRequest), [`GetRequest`](crate::GetRequest).
    ///
    /// # Errors
    /// Of a receive: [`EndpointError::Truncated`] if the buffer is too short, and [`EndpointError::PeerGone`] or
    /// [`EndpointError::UnknownPeer`] if the peer has ended without such a message: these end the request, and what has come stays
    /// for others. Of a transfer those of [`get`](Endpoint::get) and [`put`](Endpoint::put), which end it, too.
    /// [`EndpointError::ForeignRequest`]; [`EndpointError::TooManyUnreceived`], [`EndpointError::Forked`],
    /// [`EndpointError::System`]: it can be tested again.
    pub fn test<R: EndpointRequest>(&mut self, request: &mut R) -> Result<Option<usize>, EndpointError> {
        if let Ok(None) = request.result() {
            self.state.progress()?;
            while request.advance(&mut self.state)? == Advanced::Asked {}
        }
        request.result()
    }

    /// Waits until a request has ended. Returns its number of bytes. Example: [`RecvRequest::into_buffer`](crate::RecvRequest::into_buffer).
    ///
    /// # Errors
    /// Those of [`test`](Endpoint::test); [`EndpointError::TimedOut`] after a time without progress: it can be waited for again.
    pub fn wait_for<R: EndpointRequest>(&mut self, request: &mut R) -> Result<usize, EndpointError> {
        loop {
            // Each step is waited for anew.
            let peer = Some(request.peer());
            self.block("wait_for", peer, |state| {
                Ok((request.advance(state)? != Advanced::Waits).then_some(()))
            })?;
            if let Some(bytes) = request.result()? {
                return Ok(bytes);
            }
        }
    }

    /// Waits until one of these requests has ended that it has not named before. Returns its place; `None` if all were named. It
    /// may have ended with an error: [`test`](Endpoint::test) says how. Example: [`RecvRequest`](crate::RecvRequest).
    ///
    /// # Errors
    /// [`EndpointError::TooManyUnreceived`] of one of their peers, if none of them has ended or goes on; [`EndpointError::TimedOut`],
    /// [`EndpointError::ForeignRequest`], [`EndpointError::Forked`], [`EndpointError::System`]: these end no request.
    pub fn wait_any<R: EndpointRequest>(&mut self, requests: &mut [R]) -> Result<Option<usize>, EndpointError> {
        if requests.iter_mut().all(|request| *request.reported()) {
            return Ok(None);
        }
        loop {
            // Some: one has ended, at this place; or one of them has gone on.
            let ended = self.block("wait_any", None, |state| advance_any(state, requests))?;
            if let Some(place) = ended {
                *requests[place].reported() = true;
                return Ok(Some(place));
            }
        }
    }
}

/// Makes a step of each, up to the first that has ended. `None`: all wait.
fn advance_any<R: EndpointRequest>(
    state: &mut State,
    requests: &mut [R],
) -> Result<Option<Option<usize>>, EndpointError> {
    let (mut has_gone_on, mut too_many) = (false, None);
    for (place, request) in requests.iter_mut().enumerate() {
        if *request.reported() {
            continue;
        }
        match request.advance(state) {
            Ok(Advanced::Ended) => return Ok(Some(Some(place))),
            Ok(advanced) => has_gone_on |= advanced != Advanced::Waits,
            // Those of other peers may end all the same.
            Err(error @ EndpointError::TooManyUnreceived { .. }) => too_many = too_many.or(Some(error)),
            Err(error) => return Err(error),
        }
    }
    match too_many {
        Some(error) if !has_gone_on => Err(error),
        _ => Ok(has_gone_on.then_some(None)),
    }
}
