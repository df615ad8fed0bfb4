//! A segment in ordinary memory, and what its ranks have seen.

use std::cell::{Cell, RefCell};

use intranode::protocol::{Barrier, Failure, Generation, Group, Segment, Slot};
use loom::sync::atomic::AtomicU64;

use crate::cells::{Bytes, Chunk, STAGING};
use crate::machine::{Machine, Word};
use crate::ownership::Ownership;
use crate::region::Part;
use crate::single_copy::Memory;
use crate::trace::Label;
use crate::watching::Ring;
use crate::weakened::Weakened;

/// The platform of every model.
pub(crate) type Rank = Weakened<Machine>;

/// What one thread saw.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The result of each call, in order; a call that ends the rank is the last.
    pub(crate) calls: Vec<Result<(), Failure>>,
    /// After a dead call: the last round completed, and who was late at the next.
    pub(crate) late: Option<(u32, Vec<usize>)>,
    /// In a ring: the deaths of which it was told, in order.
    pub(crate) told: Vec<usize>,
    /// Those for which it was to end the communicator.
    pub(crate) ended: Vec<usize>,
    /// Whether it was stopped at a point.
    pub(crate) stopped: bool,
}

/// Everything that the threads of one execution share.
pub(crate) struct World {
    cause: AtomicU64,
    spread: Word,
    claims: Vec<Word>,
    slots: Vec<[Slot<Rank>; 2]>,
    /// By rank: how it meets the others.
    pub(crate) barriers: Vec<Barrier>,
    chunks: Vec<[Chunk; 2]>,
    pub(crate) region: Vec<Part>,
    pub(crate) turns: Vec<[Part; 2]>,
    /// By rank: what others fetch.
    pub(crate) memory: Vec<Memory>,
    /// How threads of one rank share it, in models of that.
    pub(crate) ownership: Ownership,
    /// Where ranks do nothing but watch each other.
    pub(crate) ring: Option<Ring>,
    pub(crate) outcomes: RefCell<Vec<Outcome>>,
    pub(crate) running: Cell<usize>,
}

impl World {
    /// A segment of `ranks` ranks that have completed all rounds up to `start`. `leaders`: of each rank's group, or
    /// nothing. `threaded`: calls go through their rank's lock.
    pub(crate) fn new(
        ranks: usize,
        start: Generation,
        claims: bool,
        threads: usize,
        leaders: &[usize],
        threaded: bool,
    ) -> Self {
        let words = start.initial_words();
        let label = |what, rank, parity| Label { what, rank, parity };
        let slot = |rank, parity| Slot {
            state: Word::new(words[parity], label("word", rank, parity)),
            header: Bytes::new(label("header", rank, parity)),
        };
        let barrier = |rank| match leaders {
            [] => Barrier::Flat,
            _ => Barrier::Hierarchical(Group::new(leaders, rank)),
        };
        let part = |rank, parity| Bytes::new(label("buffer", rank, parity));
        let chunk = |rank, parity| Bytes::new(label("chunk", rank, parity));
        World {
            cause: AtomicU64::new(0),
            spread: Word::new(0, label("spread", 0, 0)),
            claims: (0..ranks).filter(|_| claims).map(|rank| Word::new(0, label("claim", rank, 0))).collect(),
            slots: (0..ranks).map(|rank| [slot(rank, 0), slot(rank, 1)]).collect(),
            barriers: (0..ranks).map(barrier).collect(),
            chunks: (0..ranks).map(|rank| [chunk(rank, 0), chunk(rank, 1)]).collect(),
            turns: (0..ranks).map(|rank| [part(rank, 0), part(rank, 1)]).collect(),
            memory: (0..ranks).map(|rank| Bytes::new(label("memory", rank, 0))).collect(),
            region: (0..ranks).map(|rank| Bytes::new(label("part", rank, 0))).collect(),
            ownership: Ownership::new(if threaded { ranks } else { 0 }, start),
            ring: None,
            outcomes: RefCell::new((0..threads).map(|_| Outcome::default()).collect()),
            running: Cell::new(threads),
        }
    }

    pub(crate) fn segment(&self) -> Segment<'_, Rank> {
        Segment {
            cause: &self.cause,
            spread: &self.spread,
            claims: &self.claims,
            slots: &self.slots,
            chunks: &self.chunks,
            staging: STAGING,
        }
    }
}
