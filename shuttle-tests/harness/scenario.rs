//! One execution: ranks that follow a script, others that poison, and what must hold at the end.

use std::sync::Arc;

use intranode::protocol::generation::POISON;
use intranode::protocol::membership::{ended, poison};
use intranode::protocol::{Cause, CauseKind, Failure, Generation, Member};
use shuttle::thread;

use crate::harness::choice;
use crate::harness::script::Script;
use crate::harness::segment::SegmentMemory;
use crate::harness::simulation::{PlannedFate, Simulation};
use crate::harness::started::Calls;
use crate::harness::word::Word;

/// How a rank ends by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Leaves,
    Aborts(u32),
}

/// What an execution is made of.
#[derive(Clone, Debug)]
pub struct Scenario {
    pub script: Script,
    /// The generation before the first round.
    pub start: Generation,
    /// By rank: after how many calls it ends, and how.
    pub exits: Vec<(usize, Exit)>,
    pub fates: Vec<PlannedFate>,
    /// The number of actors that poison for every rank that dies.
    pub watchers: usize,
    /// Actors that poison once this number of steps has been made.
    pub poisoners: Vec<(u64, Cause)>,
    /// The steps at which waits that have begun before become too long.
    pub ticks: Vec<u64>,
}

/// What became of a rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    /// The calls that gave it what they had to.
    pub calls: usize,
    /// The last round that it has completed.
    pub completed: Generation,
    pub end: End,
}

/// How a rank ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Exited,
    /// With an error, and the ranks that were late.
    Failed(Cause, Vec<usize>),
    /// In the middle of a call.
    Killed,
}

/// What became of all.
pub struct Outcome {
    pub logs: Vec<Log>,
    pub fates_met: usize,
    pub seen: std::collections::BTreeSet<&'static str>,
}

impl Scenario {
    /// Ranks that make all calls and leave.
    pub fn new(script: Script) -> Self {
        let exits = vec![(script.len(), Exit::Leaves); script.ranks];
        // Just below the wrap, or anywhere else.
        let start = Generation::new(match choice::once_in(2) {
            true => 0u32.wrapping_sub(choice::below(8) as u32),
            false => choice::below(1 << 20) as u32,
        });
        let (fates, poisoners, ticks) = (Vec::new(), Vec::new(), Vec::new());
        Scenario { script, start, exits, fates, watchers: 0, poisoners, ticks }
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.script.ranks
    }

    /// The actor that is a rank.
    pub fn rank(&self, rank: usize) -> usize {
        1 + rank
    }

    /// The actor that is a watcher.
    pub fn watcher(&self, watcher: usize) -> usize {
        1 + self.ranks() + watcher
    }

    /// Plays it, and checks what must hold whatever happened.
    pub fn play(self) -> Outcome {
        let others = self.watchers + self.poisoners.len();
        let alarms = self.poisoners.iter().map(|(step, _)| *step).collect();
        let mut simulation =
            Simulation::new(self.ranks(), others, self.fates.clone(), self.ticks.clone(), alarms);
        simulation.polls = choice::one_of(&[0, 1, 4]);
        simulation.spurious = choice::one_of(&[0, 8]);
        let simulation = Arc::new(simulation);
        let Script { staging, leaders, .. } = &self.script;
        let memory = Arc::new(SegmentMemory::new(&simulation, self.ranks(), *staging, self.start, leaders));
        let scenario = Arc::new(self);

        if simulation.traced {
            eprintln!("{scenario:#?}");
        }

        // The order of the spawns makes the actors' numbers.
        let ranks: Vec<_> = (0..scenario.ranks())
            .map(|rank| {
                let (scenario, simulation, memory) = (scenario.clone(), simulation.clone(), memory.clone());
                spawn(format!("rank {rank}"), move || scenario.live(rank, &simulation, &memory))
            })
            .collect();
        let watchers: Vec<_> = (0..scenario.watchers)
            .map(|watcher| {
                let (simulation, memory) = (simulation.clone(), memory.clone());
                spawn(format!("watcher {watcher}"), move || watch(&simulation, &memory))
            })
            .collect();
        let poisoners: Vec<_> = (scenario.poisoners.iter().copied())
            .map(|(step, cause)| {
                let (simulation, memory) = (simulation.clone(), memory.clone());
                spawn(format!("poisoner {}", cause.detail), move || {
                    if simulation.wait_for_step(step) {
                        let _ = poison(&*simulation, &memory.segment(), cause);
                    }
                })
            })
            .collect();

        simulation.end();
        let logs: Vec<Log> = ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect();
        for other in watchers.into_iter().chain(poisoners) {
            other.join().expect("no panic");
        }
        scenario.check_agreement(&logs);
        scenario.check_causes(&logs, &simulation);
        Outcome { logs, fates_met: simulation.fates_met(), seen: simulation.seen() }
    }

