//! How a rank starts calls, and goes on with them: a test as far as that takes no waiting, any other call of the rank to the
//! end of all of them.

use std::sync::Arc;
use std::thread;

use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::started::Steps;
use crate::rank::rank_state::{OpenCall, RankState};
use crate::rank::started::{AnySteps, SharedCall, StartedCall, lock};
use crate::segment::platform::ShmPlatform;

impl OpenCall<'_> {
    /// Completes all calls that were started.
    #[cold]
    pub(crate) fn finish_started(&mut self) {
        self.advance_started(|| true);
    }

    /// Goes on with the calls that were started, in their order, and waits for their rounds as long as `waits` says so.
    fn advance_started(&mut self, waits: impl Fn() -> bool) {
        let mut queue = lock(&self.rank_state().started);
        while let Some(front) = queue.front() {
            let wait = waits();
            let mut call = lock(front);
            let caller = self.rename(call.operation);
            let result = self.run(|member| call.advance(member, wait));
            self.rename(caller);
            call.verdict = match result {
                Ok(false) => break,
                Ok(true) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            };
            drop(call);
            queue.pop_front();
        }
        self.leaves_started(!queue.is_empty());
    }
}

impl RankState {
    /// Starts a call, after those that were started before.
    ///
    /// # Errors
    /// As [`RankState::begin`].
    pub(crate) fn start(&self, operation: Operation, call: SharedCall<AnySteps>) -> Result<(), Error> {
        let mut open = self.enter(operation)?;
        lock(&self.started).push_back(call);
        open.advance_started(|| false);
        Ok(())
    }

    /// Starts a call that only refuses, so that all other ranks get an error. Returns this rank's error.
    #[cold]
    pub(crate) fn start_refusal(&self, call: &Call, error: Error) -> Error {
        let operation = error.operation();
        let refusal = StartedCall::new(operation, Call { refused: true, ..*call }, ());
        if let Err(fatal) = self.start(operation, Arc::clone(&refusal) as SharedCall<_>) {
            return fatal;
        }
        match lock(&refusal).verdict.take() {
            Some(Err(fatal)) => fatal,
            _ => error,
        }
    }

    /// Goes on with the calls that were started, to the end of this one if `wait`. Whether it is complete.
    ///
    /// # Errors
    /// As [`RankState::begin`].
    pub(crate) fn advance<S: Steps<ShmPlatform> + ?Sized>(
        &self,
        operation: Operation,
        call: &SharedCall<S>,
        wait: bool,
    ) -> Result<bool, Error> {
        if call.try_lock().is_ok_and(|call| call.verdict.is_some()) {
            return Ok(true);
        }
        let is_complete = || lock(call).verdict.is_some();
        let mut open = loop {
            match self.enter_uncounted(operation) {
                Ok(open) => break open,
                // Another thread is in a call, which goes on with this one first. The communicator has ended, but this call has
                // the verdict that it has on the other ranks.
                Err(Error::ConcurrentUse { .. }) if is_complete() => return Ok(true),
                Err(Error::ConcurrentUse { .. }) if wait => thread::yield_now(),
                Err(error) => return Err(error),
            }
        };
        if wait {
            open.resumes();
        }
        open.advance_started(|| wait && !is_complete());
        let complete = is_complete();
        drop(open);
        if !complete && self.platform.spin.yields() {
            // The ranks that it waits for may be on this processor.
            thread::yield_now();
        }
        Ok(complete)
    }
}
