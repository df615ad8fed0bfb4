//! What the actors of one execution share beside the segment: clocks, time, sleep, and what befalls whom.
//!
//! An actor is a task of shuttle, named by its number: 0 sets the scene, 1 to R are the ranks, and those after
//! them only poison.

use std::collections::BTreeSet;

use shuttle::sync::atomic::{AtomicBool, Ordering::SeqCst};
use shuttle::sync::{Condvar, Mutex, MutexGuard};

use crate::breakage::Breakage;
use crate::clock::{Clock, lock};
use crate::dice;
use crate::explore::SCHEDULE;

/// The time at which every wait has lasted too long.
pub const FOREVER: u64 = u64::MAX;

/// What befalls an actor at a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It ends, and its peers are told. Only at points.
    Stops,
    /// It makes no further step until all others are done, and its peers are told that it has died.
    Dies,
    /// The same, but nobody is told: time-outs expire.
    Freezes,
}

/// A fate, and when it strikes.
#[derive(Clone, Copy, Debug)]
pub struct Strike {
    /// Whom.
    pub actor: usize,
    /// Where; `None` is anywhere.
    pub site: Option<&'static str>,
    /// After how many passes.
    pub after: u32,
    /// What.
    pub fate: Fate,
}

/// What changes while an execution runs; never held across a scheduling point.
struct Facts {
    clocks: Vec<Clock>,
    strikes: Vec<Strike>,
    struck: usize,
    steps: u64,
    ticks: Vec<u64>,
    bells: Vec<u64>,
    now: u64,
    seen: BTreeSet<&'static str>,
}

/// What a step brings with it.
struct Passed {
    tick: bool,
    bell: bool,
    fate: Option<Fate>,
}

impl Facts {
    fn pass(&mut self, actor: usize, site: &'static str) -> Passed {
        self.steps += 1;
        self.seen.insert(site);
        let tick = self.ticks.contains(&self.steps);
        self.now = self.now.saturating_add(u64::from(tick));
        let here = |strike: &Strike| strike.actor == actor && strike.site.is_none_or(|at| at == site);
        let fate = match self.strikes.iter().position(here) {
            Some(index) if self.strikes[index].after == 0 => {
                self.struck += 1;
                Some(self.strikes.remove(index).fate)
            }
            Some(index) => {
                self.strikes[index].after -= 1;
                None
            }
            None => None,
        };
        Passed { tick, bell: self.bells.contains(&self.steps), fate }
    }
}

/// What the actors wait for outside the protocols.
#[derive(Default)]
struct News {
    dead: Vec<usize>,
    settled: BTreeSet<usize>,
    over: bool,
}

/// Where an actor sleeps.
#[derive(Default)]
struct Bed {
    woken: Mutex<bool>,
    rung: Condvar,
}

/// See the module.
pub struct Stage {
    ranks: usize,
    beds: Vec<Bed>,
    facts: std::sync::Mutex<Facts>,
    news: Mutex<News>,
    changed: Condvar,
    turn: AtomicBool,
    /// Whether to print every step, because somebody wants to see one schedule again.
    pub traced: bool,
    /// How often a spinning rank looks before it sleeps.
    pub patience: u32,
    /// One sleep of how many ends for no reason; 0 is none.
    pub spurious: u32,
    /// What is wrong with this machine, so that the models must fail.
    pub breakage: Option<Breakage>,
}

/// The number of the actor that runs.
pub fn me() -> usize {
    usize::from(shuttle::current::me())
}

impl Stage {
    /// The stage for `ranks` ranks and `others` that poison. Time goes on at each of the steps `ticks`; `bells` are
    /// the steps for which somebody waits.
    pub fn new(ranks: usize, others: usize, strikes: Vec<Strike>, ticks: Vec<u64>, bells: Vec<u64>) -> Self {
        let actors = 1 + ranks + others;
        let clocks = (0..actors).map(|actor| Clock::of(actor, actors)).collect();
        let facts = Facts { clocks, strikes, struck: 0, steps: 0, ticks, bells, now: 0, seen: BTreeSet::new() };
        Stage {
            ranks,
            beds: (0..actors).map(|_| Bed::default()).collect(),
            facts: std::sync::Mutex::new(facts),
            news: Mutex::default(),
            changed: Condvar::new(),
            turn: AtomicBool::new(false),
            traced: std::env::var_os(SCHEDULE).is_some(),
            patience: 0,
            spurious: 0,
            breakage: Breakage::from_env(),
        }
    }

    /// The number of actors.
    pub fn actors(&self) -> usize {
        self.beds.len()
    }

    /// Lets `use_clock` work with the clock of the actor that runs.
    pub fn with_clock<R>(&self, use_clock: impl FnOnce(usize, &mut Clock) -> R) -> R {
        let actor = me();
        use_clock(actor, &mut lock(&self.facts).clocks[actor])
    }

    /// Every step of an actor begins here: it may be its last for long.
    pub fn step(&self, site: &'static str) {
        let stopped = self.stops_at(site);
        assert!(!stopped, "{site} is no point");
    }

