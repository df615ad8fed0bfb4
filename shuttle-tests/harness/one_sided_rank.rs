//! A rank that uses the others' memory: random puts with signals, atomics, and a lock.

use std::sync::Arc;

use intranode::protocol::Failure;
use intranode::protocol::symmetric::access::Signalling;
use intranode::protocol::symmetric::lock::{Node, Queue};
use intranode::protocol::symmetric::{Fetch, OneSided};

use crate::harness::choice;
use crate::harness::segment::SegmentMemory;
use crate::harness::shared_cell::{Cell32, Cell64};
use crate::harness::simulation::{FOREVER, Simulation};

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

/// What all ranks do.
#[derive(Clone, Debug)]
pub struct Plan {
    /// By rank and round.
    actions: Vec<Vec<Vec<Action>>>,
    /// Whether all signals for a rank add to one cell. Otherwise each sender has a cell of its own.
    adding: bool,
}

impl Plan {
    /// A random one.
    pub fn random(ranks: usize, rounds: usize) -> Self {
        // In some, there is much to do with the lock.
        let kinds = choice::one_of(&[8, 16]);
        let action = |_| {
            let target = choice::below(ranks);
            match choice::below(kinds) {
                0 | 1 => Action::Signal(target),
                2 => Action::PutAndStore(target),
                3 => Action::PutAndSwap(target),
                4 => Action::Add(target),
                5 => Action::AddByExchange(target),
                6 => Action::TryLock,
                _ => Action::Lock,
            }
        };
        let round = |_| (0..choice::below(4)).map(action).collect();
        let actions = (0..ranks).map(|_| (0..rounds).map(round).collect()).collect();
        Plan { actions, adding: choice::once_in(2) }
    }

    /// The number of ranks.
    pub fn ranks(&self) -> usize {
        self.actions.len()
    }

    /// How often `sender` signals `target` in the first rounds.
    pub fn signals(&self, sender: usize, target: usize, rounds: usize) -> u64 {
        let actions = self.actions[sender].iter().take(rounds).flatten();
        let to_target = |action: &&Action| {
            use Action::{PutAndStore, PutAndSwap, Signal};
            matches!(action, Signal(to) | PutAndStore(to) | PutAndSwap(to) if *to == target)
        };
        actions.filter(to_target).count() as u64
    }
}

/// What became of a rank.
#[derive(Clone, Debug, Default)]
pub struct Log {
    pub additions: u64,
    pub sections: u64,
    /// It has given up waiting for a signal.
    pub late: bool,
    pub end: Option<Failure>,
}

/// An instance of the symmetric object.
pub struct Instance {
    /// What the senders add to.
    signals: Cell64,
    /// By sender: what it has signalled.
    signals_of: Vec<Cell64>,
    /// By sender: two elements of data.
    pub data: Vec<[Cell64; 2]>,
    pub counter: Cell64,
}

/// What all share besides the segment.
pub struct Memory {
    pub segment: SegmentMemory,
    /// By rank.
    pub instances: Vec<Instance>,
    tail: Cell32,
    /// By rank: `next` and `turn`.
    nodes: Vec<[Cell32; 2]>,
    /// Of rank 0. It is counted up by a load and a store, with the lock.
    pub guarded: Cell64,
}

impl Queue<Cell32> for Memory {
    fn tail(&self) -> &Cell32 {
        &self.tail
    }

    fn node(&self, rank: usize) -> Option<Node<'_, Cell32>> {
        self.nodes.get(rank).map(|[next, turn]| Node { next, turn })
    }
}

impl Memory {
    pub fn new(simulation: &Arc<Simulation>, ranks: usize) -> Self {
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
            nodes: (0..ranks).map(|_| Default::default()).collect(),
            guarded: Cell64::default(),
        }
    }
}

/// What a rank does, and what becomes of it.
pub fn live(plan: &Plan, rank: usize, simulation: &Simulation, memory: &Memory) -> Log {
    let segment = memory.segment.segment();
    let one_sided = OneSided::new(simulation, &segment, rank);
    let sent = vec![0; plan.ranks()];
    let mut actor = Actor { plan, rank, one_sided, memory, sent, round: 0, log: Log::default() };
    for round in &plan.actions[rank] {
        actor.round += 1;
        if let Err(failure) = actor.play(round) {
            actor.log.end = Some(failure);
        }
        if actor.log.late || actor.log.end.is_some() {
            break;
        }
    }
    actor.log
}

/// A rank that acts.
struct Actor<'s> {
    plan: &'s Plan,
    rank: usize,
    one_sided: OneSided<'s, Simulation>,
    memory: &'s Memory,
    /// By rank: how often it was signalled.
    sent: Vec<u64>,
    /// The number of its round, from 1.
    round: usize,
    log: Log,
}

impl Actor<'_> {
    fn play(&mut self, round: &[Action]) -> Result<(), Failure> {
        for action in round {
            self.act(*action)?;
        }
        let ranks = self.memory.instances.len();
        let expected: Vec<u64> =
            (0..ranks).map(|sender| self.plan.signals(sender, self.rank, self.round)).collect();
        let own = &self.memory.instances[self.rank];
        let arrived = || match self.plan.adding {
            true => self.one_sided.test(&own.signals) >= expected.iter().sum(),
            false => own
                .signals_of
                .iter()
                .zip(&expected)
                .all(|(cell, expected)| self.one_sided.test(cell) >= *expected),
        };
        let waited = self.one_sided.wait(&FOREVER, || arrived().then_some(()))?;
        self.log.late = waited.is_none();
        if self.log.late || self.plan.adding {
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
                let (cell, signalling, value) = match self.plan.adding {
                    true => (&instance.signals, Signalling::Add, 1),
                    false => (&instance.signals_of[self.rank], Signalling::Set, data[0]),
                };
                one_sided.put_signal(target, (&instance.data[self.rank], &data), cell, signalling, value)?;
            }
            Action::PutAndStore(target) => {
                let (instance, data) = (&memory.instances[target], self.next(target));
                one_sided.put(target, &instance.data[self.rank], &data)?;
                one_sided.fence();
                match self.plan.adding {
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
                match self.plan.adding {
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
