//! What the tasks of an endpoint share.
//!
//! Only the driver waits for the descriptor. So when the lock is free, either all peers are parked, and whatever happens makes the
//! descriptor readable; or the driver is woken. A call that has unparked a peer, or has made a connection, wakes it.

use std::io;
use std::os::fd::AsFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::endpoint::api::Endpoint;
use crate::endpoint::asynchronous::waiters::{Interest, Waiters};
use crate::endpoint::error::EndpointError;
use crate::sys::tokio_readable::TokioReadable;

pub(super) struct Shared(Mutex<Inner>);

struct Inner {
    /// `None` once it is dropped.
    endpoint: Option<Endpoint>,
    readable: TokioReadable,
    waiters: Waiters,
    driver: Option<Waker>,
    /// Why nobody waits for the descriptor any more.
    stopped: Option<EndpointError>,
}

impl Shared {
    /// In a runtime.
    pub(super) fn new(mut endpoint: Endpoint) -> io::Result<Self> {
        let readable = TokioReadable::new(endpoint.as_fd())?;
        endpoint.state.over.is_taken_from_now_on();
        let (endpoint, waiters) = (Some(endpoint), Waiters::default());
        Ok(Shared(Mutex::new(Inner { endpoint, readable, waiters, driver: None, stopped: None })))
    }

    /// A panic of a program's own closure has left the endpoint as it was.
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes a call that does not wait.
    pub(super) fn call<R>(
        &self,
        call: impl FnOnce(&mut Endpoint) -> Result<R, EndpointError>,
    ) -> Result<R, EndpointError> {
        self.locked(|endpoint, _| call(endpoint))
    }

    /// Makes a call; the task is woken when there may be something for it, if it found nothing.
    pub(super) fn attempt<R>(
        &self,
        number: &mut Option<u64>,
        interest: Interest,
        waker: &Waker,
        call: impl FnOnce(&mut Endpoint) -> Result<Option<R>, EndpointError>,
    ) -> Poll<Result<R, EndpointError>> {
        // Dropped at the end, without the lock.
        let mut old = None;
        let found = self.locked(|endpoint, waiters| {
            let found = call(endpoint);
            old = match found {
                Ok(None) => waiters.put(number, interest, waker),
                _ => number.take().and_then(|number| waiters.remove(number)),
            };
            found
        });
        found.transpose().map_or(Poll::Pending, Poll::Ready)
    }

    pub(super) fn forget(&self, number: u64) {
        let old = self.lock().waiters.remove(number);
        drop(old);
    }

    /// Withdraws something that a future has left behind; also where all calls fail.
    pub(super) fn leave(&self, call: impl FnOnce(&mut Endpoint)) {
        let mut inner = self.lock();
        let over = inner.endpoint.as_mut().map(|endpoint| {
            call(endpoint);
            endpoint.state.over.take()
        });
        drop(inner);
        drop(over);
    }

    fn locked<R>(
        &self,
        call: impl FnOnce(&mut Endpoint, &mut Waiters) -> Result<R, EndpointError>,
    ) -> Result<R, EndpointError> {
        let mut inner = self.lock();
        let Inner { endpoint, waiters, driver, stopped, .. } = &mut *inner;
        if let Some(stopped) = stopped {
            return Err(again(stopped));
        }
        let endpoint = endpoint.as_mut().ok_or(EndpointError::NoRuntime)?;
        let result = call(endpoint, waiters);
        let mut woken = waiters.take_ready(&mut endpoint.state);
        if !endpoint.state.awake.is_empty() {
            woken.extend(driver.take());
        }
        let over = endpoint.state.over.take();
        drop(inner);
        // Without the lock: what a waker does is another's, and so is what is dropped.
        woken.into_iter().for_each(Waker::wake);
        drop(over);
        result
    }

    /// Takes in what has come, and wakes who waits for it; then parks all peers, and waits for the descriptor. Ready: the endpoint
    /// is dropped.
    pub(super) fn drive(&self, context: &mut Context<'_>) -> Poll<Result<(), EndpointError>> {
        let mut inner = self.lock();
        let Inner { endpoint, readable, waiters, driver, .. } = &mut *inner;
        let Some(endpoint) = endpoint else { return Poll::Ready(Ok(())) };
        *driver = Some(context.waker().clone());
        // Cleared first: what comes while it looks makes the descriptor readable once more.
        if let Poll::Ready(Err(_)) = readable.poll_and_clear(context) {
            return Poll::Ready(Err(EndpointError::NoRuntime));
        }
        let state = &mut endpoint.state;
        if !state.awake.is_empty() {
            state.progress()?;
        }
        let mut woken = waiters.take_ready(state);
        // The task that is woken goes first: meanwhile peers that are not parked need not ring.
        let mut again = !woken.is_empty() || state.park()?;
        if !again {
            // What came while it parked.
            woken = waiters.take_ready(state);
            woken.extend(waiters.take_parked(state));
            again = readable.poll(context).is_ready();
        }
        let over = state.over.take();
        drop(inner);
        woken.into_iter().for_each(Waker::wake);
        if again {
            context.waker().wake_by_ref();
        }
        for kept in over {
            // A panic is the program's own, and ends neither this task nor the endpoint. The system has been told of it.
            let _ = catch_unwind(AssertUnwindSafe(|| drop(kept)));
        }
        Poll::Pending
    }

    /// Nobody waits for the descriptor from now on: all calls fail.
    pub(super) fn stop(&self, why: EndpointError) {
        let mut inner = self.lock();
        inner.stopped.get_or_insert(why);
        let woken = inner.waiters.take_all();
        drop(inner);
        woken.into_iter().for_each(Waker::wake);
    }

    /// Drops the endpoint, at once, whatever else has a share in this.
    pub(super) fn close(&self) {
        let endpoint = self.lock().endpoint.take();
        drop(endpoint);
    }
}

/// The same error once more.
fn again(error: &EndpointError) -> EndpointError {
    match error {
        EndpointError::Forked => EndpointError::Forked,
        EndpointError::System { operation, what, source } => {
            EndpointError::System { operation, what, source: source.kind().into() }
        }
        _ => EndpointError::NoRuntime,
    }
}
