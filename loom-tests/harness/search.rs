//! A search: what threads do on simulated machines, explored by loom to the end, and counted.

use std::any::Any;
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use std::time::{Duration, Instant};

use crate::harness::machine::{Fate, Machine};
use crate::harness::mutant::{Mutation, Simulated};
use crate::harness::trace;
use crate::harness::waiting::Waiting;

/// What is explored.
#[derive(Clone)]
pub(crate) struct Search {
    pub(crate) name: String,
    /// What tells it from others of the same name: the groups of its ranks, the shape of a ring.
    pub(crate) shape: Option<String>,
    pub(crate) waiting: Waiting,
    /// The number of preemptions in an execution; `None` for any number.
    pub(crate) bound: Option<usize>,
    pub(crate) ranks: usize,
    /// What the threads are called.
    pub(crate) threads: Vec<String>,
    pub(crate) about: About,
    /// Whether it is only for the long run.
    pub(crate) long: bool,
    /// Makes one execution.
    pub(crate) execution: Arc<dyn Fn(&Run) + Send + Sync>,
}

/// What the threads of a search do: what is wrong with the one is not to be found by the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// Calls that all ranks make.
    Calls,
    /// Nothing but watching each other.
    Watching,
    /// Using each other's cells.
    Cells,
    /// Sending to each other.
    Messages,
}

/// A search that found nothing wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Explored {
    pub(crate) executions: u64,
    /// The most rounds that a rank has begun in one execution.
    pub(crate) rounds: usize,
    pub(crate) took: Duration,
}

/// A search that ended at a failing execution.
#[derive(Clone, Debug)]
pub(crate) struct Rejected {
    pub(crate) message: String,
    pub(crate) executions: u64,
    /// The failing execution.
    pub(crate) trace: String,
}

/// What makes loom stop early, and silently.
pub(crate) const LIMITS: [&str; 6] = [
    "LOOM_MAX_BRANCHES",
    "LOOM_MAX_DURATION",
    "LOOM_MAX_PERMUTATIONS",
    "LOOM_MAX_PREEMPTIONS",
    "LOOM_CHECKPOINT_FILE",
    "LOOM_CHECKPOINT_INTERVAL",
];

impl Search {
    /// Without a bound, of as many ranks as threads. `execution` makes one execution, by [`Run::threads`].
    pub(crate) fn new(
        name: impl Into<String>,
        waiting: Waiting,
        threads: Vec<String>,
        execution: impl Fn(&Run) + Send + Sync + 'static,
    ) -> Self {
        Search {
            name: name.into(),
            shape: None,
            waiting,
            bound: None,
            ranks: threads.len(),
            threads,
            about: About::Calls,
            long: false,
            execution: Arc::new(execution),
        }
    }

    /// All executions with at most `bound` preemptions.
    pub(crate) fn bound(self, bound: usize) -> Self {
        Search { bound: Some(bound), ..self }
    }

    /// The name under which it is selected, recorded and printed.
    pub(crate) fn id(&self) -> String {
        let shape = self.shape.iter().map(|shape| format!("::{shape}")).collect::<String>();
        let waiting = format!("{:?}", self.waiting).to_lowercase();
        let bound = self.bound.map(|bound| format!("::bound_{bound}")).unwrap_or_default();
        format!("{}::x{}{shape}::{waiting}{bound}", self.name, self.ranks)
    }

    /// Runs every execution, on machines with a mutation if one is given.
    pub(crate) fn explore(&self, mutation: Option<Mutation>) -> Result<Explored, Rejected> {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = self.bound;
        builder.max_branches = 5_000;
        // Without these two, `check` returns only when there is nothing left.
        assert!(builder.max_permutations.is_none() && builder.max_duration.is_none());

        let run = Run { mutation, waiting: self.waiting, observed: Arc::default() };
        let (observed, execution) = (Arc::clone(&run.observed), Arc::clone(&self.execution));
        let start = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| {
            builder.check(move || {
                run.observed.executions.fetch_add(1, Relaxed);
                trace::clear();
                execution(&run);
            });
        }));
        let executions = observed.executions.load(Relaxed);
        if let Err(panic) = result {
            return Err(Rejected {
                message: message(&*panic),
                executions,
                trace: trace::render(&self.threads),
            });
        }
        // A model of a death in which no thread dies would show nothing.
        let (fated, met) = (observed.fated.load(Relaxed), observed.met.load(Relaxed));
        assert!(!fated || met, "no execution in which the fate comes true");
        Ok(Explored { executions, rounds: observed.rounds.load(Relaxed), took: start.elapsed() })
    }
}

/// What all executions of a search have in common.
#[derive(Clone)]
pub(crate) struct Run {
    mutation: Option<Mutation>,
    pub(crate) waiting: Waiting,
    observed: Arc<Observed>,
}

/// What was seen in the executions so far.
#[derive(Default)]
struct Observed {
    executions: AtomicU64,
    rounds: AtomicUsize,
    /// Whether a thread has a fate, and whether one has met it.
    fated: AtomicBool,
    met: AtomicBool,
}

impl Run {
    /// One execution: a thread for each fate does `act`. The first runs on loom's own thread, and the last to end calls
    /// `check` with what all have returned.
    pub(crate) fn threads<S: 'static, O: 'static>(
        &self,
        shared: S,
        fates: &[Fate],
        act: impl Fn(usize, &Simulated, &S) -> O + 'static,
        check: impl Fn(&[O]) + 'static,
    ) {
        let results = RefCell::new(fates.iter().map(|_| None).collect::<Vec<Option<O>>>());
        let (run, fates) = (self.clone(), fates.to_vec());
        let threads = fates.len();
        let play = Rc::new(move |thread: usize| {
            let platform = run.platform(thread, fates[thread]);
            let result = act(thread, &platform, &shared);
            run.observed.met.fetch_or(platform.machine().has_met_its_fate(), Relaxed);
            results.borrow_mut()[thread] = Some(result);
            if results.borrow().iter().all(Option::is_some) {
                check(&results.take().into_iter().flatten().collect::<Vec<O>>());
            }
        });
        for thread in 1..threads {
            let play = Rc::clone(&play);
            loom::thread::spawn(move || play(thread));
        }
        play(0);
    }

    /// A rank has begun this many rounds.
    pub(crate) fn has_begun(&self, rounds: usize) {
        self.observed.rounds.fetch_max(rounds, Relaxed);
    }

    fn platform(&self, thread: usize, fate: Fate) -> Simulated {
        self.observed.fated.fetch_or(fate.is_any(), Relaxed);
        Simulated::new(Machine::new(thread, self.waiting, fate), self.mutation)
    }
}

fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().cloned();
    text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "a panic without a message".to_owned())
        .trim()
        .to_owned()
}