    fn live(&self, rank: usize, simulation: &Arc<Simulation>, memory: &SegmentMemory) -> Log {
        let turn = Word::new(0, simulation.actors());
        let (segment, staging) = (memory.segment(), &memory.staging);
        let mut member = Member::new(&**simulation, &segment, staging, rank, self.start, &turn);
        let (calls, end) = self.follow(rank, &mut member, simulation, memory);
        simulation.finish();
        Log { calls, completed: member.completed(), end }
    }

    fn follow(
        &self,
        rank: usize,
        member: &mut Member<'_, Simulation>,
        simulation: &Simulation,
        memory: &SegmentMemory,
    ) -> (usize, End) {
        let (calls, exit) = self.exits[rank];
        let mut made = Calls::new(&self.script, rank, simulation);
        let outcome = (0..calls)
            .try_for_each(|call| made.make(call, member, memory))
            // A rank that leaves has completed what it has started.
            .and_then(|()| made.finish(member));
        let complete = made.complete;
        match outcome {
            Ok(()) => (),
            Err(Failure::Dead(Some(cause))) => {
                for word in memory.words() {
                    assert!(word & POISON != 0, "unpoisoned: rank {rank} has failed before all words were");
                }
                // A rank that was told finds it outside of a call, too.
                assert!(
                    ended(simulation, &memory.segment()).is_some(),
                    "unknown: rank {rank} was told the cause"
                );
                return (complete, End::Failed(cause, member.late(member.completed().next())));
            }
            Err(Failure::Killed) => return (complete, End::Killed),
            Err(other) => panic!("no cause: {other:?}, call {complete}, rank {rank}"),
        }
        let exited = match exit {
            Exit::Leaves => member.leave(),
            Exit::Aborts(code) => member.poison(CauseKind::Aborted, rank, code),
        };
        (calls, if exited.is_ok() { End::Exited } else { End::Killed })
    }

    /// For every call: the right result on every rank that lives, or the same error on every one.
    fn check_agreement(&self, logs: &[Log]) {
        let Some(failed) = logs.iter().find(|log| matches!(log.end, End::Failed(..))) else { return };
        for (rank, log) in logs.iter().enumerate() {
            let agrees = match log.end {
                End::Failed(..) => log == failed,
                End::Exited | End::Killed => log.calls <= failed.calls,
            };
            assert!(agrees, "disagreement: rank {rank} has {log:?}, another has {failed:?}");
        }
    }

    /// What a rank is told is what has happened.
    fn check_causes(&self, logs: &[Log], simulation: &Simulation) {
        for log in logs {
            let End::Failed(cause, late) = &log.end else { continue };
            let round = log.completed.next();
            let happened = match cause.kind {
                CauseKind::Died => simulation.dead().contains(&cause.rank),
                // The late rank may have arrived after all; then it is the next round that fails.
                CauseKind::TimedOut => {
                    let named = Generation::new(cause.detail);
                    simulation.now() > 0 && (named == round || named.next() == round)
                }
                CauseKind::Left => {
                    let left = &logs[cause.rank];
                    let asked = (left.calls, Exit::Leaves) == self.exits[cause.rank];
                    asked && left.completed == log.completed && cause.detail == log.completed.number()
                }
                _ => self.asked_for(*cause),
            };
            assert!(happened, "wrong cause: {cause:?} in {log:?}");
            assert!(!late.is_empty(), "wrong verdict: a round failed though all had arrived: {log:?}");
        }
    }

    fn asked_for(&self, cause: Cause) -> bool {
        let aborted = |(_, exit): &(usize, Exit)| match exit {
            Exit::Aborts(code) => cause == Cause { kind: CauseKind::Aborted, rank: cause.rank, detail: *code },
            Exit::Leaves => false,
        };
        self.exits.get(cause.rank).is_some_and(aborted)
            || self.poisoners.iter().any(|(_, asked)| *asked == cause)
    }
}

/// Starts an actor.
pub fn spawn<T: Send + 'static>(
    name: String,
    body: impl FnOnce() -> T + Send + 'static,
) -> thread::JoinHandle<T> {
    thread::Builder::new().name(name).spawn(body).expect("a task of shuttle costs nothing")
}

/// What the watcher of a rank does: it poisons for every rank that dies.
pub fn watch(simulation: &Simulation, memory: &SegmentMemory) {
    let mut known = 0;
    while let Some(rank) = simulation.next_death(known) {
        known += 1;
        let cause = Cause { kind: CauseKind::Died, rank, detail: 0 };
        if poison(simulation, &memory.segment(), cause).is_err() {
            return;
        }
    }
}
