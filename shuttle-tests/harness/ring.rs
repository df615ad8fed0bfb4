//! One execution of ranks that watch each other: some die, leave or are stopped, and every other rank must be told of each
//! death once, and of nothing else.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed as Counting};
use std::sync::{Arc, Mutex};

use Ordering::{AcqRel, Acquire, Relaxed};
use intranode::protocol::watch::{self, DIED, Listener, Liveness, Roll, WAITERS, Watch};
use intranode::protocol::{Killed, Ordering, Platform, Sleeper};
use shuttle::thread;

use crate::harness::choice;
use crate::harness::clock::lock;
use crate::harness::simulation::{Fate, PlannedFate, Simulation};
use crate::harness::word::Word;

/// The number of ranks that watch each.
const WIDTH: usize = 3;

/// What a rank is to do, besides watching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    Survives,
    Leaves,
    Dies,
    /// It leaves, unless it dies before it has.
    MayDieLeaving,
    /// It survives, unless it is stopped for ever.
    MayFreeze,
}

/// What an execution is made of.
#[derive(Clone, Debug)]
pub struct RingScenario {
    roles: Vec<Role>,
    pub fates: Vec<PlannedFate>,
}

/// What became of an execution.
pub struct Outcome {
    pub fates_met: usize,
    pub seen: BTreeSet<&'static str>,
}

/// Steps that are not the protocol's.
pub const OUTSIDE: [&str; 4] = ["kernel", "order", "order-wake", "ordered"];

impl RingScenario {
    /// Up to a dozen ranks, of which one to `dying` die and up to `leaving` leave.
    pub fn new(dying: usize, leaving: usize) -> Self {
        let mut scenario =
            RingScenario { roles: vec![Role::Survives; 8 + choice::below(5)], fates: Vec::new() };
        for _ in 0..1 + choice::below(dying) {
            let rank = scenario.assign(Role::Dies);
            // The others die when they are told to.
            if choice::once_in(2) {
                scenario.plan(rank, Fate::Dies);
            }
        }
        for _ in 0..choice::below(leaving + 1) {
            scenario.assign(Role::Leaves);
        }
        scenario
    }

    /// The same with a rank that may freeze.
    pub fn with_a_freeze(mut self) -> Self {
        let rank = self.assign(Role::MayFreeze);
        self.plan(rank, Fate::Freezes);
        self
    }

    /// Gives a role to a rank that has none.
    pub fn assign(&mut self, role: Role) -> usize {
        let free: Vec<usize> = self.all(|role| role == Role::Survives).collect();
        let rank = choice::one_of(&free);
        self.roles[rank] = role;
        rank
    }

    fn plan(&mut self, rank: usize, fate: Fate) {
        let after = choice::below_power_of_two(6) as u32;
        self.fates.push(PlannedFate { actor: 1 + rank, site: None, after, fate });
    }

    fn all(&self, is: impl Fn(Role) -> bool) -> impl Iterator<Item = usize> {
        self.roles.iter().enumerate().filter(move |(_, role)| is(**role)).map(|(rank, _)| rank)
    }

    /// Where a rank can be stopped between two steps, something is left undone, for which there is a tick.
    fn ticks(&self) -> bool {
        self.all(|role| matches!(role, Role::MayDieLeaving | Role::MayFreeze)).next().is_some()
    }

    /// Plays it, and checks what must hold whatever happened.
    pub fn play(self) -> Outcome {
        let ranks = self.roles.len();
        let mut simulation = Simulation::new(ranks, 2, self.fates.clone(), Vec::new(), Vec::new());
        simulation.spurious = choice::one_of(&[0, 8]);
        let simulation = Arc::new(simulation);
        if simulation.traced {
            eprintln!("{self:#?}");
        }
        let ring = Arc::new(Ring::new(&simulation, self));
        let spawn = |name: String, body: fn(&Ring, usize), rank: usize| {
            let ring = ring.clone();
            thread::Builder::new().name(name).spawn(move || body(&ring, rank)).expect("a task costs nothing")
        };
        // The order of the spawns makes the actors' numbers.
        let mut tasks: Vec<_> =
            (0..ranks).map(|rank| spawn(format!("rank {rank}"), Ring::live, rank)).collect();
        tasks.push(spawn("kernel".to_owned(), |ring, _| ring.kernel(), 0));
        tasks.push(spawn("test".to_owned(), |ring, _| ring.give_orders(), 0));
        simulation.end();
        for task in tasks {
            task.join().expect("no panic");
        }
        ring.check();
        Outcome { fates_met: simulation.fates_met(), seen: simulation.seen() }
    }
}

/// The deaths that a rank was told of, and how often it was to end the communicator.
#[derive(Clone, Debug, Default)]
struct Told {
    died: Vec<usize>,
    ended: usize,
}

/// The words of one execution.
struct Ring {
    simulation: Arc<Simulation>,
    scenario: RingScenario,
    notices: Word,
    fates: Vec<Word>,
    slots: Vec<Liveness<Simulation>>,
    /// By rank: what it is told from outside; to go, or that time has passed.
    orders: Vec<Word>,
    told: Vec<Mutex<Told>>,
    /// How many deaths the kernel has dealt with.
    handled: AtomicUsize,
}

/// An order to leave or to die.
const GO: u32 = 1;
/// Time has passed.
const TICK: u32 = 2;

