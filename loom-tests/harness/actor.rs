//! A thread of a rank that uses the others' memory: what it can do there, and what it reports.

use std::cell::RefCell;

use intranode::protocol::symmetric::access::Signalling;
use intranode::protocol::symmetric::lock::{Node, Queue};
use intranode::protocol::symmetric::{Fetch, OneSided};
use intranode::protocol::{Cause, CauseKind, Failure, Generation, Member, Payload, Segment, membership};

use crate::harness::atomic_cells::{Cell32, Cell64};
use crate::harness::cells::{Bytes, STAGING};
use crate::harness::machine::{Fate, Machine};
use crate::harness::mutant::Simulated;
use crate::harness::rank::Operation;
use crate::harness::segment::SegmentMemory;
use crate::harness::trace::Label;
use crate::harness::word::Word;

/// A cell: of which rank, and which of the object's elements.
#[derive(Clone, Copy)]
pub(crate) struct At(pub(crate) usize, pub(crate) usize);

/// The round before the model.
const START: Generation = Generation::new(4);

/// The length of the object.
const ELEMENTS: usize = 3;

/// What the threads share.
pub(crate) struct Memory {
    pub(crate) segment: SegmentMemory,
    /// By rank: its instance of the object.
    cells: Vec<Vec<Cell64>>,
    lock: LockCells,
    /// What the lock guards: every access is checked against all others.
    guarded: Bytes<8>,
    /// Which ranks have entered the critical section, in order.
    entered: RefCell<Vec<usize>>,
}

impl Memory {
    /// That of `ranks` ranks. `calls`: whether they make calls too.
    pub(crate) fn new(ranks: usize, calls: bool) -> Self {
        let cell = |rank| move |index| Cell64::new(Label { what: "cell", rank, parity: index });
        Memory {
            segment: if calls {
                SegmentMemory::new(ranks, START).with_bells(ranks)
            } else {
                SegmentMemory::of_bells(ranks)
            },
            cells: (0..ranks).map(|rank| (0..ELEMENTS).map(cell(rank)).collect()).collect(),
            lock: LockCells::new(ranks),
            guarded: Bytes::new(Label { what: "guarded", rank: 0, parity: 0 }),
            entered: RefCell::default(),
        }
    }
}

struct LockCells {
    tail: Cell32,
    /// By rank: `next` and `turn`.
    nodes: Vec<[Cell32; 2]>,
}

impl LockCells {
    fn new(ranks: usize) -> Self {
        let cell = |rank, parity| Cell32::new(Label { what: "lock", rank, parity });
        // The trace shows the tail behind the ranks' nodes.
        LockCells {
            tail: cell(ranks, 0),
            nodes: (0..ranks).map(|rank| [cell(rank, 0), cell(rank, 1)]).collect(),
        }
    }
}

impl Queue<Cell32> for LockCells {
    fn tail(&self) -> &Cell32 {
        &self.tail
    }

    fn node(&self, rank: usize) -> Option<Node<'_, Cell32>> {
        self.nodes.get(rank).map(|[next, turn]| Node { next, turn })
    }
}

/// One thread of a rank, in its role.
pub(crate) struct Actor<'s> {
    pub(crate) rank: usize,
    platform: &'s Simulated,
    memory: &'s Memory,
    segment: &'s Segment<'s, Simulated>,
    one_sided: OneSided<'s, Simulated>,
    values: RefCell<Vec<u64>>,
}

impl<'s> Actor<'s> {
    pub(crate) fn new(
        rank: usize,
        platform: &'s Simulated,
        memory: &'s Memory,
        segment: &'s Segment<'s, Simulated>,
    ) -> Self {
        let one_sided = OneSided::new(platform, segment, rank);
        Actor { rank, platform, memory, segment, one_sided, values: RefCell::default() }
    }

