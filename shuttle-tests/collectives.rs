//! Long sequences of every kind of call, while nothing goes wrong: every rank gets what a sequential model says.

use libtest_mimic::Trial;

use crate::dice;
use crate::explore::{Chooser, explore};
use crate::scenario::{End, Scenario};
use crate::script::Script;

/// Ranks, calls, schedules.
const SIZES: [(usize, usize, usize); 3] = [(8, 24, 1600), (16, 12, 640), (64, 6, 32)];

pub fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for chooser in Chooser::ALL {
        for (ranks, calls, schedules) in SIZES {
            let name = format!("{ranks} ranks make mixed calls, {}", chooser.name());
            trials.push(Trial::test(name.clone(), move || {
                explore(&name, chooser, schedules, move || mixed_calls(ranks, calls)).map(drop)
            }));
        }
    }
    trials
}

fn mixed_calls(ranks: usize, calls: usize) {
    let mishaps = dice::one_of(&[0, 3]);
    let outcome = Scenario::new(Script::random(ranks, calls, mishaps)).play();
    for log in outcome.logs {
        assert_eq!((log.calls, log.end), (calls, End::Exited), "a call failed though nothing went wrong");
    }
}
