//! What the actors of one execution share besides the segment: clocks, time, sleep, and what happens to which of them.
//!
//! An actor is a task of shuttle, named by its number: 0 sets everything up, 1 to R are the ranks, and those after
//! them only poison.

use std::collections::BTreeSet;
use std::sync::Mutex;

use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};

use crate::harness::breakage::Breakage;
use crate::harness::choice;
use crate::harness::clock::{Clock, lock};
use crate::harness::progress::Progress;
use crate::harness::schedules::SCHEDULE;
use crate::harness::sleepers::{Sleeper, Slept};

/// The time at which every wait has lasted too long.
pub const FOREVER: u64 = u64::MAX;

/// What happens to an actor at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It ends, and its peers are told. Only at fail points.
    Stops,
    /// It makes no further step until all others are done, and its peers are told that it has died.
    Dies,
    /// The same, but no peer is told: time-outs expire.
    Freezes,
}

/// A fate, and when an actor meets it.
#[derive(Clone, Copy, Debug)]
pub struct PlannedFate {
    pub actor: usize,
    /// Where; `None` is anywhere.
    pub site: Option<&'static str>,
    /// After how many passes.
    pub after: u32,
    pub fate: Fate,
}

/// What changes while an execution runs; never held across a scheduling point.
struct Facts {
    clocks: Vec<Clock>,
    planned: Vec<PlannedFate>,
    met: usize,
    steps: u64,
    ticks: Vec<u64>,
    alarms: Vec<u64>,
    now: u64,
    seen: BTreeSet<&'static str>,
}

/// What a step brings with it.
struct Passed {
    tick: bool,
    alarm: bool,
    fate: Option<Fate>,
}

impl Facts {
    fn pass(&mut self, actor: usize, site: &'static str) -> Passed {
        self.steps += 1;
        self.seen.insert(site);
        let tick = self.ticks.contains(&self.steps);
        self.now = self.now.saturating_add(u64::from(tick));
        let here = |planned: &PlannedFate| planned.actor == actor && planned.site.is_none_or(|at| at == site);
        let fate = match self.planned.iter().position(here) {
            Some(index) if self.planned[index].after == 0 => {
                self.met += 1;
                Some(self.planned.remove(index).fate)
            }
            Some(index) => {
                self.planned[index].after -= 1;
                None
            }
            None => None,
        };
        Passed { tick, alarm: self.alarms.contains(&self.steps), fate }
    }
}

/// See the module.
pub struct Simulation {
    ranks: usize,
    sleepers: Vec<Sleeper>,
    facts: Mutex<Facts>,
    progress: Progress,
    /// Loaded to let other actors run.
    turn: AtomicBool,
    /// Whether to print every step, because one schedule is run again to be read.
    pub traced: bool,
    /// How often a spinning rank polls before it sleeps.
    pub polls: u32,
    /// One sleep of how many ends for no reason; 0 is none.
    pub spurious: u32,
    /// What is wrong with this machine, so that the models must fail.
    pub breakage: Option<Breakage>,
}

/// The number of the actor that runs.
pub fn me() -> usize {
    usize::from(shuttle::current::me())
}

impl Simulation {
    /// That of `ranks` ranks and `others` that poison. Time passes at each of the steps `ticks`; `alarms` are the steps for
    /// which an actor waits.
    pub fn new(
        ranks: usize,
        others: usize,
        planned: Vec<PlannedFate>,
        ticks: Vec<u64>,
        alarms: Vec<u64>,
    ) -> Self {
        let actors = 1 + ranks + others;
        let clocks = (0..actors).map(|actor| Clock::of(actor, actors)).collect();
        let facts = Facts { clocks, planned, met: 0, steps: 0, ticks, alarms, now: 0, seen: BTreeSet::new() };
        Simulation {
            ranks,
            sleepers: (0..actors).map(|_| Sleeper::default()).collect(),
            facts: Mutex::new(facts),
            progress: Progress::default(),
            turn: AtomicBool::new(false),
            traced: std::env::var_os(SCHEDULE).is_some(),
            polls: 0,
            spurious: 0,
            breakage: Breakage::from_env(),
        }
    }

    /// The number of actors.
    pub fn actors(&self) -> usize {
        self.sleepers.len()
    }

    /// Lets `use_clock` work with the clock of the actor that runs.
    pub fn with_clock<R>(&self, use_clock: impl FnOnce(usize, &mut Clock) -> R) -> R {
        let actor = me();
        use_clock(actor, &mut lock(&self.facts).clocks[actor])
    }

