//! Scenarios over real processes.

use std::process::ExitCode;

use anyhow::Context;
use intranode::Config;
use libtest_mimic::{Failed, Trial};

use crate::job::{Job, WAITS, Wait};
use crate::scenario::{Outcome, Scenario};

/// One trial for each number of ranks. The second wait is tested at 4 and more ranks, and where a row has no such, at its even
/// numbers: a wait is only how a rank sleeps, and many ranks sleep most.
pub(crate) fn trials(scenario: Scenario) -> Vec<Trial> {
    let mut trials = Vec::new();
    let least = if scenario.ranks.contains(&4) { 4 } else { 2 };
    for (index, wait) in WAITS.iter().copied().enumerate() {
        let is_tested = |size: &usize| index == 0 || (size.is_multiple_of(2) && *size >= least);
        for size in scenario.ranks.iter().copied().filter(is_tested) {
            let name = format!("processes::{}::{size}::{}", wait.name(), scenario.name);
            trials.push(Trial::test(name, move || run(scenario, size, wait)));
        }
    }
    trials
}

fn run(scenario: Scenario, size: usize, wait: Wait) -> Result<(), Failed> {
    let ends: Vec<i32> = (0..size).map(|rank| (scenario.ends)(rank, size)).collect();
    let mut job = Job::new(size, wait);
    let started =
        if scenario.differ { start_different(&mut job, scenario.name) } else { job.start_all(scenario.name) };
    started.and_then(|()| job.finish(&ends)).map_err(|error| format!("{error:#}").into())
}

/// Reads in place, does not, and decides for itself, in turn.
fn start_different(job: &mut Job, role: &str) -> Outcome {
    for rank in 0..job.size() {
        job.start_with(rank, role, |command| {
            match rank % 3 {
                0 => command.env("INTRANODE_IN_PLACE", "1"),
                1 => command.env("INTRANODE_IN_PLACE", "0"),
                _ => command.env_remove("INTRANODE_IN_PLACE"),
            };
        })?;
    }
    Ok(())
}

/// Runs in a process that was started as a rank.
pub(crate) fn run_as_rank(role: &str) -> ExitCode {
    match play(role) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("failed: {error:?}");
            ExitCode::FAILURE
        }
    }
}

fn play(role: &str) -> Outcome {
    let mut roles = crate::joining::ROLES
        .iter()
        .chain([&crate::holdings::ROLE, &crate::buffers::ROLE])
        .chain(&crate::checked::ROLES);
    if let Some((_, body)) = roles.find(|(name, _)| *name == role) {
        return body();
    }
    if role == crate::random::ROLE {
        return crate::random::play_process();
    }
    let all = [crate::scenarios(), crate::symmetric::special_rows()].concat();
    let scenario = all.iter().find(|scenario| scenario.name == role).context("no such role")?;
    let comm = scenario.configure(Config::from_env()?).join()?;
    (scenario.body)(comm)
}
