//! The protocols under loom: every execution of small programs on weak memory.
//!
//! `cargo test --features loom`, or with a part of a name: `cargo test --features loom --test loom -- barrier`.
//! What is here and what it shows stands in `README.md`.

mod contract;
mod harness;
mod known_bad;
mod models;
mod sweep;

use std::process::ExitCode;

use harness::record::Suite;
use harness::{apart, readme, record, report, search};
use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    for limit in search::LIMITS {
        assert!(std::env::var_os(limit).is_none(), "{limit} is set: loom would stop early, and silently");
    }
    let arguments = Arguments::from_args();
    // What loom rejects is reported with its trace by the test that has asked for it.
    std::panic::set_hook(Box::new(|_| ()));

    let models = models::all()
        .into_iter()
        .filter(|model| !model.long || report::is_long_run())
        .map(|model| Trial::test(format!("model::{}", model.id()), move || report::explore(&model)));
    let known_bad = known_bad::all()
        .into_iter()
        .map(|bad| Trial::test(format!("known_bad::{}", bad.name), move || report::reject(&bad)));
    let documents = [
        Trial::test("documents::explored", || record::is_complete(&suite())),
        Trial::test("documents::readme", readme::shows_a_model),
    ];
    let trials = models.chain(contract::trials()).chain(known_bad).chain(sweep::trials()).chain(documents);
    let trials = if apart::is_apart() {
        apart::ends_with_parent();
        trials.collect()
    } else {
        trials.map(|trial| apart::apart(&trial)).collect()
    };
    let conclusion = libtest_mimic::run(&arguments, trials);
    if arguments.list {
        return ExitCode::SUCCESS;
    }
    report::print(&suite());
    if !apart::is_apart() {
        report::record(&suite());
    }
    if conclusion.num_passed == 0 {
        eprintln!("no model ran");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn suite() -> Suite {
    Suite { models: models::all(), known_bad: known_bad::all(), mutations: sweep::mutations() }
}
