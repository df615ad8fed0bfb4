//! Models of ranks that use each other's memory: each thread has a role, and sees something; what all have seen together is
//! judged at the end of every execution.

use std::sync::Arc;

use intranode::protocol::Failure;

use crate::harness::actor::{Actor, Memory};
use crate::harness::machine::Fate;
use crate::harness::mutant::Simulated;
use crate::harness::search::{About, Run, Search};
use crate::harness::waiting::Waiting;

/// What a thread does. It ends with the first error.
pub(crate) type Role = fn(&Actor<'_>) -> Result<(), Failure>;

/// What a thread has seen, and how it has ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) values: Vec<u64>,
    pub(crate) end: Result<(), Failure>,
}

type Check = Arc<dyn Fn(&[Seen]) + Send + Sync>;

/// Threads, each of a rank, and what must hold of what they have seen.
#[derive(Clone)]
pub(crate) struct OneSidedModel {
    name: String,
    pub(crate) waiting: Waiting,
    threads: Vec<Thread>,
    check: Check,
    /// Whether the ranks make calls too.
    calls: bool,
    bound: Option<usize>,
    long: bool,
}

#[derive(Clone)]
struct Thread {
    rank: usize,
    /// `None`: it is a watcher that finds the rank dead.
    role: Option<Role>,
    fate: Fate,
}

impl OneSidedModel {
    pub(crate) fn new(name: impl Into<String>, waiting: Waiting) -> Self {
        let (threads, check) = (Vec::new(), Arc::new(|_: &[Seen]| ()));
        OneSidedModel { name: name.into(), waiting, threads, check, calls: false, bound: None, long: false }
    }

    /// What a thread of this rank does.
    pub(crate) fn rank(mut self, rank: usize, role: Role) -> Self {
        self.threads.push(Thread { rank, role: Some(role), fate: Fate::NONE });
        self
    }

    /// What happens to a thread.
    pub(crate) fn fate_of(mut self, thread: usize, fate: Fate) -> Self {
        self.threads[thread].fate = fate;
        self
    }

    /// At any moment a further thread finds that this rank has died, and poisons, whatever the rank does.
    pub(crate) fn found_dead(mut self, rank: usize) -> Self {
        self.threads.push(Thread { rank, role: None, fate: Fate::NONE });
        self
    }

    /// What must hold at the end, of what each thread has seen.
    pub(crate) fn check(mut self, check: impl Fn(&[Seen]) + Send + Sync + 'static) -> Self {
        self.check = Arc::new(check);
        self
    }

    /// The same for ranks that make calls too, so that poison goes through the words of these.
    pub(crate) fn with_calls(self) -> Self {
        OneSidedModel { calls: true, ..self }
    }

    pub(crate) fn bound(self, bound: usize) -> Self {
        OneSidedModel { bound: Some(bound), ..self }
    }

    /// Only in the long run.
    pub(crate) fn long(self) -> Self {
        OneSidedModel { long: true, ..self }
    }

    fn ranks(&self) -> usize {
        self.threads.iter().map(|thread| thread.rank + 1).max().unwrap_or(0)
    }

    fn execute(&self, run: &Run) {
        let fates: Vec<Fate> = self.threads.iter().map(|thread| thread.fate).collect();
        let (threads, check) = (self.threads.clone(), Arc::clone(&self.check));
        let act = move |thread: usize, platform: &Simulated, memory: &Memory| {
            let Thread { rank, role, .. } = threads[thread];
            let segment = memory.segment.segment();
            let actor = Actor::new(rank, platform, memory, &segment);
            let end = role.map_or_else(|| actor.is_found_dead(), |role| role(&actor));
            if end == Err(Failure::Killed) {
                // Its thread stands in for the watcher that finds it dead, and that has one life only.
                let _ = actor.is_found_dead();
            }
            Seen { values: actor.seen(), end }
        };
        run.threads(Memory::new(self.ranks(), self.calls), &fates, act, move |seen| check(seen));
    }
}

impl From<OneSidedModel> for Search {
    fn from(model: OneSidedModel) -> Search {
        let title = |thread: &Thread| match thread.role {
            Some(_) => format!("rank {}", thread.rank),
            None => format!("finds {} dead", thread.rank),
        };
        let threads = model.threads.iter().map(title).collect();
        let (name, waiting, bound, long) = (model.name.clone(), model.waiting, model.bound, model.long);
        let ranks = model.ranks();
        let search = Search::new(name, waiting, threads, move |run| model.execute(run));
        Search { about: About::Cells, ranks, bound, long, ..search }
    }
}
