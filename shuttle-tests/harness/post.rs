//! One execution of ranks that send each other messages, and what must hold at its end.

use std::sync::Arc;

use intranode::protocol::symmetric::OneSided;
use intranode::protocol::{Cause, CauseKind, Failure, membership};
use shuttle::sync::atomic::Ordering::SeqCst;

use crate::harness::channels::Channels;
use crate::harness::deaths::Scenario;
use crate::harness::post_plan::Plan;
use crate::harness::post_rank::{Log, live};
use crate::harness::simulation::{PlannedFate, Simulation};

/// What an execution is made of.
#[derive(Clone, Debug)]
pub struct PostScenario {
    plan: Plan,
    fates: Vec<PlannedFate>,
}

impl Scenario for PostScenario {
    type Memory = Channels;
    type Log = Log;

    fn random(ranks: usize, rounds: usize) -> Self {
        PostScenario { plan: Plan::random(ranks, rounds), fates: Vec::new() }
    }

    fn ranks(&self) -> usize {
        self.plan.ranks()
    }

    fn fates(&mut self) -> &mut Vec<PlannedFate> {
        &mut self.fates
    }

    fn memory(simulation: &Arc<Simulation>, ranks: usize) -> Channels {
        Channels::new(simulation, ranks)
    }

    fn live(&self, rank: usize, simulation: &Arc<Simulation>, memory: &Channels) -> Log {
        live(&self.plan, rank, simulation, memory)
    }

    fn watch(simulation: &Simulation, memory: &Channels) {
        watch(simulation, memory);
    }

    fn check(&self, logs: &[Log], simulation: &Simulation, _: &Channels) -> bool {
        let harm = check_verdicts(logs, simulation);
        check_messages(logs);
        harm
    }
}

/// What the watchers of all ranks do together: the death is known, it poisons, and all that wait look again, since the
/// communicator may have ended before because a rank has left. Then it is a nap that ends in production, should the dead rank
/// have taken a sleeper's mark without waking it.
fn watch(simulation: &Simulation, memory: &Channels) {
    let (mut known, segment) = (0, memory.segment.segment());
    while let Some(rank) = simulation.next_death(known) {
        known += 1;
        memory.dead.fetch_or(1 << rank, SeqCst);
        let cause = Cause { kind: CauseKind::Died, rank, detail: 0 };
        if membership::poison(simulation, &segment, cause).is_err() {
            return;
        }
        for (rank, bell) in segment.bells.iter().enumerate() {
            if OneSided::new(simulation, &segment, rank).ring(rank).is_err() {
                return;
            }
            simulation.wake_sleepers(&bell.word);
        }
    }
}

/// Every rank comes to its end, or is told of a death that has happened. Returns whether any is.
fn check_verdicts(logs: &[Log], simulation: &Simulation) -> bool {
    let mut told = false;
    for failure in logs.iter().filter_map(|log| log.end.as_ref()) {
        match failure {
            Failure::Killed => {}
            Failure::Dead(Some(Cause { kind: CauseKind::Died, rank, .. })) => {
                assert!(simulation.dead().contains(rank), "wrong cause: rank {rank} lives");
                told = true;
            }
            other => panic!("wrong cause: {other:?}"),
        }
    }
    let late = logs.iter().any(|log| log.late);
    assert!(!late || simulation.now() > 0, "late, though no time has passed");
    late || told
}

/// Each message is received once, or was withdrawn, unless something went wrong; and in order, but for those that were pulled
/// meanwhile, as each receiver has checked.
fn check_messages(logs: &[Log]) {
    let undisturbed = logs.iter().all(|log| log.end.is_none() && !log.late);
    for (target, log) in logs.iter().enumerate() {
        for (source, received) in log.received.iter().enumerate() {
            let withdrawn = &logs[source].withdrawn[target];
            let both = received.iter().find(|message| withdrawn.contains(message));
            assert!(both.is_none(), "received and withdrawn: {both:?} from {source} to {target}");
            let mut all: Vec<u64> = received.iter().chain(withdrawn).copied().collect();
            all.sort_unstable();
            let twice = all.windows(2).find(|pair| pair[0] == pair[1]);
            assert!(twice.is_none(), "received twice: {twice:?} from {source} to {target}");
            let whole = all.iter().copied().eq(1..=all.len() as u64);
            assert!(!undisturbed || whole, "lost: {all:?} of the messages from {source} to {target}");
        }
    }
}
