//! What goes on with the calls that were started: a test as far as that takes no waiting, any other call to the end of all of them.

use std::mem;
use std::sync::{Arc, MutexGuard, PoisonError, TryLockError};
use std::thread;
use std::time::Instant;

use crate::collective::pending::{Pending, Progress};
use crate::error::{Error, Operation};
use crate::nodes::desk::Exchange;
use crate::nodes::hierarchical::{Hierarchical, State, tell};
use crate::nodes::leaders::Leaders;
use crate::nodes::notice::Notice;
use crate::nodes::queue::Verdict;
use crate::nodes::steps::Steps;
use crate::nodes::waiting::{LeadersError, pause_since};
use crate::protocol::CauseKind;
use crate::tuning::NAP;

/// The rounds are numbered modulo 2²⁸, as those of a communicator.
const ROUNDS: u32 = 1 << 28;

impl<L: Leaders> Hierarchical<L> {
    /// The state for a call of this thread.
    ///
    /// # Errors
    /// [`Error::ConcurrentUse`], after which the communicator has ended; [`Error::Forked`].
    pub(super) fn lock(&self, operation: Operation) -> Result<MutexGuard<'_, State>, Error> {
        if self.node.rank_state.mapped.forked() {
            return Err(Error::Forked { operation });
        }
        match self.state.try_lock() {
            Ok(state) => Ok(state),
            // A thread has panicked in a call. What it left is complete in itself.
            Err(TryLockError::Poisoned(poisoned)) => Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => {
                self.node.rank_state.poison(CauseKind::ConcurrentUse, 0);
                Err(Error::ConcurrentUse { operation })
            }
        }
    }

    /// What connects this leader with the others. A panic in it has ended the communicator.
    pub(super) fn leaders(&self) -> MutexGuard<'_, Option<L>> {
        self.leaders.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the communicator on this rank, and tells the other nodes if it is a leader.
    pub(super) fn fail(&self, state: &mut State, notice: Notice) {
        tell(&mut self.leaders(), &notice);
        state.failed = Some(notice);
    }

    /// What a call that is completed later consists of.
    pub(super) fn steps(&self, operation: Operation, round: u32) -> Steps {
        Steps {
            node: Arc::clone(&self.node),
            map: Arc::clone(&self.map),
            own: self.own,
            timeout: self.timeout,
            sizes: self.sizes,
            desk: Arc::clone(&self.desk),
            operation,
            round,
        }
    }

    /// Starts a call, after those that were started before.
    ///
    /// # Errors
    /// As [`lock`](Hierarchical::lock).
    pub(super) fn start<R: Send + 'static, F>(
        &self,
        operation: Operation,
        call: impl FnOnce(Steps) -> F,
    ) -> Result<Pending<'_, R>, Error>
    where
        F: Future<Output = Result<R, Error>> + Send + 'static,
    {
        let mut state = self.lock(operation)?;
        let round = state.next_round();
        let verdict = state.queue.add(operation, call(self.steps(operation, round)));
        self.advance(&mut state, || false);
        Ok(Pending::of(Handle { all: self, operation, verdict }))
    }

    /// Goes on with the calls that were started, in their order, and waits for them as long as `waits` says so.
    pub(super) fn advance(&self, state: &mut State, waits: impl Fn() -> bool) {
        let mut waits_since = None;
        let mut asked: Option<Instant> = None;
        while !state.queue.is_empty() {
            // That of a call in which something has panicked: it cannot go on.
            if let Some(notice) = self.desk.take_failure() {
                self.fail(state, notice);
            }
            if let Some(failed) = state.failed {
                let error = |operation| failed.error(operation, &self.map).expect("it is a failure");
                return state.queue.fail(&error);
            }
            let wait = waits();
            self.desk.set_waits(wait);
            let panics = FailsByPanic(self);
            let complete = state.queue.poll_first();
            mem::forget(panics);
            if let Some(notice) = self.desk.take_failure() {
                self.fail(state, notice);
            }
            if complete || self.exchange() {
                waits_since = None;
            } else if wait {
                // What is waited for are other leaders: everything else is waited for in the call itself.
                if asked.get_or_insert_with(Instant::now).elapsed() >= NAP {
                    // The call finds it in its next step inside the node.
                    let panics = FailsByPanic(self);
                    self.node.rank_state.end_if_interrupted();
                    mem::forget(panics);
                    asked = None;
                }
                pause_since(*waits_since.get_or_insert_with(Instant::now));
            } else {
                break;
            }
        }
    }

    /// Goes on with the exchange between leaders that the first call has asked for. Whether the call can go on.
    fn exchange(&self) -> bool {
        let nobody = || LeadersError::Transport { reason: "this node has no leader".to_owned() };
        // The call that has asked would wait for ever, and show the ranks of its node that it lives.
        let panics = FailsByPanic(self);
        let goes_on = self.desk.serve(
            &mut *self.leaders(),
            |leaders, exchange| {
                let leaders = leaders.as_mut().ok_or_else(nobody)?;
                match exchange {
                    Exchange::Allgatherv { data, counts } => leaders.start_allgatherv(data, &counts),
                    Exchange::Broadcast { data, root } => leaders.start_broadcast(data, root),
                    Exchange::Send { data, to } => leaders.start_send(data, to),
                    Exchange::Recv { data, from } => leaders.start_recv(data, from),
                }
            },
            |leaders| leaders.as_mut().ok_or_else(nobody)?.test(self.timeout),
        );
        mem::forget(panics);
        goes_on
    }
}

