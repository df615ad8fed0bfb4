//! A job's segment in ordinary memory, as it lies in a mapping in production.

use std::sync::Arc;

use intranode::protocol::call::HEADER;
use intranode::protocol::generation::{POISON, WAITER};
use intranode::protocol::{Barrier, Bell, Generation, Group, Segment, Slot, Staging};
use shuttle::sync::atomic::Ordering::SeqCst;

use crate::harness::breakage::Breakage;
use crate::harness::cell::Cell;
use crate::harness::choice;
use crate::harness::simulation::Simulation;
use crate::harness::word::{Word, Word64};

/// What a rank has outside of its segment, in bytes: a block of a region, or what it sends.
const BLOCK: usize = 640;

/// What the ranks of one execution share.
pub struct SegmentMemory {
    cause: Word64,
    spread: Word,
    claims: Vec<Word>,
    slots: Vec<[Slot<Simulation>; 2]>,
    /// By rank: how it meets the others.
    pub barriers: Vec<Barrier>,
    buffers: Vec<[Cell; 2]>,
    bells: Vec<Bell<Simulation>>,
    pub staging: Staging,
    /// By rank: what others see in place.
    pub blocks: Vec<Cell>,
}

impl SegmentMemory {
    /// The segment of `ranks` ranks before the first round after `start`. `leaders`: of each rank's group, or nothing.
    pub fn new(
        simulation: &Arc<Simulation>,
        ranks: usize,
        staging: Staging,
        start: Generation,
        leaders: &[usize],
    ) -> Self {
        let actors = simulation.actors();
        let header = |rank: usize, parity: usize| {
            let name = format!("header {rank}/{parity}");
            Cell::new(simulation, name, ["header-write", "header-read"], HEADER)
        };
        let chunk = |rank, parity| {
            let name = format!("chunk {rank}/{parity}");
            Cell::new(simulation, name, ["chunk-write", "chunk-read"], staging.capacity)
        };
        let block = |rank| Cell::new(simulation, format!("block {rank}"), ["block-write", "block-read"], BLOCK);
        let slots = |rank: usize| {
            [0, 1].map(|parity| Slot {
                state: Word::new(start.initial_words()[parity], actors),
                header: header(rank, parity),
            })
        };
        let buffers = |rank| match simulation.breakage {
            Some(Breakage::OneBuffer) => {
                let both = chunk(rank, 0);
                [both.clone(), both]
            }
            _ => [chunk(rank, 0), chunk(rank, 1)],
        };
        SegmentMemory {
            cause: Word64::new(0),
            spread: Word::new(0, actors),
            claims: (0..ranks).map(|_| Word::new(0, actors)).collect(),
            slots: (0..ranks).map(slots).collect(),
            barriers: (0..ranks)
                .map(|rank| match leaders {
                    [] => Barrier::Flat,
                    _ => Barrier::Hierarchical(Group::new(leaders, rank)),
                })
                .collect(),
            buffers: (0..ranks).map(buffers).collect(),
            bells: Vec::new(),
            staging,
            blocks: (0..ranks).map(block).collect(),
        }
    }

    /// That of ranks which make no calls, and have nothing but symmetric memory.
    pub fn of_bells(simulation: &Arc<Simulation>, ranks: usize) -> Self {
        let none = SegmentMemory::new(simulation, 0, Staging::of(8, 1), Generation::new(0), &[]);
        // Just below the wrap of the count, or anywhere else.
        let count = if choice::once_in(2) { u32::MAX } else { choice::below(1 << 20) as u32 };
        let bell = |_| Bell { word: Word::new(count & !(POISON | WAITER), simulation.actors()) };
        SegmentMemory { bells: (0..ranks).map(bell).collect(), ..none }
    }

    /// All words, seen from outside the machine.
    pub fn words(&self) -> impl Iterator<Item = u32> {
        self.segment().words().map(|word| word.value.load(SeqCst))
    }

    /// The segment.
    pub fn segment(&self) -> Segment<'_, Simulation> {
        Segment {
            cause: &self.cause,
            spread: &self.spread,
            claims: &self.claims,
            slots: &self.slots,
            buffers: &self.buffers,
            bells: &self.bells,
        }
    }
}
