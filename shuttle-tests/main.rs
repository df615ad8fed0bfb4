//! Schedules of many ranks, chosen by shuttle: `cargo test --features shuttle`.
//!
//! shuttle finds what goes wrong in an order of steps that nobody thought of, with as many ranks as one likes. It
//! does not reorder memory: that is what `loom-tests` is for, although races on payload are found here too (see
//! `clock.rs`). A test is a model, a chooser of schedules, and how many of them must have run to their end.
//!
//! A failing schedule says how to see it again. `INTRANODE_SHUTTLE_ITERATIONS=100000` explores longer.

#![allow(unreachable_pub, reason = "nothing is outside a test program")]

mod breakage;
mod clock;
mod collectives;
mod contract;
mod dice;
mod explore;
mod faults;
mod leaving;
mod machine;
mod replay;
mod scenario;
mod script;
mod stage;
mod watching;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments = libtest_mimic::Arguments::from_args();
    explore::take_over_panics();
    let trials = [
        collectives::trials(),
        contract::trials(),
        faults::trials(),
        leaving::trials(),
        replay::trials(),
        watching::trials(),
    ];
    let conclusion = libtest_mimic::run(&arguments, trials.into_iter().flatten().collect());
    if !arguments.list && conclusion.num_passed + conclusion.num_failed == 0 {
        eprintln!("no model ran");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}