    /// The same thread as another rank, which has a fate of its own: for what happens step by step.
    pub(crate) fn as_rank<R>(&self, rank: usize, fate: Fate, act: impl FnOnce(&Actor<'_>) -> R) -> R {
        let platform = self.platform.with_fate(fate);
        let result = act(&Actor::new(rank, &platform, self.memory, self.segment));
        assert!(!fate.is_any() || platform.machine().has_met_its_fate(), "rank {rank} has missed its fate");
        result
    }

    /// What it has reported.
    pub(crate) fn seen(&self) -> Vec<u64> {
        self.values.take()
    }

    /// Reports a value to the check.
    pub(crate) fn sees(&self, value: u64) {
        self.values.borrow_mut().push(value);
    }

    /// The machine, for protocols that are written anew.
    pub(crate) fn machine(&self) -> &Machine {
        self.platform.machine()
    }

    pub(crate) fn cell(&self, At(rank, index): At) -> &Cell64 {
        &self.memory.cells[rank][index]
    }

    pub(crate) fn store(&self, at: At, value: u64) -> Result<(), Failure> {
        Ok(self.one_sided.store(at.0, self.cell(at), value)?)
    }

    pub(crate) fn load(&self, at: At) -> u64 {
        self.one_sided.load(self.cell(at))
    }

    pub(crate) fn swap(&self, at: At, value: u64) -> Result<u64, Failure> {
        Ok(self.one_sided.swap(at.0, self.cell(at), value)?)
    }

    pub(crate) fn compare_swap(&self, at: At, current: u64, new: u64) -> Result<Result<u64, u64>, Failure> {
        Ok(self.one_sided.compare_swap(at.0, self.cell(at), current, new)?)
    }

    pub(crate) fn fetch_add(&self, at: At, value: u64) -> Result<u64, Failure> {
        Ok(self.one_sided.fetch(at.0, self.cell(at), Fetch::Add, value)?)
    }

    /// Writes cells from there on.
    pub(crate) fn put(&self, at: At, values: &[u64]) -> Result<(), Failure> {
        let cells = &self.memory.cells[at.0][at.1..];
        Ok(self.one_sided.put(at.0, cells, values)?)
    }

    /// The same, one cell after the other.
    pub(crate) fn put_strided(&self, at: At, values: &[u64]) -> Result<(), Failure> {
        for (index, value) in values.iter().enumerate() {
            self.one_sided.put_cell(self.cell(At(at.0, at.1 + index)), *value);
        }
        Ok(self.one_sided.put_done(at.0)?)
    }

    pub(crate) fn get(&self, at: At) -> u64 {
        let mut values = [0];
        self.one_sided.get(&self.memory.cells[at.0][at.1..], &mut values);
        values[0]
    }

    /// The same, as a get of cells that are apart.
    pub(crate) fn get_strided(&self, at: At) -> u64 {
        let value = self.one_sided.get_cell(self.cell(at));
        self.one_sided.get_done();
        value
    }

    pub(crate) fn put_signal(
        &self,
        at: At,
        values: &[u64],
        signal: At,
        signalling: Signalling,
    ) -> Result<(), Failure> {
        let cells = &self.memory.cells[at.0][at.1..];
        Ok(self.one_sided.put_signal(signal.0, (cells, values), self.cell(signal), signalling, 1)?)
    }

    pub(crate) fn fence(&self) {
        self.one_sided.fence();
    }

    pub(crate) fn quiet(&self) {
        self.one_sided.quiet();
    }

    pub(crate) fn test(&self, at: At) -> u64 {
        self.one_sided.test(self.cell(at))
    }

    /// Waits until a cell of its own holds at least this. `None`: it is late.
    pub(crate) fn wait_until(&self, at: At, least: u64) -> Result<Option<u64>, Failure> {
        assert!(at.0 == self.rank, "a rank waits for its own cells");
        self.one_sided.wait(&false, || Some(self.test(at)).filter(|seen| *seen >= least))
    }

    /// Waits until all of these cells of its own hold at least this.
    pub(crate) fn wait_all(&self, indices: &[usize], least: u64) -> Result<(), Failure> {
        let all = || indices.iter().all(|index| self.test(At(self.rank, *index)) >= least).then_some(());
        self.one_sided.wait(&false, all).map(drop)
    }

    /// The first call of this rank.
    pub(crate) fn barrier(&self) -> Result<(), Failure> {
        let turn = Word::turn(self.rank);
        let mut member = Member::new(self.platform, self.segment, &STAGING, self.rank, START, &turn);
        member.barrier(&Operation::Barrier.call(0, 0))
    }

    pub(crate) fn lock(&self) -> Result<(), Failure> {
        self.one_sided.lock(&self.memory.lock, &false)
    }

    pub(crate) fn try_lock(&self) -> Result<bool, Failure> {
        self.one_sided.try_lock(&self.memory.lock)
    }

    pub(crate) fn unlock(&self) -> Result<(), Failure> {
        self.one_sided.unlock(&self.memory.lock, &false)
    }

    /// The guarded number is counted up, and reported.
    pub(crate) fn count_up(&self) {
        let guarded = &self.memory.guarded;
        let count = guarded.read(|bytes| u64::from_ne_bytes(bytes.array(0))) + 1;
        guarded.write(|mut bytes| bytes.put(0, &count.to_ne_bytes()));
        self.sees(count);
    }

    /// What is done with the lock. Ranks enter in the order in which they have asked.
    pub(crate) fn critical_section(&self) {
        self.count_up();
        let Memory { entered, lock, .. } = self.memory;
        let mut entered = entered.borrow_mut();
        entered.push(self.rank);
        let asked = lock.tail.swapped_in.borrow();
        let in_order: Vec<usize> = asked.iter().map(|number| *number as usize - 1).collect();
        assert!(in_order.starts_with(&entered), "out of turn: {in_order:?} have asked, {entered:?} entered");
    }

    /// The rank leaves.
    pub(crate) fn leave(&self) -> Result<(), Failure> {
        self.poison(CauseKind::Left)
    }

    /// A watcher finds the rank dead.
    pub(crate) fn is_found_dead(&self) -> Result<(), Failure> {
        self.poison(CauseKind::Died)
    }

    fn poison(&self, kind: CauseKind) -> Result<(), Failure> {
        let cause = Cause { kind, rank: self.rank, detail: 0 };
        Ok(membership::poison(self.platform, self.segment, cause)?)
    }
}
