//! What is tried with the scenarios of cells: nothing goes wrong, a rank ends anywhere, or at each of the sites that they have.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use libtest_mimic::{Failed, Trial};

use crate::harness::choice;
use crate::harness::scenario::spawn;
use crate::harness::schedules::{Chooser, explore, trial};
use crate::harness::simulation::{Fate, PlannedFate, Simulation};

/// One execution, and what must hold at its end.
pub trait Scenario: fmt::Debug + Send + Sync + Sized + 'static {
    type Memory: Send + Sync;
    /// What a rank has done, and how it has ended.
    type Log: Send;

    /// A random one.
    fn random(ranks: usize, rounds: usize) -> Self;
    fn ranks(&self) -> usize;
    /// What is to become of ranks and watchers.
    fn fates(&mut self) -> &mut Vec<PlannedFate>;
    fn memory(simulation: &Arc<Simulation>, ranks: usize) -> Self::Memory;
    fn live(&self, rank: usize, simulation: &Arc<Simulation>, memory: &Self::Memory) -> Self::Log;
    /// What the watchers of all ranks do together.
    fn watch(simulation: &Simulation, memory: &Self::Memory);
    /// Checks what must hold. Whether a rank was told that another has died, or was late.
    fn check(&self, logs: &[Self::Log], simulation: &Simulation, memory: &Self::Memory) -> bool;

    /// Plays it, and checks what must hold whatever happened.
    fn play(mut self) -> Outcome {
        const WATCHERS: usize = 2;
        let (ranks, fates) = (self.ranks(), self.fates().clone());
        let mut simulation = Simulation::new(ranks, WATCHERS, fates, Vec::new(), Vec::new());
        simulation.polls = choice::one_of(&[0, 1, 4]);
        simulation.spurious = choice::one_of(&[0, 8]);
        let simulation = Arc::new(simulation);
        let memory = Arc::new(Self::memory(&simulation, ranks));
        let scenario = Arc::new(self);
        if simulation.traced {
            eprintln!("{scenario:#?}");
        }

        // The order of the spawns makes the actors' numbers.
        let live = |rank| {
            let (scenario, simulation, memory) = (scenario.clone(), simulation.clone(), memory.clone());
            spawn(format!("rank {rank}"), move || {
                let log = scenario.live(rank, &simulation, &memory);
                simulation.finish();
                log
            })
        };
        let living: Vec<_> = (0..ranks).map(live).collect();
        let watcher = |watcher| {
            let (simulation, memory) = (simulation.clone(), memory.clone());
            spawn(format!("watcher {watcher}"), move || Self::watch(&simulation, &memory))
        };
        let watchers: Vec<_> = (0..WATCHERS).map(watcher).collect();
        simulation.end();
        let logs: Vec<Self::Log> = living.into_iter().map(|rank| rank.join().expect("no panic")).collect();
        watchers.into_iter().for_each(|watcher| watcher.join().expect("no panic"));

        let harm = scenario.check(&logs, &simulation, &memory);
        Outcome { harm, fates_met: simulation.fates_met(), seen: simulation.seen() }
    }
}

/// What became of all.
pub struct Outcome {
    /// Whether a rank was told that another has died, or was late.
    pub harm: bool,
    pub fates_met: usize,
    pub seen: BTreeSet<&'static str>,
}

/// The sites of a kind of scenario, and how its trials are called.
pub struct Sites {
    /// What all ranks do.
    pub all: &'static str,
    /// A rank that does it.
    pub one: &'static str,
    pub what: &'static str,
    /// The rounds of a scenario, and of one in which a rank dies at a site.
    pub rounds: [usize; 2],
    /// How many schedules of the latter.
    pub schedules: usize,
    pub fail_points: &'static [&'static str],
    pub steps: &'static [&'static str],
    /// Sites without a trial.
    pub others: &'static [&'static str],
}

/// What poisoning does besides, whose deaths are in `faults.rs`.
const POISONING: [&str; 6] = ["cause", "spread-known", "poison", "poison-wake", "spread", "cause-read"];

pub fn trials_of<S: Scenario>(sites: &'static Sites) -> Vec<Trial> {
    let mut trials = Vec::new();
    for chooser in Chooser::ALL {
        let what = format!("8 ranks {}", sites.all);
        trials.push(trial(&what, chooser, 1600, || nothing_goes_wrong::<S>(sites)));
        for (what, fate) in [("dies", Fate::Dies), ("freezes", Fate::Freezes)] {
            let name = format!("8 ranks {} and one {what}, {}", sites.all, chooser.name());
            trials.push(Trial::test(name.clone(), move || one_ends::<S>(&name, chooser, fate, sites)));
        }
        for site in sites.fail_points.iter().chain(sites.steps) {
            let name = format!("{} dies at {site}, {}", sites.one, chooser.name());
            trials.push(Trial::test(name.clone(), move || dies_at::<S>(&name, chooser, site, sites)));
        }
    }
    let name = format!("the sites of {} are all known", sites.what);
    trials.push(Trial::test(name.clone(), move || all_known::<S>(&name, sites)));
    trials
}

