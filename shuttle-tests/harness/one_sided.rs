//! One execution of ranks that use each other's memory, and what must hold at its end.

use std::sync::Arc;

use intranode::protocol::{Cause, CauseKind, Failure};
use shuttle::sync::atomic::Ordering::SeqCst;

use crate::harness::choice;
use crate::harness::one_sided_rank::{Log, Memory, Plan, live};
use crate::harness::scenario::{spawn, watch};
use crate::harness::simulation::{PlannedFate, Simulation};

/// What an execution is made of.
#[derive(Clone, Debug)]
pub struct OneSidedScenario {
    plan: Plan,
    pub fates: Vec<PlannedFate>,
}

/// What became of all.
pub struct Outcome {
    /// Whether a rank was told that another has died, or was late.
    pub harm: bool,
    pub fates_met: usize,
    pub seen: std::collections::BTreeSet<&'static str>,
}

impl OneSidedScenario {
    /// A random one.
    pub fn random(ranks: usize, rounds: usize) -> Self {
        OneSidedScenario { plan: Plan::random(ranks, rounds), fates: Vec::new() }
    }

    /// Plays it, and checks what must hold whatever happened.
    pub fn play(self) -> Outcome {
        const WATCHERS: usize = 2;
        let ranks = self.plan.ranks();
        let mut simulation = Simulation::new(ranks, WATCHERS, self.fates.clone(), Vec::new(), Vec::new());
        simulation.polls = choice::one_of(&[0, 1, 4]);
        simulation.spurious = choice::one_of(&[0, 8]);
        let simulation = Arc::new(simulation);
        let memory = Arc::new(Memory::new(&simulation, ranks));
        let scenario = Arc::new(self);
        if simulation.traced {
            eprintln!("{scenario:#?}");
        }

        // The order of the spawns makes the actors' numbers.
        let live = |rank| {
            let (scenario, simulation, memory) = (scenario.clone(), simulation.clone(), memory.clone());
            spawn(format!("rank {rank}"), move || {
                let log = live(&scenario.plan, rank, &simulation, &memory);
                simulation.finish();
                log
            })
        };
        let living: Vec<_> = (0..ranks).map(live).collect();
        let watcher = |watcher| {
            let (simulation, memory) = (simulation.clone(), memory.clone());
            spawn(format!("watcher {watcher}"), move || watch(&simulation, &memory.segment))
        };
        let watchers: Vec<_> = (0..WATCHERS).map(watcher).collect();
        simulation.end();
        let logs: Vec<Log> = living.into_iter().map(|rank| rank.join().expect("no panic")).collect();
        watchers.into_iter().for_each(|watcher| watcher.join().expect("no panic"));

        let harm = scenario.check_verdicts(&logs, &simulation);
        scenario.check_memory(&logs, &memory);
        Outcome { harm, fates_met: simulation.fates_met(), seen: simulation.seen() }
    }

    /// Every rank comes to its end, or is told of a death, and all that are told are told the same. Returns whether any is.
    fn check_verdicts(&self, logs: &[Log], simulation: &Simulation) -> bool {
        let told: Vec<Cause> = (logs.iter().filter_map(|log| log.end.clone()))
            .filter(|failure| *failure != Failure::Killed)
            .map(|failure| match failure {
                Failure::Dead(Some(cause)) => cause,
                other => panic!("no cause: {other:?}"),
            })
            .collect();
        for cause in &told {
            assert!(told[0] == *cause, "disagreement: {:?} and {cause:?}", told[0]);
            let has_happened = match cause.kind {
                CauseKind::Died => simulation.dead().contains(&cause.rank),
                CauseKind::LockTimedOut => simulation.now() > 0 && cause.rank < logs.len(),
                _ => false,
            };
            assert!(has_happened, "wrong cause: {cause:?}");
        }
        let late = logs.iter().any(|log| log.late);
        assert!(!late || simulation.now() > 0, "late, though no time has passed");
        late || !told.is_empty()
    }

    /// What has been counted is there. A rank that was stopped may have counted once more than it knows.
    fn check_memory(&self, logs: &[Log], memory: &Memory) {
        let stopped = logs.iter().filter(|log| log.end == Some(Failure::Killed)).count() as u64;
        let counted = |what: &str, known: u64, found: u64| {
            assert!((known..=known + stopped).contains(&found), "wrong {what}: {found}, and {known} are known");
        };
        let additions = memory.instances.iter().map(|instance| instance.counter.0.load(SeqCst)).sum();
        counted("sum", logs.iter().map(|log| log.additions).sum(), additions);
        counted("count", logs.iter().map(|log| log.sections).sum(), memory.guarded.0.load(SeqCst));
        if logs.iter().any(|log| log.late || log.end.is_some()) {
            return;
        }
        for (target, instance) in memory.instances.iter().enumerate() {
            for (sender, data) in instance.data.iter().enumerate() {
                let sent = self.plan.signals(sender, target, usize::MAX);
                let found = [&data[0], &data[1]].map(|cell| cell.0.load(SeqCst));
                assert!(found == [sent; 2], "wrong data: {found:?} from {sender} to {target}, not {sent}");
            }
        }
    }
}
