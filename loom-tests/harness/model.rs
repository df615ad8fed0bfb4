//! A model: ranks with scripts, what may happen to them, and what must hold at the end of each execution.

use std::sync::Arc;

use intranode::protocol::{Cause, CauseKind, Failure, Generation, Member, membership};

use crate::harness::cells::STAGING;
use crate::harness::machine::Fate;
use crate::harness::mutant::Simulated;
use crate::harness::rank::{Outcome, Rank, Step};
use crate::harness::search::{Run, Search};
use crate::harness::segment::SegmentMemory;
use crate::harness::verdict;
use crate::harness::waiting::Waiting;
use crate::harness::word::Word;

type Check = Arc<dyn Fn(&[Outcome]) + Send + Sync>;

#[derive(Clone)]
pub(crate) struct Model {
    pub(crate) name: String,
    pub(crate) waiting: Waiting,
    /// The number of preemptions in an execution; `None` for any number.
    pub(crate) bound: Option<usize>,
    long: bool,
    threads: Vec<Thread>,
    /// The last round before the model.
    start: u32,
    /// By rank: the leader of its group. Empty: the barrier is flat.
    leaders: Vec<usize>,
    check: Check,
}

/// The ranks come first, in their order.
#[derive(Clone)]
struct Thread {
    role: Role,
    fate: Fate,
}

#[derive(Clone)]
enum Role {
    Rank(Vec<Step>),
    /// No rank, but a watcher that finds this rank dead, and poisons for it.
    Finder(usize),
}

impl Model {
    /// Every rank runs its script, and every call must bring what follows from what all ranks called.
    pub(crate) fn new(name: impl Into<String>, waiting: Waiting, scripts: &[&[Step]]) -> Self {
        let thread = |script: &&[Step]| Thread { role: Role::Rank(script.to_vec()), fate: Fate::NONE };
        Model {
            name: name.into(),
            waiting,
            bound: None,
            long: false,
            threads: scripts.iter().map(thread).collect(),
            start: 4,
            leaders: Vec::new(),
            check: Arc::new(verdict::follows_from_the_calls),
        }
    }

    /// All ranks run the same script.
    pub(crate) fn same(name: impl Into<String>, waiting: Waiting, ranks: usize, script: &[Step]) -> Self {
        Model::new(name, waiting, &vec![script; ranks])
    }

    pub(crate) fn bound(mut self, bound: usize) -> Self {
        self.bound = Some(bound);
        self
    }

    /// The number of the last round before the model.
    pub(crate) fn start(mut self, start: u32) -> Self {
        self.start = start;
        self
    }

    /// The barrier is hierarchical: by rank, the leader of its group.
    pub(crate) fn led_by(mut self, leaders: &[usize]) -> Self {
        self.leaders = leaders.to_vec();
        self
    }

    /// What happens to a rank.
    pub(crate) fn fate(mut self, rank: usize, fate: Fate) -> Self {
        self.threads[rank].fate = fate;
        self
    }

    /// At any moment a further thread finds that this rank has died, and poisons, whatever the rank does.
    pub(crate) fn found_dead(mut self, rank: usize) -> Self {
        self.threads.push(Thread { role: Role::Finder(rank), fate: Fate::NONE });
        self
    }

    /// What must hold, instead of the verdicts that follow from the calls.
    pub(crate) fn check(mut self, check: impl Fn(&[Outcome]) + Send + Sync + 'static) -> Self {
        self.check = Arc::new(check);
        self
    }

    /// Only in the long run.
    pub(crate) fn long(mut self) -> Self {
        self.long = true;
        self
    }

    fn ranks(&self) -> usize {
        self.threads.iter().filter(|thread| matches!(thread.role, Role::Rank(_))).count()
    }

    /// One execution.
    fn execute(&self, run: &Run) {
        let start = Generation::new(self.start);
        let memory = SegmentMemory::new(self.ranks(), start);
        let memory = if self.leaders.is_empty() { memory } else { memory.in_groups(&self.leaders) };
        let fates: Vec<Fate> = self.threads.iter().map(|thread| thread.fate).collect();
        let (model, observer, check) = (self.clone(), run.clone(), Arc::clone(&self.check));
        let act = move |thread: usize, platform: &Simulated, memory: &SegmentMemory| match &model.threads
            [thread]
            .role
        {
            Role::Finder(dead) => {
                let _ = poison_for(*dead, platform, memory);
                Outcome::default()
            }
            Role::Rank(script) => {
                let turn = Word::turn(thread);
                let segment = memory.segment();
                let member = Member::new(platform, &segment, &STAGING, thread, start, &turn);
                let mut rank = Rank::new(thread, member, memory);
                follow(script, &mut rank, platform, memory);
                let complete = rank.member.completed().number().wrapping_sub(start.number());
                let failed = u32::from(rank.outcome.late.is_some());
                observer.has_begun(Generation::new(complete + failed).number() as usize);
                rank.outcome
            }
        };
        run.threads(memory, &fates, act, move |outcomes| check(outcomes));
    }
}

impl From<Model> for Search {
    fn from(model: Model) -> Search {
        let (ranks, waiting) = (model.ranks(), model.waiting);
        let title = |(thread, Thread { role, .. }): (usize, &Thread)| match role {
            Role::Rank(_) => format!("rank {thread}"),
            Role::Finder(dead) => format!("finds {dead} dead"),
        };
        let threads = model.threads.iter().enumerate().map(title).collect();
        let (name, bound, long) = (model.name.clone(), model.bound, model.long);
        let led: String = model.leaders.iter().map(|leader| format!("_{leader}")).collect();
        let shape = (!led.is_empty()).then(|| format!("led_by{led}"));
        let search = Search::new(name, waiting, threads, move |run| model.execute(run));
        Search { shape, bound, long, ranks, ..search }
    }
}

/// Takes the steps of a script, up to one that ends the communicator or the rank.
fn follow(script: &[Step], rank: &mut Rank<'_>, platform: &Simulated, memory: &SegmentMemory) {
    for step in script {
        match step(rank) {
            Err(Failure::Dead(_)) => {
                let completed = rank.member.completed();
                rank.outcome.late = Some((completed.number(), rank.member.late(completed.next())));
                return;
            }
            Err(Failure::Killed) => {
                // Its thread stands in for the watcher that finds it dead, and that has one life only.
                let _ = poison_for(rank.number, platform, memory);
                return;
            }
            Ok(()) | Err(Failure::Refused(_) | Failure::Mismatch(_)) => {}
        }
    }
}

fn poison_for(dead: usize, platform: &Simulated, memory: &SegmentMemory) -> Result<(), Failure> {
    let cause = Cause { kind: CauseKind::Died, rank: dead, detail: 0 };
    Ok(membership::poison(platform, &memory.segment(), cause)?)
}
