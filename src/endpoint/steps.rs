//! Transfers that own their memory, and go on in steps.

use crate::endpoint::calls::Kept;
use crate::endpoint::error::EndpointError;
use crate::endpoint::getting::Get;
use crate::endpoint::putting::Put;
use crate::endpoint::requests::{Moved, Requests};
use crate::endpoint::state::State;

/// What goes on in steps.
pub(super) trait Steps {
    fn step(&mut self, state: &mut State) -> Result<Option<Moved>, EndpointError>;

    /// Whether the next step would move bytes.
    fn moves(&self, state: &mut State) -> bool;

    fn requests(&mut self) -> &mut Requests;

    /// The requests, and what the peer may read until it has answered.
    fn into_parts(self) -> (Requests, Option<Kept>);
}

pub(super) struct Gets<B> {
    pub(super) get: Get,
    pub(super) buffers: Vec<B>,
}

impl<B: AsMut<[u8]>> Steps for Gets<B> {
    fn step(&mut self, state: &mut State) -> Result<Option<Moved>, EndpointError> {
        let mut targets: Vec<_> = self.buffers.iter_mut().map(AsMut::as_mut).collect();
        self.get.step(state, &mut targets, true)
    }

    fn moves(&self, state: &mut State) -> bool {
        self.get.is_mapped(state)
    }

    fn requests(&mut self) -> &mut Requests {
        &mut self.get.requests
    }

    fn into_parts(self) -> (Requests, Option<Kept>) {
        (self.get.requests, None)
    }
}

pub(super) struct Puts<B> {
    pub(super) put: Put,
    pub(super) data: Vec<B>,
}

impl<B: AsRef<[u8]> + Send + Sync + 'static> Steps for Puts<B> {
    fn step(&mut self, state: &mut State) -> Result<Option<Moved>, EndpointError> {
        let data: Vec<_> = self.data.iter().map(AsRef::as_ref).collect();
        self.put.step(state, &data)
    }

    fn moves(&self, _: &mut State) -> bool {
        false
    }

    fn requests(&mut self) -> &mut Requests {
        &mut self.put.requests
    }

    fn into_parts(self) -> (Requests, Option<Kept>) {
        // The bytes stay where they are: what moves is the vector's own three words.
        (self.put.requests, Some(Box::new(self.data)))
    }
}
