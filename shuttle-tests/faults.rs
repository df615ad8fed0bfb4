//! Ranks that die or freeze anywhere: for every call the others get the right result, or the same error with what has
//! happened as its cause. [`Scenario::play`] checks that.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use intranode::protocol::{Cause, CauseKind};
use libtest_mimic::{Failed, Trial};

use crate::harness::choice;
use crate::harness::scenario::{End, Outcome, Scenario};
use crate::harness::schedules::{Chooser, explore};
use crate::harness::script::Script;
use crate::harness::simulation::{Fate, PlannedFate};

/// The fail points at which a rank can be stopped.
const FAIL_POINTS: [&str; 8] = [
    "round",
    "arrived",
    "progress",
    "completed",
    "arrived-unwoken",
    "sleeping",
    "cause-written",
    "poisoned-unwoken",
];

/// All other places where a rank makes a step.
const STEPS: [&str; 26] = [
    "header-write",
    "header-read",
    "chunk-write",
    "chunk-read",
    "block-write",
    "block-read",
    "turn",
    "end-turn",
    "arrive",
    "arrive-waiter",
    "arrive-wake",
    "co-located",
    "spin",
    "waiter",
    "sleep",
    "woken",
    "cause",
    "poison",
    "poison-wake",
    "spread",
    "spread-known",
    "cause-read",
    "late",
    "missing",
    "poll-poison",
    "poll-arrival",
];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for chooser in Chooser::ALL {
        let mut add = |what: &str, schedules, model: fn() -> Outcome| {
            let name = format!("{what}, {}", chooser.name());
            trials.push(Trial::test(name.clone(), move || harms_some(&name, chooser, schedules, model)));
        };
        add("16 ranks, one dies or freezes anywhere", 640, || anywhere(16, 6));
        add("64 ranks, one dies or freezes anywhere", 48, || anywhere(64, 3));
        add("time-outs race with arrivals", 3200, time_outs);
        add("poisoners race with each other", 3200, racing_poisoners);
        for site in FAIL_POINTS.into_iter().chain(STEPS) {
            let name = format!("a rank or watcher ends at {site}, {}", chooser.name());
            trials.push(Trial::test(name.clone(), move || ends_at(&name, chooser, site)));
        }
    }
    trials.push(Trial::test("the sites are all known", all_known));
    trials
}

/// Explores a model in which some executions end with an error for the survivors, and some do not.
fn harms_some(name: &str, chooser: Chooser, schedules: usize, model: fn() -> Outcome) -> Result<(), Failed> {
    let harmed = Arc::new(AtomicUsize::new(0));
    let counter = harmed.clone();
    let finished = explore(name, chooser, schedules, move || {
        let harm = model().logs.iter().any(|log| matches!(log.end, End::Failed(..)));
        counter.fetch_add(usize::from(harm), Relaxed);
    })?;
    let harmed = harmed.load(Relaxed);
    if finished >= schedules && (harmed == 0 || harmed == finished) {
        return Err(format!("{harmed} of {finished} executions have failed, which shows little").into());
    }
    Ok(())
}

/// A rank or watcher must end at the site, in some schedule.
fn ends_at(name: &str, chooser: Chooser, site: &'static str) -> Result<(), Failed> {
    let ended = Arc::new(AtomicUsize::new(0));
    let counter = ended.clone();
    let schedules = 960;
    let finished = explore(name, chooser, schedules, move || {
        let mut scenario = some_ranks();
        let fate = end_of(if FAIL_POINTS.contains(&site) { 3 } else { 2 });
        let actor = match choice::below(scenario.ranks() + scenario.watchers) {
            // The first watcher lives: without one that does, no death would be noticed.
            watcher if watcher >= scenario.ranks() => scenario.watcher(1.max(watcher - scenario.ranks())),
            rank => scenario.rank(rank),
        };
        let after = choice::below_power_of_two(5) as u32;
        scenario.fates.insert(0, PlannedFate { actor, site: Some(site), after, fate });
        let planned = scenario.fates.len();
        counter.fetch_add(usize::from(scenario.play().fates_met == planned), Relaxed);
    })?;
    if finished >= schedules && ended.load(Relaxed) == 0 {
        return Err("no actor ended there in any schedule".into());
    }
    Ok(())
}

/// A few ranks, of which one more may end anywhere, so that the sites of poisoning are reached in the midst of
/// calls.
fn some_ranks() -> Scenario {
    let ranks = 2 + choice::below(7);
    let mut scenario = Scenario::new(Script::random(ranks, 3, choice::one_of(&[0, 3])));
    scenario.watchers = 2 + choice::below(2);
    if choice::once_in(2) {
        let (actor, after) = (scenario.rank(choice::below(ranks)), choice::below_power_of_two(8) as u32);
        scenario.fates.push(PlannedFate { actor, site: None, after, fate: end_of(2) });
    }
    scenario
}

/// One of the first `kinds` ways to end.
fn end_of(kinds: usize) -> Fate {
    [Fate::Dies, Fate::Freezes, Fate::Stops][choice::below(kinds)]
}

fn anywhere(ranks: usize, calls: usize) -> Outcome {
    let mut scenario = Scenario::new(Script::random(ranks, calls, 0));
    scenario.watchers = 2;
    // A call is some steps for each other rank.
    let (actor, after) = (scenario.rank(choice::below(ranks)), choice::below(8 * ranks * calls) as u32);
    scenario.fates.push(PlannedFate { actor, site: None, after, fate: end_of(2) });
    scenario.play()
}

/// No rank is frozen, but time passes. Ranks give up on others that arrive after all, or just have.
fn time_outs() -> Outcome {
    let ranks = 2 + choice::below(7);
    let mut scenario = Scenario::new(Script::random(ranks, 3, choice::one_of(&[0, 3])));
    scenario.ticks = (0..3).map(|_| choice::below_power_of_two(11)).collect();
    scenario.play()
}

/// Several poison at some moment, each for its own reason, while a rank may die.
fn racing_poisoners() -> Outcome {
    let mut scenario = some_ranks();
    for number in 0..2 + choice::below(2) {
        let rank = choice::below(scenario.ranks());
        let kind = choice::one_of(&[CauseKind::Panicked, CauseKind::ConcurrentUse, CauseKind::WrongSize]);
        let step = choice::below_power_of_two(11);
        scenario.poisoners.push((step, Cause { kind, rank, detail: number as u32 }));
    }
    scenario.play()
}

/// No site of the core, and no name above, is without a test.
fn all_known() -> Result<(), Failed> {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let collected = seen.clone();
    let schedules = 640;
    let finished = explore("the sites are all known", Chooser::Random, schedules, move || {
        let outcome = if choice::once_in(2) { some_ranks().play() } else { time_outs() };
        collected.lock().expect("no thread has panicked").extend(outcome.seen);
    })?;
    let known = FAIL_POINTS.into_iter().chain(STEPS).collect::<BTreeSet<_>>();
    let seen = seen.lock().expect("no thread has panicked");
    match *seen == known || finished < schedules {
        true => Ok(()),
        false => Err(format!("differ: {:?}", seen.symmetric_difference(&known).collect::<Vec<_>>()).into()),
    }
}