    /// Every step of an actor begins here: it may be its last for long.
    pub fn step(&self, site: &'static str) {
        let stopped = self.stops_at(site);
        assert!(!stopped, "{site} is no fail point");
    }

    /// The same for a fail point, where an actor can also be stopped.
    pub fn stops_at(&self, site: &'static str) -> bool {
        if self.traced {
            eprintln!("{}: {site}", shuttle::thread::current().name().unwrap_or("main"));
        }
        let actor = me();
        let passed = lock(&self.facts).pass(actor, site);
        if passed.tick {
            self.notify_sleepers();
        }
        if passed.alarm {
            self.notify();
        }
        match passed.fate {
            None => (),
            Some(Fate::Stops) => self.report_death(actor),
            Some(fate) => self.halt(actor, fate),
        }
        passed.fate == Some(Fate::Stops)
    }

    fn halt(&self, actor: usize, fate: Fate) {
        if fate == Fate::Dies {
            self.report_death(actor);
        } else if self.is_rank(actor) {
            // The others get some time in which they can go to sleep, or past this rank's last arrival.
            for _ in 0..choice::below_power_of_two(9) {
                self.turn.load(SeqCst);
            }
            lock(&self.facts).now = FOREVER;
            self.notify_sleepers();
        }
        self.progress.update(|reached| reached.finished.extend([actor]));
        drop(self.progress.wait_until(|reached| reached.over));
    }

    /// The rank that runs dies, at the end of all that it does.
    pub fn die(&self) {
        self.report_death(me());
    }

    /// Something has changed for which an actor waits.
    pub fn notify(&self) {
        self.progress.update(|_| ());
    }

    /// Waits until all of these have finished, and `enough` holds for the number of ranks that have died.
    pub fn wait_until_finished(&self, actors: &[usize], enough: impl Fn(usize) -> bool) {
        drop(self.progress.wait_until(|reached| {
            let all = || actors.iter().all(|actor| reached.finished.contains(actor));
            reached.over || all() && enough(reached.dead.len())
        }));
    }

    /// Tells the watchers that the actor has died, if it is a rank.
    fn report_death(&self, actor: usize) {
        if self.is_rank(actor) {
            self.progress.update(|reached| reached.dead.push(actor - 1));
        }
    }

    fn is_rank(&self, actor: usize) -> bool {
        (1..=self.ranks).contains(&actor)
    }

    /// A rank has done all that it will do by itself.
    pub fn finish(&self) {
        let actor = me();
        self.progress.update(|reached| reached.finished.extend([actor]));
    }

    /// Waits until every rank has finished, and then ends every wait outside of the protocols.
    pub fn end(&self) {
        let ranks = self.ranks;
        drop(
            self.progress.wait_until(|reached| {
                reached.finished.iter().filter(|actor| **actor <= ranks).count() == ranks
            }),
        );
        self.progress.update(|reached| reached.over = true);
    }

    /// Waits for the next death after the first `known`; `None` at the end.
    pub fn next_death(&self, known: usize) -> Option<usize> {
        let reached = self.progress.wait_until(|reached| reached.over || reached.dead.len() > known);
        reached.dead.get(known).copied()
    }

    /// Waits until this number of steps has been made. False at the end.
    pub fn wait_for_step(&self, step: u64) -> bool {
        let made = || lock(&self.facts).steps >= step;
        drop(self.progress.wait_until(|reached| reached.over || made()));
        made()
    }

    /// The ranks that have died.
    pub fn dead(&self) -> Vec<usize> {
        self.progress.reached().dead.clone()
    }

    /// How many planned fates were met.
    pub fn fates_met(&self) -> usize {
        lock(&self.facts).met
    }

    /// The sites that have been passed.
    pub fn seen(&self) -> BTreeSet<&'static str> {
        lock(&self.facts).seen.clone()
    }

    /// The time: it passes only where a scenario has it pass.
    pub fn now(&self) -> u64 {
        lock(&self.facts).now
    }

    /// Sleeps until woken, or until it is later than `deadline`, if there is one, unless `goes_to_sleep` decides against it.
    pub fn sleep(&self, deadline: Option<u64>, goes_to_sleep: impl FnOnce() -> bool) -> Slept {
        let too_long = || deadline.is_some_and(|deadline| self.now() >= deadline);
        self.sleepers[me()].sleep(too_long, goes_to_sleep)
    }

    /// Wakes an actor that sleeps.
    pub fn wake(&self, actor: usize) {
        self.sleepers[actor].wake();
    }

    /// Lets all sleepers check the time.
    fn notify_sleepers(&self) {
        self.sleepers.iter().for_each(Sleeper::notify);
    }
}
