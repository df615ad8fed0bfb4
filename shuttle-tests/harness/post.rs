//! One execution of ranks that send each other messages, and what must hold at its end.

use std::sync::Arc;

use intranode::protocol::symmetric::OneSided;
use intranode::protocol::{Cause, CauseKind, Failure, membership};
use shuttle::sync::atomic::Ordering::SeqCst;

use crate::harness::channels::Channels;
use crate::harness::choice;
use crate::harness::post_plan::Plan;
use crate::harness::post_rank::{Log, live};
use crate::harness::scenario::spawn;
use crate::harness::simulation::{PlannedFate, Simulation};

/// What an execution is made of.
#[derive(Clone, Debug)]
pub struct PostScenario {
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

impl PostScenario {
    /// A random one.
    pub fn random(ranks: usize, rounds: usize) -> Self {
        PostScenario { plan: Plan::random(ranks, rounds), fates: Vec::new() }
    }

    /// Plays it, and checks what must hold whatever happened.
    pub fn play(self) -> Outcome {
        const WATCHERS: usize = 2;
        let ranks = self.plan.ranks();
        let mut simulation = Simulation::new(ranks, WATCHERS, self.fates.clone(), Vec::new(), Vec::new());
        simulation.polls = choice::one_of(&[0, 1, 4]);
        simulation.spurious = choice::one_of(&[0, 8]);
        let simulation = Arc::new(simulation);
        let memory = Arc::new(Channels::new(&simulation, ranks));
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
            spawn(format!("watcher {watcher}"), move || watch(&simulation, &memory))
        };
        let watchers: Vec<_> = (0..WATCHERS).map(watcher).collect();
        simulation.end();
        let logs: Vec<Log> = living.into_iter().map(|rank| rank.join().expect("no panic")).collect();
        watchers.into_iter().for_each(|watcher| watcher.join().expect("no panic"));

        let harm = check_verdicts(&logs, &simulation);
        check_messages(&logs);
        Outcome { harm, fates_met: simulation.fates_met(), seen: simulation.seen() }
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
        if membership::poison(simulation, segment, cause).is_err() {
            return;
        }
        for (rank, bell) in segment.bells.iter().enumerate() {
            if OneSided::new(simulation, segment, rank).ring(rank).is_err() {
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
