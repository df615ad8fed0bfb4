//! A joined communicator and all that were split from it: they share one watcher.
//!
//! The watcher uses the ranks of the joined communicator, and ends with the last communicator of the tree and the last messages: these
//! go on after their communicator was dropped. A death poisons those communicators of the tree of which the dead process is a rank.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::liveness::watcher::Watcher;
use crate::protocol::{Cause, CauseKind};
use crate::rank::job_state::StateSampler;
use crate::rank::rank_state::RankState;
use crate::sys::wait::threads::Ticker;

/// The shared state of a tree's communicators.
#[derive(Default)]
pub(crate) struct CommTree {
    fanout: Arc<DeathFanout>,
    /// None where ranks are threads, or there is one rank.
    _watcher: Option<Watcher>,
    /// Wakes sleepers so that they check their deadlines, where the wait has no time-out of its own: where ranks are threads.
    _ticker: Option<Arc<Ticker>>,
    /// Whether a fatal signal poisons the communicators.
    pub(crate) fatal_signals: bool,
}

/// The communicators of a tree that a death may concern.
#[derive(Default)]
pub(crate) struct DeathFanout(Mutex<State>);

#[derive(Default)]
struct State {
    /// The ranks of the joined communicator that have died.
    dead: Vec<usize>,
    members: Vec<Member>,
}

/// One communicator.
struct Member {
    rank_state: Weak<RankState>,
    /// By rank of this communicator: its rank in the joined one.
    joined: Arc<[usize]>,
}

impl Member {
    /// What has ended it, with the rank's number in the joined communicator.
    fn ended_by(&self) -> Option<Cause> {
        let cause = self.rank_state.upgrade()?.ended_by()?;
        self.joined.get(cause.rank).map(|joined| Cause { rank: *joined, ..cause })
    }

    fn notify(&self, dead: usize) {
        if let Some((rank, rank_state)) = self.with(dead) {
            rank_state.learns_of_death(rank);
        }
    }

    /// The rank has aborted, with all communicators that it still had: those that it had left have ended before.
    fn abort(&self, rank: usize, code: u32) {
        if let Some((rank, rank_state)) = self.with(rank) {
            rank_state.poison_for(CauseKind::Aborted, rank, code);
        }
    }

    /// This communicator, if it was not dropped, and its number of a rank of the joined one, if that is one of its ranks.
    fn with(&self, joined: usize) -> Option<(usize, Arc<RankState>)> {
        let rank = self.joined.iter().position(|known| *known == joined)?;
        Some((rank, self.rank_state.upgrade()?))
    }
}

impl DeathFanout {
    /// A rank of the joined communicator has died.
    pub(crate) fn died(&self, rank: usize) {
        let mut state = self.state();
        state.dead.push(rank);
        state.members.iter().for_each(|member| member.notify(rank));
    }

    /// The samplers of the communicators, where reports are enabled.
    pub(crate) fn samplers(&self) -> Vec<Arc<StateSampler>> {
        self.live().iter().filter_map(|rank_state| rank_state.sampler.clone()).collect()
    }

    /// The communicators that were not dropped.
    fn live(&self) -> Vec<Arc<RankState>> {
        self.state().members.iter().filter_map(|member| member.rank_state.upgrade()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommTree {
    pub(crate) fn new(fanout: Arc<DeathFanout>, watcher: Option<Watcher>, fatal_signals: bool) -> Self {
        CommTree { fanout, _watcher: watcher, _ticker: None, fatal_signals }
    }

    /// The tree of a rank that is a thread.
    pub(crate) fn of_thread(ticker: Arc<Ticker>) -> Self {
        CommTree { _ticker: Some(ticker), ..CommTree::default() }
    }

    /// Adds a communicator, and notifies it of all earlier deaths.
    pub(crate) fn register(&self, rank_state: &Arc<RankState>, joined: &Arc<[usize]>) {
        let mut state = self.fanout.state();
        let member = Member { rank_state: Arc::downgrade(rank_state), joined: Arc::clone(joined) };
        state.dead.iter().for_each(|dead| member.notify(*dead));
        state.members.retain(|member| member.rank_state.strong_count() > 0);
        state.members.push(member);
    }

    /// Tells all communicators of a death or an abort that has ended one of them. The watcher, or the rank that aborts, does so too, but
    /// may come later than a rank that was told and leaves: the others would learn that this one has left, and not why.
    ///
    /// A panic ends only the communicators that are dropped by it, and a time-out one: nothing follows for others.
    pub(crate) fn pass_on(&self) {
        let mut state = self.fanout.state();
        let State { dead, members } = &mut *state;
        for Cause { kind, rank, detail } in members.iter().filter_map(Member::ended_by).collect::<Vec<_>>() {
            match kind {
                CauseKind::Died if !dead.contains(&rank) => {
                    dead.push(rank);
                    members.iter().for_each(|member| member.notify(rank));
                }
                CauseKind::Aborted => members.iter().for_each(|member| member.abort(rank, detail)),
                _ => {}
            }
        }
    }

    /// Poisons every communicator of the tree.
    pub(crate) fn abort(&self, code: i32) {
        self.fanout.live().iter().for_each(|rank_state| rank_state.poison(CauseKind::Aborted, code as u32));
    }
}
