//! A job's segment in ordinary memory.

use intranode::protocol::generation::{POISON, WAITER};
use intranode::protocol::{Barrier, Bell, Generation, Group, Segment, Slot};
use loom::sync::atomic::AtomicU64;

use crate::harness::cells::{Buffer, Bytes};
use crate::harness::mutant::Simulated;
use crate::harness::trace::Label;
use crate::harness::word::Word;

/// What the ranks of one execution share.
pub(crate) struct SegmentMemory {
    cause: AtomicU64,
    spread: Word,
    claims: Vec<Word>,
    slots: Vec<[Slot<Simulated>; 2]>,
    bells: Vec<Bell<Simulated>>,
    /// By rank: how it meets the others.
    pub(crate) barriers: Vec<Barrier>,
    buffers: Vec<[Buffer; 2]>,
    /// By rank: two blocks outside of staging that others see in place, in a region, in an exchange, or in the rank's own
    /// memory.
    pub(crate) blocks: Vec<[Buffer; 2]>,
}

impl SegmentMemory {
    /// That of `ranks` ranks, which have completed all rounds up to `start`.
    pub(crate) fn new(ranks: usize, start: Generation) -> Self {
        let words = start.initial_words();
        let slot = |rank, parity: usize| Slot {
            state: Word::new(words[parity], label("state", rank, parity)),
            header: Bytes::new(label("header", rank, parity)),
        };
        let cells =
            |what| (0..ranks).map(|rank| [0, 1].map(|parity| Bytes::new(label(what, rank, parity)))).collect();
        SegmentMemory {
            cause: AtomicU64::new(0),
            spread: Word::new(0, label("spread", 0, 0)),
            claims: Vec::new(),
            slots: (0..ranks).map(|rank| [slot(rank, 0), slot(rank, 1)]).collect(),
            bells: Vec::new(),
            barriers: vec![Barrier::Flat; ranks],
            buffers: cells("buffer"),
            blocks: cells("block"),
        }
    }

    /// That of ranks which make no calls, and have nothing but symmetric memory.
    pub(crate) fn of_bells(ranks: usize) -> Self {
        SegmentMemory::new(0, Generation::new(0)).with_bells(ranks)
    }

    /// The same with bells, which are further words that poison goes through. Their counts wrap around at the first ring.
    pub(crate) fn with_bells(mut self, ranks: usize) -> Self {
        let word = |rank| Word::new(!(POISON | WAITER), label("bell", rank, 0));
        self.bells = (0..ranks).map(|rank| Bell { word: word(rank) }).collect();
        self
    }

    /// The same before any rank is claimed.
    pub(crate) fn unclaimed(mut self) -> Self {
        self.claims = (0..self.slots.len()).map(|rank| Word::new(0, label("claim", rank, 0))).collect();
        self
    }

    /// The same where ranks meet in groups. `leaders`: by rank, the leader of its group.
    pub(crate) fn in_groups(mut self, leaders: &[usize]) -> Self {
        self.barriers =
            (0..leaders.len()).map(|rank| Barrier::Hierarchical(Group::new(leaders, rank))).collect();
        self
    }

    pub(crate) fn segment(&self) -> Segment<'_, Simulated> {
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

fn label(what: &'static str, rank: usize, parity: usize) -> Label {
    Label { what, rank, parity }
}
