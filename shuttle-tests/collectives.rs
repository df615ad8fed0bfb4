//! Long sequences of every kind of call, while nothing goes wrong: every rank gets what a sequential model expects.

use libtest_mimic::Trial;

use crate::harness::choice;
use crate::harness::scenario::{End, Scenario};
use crate::harness::schedules::{Chooser, trial};
use crate::harness::script::Script;

/// Ranks, calls, schedules.
const SIZES: [(usize, usize, usize); 3] = [(8, 24, 1600), (16, 12, 640), (64, 6, 32)];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for chooser in Chooser::ALL {
        for (ranks, calls, schedules) in SIZES {
            let name = format!("{ranks} ranks make mixed calls");
            trials.push(trial(&name, chooser, schedules, move || mixed_calls(ranks, calls)));
        }
    }
    trials
}

fn mixed_calls(ranks: usize, calls: usize) {
    let mishaps = choice::one_of(&[0, 3]);
    let outcome = Scenario::new(Script::random(ranks, calls, mishaps)).play();
    for log in outcome.logs {
        assert_eq!((log.calls, log.end), (calls, End::Exited), "a call failed though nothing went wrong");
    }
}
