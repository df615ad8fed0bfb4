//! A communicator that was joined, and all that were split from it: they share one watcher.
//!
//! The watcher knows ranks as they were when they joined. It ends with the last communicator of the tree, so the death
//! of a process is told to whatever is left of the tree: to each communicator that the process is a rank of, and to no
//! other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::liveness::watcher::Watcher;
use crate::protocol::CauseKind;
use crate::rank::job_state::Observer;
use crate::rank::rank_state::RankState;

/// What all communicators of a tree have in common.
#[derive(Default)]
pub(crate) struct CommTree {
    fanout: Arc<DeathFanout>,
    /// Tells when another rank dies, and the others when this one does. None where ranks are threads, or there is one.
    _watcher: Option<Watcher>,
    /// Whether the others are told of fatal signals.
    pub(crate) fatal_signals: bool,
}

/// The members of a tree, as its watcher knows them.
#[derive(Default)]
pub(crate) struct DeathFanout(Mutex<State>);

#[derive(Default)]
struct State {
    /// The ranks that have died, as they joined.
    dead: Vec<usize>,
    members: Vec<Member>,
}

struct Member {
    seat: Weak<RankState>,
    /// By rank of this communicator: the rank as it joined.
    joined: Arc<[usize]>,
}

impl Member {
    fn notify(&self, dead: usize) {
        let rank = self.joined.iter().position(|joined| *joined == dead);
        if let (Some(rank), Some(seat)) = (rank, self.seat.upgrade()) {
            seat.poison_for(CauseKind::Died, rank, 0);
        }
    }
}

impl DeathFanout {
    /// A rank has died, which had this number when it joined.
    pub(crate) fn died(&self, rank: usize) {
        let mut state = self.state();
        state.dead.push(rank);
        state.members.iter().for_each(|member| member.notify(rank));
    }

    /// Those who look at the communicators that report their state.
    pub(crate) fn observers(&self) -> Vec<Arc<Observer>> {
        self.seats().iter().filter_map(|seat| seat.observer.clone()).collect()
    }

    /// The communicators that are left.
    fn seats(&self) -> Vec<Arc<RankState>> {
        self.state().members.iter().filter_map(|member| member.seat.upgrade()).collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CommTree {
    pub(crate) fn new(fanout: Arc<DeathFanout>, watcher: Option<Watcher>, fatal_signals: bool) -> Self {
        CommTree { fanout, _watcher: watcher, fatal_signals }
    }

    /// From now on this communicator is told of deaths, and of those that were before.
    pub(crate) fn register(&self, seat: &Arc<RankState>, joined: &Arc<[usize]>) {
        let mut state = self.fanout.state();
        let member = Member { seat: Arc::downgrade(seat), joined: Arc::clone(joined) };
        state.dead.iter().for_each(|dead| member.notify(*dead));
        state.members.retain(|member| member.seat.strong_count() > 0);
        state.members.push(member);
    }

    /// Ends every communicator of the tree.
    pub(crate) fn abort(&self, code: i32) {
        self.fanout.seats().iter().for_each(|seat| seat.poison(CauseKind::Aborted, code as u32));
    }
}
