//! How a rank starts calls, and goes on with them: a test as far as that takes no waiting, any other call of the rank to the
//! end of all of them.

use std::sync::Arc;
use std::thread;

use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::started::Steps;
use crate::rank::rank_state::{OpenCall, RankState};
use crate::rank::started::{Advance, AnySteps, Queue, SharedCall, StartedCall, lock};
use crate::segment::platform::ShmPlatform;
use crate::sys::wait::progress::{self, GoOn, Step};

impl OpenCall<'_> {
    /// Completes all calls that were started.
    #[cold]
    pub(crate) fn finish_started(&mut self) {
        let mut queue = lock(&self.rank_state().started);
        self.advance_started(&mut queue, || Advance::Wait);
        self.begins_later();
    }

    /// Goes on with the calls that were started, in their order, each as `how` says then.
    fn advance_started(&mut self, queue: &mut Queue, how: impl Fn() -> Advance) {
        if !self.started {
            queue.completed = self.completed;
        }
        self.rank_state().advance_queue(queue, how);
        self.completed = queue.completed;
        self.started = !queue.calls.is_empty();
    }
}

impl RankState {
    fn advance_queue(&self, queue: &mut Queue, how: impl Fn() -> Advance) {
        while let Some(front) = queue.calls.front() {
            let how = how();
            let mut call = lock(front);
            let result = self.run(call.operation, &mut queue.completed, |member| call.advance(member, how));
            call.verdict = match result {
                Ok(false) => return,
                Ok(true) => Some(Ok(())),
                Err(error) => Some(Err(error)),
            };
            drop(call);
            queue.calls.pop_front();
        }
    }

    /// Starts a call, after those that were started before.
    ///
    /// # Errors
    /// As [`RankState::begin`].
    pub(crate) fn start(
        self: &Arc<Self>,
        operation: Operation,
        call: SharedCall<AnySteps>,
    ) -> Result<(), Error> {
        let mut open = self.enter(operation)?;
        open.starts(|| lock(&call).bytes());
        let mut queue = lock(&self.started);
        queue.calls.push_back(call);
        open.advance_started(&mut queue, || Advance::Aside);
        self.leave_started(open, &queue);
        Ok(())
    }

    /// Ends a call. If calls that were started are left, this thread goes on with them whenever it waits for something else.
    fn leave_started(self: &Arc<Self>, open: OpenCall<'_>, queue: &Queue) {
        drop(open);
        if !queue.calls.is_empty() {
            progress::add(self);
        }
    }

    /// Starts a call that only refuses, so that all other ranks get an error. Returns this rank's error.
    #[cold]
    pub(crate) fn start_refusal(self: &Arc<Self>, call: &Call, error: Error) -> Error {
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
        self: &Arc<Self>,
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
        let mut queue = lock(&self.started);
        let how = if wait { Advance::Wait } else { Advance::Test };
        open.advance_started(&mut queue, || if is_complete() { Advance::Aside } else { how });
        let complete = is_complete();
        self.leave_started(open, &queue);
        drop(queue);
        if !complete && self.platform.spin.yields() {
            // The ranks that it waits for may be on this processor.
            thread::yield_now();
        }
        Ok(complete)
    }
}

impl GoOn for RankState {
    fn go_on(&self) -> Step {
        if self.mapped.forked() {
            return Step { left: false, advanced: false };
        }
        // Another thread goes on with them, or waits for them, perhaps this one further up; or has panicked there.
        let Ok(mut queue) = self.started.try_lock() else {
            return Step { left: !self.started.is_poisoned(), advanced: false };
        };
        let before = (queue.completed, queue.calls.len());
        self.advance_queue(&mut queue, || Advance::Aside);
        Step { left: !queue.calls.is_empty(), advanced: (queue.completed, queue.calls.len()) != before }
    }
}
