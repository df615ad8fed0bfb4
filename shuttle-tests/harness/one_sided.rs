//! One execution of ranks that use each other's memory: random puts with signals, atomics, and a lock; and what must hold at
//! the end.

use std::sync::Arc;

use intranode::protocol::symmetric::access::Signalling;
use intranode::protocol::symmetric::lock::{Node, Queue};
use intranode::protocol::symmetric::{Fetch, OneSided};
use intranode::protocol::{Cause, CauseKind, Failure};
use shuttle::sync::atomic::Ordering::SeqCst;

use crate::harness::choice;
use crate::harness::scenario::{spawn, watch};
use crate::harness::segment::SegmentMemory;
use crate::harness::shared_cell::{Cell32, Cell64};
use crate::harness::simulation::{FOREVER, PlannedFate, Simulation};

/// What a rank does in a round, before it waits for what the others send it in that round.
#[derive(Clone, Copy, Debug)]
enum Action {
    /// Puts data into the memory of this rank, and signals.
    Signal(usize),
    /// The same by a put, a fence and a store.
    PutAndStore(usize),
    /// The same for cells that are apart, by a put, `quiet` and a swap.
    PutAndSwap(usize),
    /// Adds 1 to the counter of this rank.
    Add(usize),
    /// The same by compare-and-swap.
    AddByExchange(usize),
    /// Counts the guarded number up, with the lock.
    Lock,
    /// The same if the lock is free.
    TryLock,
}

/// What an execution is made of.
#[derive(Clone, Debug)]
pub struct OneSidedScenario {
    /// By rank and round.
    plan: Vec<Vec<Vec<Action>>>,
    /// Whether all signals for a rank add to one cell. Otherwise each sender has a cell of its own.
    adding: bool,
    pub fates: Vec<PlannedFate>,
}

/// What became of a rank.
#[derive(Clone, Debug, Default)]
struct Log {
    additions: u64,
    sections: u64,
    /// It has given up waiting for a signal.
    late: bool,
    end: Option<Failure>,
}

/// What became of all.
pub struct Outcome {
    /// Whether a rank was told that another has died, or was late.
    pub harm: bool,
    pub fates_met: usize,
    pub seen: std::collections::BTreeSet<&'static str>,
}

/// An instance of the symmetric object.
struct Instance {
    /// What the senders add to.
    signals: Cell64,
    /// By sender: what it has signalled.
    signals_of: Vec<Cell64>,
    /// By sender: two elements of data.
    data: Vec<[Cell64; 2]>,
    counter: Cell64,
}

/// What all share besides the segment.
struct Memory {
    segment: SegmentMemory,
    /// By rank.
    instances: Vec<Instance>,
    tail: Cell32,
    holder: Cell32,
    /// By rank: `next` and `granted`.
    nodes: Vec<[Cell32; 2]>,
    /// Of rank 0. It is counted up by a load and a store, with the lock.
    guarded: Cell64,
}

impl Queue<Cell32> for Memory {
    fn tail(&self) -> &Cell32 {
        &self.tail
    }

    fn holder(&self) -> &Cell32 {
        &self.holder
    }

    fn node(&self, rank: usize) -> Option<Node<'_, Cell32>> {
        self.nodes.get(rank).map(|[next, granted]| Node { next, granted })
    }
}

impl Memory {
    fn new(simulation: &Arc<Simulation>, ranks: usize) -> Self {
        let instance = || Instance {
            signals: Cell64::default(),
            signals_of: (0..ranks).map(|_| Cell64::default()).collect(),
            data: (0..ranks).map(|_| Default::default()).collect(),
            counter: Cell64::default(),
        };
        Memory {
            segment: SegmentMemory::of_bells(simulation, ranks),
            instances: (0..ranks).map(|_| instance()).collect(),
            tail: Cell32::default(),
            holder: Cell32::default(),
            nodes: (0..ranks).map(|_| Default::default()).collect(),
            guarded: Cell64::default(),
        }
    }
}

impl OneSidedScenario {
    /// A random one.
    pub fn random(ranks: usize, rounds: usize) -> Self {
        let action = |_| {
            let target = choice::below(ranks);
            match choice::below(8) {
                0 | 1 => Action::Signal(target),
                2 => Action::PutAndStore(target),
                3 => Action::PutAndSwap(target),
                4 => Action::Add(target),
                5 => Action::AddByExchange(target),
                6 => Action::Lock,
                _ => Action::TryLock,
            }
        };
        let round = |_| (0..choice::below(4)).map(action).collect();
        let plan = (0..ranks).map(|_| (0..rounds).map(round).collect()).collect();
        OneSidedScenario { plan, adding: choice::once_in(2), fates: Vec::new() }
    }