/// Calls that were started go on. It is dropped only by a panic, of a hook or of the leaders: then the communicator ends.
struct FailsByPanic<'a, L: Leaders>(&'a Hierarchical<L>);

impl<L: Leaders> Drop for FailsByPanic<'_, L> {
    fn drop(&mut self) {
        self.0.node.rank_state.poison(CauseKind::Panicked, 0);
        // The leaders are not called in the midst of a panic: the next call tells them.
        self.0.desk.fail(Notice::panicked(self.0.rank()));
    }
}

impl State {
    /// The number of a call that begins.
    pub(super) fn next_round(&mut self) -> u32 {
        self.round = (self.round + 1) % ROUNDS;
        self.round
    }
}

/// The program's handle of a call that was started.
struct Handle<'c, L: Leaders, R> {
    all: &'c Hierarchical<L>,
    operation: Operation,
    verdict: Verdict<R>,
}

impl<L: Leaders, R> Handle<'_, L, R> {
    /// Goes on with the calls that were started, to the end of this one if `wait`. Whether it is complete.
    fn go_on(&self, wait: bool) -> Result<bool, Error> {
        if self.verdict.is_there() {
            return Ok(true);
        }
        let mut state = loop {
            match self.all.lock(self.operation) {
                Ok(state) => break state,
                // Another thread is in a call, which goes on with this one first. The communicator has ended, but this call has
                // the verdict that it has on the other ranks.
                Err(Error::ConcurrentUse { .. }) if self.verdict.is_there() => return Ok(true),
                Err(Error::ConcurrentUse { .. }) if wait => thread::yield_now(),
                Err(error) => return Err(error),
            }
        };
        self.all.advance(&mut state, || wait && !self.verdict.is_there());
        Ok(self.verdict.is_there())
    }
}

impl<L: Leaders, R: Send> Progress<R> for Handle<'_, L, R> {
    fn operation(&self) -> Operation {
        self.operation
    }

    fn test(&mut self) -> bool {
        // `wait` finds the error again.
        self.go_on(false).unwrap_or(true)
    }

    fn wait(self: Box<Self>) -> Result<R, Error> {
        self.go_on(true)?;
        self.verdict.take().expect("the call is complete, and this is its only handle")
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::cell::Cell;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::nodes::map::NodeMap;

    thread_local! {
        static PANICS: Cell<bool> = const { Cell::new(false) };
    }

    fn hook() {
        assert!(!PANICS.replace(false), "a hook");
    }

    #[test]
    fn after_a_panic_of_a_hook_calls_have_an_error() {
        let config = crate::Config::new("/threads", 0, 3).timeout(Duration::from_secs(30)).long_wait(hook);
        for counts in [[1, 2], [2, 1]] {
            let has_panicked = AtomicBool::new(false);
            let results = crate::threads_with(&config, |comm| {
                let nodes = Hierarchical::simulated(comm, &NodeMap::new(&counts)?)?;
                let started = if nodes.rank() == 1 {
                    let started = nodes.start_barrier()?;
                    PANICS.set(true);
                    // It waits for the other rank of its node.
                    assert!(catch_unwind(AssertUnwindSafe(|| nodes.barrier())).is_err());
                    has_panicked.store(true, Ordering::Release);
                    started
                } else {
                    while !has_panicked.load(Ordering::Acquire) {
                        thread::yield_now();
                    }
                    nodes.start_barrier()?
                };
                Ok::<_, Error>([started.wait(), nodes.barrier()])
            });
            for result in results.unwrap() {
                for error in result.unwrap() {
                    let text = error.expect_err("a panic").to_string();
                    assert!(text.contains("rank 1") && text.contains("panicked"), "{text}");
                }
            }
        }
    }
}
