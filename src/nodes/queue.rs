//! The calls of several nodes that a rank has started and not completed, in their order.
//!
//! They belong to the communicator, with all that they need, and not to the handles that the program has: one that is forgotten
//! changes nothing for the other ranks. Only the first has begun.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::{Error, Operation};

/// The result of a call, once it is complete: its handle takes it.
pub(super) struct Verdict<R>(Arc<Mutex<Option<Result<R, Error>>>>);

impl<R> Verdict<R> {
    fn new() -> (Self, Self) {
        let shared = Arc::default();
        (Verdict(Arc::clone(&shared)), Verdict(shared))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Result<R, Error>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the call is complete.
    pub(super) fn is_there(&self) -> bool {
        self.lock().is_some()
    }

    /// The result, if the call is complete.
    pub(super) fn take(&self) -> Option<Result<R, Error>> {
        self.lock().take()
    }
}

/// A call of the queue.
trait Queued: Send {
    /// Goes on as far as that takes no waiting. Whether it is complete.
    fn poll(&mut self) -> bool;

    /// It has failed, since a call before it has.
    fn fail(&mut self, error: &dyn Fn(Operation) -> Error);
}

struct Running<R> {
    operation: Operation,
    future: Pin<Box<dyn Future<Output = Result<R, Error>> + Send>>,
    verdict: Verdict<R>,
}

impl<R: Send> Queued for Running<R> {
    fn poll(&mut self) -> bool {
        // No thread is woken: the one that needs the call tests it.
        match self.future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(result) => {
                *self.verdict.lock() = Some(result);
                true
            }
            Poll::Pending => false,
        }
    }

    fn fail(&mut self, error: &dyn Fn(Operation) -> Error) {
        *self.verdict.lock() = Some(Err(error(self.operation)));
    }
}

/// The calls, the oldest first.
#[derive(Default)]
pub(super) struct Queue(VecDeque<Box<dyn Queued>>);

impl Queue {
    /// Adds a call, and gives its verdict to come.
    pub(super) fn add<R: Send + 'static>(
        &mut self,
        operation: Operation,
        call: impl Future<Output = Result<R, Error>> + Send + 'static,
    ) -> Verdict<R> {
        let (verdict, to_come) = Verdict::new();
        self.0.push_back(Box::new(Running { operation, future: Box::pin(call), verdict }));
        to_come
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Goes on with the first call as far as that takes no waiting. Whether it is complete, and no longer here.
    pub(super) fn poll_first(&mut self) -> bool {
        let complete = self.0.front_mut().is_some_and(|first| first.poll());
        if complete {
            self.0.pop_front();
        }
        complete
    }

    /// All calls have failed.
    pub(super) fn fail(&mut self, error: &dyn Fn(Operation) -> Error) {
        self.0.drain(..).for_each(|mut call| call.fail(error));
    }
}