    /// Plays it, and checks what must hold whatever happened.
    pub fn play(self) -> Outcome {
        const WATCHERS: usize = 2;
        let ranks = self.plan.len();
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
                let log = scenario.live(rank, &simulation, &memory);
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

    fn live(&self, rank: usize, simulation: &Simulation, memory: &Memory) -> Log {
        let one_sided = OneSided::new(simulation, memory.segment.segment(), rank);
        let sent = vec![0; self.plan.len()];
        let mut actor = Actor { scenario: self, rank, one_sided, memory, sent, log: Log::default() };
        for round in 0..self.plan[rank].len() {
            if let Err(failure) = actor.play(round) {
                actor.log.end = Some(failure);
            }
            if actor.log.late || actor.log.end.is_some() {
                break;
            }
        }
        actor.log
    }

    /// How often `sender` signals `target` in the first rounds.
    fn signals(&self, sender: usize, target: usize, rounds: usize) -> u64 {
        let actions = self.plan[sender][..rounds].iter().flatten();
        let to_target = |action: &&Action| {
            use Action::{PutAndStore, PutAndSwap, Signal};
            matches!(action, Signal(to) | PutAndStore(to) | PutAndSwap(to) if *to == target)
        };
        actions.filter(to_target).count() as u64
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
                let sent = self.signals(sender, target, self.plan[sender].len());
                let found = [&data[0], &data[1]].map(|cell| cell.0.load(SeqCst));
                assert!(found == [sent; 2], "wrong data: {found:?} from {sender} to {target}, not {sent}");
            }
        }
    }
}

/// A rank that acts.
struct Actor<'s> {
    scenario: &'s OneSidedScenario,
    rank: usize,
    one_sided: OneSided<'s, Simulation>,
    memory: &'s Memory,
    /// By rank: how often it was signalled.
    sent: Vec<u64>,
    log: Log,
}

impl Actor<'_> {
    fn play(&mut self, round: usize) -> Result<(), Failure> {
        for action in &self.scenario.plan[self.rank][round] {
            self.act(*action)?;
        }
        let ranks = self.memory.instances.len();
        let expected: Vec<u64> =
            (0..ranks).map(|sender| self.scenario.signals(sender, self.rank, round + 1)).collect();
        let own = &self.memory.instances[self.rank];
        let arrived = || match self.scenario.adding {
            true => self.one_sided.test(&own.signals) >= expected.iter().sum(),
            false => own
                .signals_of
                .iter()
                .zip(&expected)
                .all(|(cell, expected)| self.one_sided.test(cell) >= *expected),
        };
        let waited = self.one_sided.wait(&FOREVER, || arrived().then_some(()))?;
        self.log.late = waited.is_none();
        if self.log.late || self.scenario.adding {
            // Some senders may be ahead, and their signals stand for those of others.
            return Ok(());
        }
        for (sender, data) in own.data.iter().enumerate() {
            let mut values = [0; 2];
            self.one_sided.get(data, &mut values);
            let apart = data.each_ref().map(|cell| self.one_sided.get_cell(cell));
            self.one_sided.get_done();
            for value in values.into_iter().chain(apart) {
                assert!(value >= expected[sender], "stale data: {value} from {sender} to {}", self.rank);
            }
        }
        Ok(())
    }

    fn act(&mut self, action: Action) -> Result<(), Failure> {
        let (one_sided, memory) = (self.one_sided, self.memory);
        match action {
            Action::Signal(target) => {
                let (instance, data) = (&memory.instances[target], self.next(target));
                let (cell, signalling, value) = match self.scenario.adding {
                    true => (&instance.signals, Signalling::Add, 1),
                    false => (&instance.signals_of[self.rank], Signalling::Set, data[0]),
                };
                one_sided.put_signal(target, (&instance.data[self.rank], &data), cell, signalling, value)?;
            }
            Action::PutAndStore(target) => {
                let (instance, data) = (&memory.instances[target], self.next(target));
                one_sided.put(target, &instance.data[self.rank], &data)?;
                one_sided.fence();
                match self.scenario.adding {
                    true => drop(one_sided.fetch(target, &instance.signals, Fetch::Add, 1)?),
                    false => one_sided.store(target, &instance.signals_of[self.rank], data[0])?,
                }
            }
            Action::PutAndSwap(target) => {
                let (instance, data) = (&memory.instances[target], self.next(target));
                for (cell, value) in instance.data[self.rank].iter().zip(data) {
                    one_sided.put_cell(cell, value);
                }
                one_sided.put_done(target)?;
                one_sided.quiet();
                match self.scenario.adding {
                    true => drop(one_sided.fetch(target, &instance.signals, Fetch::Add, 1)?),
                    false => drop(one_sided.swap(target, &instance.signals_of[self.rank], data[0])?),
                }
            }
            Action::Add(target) => {
                one_sided.fetch(target, &memory.instances[target].counter, Fetch::Add, 1)?;
                self.log.additions += 1;
            }
            Action::AddByExchange(target) => {
                let counter = &memory.instances[target].counter;
                let mut seen = one_sided.load(counter);
                while let Err(now) = one_sided.compare_swap(target, counter, seen, seen + 1)? {
                    seen = now;
                }
                self.log.additions += 1;
            }
            Action::Lock => {
                one_sided.lock(memory, &FOREVER)?;
                self.critical_section()?;
            }
            Action::TryLock => {
                if one_sided.try_lock(memory)? {
                    self.critical_section()?;
                }
            }
        }
        Ok(())
    }

    /// What is put for a rank: how often that was.
    fn next(&mut self, target: usize) -> [u64; 2] {
        self.sent[target] += 1;
        [self.sent[target]; 2]
    }

    fn critical_section(&mut self) -> Result<(), Failure> {
        let guarded = &self.memory.guarded;
        let count = self.one_sided.load(guarded);
        self.one_sided.store(0, guarded, count + 1)?;
        self.log.sections += 1;
        self.one_sided.unlock(self.memory, &FOREVER)
    }
}
