//! Many ranks that watch each other, of which some die, leave or are stopped anywhere: every other rank is told of each
//! death once, and of nothing else.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed as Counting};
use std::sync::{Arc, Mutex};

use intranode::protocol::watch::{self, DIED, Listener, Liveness, Roll, WAITERS, Watch};
use intranode::protocol::{Killed, Ordering, Platform, Sleeper};
use libtest_mimic::{Failed, Trial};
use shuttle::thread;

use crate::clock::lock;
use crate::dice;
use crate::explore::{Chooser, explore};
use crate::machine::Word;
use crate::stage::{Fate, Stage, Strike};
use Ordering::{AcqRel, Acquire, Relaxed};

/// How many watch each rank.
const WIDTH: usize = 3;

/// The points at which a watcher can be stopped.
const POINTS: [&str; 6] = ["departing", "watching", "found", "noticed", "announced-unwoken", "woken-unmarked"];

/// All other places where a watcher makes a step.
const STEPS: [&str; 10] = [
    "depart",
    "depart-wake",
    "notices",
    "fate",
    "look",
    "notice",
    "announce",
    "announce-wake",
    "announced",
    "watch",
];

/// What a rank is to do, beside watching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
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
struct Cast {
    parts: Vec<Part>,
    strikes: Vec<Strike>,
}

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for chooser in Chooser::ALL {
        let mut add = |what: &str, schedules, model: fn()| {
            let name = format!("{what}, {}", chooser.name());
            trials.push(Trial::test(name.clone(), move || explore(&name, chooser, schedules, model).map(drop)));
        };
        add("watchers are told of every death", 1600, || drop(Cast::new(3, 0).play()));
        add("watchers take over from those who leave", 1600, || drop(Cast::new(2, 4).play()));
        add("watchers are told though one is stopped", 1600, || drop(Cast::new(2, 2).with_a_freeze().play()));
        for site in POINTS.into_iter().chain(STEPS) {
            let name = format!("a watcher dies at {site}, {}", chooser.name());
            trials.push(Trial::test(name.clone(), move || dies_at(&name, chooser, site)));
        }
    }
    trials.push(Trial::test("the sites of watchers are all known", all_known));
    trials
}

/// One test for each site: a strike there must have struck.
fn dies_at(name: &str, chooser: Chooser, site: &'static str) -> Result<(), Failed> {
    let struck = Arc::new(AtomicUsize::new(0));
    let counter = struck.clone();
    let schedules = 320;
    let finished = explore(name, chooser, schedules, move || {
        let mut cast = Cast::new(2, 2);
        let part = if site.starts_with("depart") { Part::MayDieLeaving } else { Part::Dies };
        let rank = cast.deal(part);
        let fate = if POINTS.contains(&site) { dice::one_of(&[Fate::Dies, Fate::Stops]) } else { Fate::Dies };
        let after = dice::below(3) as u32;
        cast.strikes = vec![Strike { actor: 1 + rank, site: Some(site), after, fate }];
        counter.fetch_add(cast.play().struck, Counting);
    })?;
    if finished >= schedules && struck.load(Counting) == 0 {
        return Err("nobody died there in any schedule".into());
    }
    Ok(())
}

/// No site of watching, and no name above, is without a test.
fn all_known() -> Result<(), Failed> {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let collected = seen.clone();
    let schedules = 160;
    let finished = explore("the sites of watchers are all known", Chooser::Random, schedules, move || {
        collected.lock().expect("nobody has panicked").extend(Cast::new(2, 2).play().seen);
    })?;
    let known: BTreeSet<_> = POINTS.into_iter().chain(STEPS).collect();
    let seen: BTreeSet<_> =
        seen.lock().expect("nobody has panicked").difference(&OUTSIDE.into()).copied().collect();
    match seen == known || finished < schedules {
        true => Ok(()),
        false => Err(format!("differ: {:?}", seen.symmetric_difference(&known).collect::<Vec<_>>()).into()),
    }
}

/// Steps that are not the protocol's.
const OUTSIDE: [&str; 4] = ["kernel", "order", "order-wake", "ordered"];

/// What became of an execution.
struct Outcome {
    struck: usize,
    seen: BTreeSet<&'static str>,
}