fn nothing_goes_wrong<S: Scenario>(sites: &Sites) {
    let outcome = S::random(8, sites.rounds[0]).play();
    assert!(!outcome.harm, "a rank was told of a death though none has died");
}

/// In some executions the others are told or late, and in some they do not need the one that ends.
fn one_ends<S: Scenario>(
    name: &str,
    chooser: Chooser,
    fate: Fate,
    sites: &'static Sites,
) -> Result<(), Failed> {
    let harmed = Arc::new(AtomicUsize::new(0));
    let counter = harmed.clone();
    let schedules = 1600;
    let finished = explore(name, chooser, schedules, move || {
        let mut scenario = S::random(8, sites.rounds[0]);
        let after = choice::below_power_of_two(9) as u32;
        scenario.fates().push(PlannedFate { actor: 1 + choice::below(8), site: None, after, fate });
        counter.fetch_add(usize::from(scenario.play().harm), Relaxed);
    })?;
    let harmed = harmed.load(Relaxed);
    if finished >= schedules && (harmed == 0 || harmed == finished) {
        return Err(format!("{harmed} of {finished} executions have failed, which shows little").into());
    }
    Ok(())
}

/// A rank must die at the site, in some schedule; perhaps another dies anywhere.
fn dies_at<S: Scenario>(
    name: &str,
    chooser: Chooser,
    site: &'static str,
    sites: &'static Sites,
) -> Result<(), Failed> {
    let died = Arc::new(AtomicUsize::new(0));
    let counter = died.clone();
    let model = Arc::new(move || {
        counter.fetch_add(usize::from(all_die::<S>(site, sites)), Relaxed);
    });
    // Few schedules come to some sites.
    for schedules in [sites.schedules, 16 * sites.schedules] {
        let model = model.clone();
        let finished = explore(name, chooser, schedules, move || model())?;
        if finished < schedules || died.load(Relaxed) > 0 {
            return Ok(());
        }
    }
    Err("no rank died there in any schedule".into())
}

/// Whether all die that are to die.
fn all_die<S: Scenario>(site: &'static str, sites: &Sites) -> bool {
    let ranks = 2 + choice::below(7);
    let mut scenario = S::random(ranks, sites.rounds[1]);
    let poisons = ["cause-written", "poisoned-unwoken"].contains(&site);
    let (first, second) = (choice::below(ranks), choice::below(ranks));
    // The second watcher may die while it poisons: the first lives, and does it again.
    let actor = if poisons && choice::once_in(2) { ranks + 2 } else { 1 + first };
    let fate =
        if sites.fail_points.contains(&site) { choice::one_of(&[Fate::Dies, Fate::Stops]) } else { Fate::Dies };
    let after = choice::one_of(&[0, 0, 1, 2]);
    *scenario.fates() = vec![PlannedFate { actor, site: Some(site), after, fate }];
    if poisons || choice::once_in(4) {
        let after = choice::below_power_of_two(7) as u32;
        scenario.fates().push(PlannedFate { actor: 1 + second, site: None, after, fate: Fate::Dies });
    }
    let planned = scenario.fates().len();
    scenario.play().fates_met == planned
}

/// No site, and no name in the lists, is without a test.
fn all_known<S: Scenario>(name: &str, sites: &'static Sites) -> Result<(), Failed> {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let collected = seen.clone();
    let schedules = 640;
    let finished = explore(name, Chooser::Random, schedules, move || {
        let mut scenario = S::random(8, sites.rounds[0]);
        let after = choice::below_power_of_two(9) as u32;
        let fate = choice::one_of(&[Fate::Dies, Fate::Freezes]);
        scenario.fates().push(PlannedFate { actor: 1, site: None, after, fate });
        collected.lock().expect("no thread has panicked").extend(scenario.play().seen);
    })?;
    let known = [sites.fail_points, sites.steps, &POISONING, sites.others];
    let known: BTreeSet<_> = known.into_iter().flatten().copied().collect();
    let seen = seen.lock().expect("no thread has panicked");
    match *seen == known || finished < schedules {
        true => Ok(()),
        false => Err(format!("differ: {:?}", seen.symmetric_difference(&known).collect::<Vec<_>>()).into()),
    }
}
