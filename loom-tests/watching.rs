//! Ranks that watch each other, and the kernel, which marks the words of a rank that dies.

use std::cell::RefCell;

use Ordering::{AcqRel, Acquire, Relaxed};
use intranode::protocol::watch::{self, DIED, LEFT, Listener, Liveness, Roll, WAITERS, Watch};
use intranode::protocol::{Killed, Ordering, Platform, Sleeper};

use crate::machine::{Machine, Word};
use crate::model::Actor;
use crate::trace::Label;
use crate::world::{Outcome, Rank};

/// A step of a rank in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// It comes, after the others.
    Come,
    /// It watches until it has been told of the deaths of these.
    Watch(&'static [usize]),
    /// It leaves.
    Depart,
    /// It dies. A script that ends so ends so too when its rank is stopped at a point; any other leaves the rank stopped.
    Die,
}

/// A ring of ranks before anybody has looked.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) ranks: usize,
    pub(crate) width: usize,
    /// Ranks that have left before.
    pub(crate) left: &'static [usize],
    /// Owners and slots of the words on which a rank sleeps that is stopped.
    pub(crate) stopped: &'static [(usize, usize)],
    /// Whether there is a tick whenever a rank has left, died or been stopped.
    pub(crate) ticks: bool,
}

/// The words of one execution.
pub(crate) struct Ring {
    notices: Word,
    fates: Vec<Word>,
    slots: Vec<Liveness<Rank>>,
    /// A bit for each rank that has left, died or been stopped.
    clock: Word,
    ticks: bool,
}

/// What the words of a rank hold that is there: its thread's number, and that the kernel has to wake.
fn alive(rank: usize) -> u32 {
    WAITERS | (rank as u32 + 1)
}

fn goes(actor: &Actor) -> bool {
    !matches!(last(actor), Some(Part::Watch(_)))
}

fn last(actor: &Actor) -> Option<Part> {
    actor.script.last().and_then(|step| step.part())
}

impl Ring {
    pub(crate) fn new(plan: &Plan, actors: &[Actor]) -> Self {
        let label = |what, rank, parity| Label { what, rank, parity };
        let late = |rank: usize| {
            let of = |actor: &&Actor| actor.rank == Some(rank);
            let first = actors.iter().find(of).and_then(|actor| actor.script.first()?.part());
            first == Some(Part::Come)
        };
        let value = |rank| match rank {
            rank if plan.left.contains(&rank) => LEFT,
            rank if late(rank) => 0,
            rank => alive(rank),
        };
        let slot = |index: usize| {
            let (rank, slot) = (index / plan.width, index % plan.width);
            Liveness { word: Word::new(value(rank), label("alive", rank, slot)) }
        };
        let ring = Ring {
            notices: Word::new(0, label("notices", 0, 0)),
            fates: (0..plan.ranks).map(|rank| Word::new(0, label("fate", rank, 0))).collect(),
            slots: (0..plan.ranks * plan.width).map(slot).collect(),
            clock: Word::new(0, label("clock", 0, 0)),
            ticks: plan.ticks,
        };
        for (owner, slot) in plan.stopped {
            ring.roll().row(*owner)[*slot].word.queue.enter_stopped();
        }
        ring
    }

    fn roll(&self) -> Roll<'_, Rank> {
        Roll { notices: &self.notices, fates: &self.fates, slots: &self.slots }
    }
}

/// What one rank is told.
#[derive(Default)]
struct Ear(RefCell<Outcome>);

impl Listener for Ear {
    fn end(&self, dead: usize) {
        self.0.borrow_mut().ended.push(dead);
    }

    fn died(&self, dead: usize) {
        self.0.borrow_mut().told.push(dead);
    }
}

/// A watcher's sleep. It sleeps on the clock too, if there is one.
struct Bed<'a> {
    platform: &'a Rank,
    clock: Option<(&'a Word, u32)>,
}

impl Sleeper<Rank> for Bed<'_> {
    fn wait_any(&mut self, site: &'static str, words: &[(&Word, u32)]) {
        let words: Vec<_> = words.iter().copied().chain(self.clock).collect();
        self.platform.wait_any(site, &words);
    }
}

/// Runs a script to its end, or to that of its rank.
pub(crate) fn act(actor: &Actor, platform: &Rank, ring: &Ring) -> Outcome {
    let rank = actor.rank.expect("everybody in a ring is a rank");
    let ear = Ear::default();
    let parts = actor.script.iter().filter_map(|step| step.part());
    let lived = parts.filter(|part| *part != Part::Die).try_for_each(|part| match part {
        Part::Come => watch::come(platform, ring.roll(), rank, alive(rank)),
        Part::Depart => watch::depart(platform, ring.roll(), rank),
        Part::Watch(dead) => follow(rank, dead, platform, ring, &ear),
        Part::Die => Ok(()),
    });
    if last(actor) == Some(Part::Die) {
        kernel(platform.inner(), ring, rank);
    }
    if ring.ticks && goes(actor) {
        // Not a site of the protocol: nothing is weakened here.
        platform.inner().fetch_or("clock", &ring.clock, 1 << rank, AcqRel);
        platform.inner().wake_all("clock-wake", &ring.clock);
    }
    Outcome { stopped: lived.is_err(), ..ear.0.into_inner() }
}

fn follow(rank: usize, dead: &[usize], platform: &Rank, ring: &Ring, ear: &Ear) -> Result<(), Killed> {
    let mut watch = Watch::new(platform, ring.roll(), rank);
    let mut bed = Bed { platform, clock: ring.ticks.then_some((&ring.clock, 0)) };
    loop {
        if let Some((clock, seen)) = &mut bed.clock {
            let now = platform.inner().load("clock-read", clock, Acquire);
            if now != *seen {
                *seen = now;
                watch.tick(ear)?;
            }
        }
        watch.look(ear)?;
        if dead.iter().all(|dead| ear.0.borrow().told.contains(dead)) {
            return Ok(());
        }
        watch.sleep(&mut bed)?;
    }
}

/// What the kernel does when a thread ends: it marks the words that hold the thread's number, and wakes one sleeper each.
fn kernel(machine: &Machine, ring: &Ring, rank: usize) {
    for slot in ring.roll().row(rank) {
        if machine.compare_exchange("kernel", &slot.word, alive(rank), DIED, Relaxed, Relaxed).is_ok() {
            machine.wake_one("kernel-wake", &slot.word);
        }
    }
}

/// Every rank that lives is told of every death, once; nobody is told of a rank that has not died.
pub(crate) fn told_once(actors: &[Actor], outcomes: &[Outcome]) {
    let dies =
        |rank: &usize| actors.iter().any(|actor| actor.rank == Some(*rank) && last(actor) == Some(Part::Die));
    for (actor, outcome) in actors.iter().zip(outcomes) {
        let mut told = outcome.told.clone();
        told.sort_unstable();
        assert!(told.windows(2).all(|pair| pair[0] != pair[1]), "told twice: {told:?}");
        assert!(told.iter().all(dies), "a false report: {told:?}");
        if let Some(Part::Watch(dead)) = last(actor)
            && !outcome.stopped
        {
            assert!(told == dead, "not told: rank {:?} knows of {told:?} and not of {dead:?}", actor.rank);
        }
    }
    let survivors = actors.iter().zip(outcomes).any(|(actor, outcome)| !goes(actor) && !outcome.stopped);
    let deaths = actors.iter().any(|actor| last(actor) == Some(Part::Die));
    let ended = outcomes.iter().any(|outcome| !outcome.ended.is_empty());
    assert!(!(survivors && deaths) || ended, "the communicator goes on");
}
