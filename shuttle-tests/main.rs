//! Schedules of many ranks, chosen by shuttle: `cargo test --features shuttle`.
//!
//! shuttle finds what goes wrong in some order of many ranks' steps. It does not reorder memory: that is what
//! `loom-tests` is for, although races on payload are found here too (see `harness/clock.rs`). A test is a model, a
//! chooser of schedules, and how many of them must have run to their end.
//!
//! A failing schedule prints how to repeat it. `INTRANODE_SHUTTLE_ITERATIONS=100000` explores longer.

#![allow(unreachable_pub, reason = "nothing is outside a test program")]

mod collectives;
mod contract;
mod faults;
mod harness;
mod leaving;
mod messages;
mod replay;
mod symmetric;
mod watching;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = libtest_mimic::Arguments::from_args();
    harness::schedules::take_over_panics();
    let trials = [
        collectives::trials(),
        contract::trials(),
        faults::trials(),
        leaving::trials(),
        messages::trials(),
        replay::trials(),
        symmetric::trials(),
        watching::trials(),
    ];
    let conclusion = libtest_mimic::run(&arguments, trials.into_iter().flatten().collect());
    if !arguments.list && conclusion.num_passed + conclusion.num_failed == 0 {
        eprintln!("no model ran");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}
