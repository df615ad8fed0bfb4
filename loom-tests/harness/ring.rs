//! Models of ranks that watch each other, and the kernel, which marks the words of a rank that dies.

use std::cell::RefCell;

use Ordering::{AcqRel, Acquire, Relaxed};
use intranode::protocol::watch::{self, DIED, LEFT, Listener, Liveness, Roll, WAITERS, Watch};
use intranode::protocol::{Killed, Ordering, Platform, Sleeper};

use crate::harness::machine::{Fate, Machine};
use crate::harness::mutant::Simulated;
use crate::harness::search::{About, Run, Search};
use crate::harness::trace::Label;
use crate::harness::waiting::Waiting::Parking;
use crate::harness::word::Word;

/// A step of a rank in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RingStep {
    /// It comes, after the others.
    Come,
    /// It watches until it has been told of the deaths of these.
    WatchFor(&'static [usize]),
    /// It leaves.
    Depart,
    /// It dies. A script that ends with this ends so too when its rank is stopped at a fail point; any other leaves the
    /// rank stopped.
    Die,
}
use RingStep::{Come, Depart, Die, WatchFor};

/// A ring in which all ranks are there, and some do something. Every survivor must be told of every death, once, and of
/// nothing else.
#[derive(Clone, Default)]
pub(crate) struct RingModel {
    name: String,
    ranks: usize,
    /// The number of ranks that watch each.
    width: usize,
    actors: Vec<Actor>,
    /// Ranks that have left before.
    left: &'static [usize],
    /// Owners and slots of the words on which a rank sleeps that is stopped.
    stopped: &'static [(usize, usize)],
    /// Whether there is a tick whenever a rank has left, died or been stopped.
    ticks: bool,
    bound: Option<usize>,
    long: bool,
}

#[derive(Clone)]
struct Actor {
    rank: usize,
    script: Vec<RingStep>,
    fate: Fate,
}

impl RingModel {
    /// A ring of `ranks`, each watched by `width` others.
    pub(crate) fn new(name: impl Into<String>, ranks: usize, width: usize) -> Self {
        RingModel { name: name.into(), ranks, width, ..RingModel::default() }
    }

    /// The same in a ring of this size.
    pub(crate) fn ranks(self, ranks: usize) -> Self {
        RingModel { ranks, ..self }
    }

    /// What the next rank does. Ranks of which this is not said do nothing.
    pub(crate) fn rank(mut self, rank: usize, script: &[RingStep]) -> Self {
        self.actors.push(Actor { rank, script: script.to_vec(), fate: Fate::NONE });
        self
    }

    /// The same for one that is stopped at a fail point, the first time that it comes there.
    pub(crate) fn rank_stopped_at(
        mut self,
        fail_point: &'static str,
        rank: usize,
        script: &[RingStep],
    ) -> Self {
        self.actors.push(Actor { rank, script: script.to_vec(), fate: Fate::dies_at(fail_point, 1) });
        self
    }

    pub(crate) fn left(self, left: &'static [usize]) -> Self {
        RingModel { left, ..self }
    }

    pub(crate) fn stopped(self, stopped: &'static [(usize, usize)]) -> Self {
        RingModel { stopped, ..self }
    }

    pub(crate) fn ticks(self) -> Self {
        RingModel { ticks: true, ..self }
    }

    pub(crate) fn bound(self, bound: usize) -> Self {
        RingModel { bound: Some(bound), ..self }
    }

    pub(crate) fn long(self) -> Self {
        RingModel { long: true, ..self }
    }

    /// Threads that sleep on several words each are too much without a bound.
    fn feasible_bound(&self) -> Option<usize> {
        match (self.actors.len(), self.width) {
            (2, _) => None,
            (3, 1) => Some(3),
            (3, _) => Some(2),
            _ => Some(1),
        }
    }

    fn execute(&self, run: &Run) {
        let fates: Vec<Fate> = self.actors.iter().map(|actor| actor.fate).collect();
        let (acting, checked) = (self.clone(), self.clone());
        let act = move |thread: usize, platform: &Simulated, ring: &Ring| {
            ring.act(&acting.actors[thread], platform, acting.ticks)
        };
        run.threads(Ring::new(self), &fates, act, move |outcomes| checked.all_are_told_once(outcomes));
    }

    /// Every rank that lives is told of every death, once; no rank is told of one that has not died.
    fn all_are_told_once(&self, outcomes: &[Outcome]) {
        let dies = |rank: &usize| self.actors.iter().any(|actor| actor.rank == *rank && actor.last() == Die);
        for (actor, outcome) in self.actors.iter().zip(outcomes) {
            let mut told = outcome.told.clone();
            told.sort_unstable();
            assert!(told.windows(2).all(|pair| pair[0] != pair[1]), "told twice: {told:?}");
            assert!(told.iter().all(dies), "a false report: {told:?}");
            if let WatchFor(dead) = actor.last()
                && !outcome.stopped
            {
                assert!(told == dead, "not told: rank {} knows of {told:?} and not of {dead:?}", actor.rank);
            }
        }
        let survives = |(actor, outcome): (&Actor, &Outcome)| !actor.goes() && !outcome.stopped;
        let survivors = self.actors.iter().zip(outcomes).any(survives);
        let deaths = self.actors.iter().any(|actor| actor.last() == Die);
        let ended = outcomes.iter().any(|outcome| outcome.ended_the_communicator);
        assert!(!(survivors && deaths) || ended, "the communicator goes on");
    }
}