    /// The same for a point, where an actor can also be stopped.
    pub fn stops_at(&self, site: &'static str) -> bool {
        if self.traced {
            eprintln!("{}: {site}", shuttle::thread::current().name().unwrap_or("main"));
        }
        let actor = me();
        let passed = lock(&self.facts).pass(actor, site);
        if passed.tick {
            self.ring();
        }
        if passed.bell {
            self.publish(|_| ());
        }
        match passed.fate {
            None => (),
            Some(Fate::Stops) => self.tell(actor),
            Some(fate) => self.halt(actor, fate),
        }
        passed.fate == Some(Fate::Stops)
    }

    fn halt(&self, actor: usize, fate: Fate) {
        if fate == Fate::Dies {
            self.tell(actor);
        } else if self.is_rank(actor) {
            // The others get some time in which they can go to sleep, or past this rank's last arrival.
            for _ in 0..dice::below_power_of_two(9) {
                self.turn.load(SeqCst);
            }
            lock(&self.facts).now = FOREVER;
            self.ring();
        }
        self.publish(|news| news.settled.extend([actor]));
        drop(self.await_news(|news| news.over));
    }

    /// The rank that runs dies, at the end of all that it does.
    pub fn die(&self) {
        self.tell(me());
    }

    /// Something has changed for which somebody waits.
    pub fn poke(&self) {
        self.publish(|_| ());
    }

    /// Waits until all of these have settled, and `enough` holds for the number of ranks that have died.
    pub fn await_settled(&self, actors: &[usize], enough: impl Fn(usize) -> bool) {
        let all = |news: &News| actors.iter().all(|actor| news.settled.contains(actor));
        drop(self.await_news(|news| news.over || all(news) && enough(news.dead.len())));
    }

    /// Tells those who watch that the actor has died, if it is a rank.
    fn tell(&self, actor: usize) {
        if self.is_rank(actor) {
            self.publish(|news| news.dead.push(actor - 1));
        }
    }

    fn is_rank(&self, actor: usize) -> bool {
        (1..=self.ranks).contains(&actor)
    }

    fn publish(&self, change: impl FnOnce(&mut News)) {
        change(&mut self.news.lock().expect("no actor has panicked"));
        self.changed.notify_all();
    }

    fn await_news(&self, enough: impl Fn(&News) -> bool) -> MutexGuard<'_, News> {
        let news = self.news.lock().expect("no actor has panicked");
        self.changed.wait_while(news, |news| !enough(news)).expect("no actor has panicked")
    }

    /// A rank has done all that it will do by itself.
    pub fn settle(&self) {
        let actor = me();
        self.publish(|news| news.settled.extend([actor]));
    }

    /// Waits until every rank has settled, and then ends every wait outside the protocols.
    pub fn end(&self) {
        let ranks = self.ranks;
        drop(self.await_news(|news| news.settled.iter().filter(|actor| **actor <= ranks).count() == ranks));
        self.publish(|news| news.over = true);
    }

    /// Waits for the next death after the first `known`; `None` at the end.
    pub fn next_death(&self, known: usize) -> Option<usize> {
        self.await_news(|news| news.over || news.dead.len() > known).dead.get(known).copied()
    }

    /// Waits for a bell. False at the end.
    pub fn await_bell(&self, step: u64) -> bool {
        let rung = || lock(&self.facts).steps >= step;
        drop(self.await_news(|news| news.over || rung()));
        rung()
    }

    /// The ranks that have died.
    pub fn dead(&self) -> Vec<usize> {
        self.news.lock().expect("no actor has panicked").dead.clone()
    }

    /// How many strikes have struck.
    pub fn struck(&self) -> usize {
        lock(&self.facts).struck
    }

    /// The sites that have been passed.
    pub fn seen(&self) -> BTreeSet<&'static str> {
        lock(&self.facts).seen.clone()
    }

    /// The time: it goes on only where a scenario says so.
    pub fn now(&self) -> u64 {
        lock(&self.facts).now
    }

    /// Sleeps until woken, or until it is later than `deadline`, if there is one. The bed is made before `go` decides whether to
    /// lie down, so that no wake-up in between is lost.
    pub fn sleep(&self, deadline: Option<u64>, go: impl FnOnce() -> bool) -> Slept {
        let bed = &self.beds[me()];
        let mut woken = bed.woken.lock().expect("no actor has panicked");
        *woken = false;
        if !go() {
            return Slept::NotAtAll;
        }
        while !*woken {
            if deadline.is_some_and(|deadline| self.now() >= deadline) {
                return Slept::TooLong;
            }
            woken = bed.rung.wait(woken).expect("no actor has panicked");
        }
        Slept::UntilWoken
    }

    /// Wakes an actor that sleeps.
    pub fn wake(&self, actor: usize) {
        *self.beds[actor].woken.lock().expect("no actor has panicked") = true;
        self.beds[actor].rung.notify_all();
    }

    /// Lets everybody who sleeps look at the time.
    fn ring(&self) {
        for bed in &self.beds {
            drop(bed.woken.lock().expect("no actor has panicked"));
            bed.rung.notify_all();
        }
    }
}

/// How a sleep has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slept {
    NotAtAll,
    UntilWoken,
    TooLong,
}
