//! What requests have left behind that were dropped, and so could not tell the endpoint.

use std::sync::{Mutex, PoisonError};

use crate::endpoint::calls::Kept;
use crate::endpoint::peer::Peer;

/// What was asked of a peer, by number, and what it may read until it has answered.
pub(crate) struct Unanswered {
    pub(crate) peer: Peer,
    pub(crate) numbers: Vec<u64>,
    pub(crate) kept: Option<Kept>,
}

/// A list of an endpoint's, which it takes up before it sleeps.
#[derive(Default)]
pub(crate) struct Left(Mutex<Vec<Unanswered>>);

impl Left {
    pub(crate) fn put(&self, unanswered: Unanswered) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(unanswered);
    }

    pub(crate) fn take(&self) -> Vec<Unanswered> {
        core::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
