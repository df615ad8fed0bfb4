//! The task of an endpoint that takes in what comes, also while nobody else waits: peers are accepted, and memory is read.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::endpoint::asynchronous::shared::Shared;
use crate::endpoint::error::EndpointError;

pub(super) struct Driver(pub(super) Arc<Shared>);

impl Future for Driver {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        self.0.drive(context).map(|ended| ended.unwrap_or_else(|error| self.0.stop(error)))
    }
}

impl Drop for Driver {
    /// After a driver that has failed this changes nothing; otherwise the endpoint is dropped, or the runtime has ended.
    fn drop(&mut self) {
        self.0.stop(EndpointError::NoRuntime);
    }
}