impl Cast {
    /// Up to a dozen ranks, of which one to `dying` die and up to `leaving` leave.
    fn new(dying: usize, leaving: usize) -> Self {
        let mut cast = Cast { parts: vec![Part::Survives; 8 + dice::below(5)], strikes: Vec::new() };
        for _ in 0..1 + dice::below(dying) {
            let rank = cast.deal(Part::Dies);
            // The others die when they are told to.
            if dice::once_in(2) {
                cast.strike(rank, Fate::Dies);
            }
        }
        for _ in 0..dice::below(leaving + 1) {
            cast.deal(Part::Leaves);
        }
        cast
    }

    fn with_a_freeze(mut self) -> Self {
        let rank = self.deal(Part::MayFreeze);
        self.strike(rank, Fate::Freezes);
        self
    }

    /// Gives a part to a rank that has none.
    fn deal(&mut self, part: Part) -> usize {
        let free: Vec<usize> = self.all(|part| part == Part::Survives).collect();
        let rank = dice::one_of(&free);
        self.parts[rank] = part;
        rank
    }

    fn strike(&mut self, rank: usize, fate: Fate) {
        let after = dice::below_power_of_two(6) as u32;
        self.strikes.push(Strike { actor: 1 + rank, site: None, after, fate });
    }

    fn all(&self, is: impl Fn(Part) -> bool) -> impl Iterator<Item = usize> {
        self.parts.iter().enumerate().filter(move |(_, part)| is(**part)).map(|(rank, _)| rank)
    }

    /// Where a rank can be stopped between two steps, something is left undone, for which there is a tick.
    fn ticks(&self) -> bool {
        self.all(|part| matches!(part, Part::MayDieLeaving | Part::MayFreeze)).next().is_some()
    }

    /// Plays it, and checks what must hold whatever happened.
    fn play(self) -> Outcome {
        let ranks = self.parts.len();
        let mut stage = Stage::new(ranks, 2, self.strikes.clone(), Vec::new(), Vec::new());
        stage.spurious = dice::one_of(&[0, 8]);
        let stage = Arc::new(stage);
        if stage.traced {
            eprintln!("{self:#?}");
        }
        let ring = Arc::new(Ring::new(&stage, self));
        let spawn = |name: String, body: fn(&Ring, usize), rank: usize| {
            let ring = ring.clone();
            thread::Builder::new().name(name).spawn(move || body(&ring, rank)).expect("a task costs nothing")
        };
        // The order of the spawns makes the actors' numbers.
        let mut tasks: Vec<_> =
            (0..ranks).map(|rank| spawn(format!("rank {rank}"), Ring::live, rank)).collect();
        tasks.push(spawn("kernel".to_owned(), |ring, _| ring.kernel(), 0));
        tasks.push(spawn("test".to_owned(), |ring, _| ring.give_orders(), 0));
        stage.end();
        for task in tasks {
            task.join().expect("no panic");
        }
        ring.check();
        Outcome { struck: stage.struck(), seen: stage.seen() }
    }
}

/// Whom a rank was told of, and for whom it was to end the communicator.
#[derive(Clone, Debug, Default)]
struct Told {
    died: Vec<usize>,
    ended: usize,
}

/// The words of one execution.
struct Ring {
    stage: Arc<Stage>,
    cast: Cast,
    notices: Word,
    fates: Vec<Word>,
    slots: Vec<Liveness<Stage>>,
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
    fn new(stage: &Arc<Stage>, cast: Cast) -> Self {
        let (ranks, actors) = (cast.parts.len(), stage.actors());
        let words = || (0..ranks).map(|_| Word::new(0, actors)).collect();
        let slots = (0..ranks * WIDTH).map(|index| Liveness { word: Word::new(alive(index / WIDTH), actors) });
        Ring {
            stage: stage.clone(),
            notices: Word::new(0, actors),
            fates: words(),
            slots: slots.collect(),
            orders: words(),
            told: (0..ranks).map(|_| Mutex::default()).collect(),
            handled: AtomicUsize::new(0),
            cast,
        }
    }

