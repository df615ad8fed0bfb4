//! One call of a rank: its steps inside the node, and those between the leaders.
//!
//! After each exchange between leaders a leader tells its node how that ended: the gate. While it waits for other leaders it
//! tells that too, several times within the time-out; so the ranks of its node, which wait for it, do not give it up.
//! A failure is told to all other leaders, and every later call fails like it.

use std::mem;
use std::sync::MutexGuard;

use crate::communicator::Communicator;
use crate::error::{Error, Operation};
use crate::nodes::hierarchical::{Hierarchical, State};
use crate::nodes::leaders::Leaders;
use crate::nodes::notice::{NOTICE, Notice, among_all, ending};
use crate::nodes::steps::LEADER;
use crate::nodes::waiting::{LeadersError, Waiting};
use crate::protocol::{Call, CauseKind};
use crate::rank::rank_state::EndsByPanic;

/// A call in progress, the only one of this rank.
pub(super) struct Session<'a, L: Leaders> {
    pub(super) all: &'a Hierarchical<L>,
    pub(super) operation: Operation,
    state: MutexGuard<'a, State>,
}

impl<L: Leaders> Hierarchical<L> {
    /// Begins a call, and completes those that were started before.
    ///
    /// # Errors
    /// That of an earlier call; [`Error::ConcurrentUse`], after which the communicator has ended; [`Error::Forked`].
    pub(super) fn begin(&self, operation: Operation) -> Result<Session<'_, L>, Error> {
        let mut state = self.lock(operation)?;
        self.advance(&mut state, || true);
        if let Some(error) = state.failed.as_ref().and_then(|failed| failed.error(operation, &self.map)) {
            return Err(error);
        }
        state.next_round();
        Ok(Session { all: self, operation, state })
    }
}

impl<L: Leaders> Session<'_, L> {
    /// The number of this call.
    pub(super) fn round(&self) -> u32 {
        self.state.round
    }

    /// Whether this rank is its node's leader.
    pub(super) fn leads(&self) -> bool {
        self.all.node.rank() == LEADER
    }

    /// A step inside the node.
    ///
    /// # Errors
    /// Those of the step, which name ranks by their numbers among all. The communicator has ended.
    pub(super) fn node<R>(&mut self, step: impl FnOnce(&Communicator) -> Result<R, Error>) -> Result<R, Error> {
        step(&self.all.node).map_err(|error| {
            let error = self.among_all(error);
            self.fail(Notice::of_error(&error, self.all.rank()));
            ending(error, self.operation, self.all.rank())
        })
    }

    /// An exchange between leaders, which the other ranks only wait for.
    ///
    /// # Errors
    /// The same on every rank of the node. The communicator has ended.
    pub(super) fn leaders(
        &mut self,
        exchange: impl FnOnce(&mut L, &mut Waiting<'_>) -> Result<(), LeadersError>,
    ) -> Result<(), Error> {
        self.leaders_with(&mut [], |leaders, _, wait| exchange(leaders, wait))
    }

    /// The same of words, which all ranks of the node get.
    ///
    /// # Errors
    /// As [`leaders`](Session::leaders).
    pub(super) fn leaders_with(
        &mut self,
        data: &mut [u64],
        exchange: impl FnOnce(&mut L, &mut [u64], &mut Waiting<'_>) -> Result<(), LeadersError>,
    ) -> Result<(), Error> {
        let told = if self.leads() { self.lead(data, exchange) } else { self.follow(data) };
        let told = told.map_err(|error| {
            let error = self.among_all(error);
            self.fail(Notice::of_error(&error, self.all.rank()));
            ending(error, self.operation, self.all.rank())
        })?;
        match told.error(self.operation, &self.all.map) {
            Some(error) => {
                self.fail(told);
                Err(error)
            }
            None => Ok(()),
        }
    }

    fn lead(
        &mut self,
        data: &mut [u64],
        exchange: impl FnOnce(&mut L, &mut [u64], &mut Waiting<'_>) -> Result<(), LeadersError>,
    ) -> Result<Notice, Error> {
        let (node, timeout, words) = (&self.all.node, self.all.timeout, NOTICE + data.len());
        let mut of_node = Ok(());
        let mut pulse = || {
            // The broadcast fails then.
            node.rank_state.end_if_interrupted();
            let mut message = vec![0; words];
            message[..NOTICE].copy_from_slice(Notice::WAITS.words());
            of_node = node.broadcast(&mut message, LEADER);
            of_node.is_ok()
        };
        let mut wait = Waiting::new(timeout, &mut pulse);
        let panics = EndsByPanic(&node.rank_state);
        let result = match &mut *self.all.leaders() {
            Some(leaders) => exchange(leaders, data, &mut wait),
            None => Err(LeadersError::Transport { reason: "this node has no leader".to_owned() }),
        };
        mem::forget(panics);
        // The ranks of the node have the same error, from the node.
        of_node?;
        let told = match result {
            Ok(()) => Notice::DONE,
            Err(error) => Notice::of_leaders(error, &self.all.map, timeout, self.state.round),
        };
        let mut message = [told.words(), &*data].concat();
        node.broadcast(&mut message, LEADER)?;
        Ok(told)
    }

    fn follow(&mut self, data: &mut [u64]) -> Result<Notice, Error> {
        let mut message = vec![0; NOTICE + data.len()];
        loop {
            self.all.node.broadcast(&mut message, LEADER)?;
            let told = Notice::of_words(&message[..NOTICE]);
            if !told.is_waiting() {
                data.copy_from_slice(&message[NOTICE..]);
                return Ok(told);
            }
        }
    }

    /// Runs code of the program's own, with the steps that it is part of. If it panics, the communicator ends on all ranks.
    pub(super) fn run<R>(&mut self, code: impl FnOnce(&mut Self) -> R) -> R {
        let running = Running(self);
        let result = code(running.0);
        mem::forget(running);
        result
    }

    /// Ends the communicator on this rank, and tells the other nodes if it is a leader.
    fn fail(&mut self, notice: Notice) {
        self.all.fail(&mut self.state, notice);
    }

    /// An error of the node's communicator, with the numbers of ranks among all, and the call that was made.
    fn among_all(&self, error: Error) -> Error {
        let first = self.all.map.leader_of(self.all.own);
        among_all(error, self.operation, self.state.round, first)
    }

    /// The error of a call, where other ranks of this node have started one that they complete later: it goes on by the steps of
    /// those.
    #[cold]
    pub(super) fn disagree_with_started(&mut self, call: Call, checked: Result<(), Error>) -> Error {
        let steps = self.all.steps(self.operation, self.state.round);
        let agreed = async move { steps.agree_once_more(&call, checked, &[]).await.map(drop) };
        let verdict = self.state.queue.add(self.operation, agreed);
        self.all.advance(&mut self.state, || true);
        match verdict.take() {
            Some(Err(error)) => error,
            _ => unreachable!("the calls differ"),
        }
    }
}

/// Code of the program's own runs. It is dropped only by a panic.
struct Running<'s, 'a, L: Leaders>(&'s mut Session<'a, L>);

impl<L: Leaders> Drop for Running<'_, '_, L> {
    fn drop(&mut self) {
        // What other ranks wait for does not come any more. Those of the node learn it from its communicator.
        self.0.all.node.rank_state.poison(CauseKind::Panicked, 0);
        self.0.fail(Notice::panicked(self.0.all.rank()));
    }
}
