//! A call that waits.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::task::coop::cooperative;

use crate::endpoint::api::Endpoint;
use crate::endpoint::asynchronous::shared::Shared;
use crate::endpoint::asynchronous::waiters::Interest;
use crate::endpoint::error::EndpointError;

/// Tries whenever there may be something. What it finds it returns in the same poll, so that nothing is lost with a future that is
/// dropped.
struct Attempt<'a, F> {
    shared: &'a Shared,
    interest: Interest,
    /// By which it is noted among those who wait.
    number: Option<u64>,
    call: F,
}

impl<R, F> Future for Attempt<'_, F>
where
    F: FnMut(&mut Endpoint) -> Result<Option<R>, EndpointError> + Unpin,
{
    type Output = Result<R, EndpointError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Attempt { shared, interest, number, call } = &mut *self;
        shared.attempt(number, *interest, context.waker(), call)
    }
}

impl<F> Drop for Attempt<'_, F> {
    fn drop(&mut self) {
        self.number.into_iter().for_each(|number| self.shared.forget(number));
    }
}

/// Waits until a call finds something. A task that always finds something lets others run in between.
pub(super) async fn wait<R>(
    shared: &Shared,
    interest: Interest,
    call: impl FnMut(&mut Endpoint) -> Result<Option<R>, EndpointError> + Unpin,
) -> Result<R, EndpointError> {
    cooperative(Attempt { shared, interest, number: None, call }).await
}