    fn roll(&self) -> Roll<'_, Stage> {
        Roll { notices: &self.notices, fates: &self.fates, slots: &self.slots }
    }

    fn live(&self, rank: usize) {
        let part = self.cast.parts[rank];
        let lived = self.follow(rank, part);
        if part == Part::Dies && lived.is_ok() {
            self.stage.die();
        }
        self.stage.settle();
    }

    fn follow(&self, rank: usize, part: Part) -> Result<(), Killed> {
        let ear = Ear(&self.told[rank]);
        let mut watch = Watch::new(&*self.stage, self.roll(), rank);
        let mut bed = Bed { ring: self, order: &self.orders[rank], seen: 0 };
        loop {
            let order = self.stage.load("ordered", bed.order, Acquire);
            if order & TICK != 0 && bed.seen & TICK == 0 {
                watch.tick(&ear)?;
            }
            bed.seen = order;
            watch.look(&ear)?;
            let knows_all = || self.dying().all(|dead| lock(&self.told[rank]).died.contains(&dead));
            match part {
                Part::Survives | Part::MayFreeze if knows_all() => return Ok(()),
                Part::Dies if order & GO != 0 => return Ok(()),
                Part::Leaves | Part::MayDieLeaving if order & GO != 0 => {
                    return watch::depart(&*self.stage, self.roll(), rank);
                }
                _ => watch.sleep(&mut bed)?,
            }
        }
    }

    fn dying(&self) -> impl Iterator<Item = usize> {
        self.cast.all(|part| part == Part::Dies)
    }

    /// Marks the words of those who die, and wakes one sleeper of each.
    fn kernel(&self) {
        let mut known = 0;
        while let Some(dead) = self.stage.next_death(known) {
            for slot in self.roll().row(dead) {
                let marked =
                    self.stage.compare_exchange("kernel", &slot.word, alive(dead), DIED, Relaxed, Relaxed);
                if marked.is_ok() {
                    self.stage.wake_first(&slot.word);
                }
            }
            known += 1;
            self.handled.store(known, Counting);
            self.stage.poke();
        }
    }

    /// Lets ranks leave and die, in some order, and lets time pass when all have that may leave something undone.
    fn give_orders(&self) {
        let survives = |part| matches!(part, Part::Survives | Part::MayFreeze);
        let mut going: Vec<usize> = self.cast.all(|part| !survives(part)).collect();
        while !going.is_empty() {
            let rank = going.swap_remove(dice::below(going.len()));
            self.order(rank, GO);
        }
        if self.cast.ticks() {
            let must: Vec<usize> = self.cast.all(|part| part != Part::Survives).map(|rank| 1 + rank).collect();
            self.stage.await_settled(&must, |dead| self.handled.load(Counting) == dead);
            (0..self.orders.len()).for_each(|rank| self.order(rank, TICK));
        }
    }

    fn order(&self, rank: usize, order: u32) {
        self.stage.fetch_or("order", &self.orders[rank], order, AcqRel);
        self.stage.wake_all("order-wake", &self.orders[rank]);
    }

    fn check(&self) {
        let struck: BTreeSet<usize> = self.stage.dead().into_iter().collect();
        for (rank, told) in self.told.iter().enumerate() {
            let died = &lock(told).died;
            let once: BTreeSet<usize> = died.iter().copied().collect();
            assert_eq!(once.len(), died.len(), "told twice: rank {rank} of {died:?}");
            assert!(
                once.is_subset(&struck),
                "a false report: rank {rank} of {died:?}, and dead are {struck:?}"
            );
        }
        assert!(self.told.iter().any(|told| lock(told).ended > 0), "the communicator goes on");
    }
}

/// What a rank hears.
struct Ear<'a>(&'a Mutex<Told>);

impl Listener for Ear<'_> {
    fn end(&self, _: usize) {
        lock(self.0).ended += 1;
    }

    fn died(&self, dead: usize) {
        lock(self.0).died.push(dead);
    }
}

/// A watcher's sleep: also on its orders.
struct Bed<'a> {
    ring: &'a Ring,
    order: &'a Word,
    seen: u32,
}

impl Sleeper<Stage> for Bed<'_> {
    fn wait_any(&mut self, site: &'static str, words: &[(&Word, u32)]) {
        let words: Vec<_> = words.iter().copied().chain([(self.order, self.seen)]).collect();
        self.ring.stage.wait_any(site, &words);
    }
}
