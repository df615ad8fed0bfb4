//! One execution of ranks that use each other's memory, and what must hold at its end.

use std::sync::Arc;

use intranode::protocol::{Cause, CauseKind, Failure};
use shuttle::sync::atomic::Ordering::SeqCst;

use crate::harness::deaths::Scenario;
use crate::harness::one_sided_rank::{Log, Memory, Plan, live};
use crate::harness::scenario::watch;
use crate::harness::simulation::{PlannedFate, Simulation};

/// What an execution is made of.
#[derive(Clone, Debug)]
pub struct OneSidedScenario {
    plan: Plan,
    fates: Vec<PlannedFate>,
}

impl Scenario for OneSidedScenario {
    type Memory = Memory;
    type Log = Log;

    fn random(ranks: usize, rounds: usize) -> Self {
        OneSidedScenario { plan: Plan::random(ranks, rounds), fates: Vec::new() }
    }

    fn ranks(&self) -> usize {
        self.plan.ranks()
    }

    fn fates(&mut self) -> &mut Vec<PlannedFate> {
        &mut self.fates
    }

    fn memory(simulation: &Arc<Simulation>, ranks: usize) -> Memory {
        Memory::new(simulation, ranks)
    }

    fn live(&self, rank: usize, simulation: &Arc<Simulation>, memory: &Memory) -> Log {
        live(&self.plan, rank, simulation, memory)
    }

    fn watch(simulation: &Simulation, memory: &Memory) {
        watch(simulation, &memory.segment);
    }

    fn check(&self, logs: &[Log], simulation: &Simulation, memory: &Memory) -> bool {
        let harm = self.check_verdicts(logs, simulation);
        self.check_memory(logs, memory);
        harm
    }
}

impl OneSidedScenario {
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
