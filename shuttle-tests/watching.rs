//! Many ranks that watch each other, of which some die, leave or are stopped anywhere: every other rank is told of each
//! death once, and of nothing else.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use libtest_mimic::{Failed, Trial};

use crate::harness::choice;
use crate::harness::ring::{OUTSIDE, RingScenario, Role};
use crate::harness::schedules::{Chooser, explore, trial};
use crate::harness::simulation::{Fate, PlannedFate};

/// The fail points at which a watcher can be stopped.
const FAIL_POINTS: [&str; 6] =
    ["departing", "watching", "found", "noticed", "announced-unwoken", "woken-unmarked"];

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

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for chooser in Chooser::ALL {
        trials.extend([
            trial("watchers are told of every death", chooser, 1600, some_die),
            trial("watchers take over from those that leave", chooser, 1600, some_leave),
            trial("watchers are told though one is stopped", chooser, 1600, one_is_stopped),
        ]);
        for site in FAIL_POINTS.into_iter().chain(STEPS) {
            let name = format!("a watcher dies at {site}, {}", chooser.name());
            trials.push(Trial::test(name.clone(), move || dies_at(&name, chooser, site)));
        }
    }
    trials.push(Trial::test("the sites of watchers are all known", all_known));
    trials
}

fn some_die() {
    RingScenario::new(3, 0).play();
}

fn some_leave() {
    RingScenario::new(2, 4).play();
}

fn one_is_stopped() {
    RingScenario::new(2, 2).with_a_freeze().play();
}

/// A rank must die at the site, in some schedule.
fn dies_at(name: &str, chooser: Chooser, site: &'static str) -> Result<(), Failed> {
    let died = Arc::new(AtomicUsize::new(0));
    let counter = died.clone();
    let schedules = 320;
    let finished = explore(name, chooser, schedules, move || {
        let mut scenario = RingScenario::new(2, 2);
        let role = if site.starts_with("depart") { Role::MayDieLeaving } else { Role::Dies };
        let rank = scenario.assign(role);
        let fate =
            if FAIL_POINTS.contains(&site) { choice::one_of(&[Fate::Dies, Fate::Stops]) } else { Fate::Dies };
        let after = choice::below(3) as u32;
        scenario.fates = vec![PlannedFate { actor: 1 + rank, site: Some(site), after, fate }];
        counter.fetch_add(scenario.play().fates_met, Relaxed);
    })?;
    if finished >= schedules && died.load(Relaxed) == 0 {
        return Err("no rank died there in any schedule".into());
    }
    Ok(())
}

/// No site of watching, and no name above, is without a test.
fn all_known() -> Result<(), Failed> {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let collected = seen.clone();
    let schedules = 160;
    let finished = explore("the sites of watchers are all known", Chooser::Random, schedules, move || {
        collected.lock().expect("no thread has panicked").extend(RingScenario::new(2, 2).play().seen);
    })?;
    let known: BTreeSet<_> = FAIL_POINTS.into_iter().chain(STEPS).collect();
    let seen = seen.lock().expect("no thread has panicked");
    let seen: BTreeSet<_> = seen.difference(&OUTSIDE.into()).copied().collect();
    match seen == known || finished < schedules {
        true => Ok(()),
        false => Err(format!("differ: {:?}", seen.symmetric_difference(&known).collect::<Vec<_>>()).into()),
    }
}