impl From<RingModel> for Search {
    fn from(model: RingModel) -> Search {
        let threads = model.actors.iter().map(|actor| format!("rank {}", actor.rank)).collect();
        let shape = Some(format!("{}_by_{}", model.ranks, model.width));
        let (name, ranks, long) = (model.name.clone(), model.ranks, model.long);
        let bound = model.bound.or(model.feasible_bound());
        let search = Search::new(name, Parking, threads, move |run| model.execute(run));
        Search { shape, bound, ranks, long, about: About::Watching, ..search }
    }
}

impl Actor {
    fn last(&self) -> RingStep {
        *self.script.last().expect("it does something")
    }

    /// Whether it leaves or dies.
    fn goes(&self) -> bool {
        !matches!(self.last(), WatchFor(_))
    }
}

/// What one rank has been told.
#[derive(Default)]
struct Outcome {
    told: Vec<usize>,
    ended_the_communicator: bool,
    /// Whether it was stopped at a fail point.
    stopped: bool,
}

#[derive(Default)]
struct Reports(RefCell<Outcome>);

impl Listener for Reports {
    fn end(&self, _: usize) {
        self.0.borrow_mut().ended_the_communicator = true;
    }

    fn died(&self, dead: usize) {
        self.0.borrow_mut().told.push(dead);
    }
}

/// The words of one execution.
struct Ring {
    notices: Word,
    fates: Vec<Word>,
    slots: Vec<Liveness<Simulated>>,
    /// A bit for each rank that has left, died or been stopped.
    clock: Word,
}

/// What the words of a rank hold that is there: its thread's number, and that the kernel has to wake.
fn alive(rank: usize) -> u32 {
    WAITERS | (rank as u32 + 1)
}

impl Ring {
    fn new(model: &RingModel) -> Self {
        let label = |what, rank, parity| Label { what, rank, parity };
        let comes_last =
            |rank| model.actors.iter().any(|actor| actor.rank == rank && actor.script.first() == Some(&Come));
        let value = |rank| match rank {
            rank if model.left.contains(&rank) => LEFT,
            rank if comes_last(rank) => 0,
            rank => alive(rank),
        };
        let slot = |index: usize| {
            let (rank, slot) = (index / model.width, index % model.width);
            Liveness { word: Word::new(value(rank), label("alive", rank, slot)) }
        };
        let ring = Ring {
            notices: Word::new(0, label("notices", 0, 0)),
            fates: (0..model.ranks).map(|rank| Word::new(0, label("fate", rank, 0))).collect(),
            slots: (0..model.ranks * model.width).map(slot).collect(),
            clock: Word::new(0, label("clock", 0, 0)),
        };
        for (owner, slot) in model.stopped {
            ring.roll().row(*owner)[*slot].word.queue.enter_stopped();
        }
        ring
    }

    fn roll(&self) -> Roll<'_, Simulated> {
        Roll { notices: &self.notices, fates: &self.fates, slots: &self.slots }
    }

    /// Takes the steps of a script, up to its end or that of its rank.
    fn act(&self, actor: &Actor, platform: &Simulated, ticks: bool) -> Outcome {
        let (rank, reports) = (actor.rank, Reports::default());
        let lived = actor.script.iter().try_for_each(|step| match *step {
            Come => watch::come(platform, self.roll(), rank, alive(rank)),
            Depart => watch::depart(platform, self.roll(), rank),
            WatchFor(dead) => self.watch(rank, dead, platform, ticks, &reports),
            Die => Ok(()),
        });
        if actor.last() == Die {
            self.kernel_marks(rank, platform.machine());
        }
        if ticks && actor.goes() {
            // Not a site of the protocol: nothing is weakened here.
            platform.machine().fetch_or("clock", &self.clock, 1 << rank, AcqRel);
            platform.machine().wake_all("clock-wake", &self.clock);
        }
        Outcome { stopped: lived.is_err(), ..reports.0.into_inner() }
    }

    /// Watches until told of these deaths.
    fn watch(
        &self,
        rank: usize,
        dead: &[usize],
        platform: &Simulated,
        ticks: bool,
        reports: &Reports,
    ) -> Result<(), Killed> {
        let mut watch = Watch::new(platform, self.roll(), rank);
        let mut sleep = WatcherSleep { platform, clock: ticks.then_some((&self.clock, 0)) };
        loop {
            if let Some((clock, seen)) = &mut sleep.clock {
                let now = platform.machine().load("clock-read", clock, Acquire);
                if now != *seen {
                    *seen = now;
                    watch.tick(reports)?;
                }
            }
            watch.look(reports)?;
            if dead.iter().all(|dead| reports.0.borrow().told.contains(dead)) {
                return Ok(());
            }
            watch.sleep(&mut sleep)?;
        }
    }

    /// What the kernel does when a thread ends: it marks the words that hold the thread's number, and wakes one sleeper of
    /// each.
    fn kernel_marks(&self, rank: usize, machine: &Machine) {
        for slot in self.roll().row(rank) {
            if machine.compare_exchange("kernel", &slot.word, alive(rank), DIED, Relaxed, Relaxed).is_ok() {
                machine.wake("kernel-wake", &slot.word, 1);
            }
        }
    }
}

/// A watcher sleeps on the clock too, if there is one.
struct WatcherSleep<'a> {
    platform: &'a Simulated,
    clock: Option<(&'a Word, u32)>,
}

impl Sleeper<Simulated> for WatcherSleep<'_> {
    fn wait_any(&mut self, site: &'static str, words: &[(&Word, u32)]) {
        let words: Vec<_> = words.iter().copied().chain(self.clock).collect();
        self.platform.wait_any(site, &words);
    }
}