fn alive(rank: usize) -> u32 {
    WAITERS | (rank as u32 + 1)
}

impl Ring {
    fn new(simulation: &Arc<Simulation>, scenario: RingScenario) -> Self {
        let (ranks, actors) = (scenario.roles.len(), simulation.actors());
        let words = || (0..ranks).map(|_| Word::new(0, actors)).collect();
        let slots = (0..ranks * WIDTH).map(|index| Liveness { word: Word::new(alive(index / WIDTH), actors) });
        Ring {
            simulation: simulation.clone(),
            notices: Word::new(0, actors),
            fates: words(),
            slots: slots.collect(),
            orders: words(),
            told: (0..ranks).map(|_| Mutex::default()).collect(),
            handled: AtomicUsize::new(0),
            scenario,
        }
    }

    fn roll(&self) -> Roll<'_, Simulation> {
        Roll { notices: &self.notices, fates: &self.fates, slots: &self.slots }
    }

    fn live(&self, rank: usize) {
        let role = self.scenario.roles[rank];
        let lived = self.follow(rank, role);
        if role == Role::Dies && lived.is_ok() {
            self.simulation.die();
        }
        self.simulation.finish();
    }

    fn follow(&self, rank: usize, role: Role) -> Result<(), Killed> {
        let reports = Reports(&self.told[rank]);
        let mut watch = Watch::new(&*self.simulation, self.roll(), rank);
        let mut sleep = WatcherSleep { ring: self, order: &self.orders[rank], seen: 0 };
        loop {
            let order = self.simulation.load("ordered", sleep.order, Acquire);
            if order & TICK != 0 && sleep.seen & TICK == 0 {
                watch.tick(&reports)?;
            }
            sleep.seen = order;
            watch.look(&reports)?;
            let knows_all = || self.dying().all(|dead| lock(&self.told[rank]).died.contains(&dead));
            match role {
                Role::Survives | Role::MayFreeze if knows_all() => return Ok(()),
                Role::Dies if order & GO != 0 => return Ok(()),
                Role::Leaves | Role::MayDieLeaving if order & GO != 0 => {
                    return watch::depart(&*self.simulation, self.roll(), rank);
                }
                _ => watch.sleep(&mut sleep)?,
            }
        }
    }

    fn dying(&self) -> impl Iterator<Item = usize> {
        self.scenario.all(|role| role == Role::Dies)
    }

    /// Marks the words of the ranks that die, and wakes one sleeper of each.
    fn kernel(&self) {
        let simulation = &*self.simulation;
        let mut known = 0;
        while let Some(dead) = simulation.next_death(known) {
            for slot in self.roll().row(dead) {
                let marked =
                    simulation.compare_exchange("kernel", &slot.word, alive(dead), DIED, Relaxed, Relaxed);
                if marked.is_ok() {
                    simulation.wake_first(&slot.word);
                }
            }
            known += 1;
            self.handled.store(known, Counting);
            simulation.notify();
        }
    }

    /// Lets ranks leave and die, in some order, and lets time pass when all have that may leave something undone.
    fn give_orders(&self) {
        let survives = |role| matches!(role, Role::Survives | Role::MayFreeze);
        let mut going: Vec<usize> = self.scenario.all(|role| !survives(role)).collect();
        while !going.is_empty() {
            let rank = going.swap_remove(choice::below(going.len()));
            self.order(rank, GO);
        }
        if self.scenario.ticks() {
            let must: Vec<usize> =
                self.scenario.all(|role| role != Role::Survives).map(|rank| 1 + rank).collect();
            self.simulation.wait_until_finished(&must, |dead| self.handled.load(Counting) == dead);
            (0..self.orders.len()).for_each(|rank| self.order(rank, TICK));
        }
    }

    fn order(&self, rank: usize, order: u32) {
        self.simulation.fetch_or("order", &self.orders[rank], order, AcqRel);
        self.simulation.wake_all("order-wake", &self.orders[rank]);
    }

    fn check(&self) {
        let dead: BTreeSet<usize> = self.simulation.dead().into_iter().collect();
        for (rank, told) in self.told.iter().enumerate() {
            let died = &lock(told).died;
            let once: BTreeSet<usize> = died.iter().copied().collect();
            assert_eq!(once.len(), died.len(), "told twice: rank {rank} of {died:?}");
            assert!(once.is_subset(&dead), "a false report: rank {rank} of {died:?}, and dead are {dead:?}");
        }
        assert!(self.told.iter().any(|told| lock(told).ended > 0), "the communicator goes on");
    }
}

/// What a rank is told.
struct Reports<'a>(&'a Mutex<Told>);

impl Listener for Reports<'_> {
    fn end(&self, _: usize) {
        lock(self.0).ended += 1;
    }

    fn died(&self, dead: usize) {
        lock(self.0).died.push(dead);
    }
}

/// A watcher sleeps on its orders too.
struct WatcherSleep<'a> {
    ring: &'a Ring,
    order: &'a Word,
    seen: u32,
}

impl Sleeper<Simulation> for WatcherSleep<'_> {
    fn wait_any(&mut self, site: &'static str, words: &[(&Word, u32)]) {
        let words: Vec<_> = words.iter().copied().chain([(self.order, self.seen)]).collect();
        self.ring.simulation.wait_any(site, &words);
    }
}
