//! Models of threads that share a rank: each call goes through the rank's lock, and each thread calls when it likes.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use intranode::protocol::started::{Started, TransferSteps};
use intranode::protocol::{Call, CallLock, Cause, CauseKind, Failure, Generation, Member, membership};
use loom::sync::Mutex;

use crate::harness::cells::STAGING;
use crate::harness::data::Blocks;
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
    /// A mistake: a call takes the last round from the lock also where a call was started.
    believes_lock: bool,
    /// The rank of each, and what it does.
    threads: Vec<(usize, Vec<ThreadStep>)>,
}

impl ThreadsModel {
    pub(crate) fn new(name: &'static str, waiting: Waiting) -> Self {
        ThreadsModel { name, waiting, believes_lock: false, threads: Vec::new() }
    }

    pub(crate) fn thread_of(mut self, rank: usize, script: &[ThreadStep]) -> Self {
        self.threads.push((rank, script.to_vec()));
        self
    }

    pub(crate) fn believing_lock(self) -> Self {
        ThreadsModel { believes_lock: true, ..self }
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
            let believes_lock = model.believes_lock;
            let thread = RankThread { rank: *rank, platform, shared, believes_lock, rounds: Cell::new(0) };
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
    /// By rank: what it has started.
    started: Vec<Mutex<Queue>>,
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
            started: (0..ranks).map(|_| Mutex::new(Queue { begun: None, completed: START })).collect(),
            owns: vec![Cell::new(false); ranks],
            uses: vec![Cell::new(false); ranks],
            rounds: RefCell::default(),
        }
    }
}

/// At most one call that was started and is not complete.
struct Queue {
    begun: Option<Begun>,
    /// The last round that the rank has completed, if its lock says that a call was started.
    completed: Generation,
}

struct Begun {
    started: Started,
    steps: TransferSteps<Blocks>,
    /// By rank.
    sent: Vec<Vec<u64>>,
}

/// One of a rank's threads.
pub(crate) struct RankThread<'s> {
    pub(crate) rank: usize,
    platform: &'s Simulated,
    shared: &'s Shared,
    believes_lock: bool,
    /// The most rounds that the rank has begun, as far as this thread knows.
    rounds: Cell<usize>,
}

impl RankThread<'_> {
    /// Makes a call under the rank's lock.
    pub(crate) fn locked<T>(
        &self,
        call: impl FnOnce(&mut Member<'_, Simulated>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let mut completed = self.begin()?;
        let result = self.step(&mut completed, call);
        self.lock().end(self.platform, completed, false);
        result
    }

    /// Begins a call, and completes what was started before. The last round that the rank has completed.
    fn begin(&self) -> Result<Generation, Failure> {
        let segment = self.shared.memory.segment();
        let Ok((completed, started)) = self.lock().begin(self.platform, &segment, self.rank) else {
            let cause = Cause { kind: CauseKind::ConcurrentUse, rank: self.rank, detail: 0 };
            return Err(Failure::Dead(Some(cause)));
        };
        if !started {
            return Ok(completed);
        }
        let mut queue = self.shared.started[self.rank].lock().expect("no panic");
        if self.believes_lock {
            queue.completed = completed;
        }
        let finished = self.go_on(&mut queue, |member, begun| {
            member.finish(&mut begun.started, &mut begun.steps).map(|()| true)
        });
        let completed = queue.completed;
        finished.inspect_err(|_| self.lock().end(self.platform, completed, false)).map(|()| completed)
    }

    /// Starts a call in which every rank sends these numbers.
    pub(crate) fn start(&self, sent: &[Vec<u64>], call: &Call) -> Result<(), Failure> {
        let mut completed = self.begin()?;
        let mut queue = self.shared.started[self.rank].lock().expect("no panic");
        let result = self.step(&mut completed, |member| {
            let mut steps = TransferSteps::new(Blocks::of(self.rank, sent));
            let started = member.start(call, &mut steps)?;
            queue.begun = Some(Begun { started, steps, sent: sent.to_vec() });
            Ok(())
        });
        queue.completed = completed;
        self.lock().end(self.platform, completed, queue.begun.is_some());
        result
    }

    /// Goes on with it, as a thread does that waits for something else.
    pub(crate) fn advance(&self) -> Result<(), Failure> {
        let Ok(mut queue) = self.shared.started[self.rank].try_lock() else { return Ok(()) };
        self.go_on(&mut queue, |member, begun| member.test(&mut begun.started, &mut begun.steps))
    }

    /// Makes a call after the start of another one, with which another thread of the rank may go on meanwhile: that is no overlap.
    pub(crate) fn locked_behind_start(
        &self,
        call: impl FnOnce(&mut Member<'_, Simulated>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (_, true) = self.lock().completed(self.platform) else { return Ok(()) };
        let result = self.locked(call);
        let overlaps = |cause: Cause| cause.kind == CauseKind::ConcurrentUse;
        assert!(!matches!(result, Err(Failure::Dead(Some(cause))) if overlaps(cause)), "no overlap");
        result
    }

    /// Goes on with the call that this rank has started, if there is one. `step`: whether it is complete.
    fn go_on(
        &self,
        queue: &mut Queue,
        step: impl FnOnce(&mut Member<'_, Simulated>, &mut Begun) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        let Queue { begun: Some(begun), completed } = queue else { return Ok(()) };
        let result = self.step(completed, |member| step(member, begun));
        if let Ok(true) = result {
            let Blocks { all, .. } = &begun.steps.blocks;
            assert!(*all == begun.sent, "wrong data: rank {} got {all:?}", self.rank);
        }
        if !matches!(result, Ok(false)) {
            queue.begun = None;
        }
        result.map(drop)
    }

    fn lock(&self) -> &CallLock<Simulated> {
        &self.shared.locks[self.rank]
    }

    /// A step of a call, on the thread that has the rank's place in the rounds.
    fn step<T>(
        &self,
        completed: &mut Generation,
        step: impl FnOnce(&mut Member<'_, Simulated>) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let (segment, turn) = (self.shared.memory.segment(), &self.shared.turns[self.rank]);
        let mut member = Member::new(self.platform, &segment, &STAGING, self.rank, *completed, turn);
        let result = step(&mut member);
        *completed = member.completed();
        self.knows(*completed, true);
        if let Err(Failure::Dead(_)) = result {
            self.knows(completed.next(), false);
        }
        result
    }

    /// The rank leaves.
    pub(crate) fn leave(&self) -> Result<(), Failure> {
        let detail = self.lock().completed(self.platform).0.number();
        let cause = Cause { kind: CauseKind::Left, rank: self.rank, detail };
        Ok(membership::poison(self.platform, &self.shared.memory.segment(), cause)?)
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
