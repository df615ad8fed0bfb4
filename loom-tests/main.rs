//! The protocols under loom: every execution of small programs on weak memory.
//!
//! `cargo test --features loom`, or with a part of a name: `cargo test --features loom --test loom -- barrier`.
//! What is here and what it shows stands in `README.md` beside this file.

mod blocking;
mod cells;
mod contract;
mod dozing;
mod explore;
mod known_bad;
mod machine;
mod model;
mod models;
mod ownership;
mod parking;
mod program;
mod region;
mod report;
mod single_copy;
mod sites;
mod spinning;
mod sweep;
mod trace;
mod verdict;
mod watching;
mod weakened;
mod world;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    for limit in explore::LIMITS {
        assert!(std::env::var_os(limit).is_none(), "{limit} is set: loom would stop early, and silently");
    }
    let arguments = Arguments::from_args();
    // What loom rejects is reported with its trace by whoever asked for it.
    std::panic::set_hook(Box::new(|_| ()));

    let models = models::all()
        .into_iter()
        .filter(|model| !model.long || report::is_long_run())
        .map(|model| Trial::test(format!("model::{}", model.id()), move || report::run(&model)));
    let trials = models.chain(contract::trials()).chain(known_bad::trials()).chain(sweep::trials());
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    if arguments.list {
        return ExitCode::SUCCESS;
    }
    report::print();
    if conclusion.num_passed == 0 {
        eprintln!("no model ran");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}
