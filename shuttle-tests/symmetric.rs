//! Many ranks that use each other's memory, while nothing goes wrong, and while a rank dies anywhere: what was sent and
//! counted is there, nobody waits for ever, and all that are told of a death are told of the same. [`OneSidedScenario::play`]
//! checks that.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use libtest_mimic::{Failed, Trial};

use crate::harness::choice;
use crate::harness::one_sided::OneSidedScenario;
use crate::harness::schedules::{Chooser, explore, trial};
use crate::harness::simulation::{Fate, PlannedFate};

/// The fail points at which a rank can be stopped.
const FAIL_POINTS: [&str; 9] = [
    "written-unrung",
    "taken-unwoken",
    "put-unsignalled",
    "wait-marked",
    "queued-unlinked",
    "locked",
    "unlock-unlinked",
    "cause-written",
    "poisoned-unwoken",
];

/// All other places where a rank makes a step in symmetric memory.
const STEPS: [&str; 35] = [
    "store",
    "load",
    "swap",
    "compare-swap",
    "fetch",
    "put",
    "put-strided",
    "get",
    "get-strided",
    "get-fence",
    "put-signalled",
    "signal-fence",
    "signal-set",
    "signal-add",
    "fence",
    "quiet",
    "ring-fence",
    "ring",
    "ring-take",
    "ring-wake",
    "test",
    "poll",
    "wait-mark",
    "wait-fence",
    "wait-sleep",
    "lock-queue",
    "lock-behind",
    "lock-link",
    "lock-granted",
    "lock-try",
    "lock-leave",
    "lock-grant",
    "lock-next",
    "lock-unlink",
    "lock-ungrant",
];

/// What poisoning does besides, whose deaths are in `faults.rs`.
const POISONING: [&str; 6] = ["cause", "spread-known", "poison", "poison-wake", "spread", "cause-read"];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for chooser in Chooser::ALL {
        let what = "8 ranks use each other's memory";
        trials.push(trial(what, chooser, 1600, || nothing_goes_wrong(8, 4)));
        for (what, fate) in [("dies", Fate::Dies), ("freezes", Fate::Freezes)] {
            let name = format!("8 ranks use each other's memory and one {what}, {}", chooser.name());
            trials.push(Trial::test(name.clone(), move || one_ends(&name, chooser, fate)));
        }
        for site in FAIL_POINTS.into_iter().chain(STEPS) {
            let name = format!("a rank that uses another's memory dies at {site}, {}", chooser.name());
            trials.push(Trial::test(name.clone(), move || dies_at(&name, chooser, site)));
        }
    }
    trials.push(Trial::test("the sites of symmetric memory are all known", all_known));
    trials
}

fn nothing_goes_wrong(ranks: usize, rounds: usize) {
    let outcome = OneSidedScenario::random(ranks, rounds).play();
    assert!(!outcome.harm, "a rank was told of a death though none has died");
}

/// In some executions the others are told or late, and in some they do not need the one that ends.
fn one_ends(name: &str, chooser: Chooser, fate: Fate) -> Result<(), Failed> {
    let harmed = Arc::new(AtomicUsize::new(0));
    let counter = harmed.clone();
    let schedules = 1600;
    let finished = explore(name, chooser, schedules, move || {
        let mut scenario = OneSidedScenario::random(8, 4);
        let after = choice::below_power_of_two(9) as u32;
        scenario.fates.push(PlannedFate { actor: 1 + choice::below(8), site: None, after, fate });
        counter.fetch_add(usize::from(scenario.play().harm), Relaxed);
    })?;
    let harmed = harmed.load(Relaxed);
    if finished >= schedules && (harmed == 0 || harmed == finished) {
        return Err(format!("{harmed} of {finished} executions have failed, which shows little").into());
    }
    Ok(())
}

/// A rank must die at the site, in some schedule; perhaps another dies anywhere.
fn dies_at(name: &str, chooser: Chooser, site: &'static str) -> Result<(), Failed> {
    let died = Arc::new(AtomicUsize::new(0));
    let counter = died.clone();
    let schedules = 640;
    let finished = explore(name, chooser, schedules, move || {
        let ranks = 2 + choice::below(7);
        let mut scenario = OneSidedScenario::random(ranks, 3);
        let poisons = ["cause-written", "poisoned-unwoken"].contains(&site);
        let (first, second) = (choice::below(ranks), choice::below(ranks));
        // The second watcher may die while it poisons: the first lives, and does it again.
        let actor = if poisons && choice::once_in(2) { ranks + 2 } else { 1 + first };
        let fate =
            if FAIL_POINTS.contains(&site) { choice::one_of(&[Fate::Dies, Fate::Stops]) } else { Fate::Dies };
        let after = choice::one_of(&[0, 0, 1, 2]);
        scenario.fates = vec![PlannedFate { actor, site: Some(site), after, fate }];
        if poisons || choice::once_in(4) {
            let after = choice::below_power_of_two(7) as u32;
            scenario.fates.push(PlannedFate { actor: 1 + second, site: None, after, fate: Fate::Dies });
        }
        let planned = scenario.fates.len();
        counter.fetch_add(usize::from(scenario.play().fates_met == planned), Relaxed);
    })?;
    if finished >= schedules && died.load(Relaxed) == 0 {
        return Err("no rank died there in any schedule".into());
    }
    Ok(())
}

/// No site of symmetric memory, and no name above, is without a test. `lock-turn` is where a rank is late.
fn all_known() -> Result<(), Failed> {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let collected = seen.clone();
    let schedules = 640;
    let finished =
        explore("the sites of symmetric memory are all known", Chooser::Random, schedules, move || {
            let mut scenario = OneSidedScenario::random(8, 4);
            let after = choice::below_power_of_two(9) as u32;
            let fate = choice::one_of(&[Fate::Dies, Fate::Freezes]);
            scenario.fates.push(PlannedFate { actor: 1, site: None, after, fate });
            collected.lock().expect("no thread has panicked").extend(scenario.play().seen);
        })?;
    let known = FAIL_POINTS.into_iter().chain(STEPS).chain(POISONING).chain(["lock-turn"]);
    let known: BTreeSet<_> = known.collect();
    let seen = seen.lock().expect("no thread has panicked");
    match *seen == known || finished < schedules {
        true => Ok(()),
        false => Err(format!("differ: {:?}", seen.symmetric_difference(&known).collect::<Vec<_>>()).into()),
    }
}
