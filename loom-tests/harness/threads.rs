//! Models of threads that share a rank: each call goes through the rank's lock, and each thread calls when it likes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use intranode::protocol::{CallLock, Cause, CauseKind, Failure, Generation, Member, membership};

use crate::harness::machine::Fate;
use crate::harness::mutant::Simulated;
use crate::harness::search::{Run, Search};
use crate::harness::segment::SegmentMemory;
use crate::harness::trace::Label;
use crate::harness::waiting::Waiting;
use crate::harness::word::Word;

/// A call of a thread.
pub(crate) type ThreadStep = fn(&RankThread<'_>) -> Result<(), Failure>;

/// The round before the model.
const START: Generation = Generation::new(4);

/// Threads that each belong to a rank. There is one element, and no two ranks may own it; no round may succeed for one
/// thread and fail for another.
#[derive(Clone)]
pub(crate) struct ThreadsModel {
    name: &'static str,
    waiting: Waiting,
    /// The rank of each, and what it does.
    threads: Vec<(usize, Vec<ThreadStep>)>,
}

impl ThreadsModel {
    pub(crate) fn new(name: &'static str, waiting: Waiting) -> Self {
        ThreadsModel { name, waiting, threads: Vec::new() }
    }

    pub(crate) fn thread_of(mut self, rank: usize, script: &[ThreadStep]) -> Self {
        self.threads.push((rank, script.to_vec()));
        self
    }

    pub(crate) fn bound(self, bound: usize) -> Search {
        Search::from(self).bound(bound)
    }

    fn ranks(&self) -> usize {
        self.threads.iter().map(|(rank, _)| rank + 1).max().unwrap_or(0)
    }

    fn execute(&self, run: &Run) {
        let (model, observer) = (self.clone(), run.clone());
        let act = move |thread: usize, platform: &Simulated, shared: &Shared| {
            let (rank, script) = &model.threads[thread];
            let thread = RankThread { rank: *rank, platform, shared, rounds: Cell::new(0) };
            let ends = |step: &ThreadStep| matches!(step(&thread), Err(Failure::Dead(_)));
            let _ = script.iter().any(ends);
            observer.has_begun(thread.rounds.get());
        };
        let fates = vec![Fate::NONE; self.threads.len()];
        run.threads(Shared::new(self.ranks()), &fates, act, |_| ());
    }
}

impl From<ThreadsModel> for Search {
    fn from(model: ThreadsModel) -> Search {
        let threads = model.threads.iter().map(|(rank, _)| format!("thread of rank {rank}")).collect();
        let (ranks, name, waiting) = (model.ranks(), model.name, model.waiting);
        Search { ranks, ..Search::new(name, waiting, threads, move |run| model.execute(run)) }
    }
}

/// What all threads share.
struct Shared {
    memory: SegmentMemory,
    /// By rank.
    locks: Vec<CallLock<Simulated>>,
    /// By rank: guarded by these.
    turns: Vec<Word>,
    /// By rank: whether it owns the element, whenever it is not in a call about that.
    owns: Vec<Cell<bool>>,
    /// By rank: whether one of its threads may use what it owns.
    uses: Vec<Cell<bool>>,
    /// Whether a round was completed, by all threads that know.
    rounds: RefCell<BTreeMap<u32, bool>>,
}

impl Shared {
    fn new(ranks: usize) -> Self {
        let lock = |rank| {
            let word = CallLock::<Simulated>::initial_word(START);
            CallLock::new(Word::new(word, Label { what: "lock", rank, parity: 0 }))
        };
        Shared {
            memory: SegmentMemory::new(ranks, START),
            locks: (0..ranks).map(lock).collect(),
            turns: (0..ranks).map(Word::turn).collect(),
            owns: vec![Cell::new(false); ranks],
            uses: vec![Cell::new(false); ranks],
            rounds: RefCell::default(),
        }
    }
}

/// One of a rank's threads.
pub(crate) struct RankThread<'s> {
    pub(crate) rank: usize,
    platform: &'s Simulated,
    shared: &'s Shared,
    /// The most rounds that the rank has begun, as far as this thread knows.
    rounds: Cell<usize>,
}

impl RankThread<'_> {
    /// Makes a call under the rank's lock.
    pub(crate) fn locked<T>(
        &self,
        call: impl FnOnce(&mut Member<'_, Simulated>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (lock, segment) = (&self.shared.locks[self.rank], self.shared.memory.segment());
        let Ok((completed, _)) = lock.begin(self.platform, || segment, self.rank) else {
            let cause = Cause { kind: CauseKind::ConcurrentUse, rank: self.rank, detail: 0 };
            return Err(Failure::Dead(Some(cause)));
        };
        let turn = &self.shared.turns[self.rank];
        let mut member = Member::new(self.platform, segment, self.rank, completed, turn);
        let result = call(&mut member);
        self.knows(member.completed(), true);
        if let Err(Failure::Dead(_)) = result {
            self.knows(member.completed().next(), false);
        }
        lock.end(self.platform, member.completed(), false);
        result
    }

    /// The rank leaves.
    pub(crate) fn leave(&self) -> Result<(), Failure> {
        let detail = self.shared.locks[self.rank].completed(self.platform).number();
        let cause = Cause { kind: CauseKind::Left, rank: self.rank, detail };
        Ok(membership::poison(self.platform, self.shared.memory.segment(), cause)?)
    }

    /// Makes a call that decides whether this rank owns the element. During the call the borrow checker sees to it that no
    /// thread uses the element. A failure that can be repaired changes nothing, and a fatal one takes the element away.
    pub(crate) fn decide_ownership(
        &self,
        decide: impl FnOnce() -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let Shared { owns, uses, .. } = self.shared;
        uses[self.rank].set(false);
        let result = decide();
        match result {
            Ok(own) => owns[self.rank].set(own),
            Err(Failure::Refused(_) | Failure::Mismatch(_)) => {}
            Err(_) => owns[self.rank].set(false),
        }
        uses[self.rank].set(owns[self.rank].get());
        let users = uses.iter().filter(|uses| uses.get()).count();
        assert!(users <= 1, "two owners: {users} ranks use one element");
        result.map(drop)
    }

    /// The thread knows whether a round was completed.
    fn knows(&self, round: Generation, complete: bool) {
        let before = *self.shared.rounds.borrow_mut().entry(round.number()).or_insert(complete);
        assert!(before == complete, "disagreement: round {} was completed, and was not", round.number());
        self.rounds.set(self.rounds.get().max((round.number() - START.number()) as usize));
    }
}
