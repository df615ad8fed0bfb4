//! The calls that a rank has started and not completed, in their order.
//!
//! They belong to the rank, with all that they need, and not to the handles that the program has: one that is forgotten
//! changes nothing for the other ranks. Only the first has begun its rounds.
//!
//! While there are any, the rank's place in the rounds belongs to the thread that has locked them: that of a call, or one that waits
//! for something else and goes on with them meanwhile, which is no call. So such a thread is never a concurrent use.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::element::size_of_shape;
use crate::error::{Error, Operation};
use crate::protocol::started::{Started, Steps};
use crate::protocol::{Call, Failure, Generation, Member};
use crate::segment::platform::ShmPlatform;
use crate::sys::wait::clock::Moment;

/// What a call does between its rounds, with the buffers that it owns.
pub(crate) type AnySteps = dyn Steps<ShmPlatform> + Send;

/// A call that was started.
pub(crate) struct StartedCall<S: ?Sized> {
    pub(crate) operation: Operation,
    call: Call,
    /// `None`: a call that was started before is not complete.
    started: Option<Started>,
    /// The round that a test has found incomplete, and when it has been so for too long.
    overdue: Option<(Generation, Moment)>,
    /// Its verdict, once it is complete.
    pub(crate) verdict: Option<Result<(), Error>>,
    /// Last, so that its type can be forgotten.
    pub(crate) steps: S,
}

/// How a rank goes on with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Advance {
    /// To its end: it waits for the rounds.
    Wait,
    /// As far as that takes no waiting. Who has not come for as long as the time-out is given up.
    Test,
    /// The same, and nobody is given up: this rank does not wait for the call.
    Aside,
}

/// One that its handle and the queue of its rank share.
pub(crate) type SharedCall<S> = Arc<Mutex<StartedCall<S>>>;

/// The calls of one rank.
pub(crate) struct Queue {
    /// The oldest first.
    pub(super) calls: VecDeque<SharedCall<AnySteps>>,
    /// The last round that the rank has completed, as long as the lock of its calls says that a call was started.
    pub(super) completed: Generation,
}

/// Locks one of these. A panic inside a call has ended the communicator.
pub(crate) fn lock<T: ?Sized>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S> StartedCall<S> {
    /// A call that has not begun.
    pub(crate) fn new(operation: Operation, call: Call, steps: S) -> SharedCall<S> {
        let call = StartedCall { operation, call, started: None, overdue: None, verdict: None, steps };
        Arc::new(Mutex::new(call))
    }
}

impl StartedCall<AnySteps> {
    /// What it moves, as it states it.
    pub(super) fn bytes(&self) -> u64 {
        size_of_shape(self.call.shape).saturating_mul(self.call.length)
    }

    /// Goes on with the call. Whether it is complete.
    pub(crate) fn advance(
        &mut self,
        member: &mut Member<'_, ShmPlatform>,
        how: Advance,
    ) -> Result<bool, Failure> {
        match self.advance_rounds(member, how) {
            // Of a rank that takes part only to refuse.
            Err(Failure::Refused(_)) if self.call.refused => Ok(true),
            result => result,
        }
    }

    fn advance_rounds(&mut self, member: &mut Member<'_, ShmPlatform>, how: Advance) -> Result<bool, Failure> {
        let StartedCall { call, started, overdue, steps, .. } = self;
        let started = match started {
            Some(started) => started,
            None => started.insert(member.start(call, steps)?),
        };
        if how == Advance::Wait {
            return member.finish(started, steps).map(|()| true);
        }
        if member.test(started, steps)? {
            return Ok(true);
        }
        if how == Advance::Aside {
            return Ok(false);
        }
        let round = member.completed();
        match overdue {
            Some((since, limit)) if *since == round => {
                if limit.has_passed() {
                    member.expire(started)?;
                }
            }
            _ => *overdue = member.platform().timeout.map(|timeout| (round, Moment::after(timeout))),
        }
        Ok(false)
    }
}
