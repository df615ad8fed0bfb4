//! Communicators of several nodes, which are simulated, over ranks that are threads and over processes.
//!
//! Each row is the program of a rank, with its checks, as those of tests/conformance: `threads::4::nodes_…`,
//! `processes::futex::4::nodes_…`. Some lengths and maps are random. The seed is printed; `CONFORMANCE_SEED` repeats a run.

mod compared;
mod interrupted_rows;
#[path = "../conformance/job.rs"]
#[allow(dead_code, reason = "shared with the conformance tests, which use all of it")]
mod job;
mod leaders_rows;
#[path = "../conformance/model.rs"]
#[allow(dead_code, reason = "shared with the conformance tests, which use all of it")]
mod model;
mod more_rows;
mod parts_rows;
mod random;
mod rows;
#[path = "../conformance/scenario.rs"]
#[allow(dead_code, reason = "shared with the conformance tests, which use all of it")]
mod scenario;
mod started_errors;
mod started_rows;
mod vec_rows;

use std::process::ExitCode;

use anyhow::Context;
use intranode::{Communicator, Config};
use libtest_mimic::{Arguments, Failed, Trial};

use job::{Job, WAITS, Wait};
use scenario::{Outcome, Scenario};

fn main() -> ExitCode {
    if let Some(role) = job::role() {
        return match play(&role) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("failed: {error:?}");
                ExitCode::FAILURE
            }
        };
    }
    let arguments = Arguments::from_args();
    if !arguments.list {
        eprintln!("CONFORMANCE_SEED={}", scenario::seed());
    }
    let mut trials = Vec::new();
    for row in all_rows() {
        for size in row.ranks.iter().copied() {
            let name = format!("threads::{size}::{}", row.name);
            if row.threads {
                trials.push(Trial::test(name, move || over_threads(row, size)));
            }
            // How a rank sleeps is the node's matter: one number of ranks shows the other way.
            let waits = if size == 3 || size == 4 { WAITS } else { &WAITS[..1] };
            for wait in waits.iter().copied() {
                let name = format!("processes::{}::{size}::{}", wait.name(), row.name);
                trials.push(Trial::test(name, move || over_processes(row, size, wait)));
            }
        }
    }
    trials.extend(random::trials());
    let conclusion = libtest_mimic::run(&arguments, trials);
    // Only a whole run has compared all.
    let is_whole = !arguments.list && conclusion.num_filtered_out == 0 && !conclusion.has_failed();
    if is_whole && let Err(reason) = compared::check_page() {
        eprintln!("{reason}");
        return ExitCode::FAILURE;
    }
    conclusion.exit_code()
}

fn all_rows() -> Vec<Scenario> {
    [
        rows::rows(),
        more_rows::rows(),
        parts_rows::rows(),
        vec_rows::rows(),
        started_rows::rows(),
        started_errors::rows(),
        leaders_rows::rows(),
        interrupted_rows::rows(),
    ]
    .concat()
}

fn over_threads(row: Scenario, size: usize) -> Result<(), Failed> {
    let config = row.configure(Config::new("/threads", 0, size));
    for (rank, outcome) in intranode::threads_with(&config, row.body)?.into_iter().enumerate() {
        outcome.with_context(|| format!("rank {rank}")).map_err(|error| format!("{error:#}"))?;
    }
    Ok(())
}

fn over_processes(row: Scenario, size: usize, wait: Wait) -> Result<(), Failed> {
    let mut job = Job::new(size, wait);
    let ends: Vec<i32> = (0..size).map(|rank| (row.ends)(rank, size)).collect();
    let outcome = job.start_all(row.name).and_then(|()| job.finish(&ends));
    outcome.map_err(|error| format!("{error:#}").into())
}

/// Runs in a process that was started as a rank.
fn play(role: &str) -> Outcome {
    if let Some(outcome) = random::play(role) {
        return outcome;
    }
    let row = all_rows().into_iter().find(|row| row.name == role).context("no such row")?;
    let comm: Communicator = row.configure(Config::from_env()?).join()?;
    (row.body)(comm)
}
