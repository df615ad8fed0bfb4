//! What a call that was started gives back: a handle to test it, or to wait for it.

use std::fmt;
use std::sync::Arc;

use crate::communicator::Communicator;
use crate::error::{Error, Operation};
use crate::protocol::Call;
use crate::protocol::started::Steps;
use crate::rank::started::{SharedCall, StartedCall, lock};
use crate::segment::platform::ShmPlatform;

/// A collective that was started: [`start_barrier`](Communicator::start_barrier),
/// [`start_allreduce`](Communicator::start_allreduce), [`start_broadcast`](Communicator::start_broadcast),
/// [`start_allgatherv`](Communicator::start_allgatherv), and those of all other kinds. Its buffer was moved into the call, and
/// [`wait`](Pending::wait) gives it back.
///
/// **Progress.** No thread goes on with it in the background. This rank's part advances when a `Pending` of this communicator
/// is tested or waited for; in each further collective of it, which first completes all calls that were started; and whenever the thread
/// that has started or tested it waits for something else: in another communicator, for a message, for symmetric memory, for a lock, to
/// join another job. What fits into one round, such as up to 96 bytes a rank, needs nothing more of this rank after the start, if all that
/// it had started before was complete; while this rank computes, longer data needs a test from time to time, or the other ranks wait for
/// it. If it does not come for as long as the [time-out](crate::Config::timeout), they get [`Error::TimedOut`], which names it.
///
/// **Order.** Calls that were started complete in the order in which they were started, which is the same on all ranks, as of
/// all collectives. A rank may start several; each begins when the one before is complete. `start_allreduce` on some ranks and
/// `allreduce` on others are different calls, as in MPI: that is [`Error::Mismatch`].
///
/// **On several nodes** ([`Hierarchical`](crate::Hierarchical)) every call has several steps: the ranks of a node agree, their leaders
/// exchange what they have, the node gets it. All of them have to go on, also with a few bytes, and the other ranks of a node
/// wait for their leader's tests. They go on in calls of the `Hierarchical` alone, and not while the rank waits for something else.
///
/// **Dropping it** does not withdraw the call, as there are ranks that need it, and neither does `std::mem::forget`: this
/// rank's next collective completes it, and throws the result away. If the communicator is dropped instead, this rank has left,
/// which ends the call on the other ranks if it was not complete.
///
/// ```
/// use intranode::ReduceOp;
///
/// let results = intranode::threads(3, |comm| {
///     let mut pending = comm.start_allreduce(vec![comm.rank() as f64, 1.0], ReduceOp::Sum)?;
///     let mut steps = 0;
///     while !pending.test() {
///         steps += 1; // something else that is to be done
///     }
///     Ok::<_, intranode::Error>((pending.wait()?, steps))
/// })?;
/// for result in results {
///     assert_eq!(result?.0, [3.0, 3.0]);
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
#[must_use = "the call is completed by `wait`, or by the next collective of this communicator"]
pub struct Pending<'c, R>(Handle<'c, R>);

/// Whose call it is.
enum Handle<'c, R> {
    Communicator {
        comm: &'c Communicator,
        operation: Operation,
        call: SharedCall<dyn Finish<R> + Send>,
    },
    /// That of several nodes, which is made above.
    Other(Box<dyn Progress<R> + Send + Sync + 'c>),
}

/// A call that was started, and that another kind of communicator goes on with, by the same rules.
pub(crate) trait Progress<R> {
    fn operation(&self) -> Operation;

    /// [`Pending::test`].
    fn test(&mut self) -> bool;

    /// [`Pending::wait`].
    ///
    /// # Errors
    /// Those of the call.
    fn wait(self: Box<Self>) -> Result<R, Error>;
}

/// The steps of a call with a result.
pub(super) trait Finish<R>: Steps<ShmPlatform> {
    /// Takes the result out of them, once they are complete.
    fn result(&mut self) -> R;

    /// What is wrong, the same on all ranks, although they are complete.
    fn disagreement(&mut self) -> Option<Error> {
        None
    }
}

impl Finish<()> for () {
    fn result(&mut self) {}
}

impl<'c, R> Pending<'c, R> {
    /// Starts a call.
    pub(super) fn start(
        comm: &'c Communicator,
        operation: Operation,
        call: Call,
        steps: impl Finish<R> + Send + 'static,
    ) -> Result<Self, Error> {
        let call = StartedCall::new(operation, call, steps);
        comm.rank_state.start(operation, Arc::clone(&call) as SharedCall<_>)?;
        Ok(Pending(Handle::Communicator { comm, operation, call }))
    }

    /// A call of another kind of communicator.
    pub(crate) fn of(call: impl Progress<R> + Send + Sync + 'c) -> Self {
        Pending(Handle::Other(Box::new(call)))
    }

    /// Goes on with the call as far as that takes no waiting. Whether [`wait`](Pending::wait) would return at once, with the
    /// result or with an error. Not collective.
    ///
    /// Like every call of the communicator it must not overlap with one of another thread.
    ///
    /// It copies and folds what the other ranks have published, so it may take as long as the blocking call without its
    /// waiting. If ranks share processors and there is nothing to do, it calls `sched_yield`. If a rank has not come for as long
    /// as the [time-out](crate::Config::timeout) after the first test that has missed it, it is given up.
    ///
    /// ```
    /// let tested = intranode::threads(2, |comm| {
    ///     let mut pending = comm.start_barrier()?;
    ///     if comm.rank() == 1 {
    ///         while !pending.test() {}
    ///     }
    ///     pending.wait()?;
    ///     Ok::<_, intranode::Error>(comm.rank())
    /// })?;
    /// assert!(tested.into_iter().all(|rank| rank.is_ok()));
    /// # Ok::<(), intranode::Error>(())
    /// ```
    pub fn test(&mut self) -> bool {
        match &mut self.0 {
            // `wait` finds the error again.
            Handle::Communicator { comm, operation, call } => {
                comm.rank_state.advance(*operation, call, false).unwrap_or(true)
            }
            Handle::Other(call) => call.test(),
        }
    }

    /// Waits until the call is complete, and gives its buffer back: of an allreduce with the sums, of a broadcast with the data
    /// of the root, of an allgatherv with all blocks. Not collective by itself: other ranks may test it, or wait for it in
    /// their next collective. Example: [`Pending`].
    ///
    /// # Errors
    /// Those of the blocking call, without the ones that the start reports; the buffer is dropped. If another thread of this rank
    /// is in a call, the communicator has ended; this call still has the result that it has on the other ranks.
    pub fn wait(self) -> Result<R, Error> {
        let (comm, operation, call) = match self.0 {
            Handle::Communicator { comm, operation, call } => (comm, operation, call),
            Handle::Other(call) => return call.wait(),
        };
        comm.rank_state.advance(operation, &call, true)?;
        let mut call = lock(&call);
        call.verdict.take().expect("the call is complete, and this is its only handle")?;
        match call.steps.disagreement() {
            Some(error) => Err(error),
            None => Ok(call.steps.result()),
        }
    }
}

impl<R> fmt::Debug for Pending<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = match &self.0 {
            Handle::Communicator { operation, .. } => *operation,
            Handle::Other(call) => call.operation(),
        };
        f.debug_struct("Pending").field("operation", &operation).finish_non_exhaustive()
    }
}
