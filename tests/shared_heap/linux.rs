#[path = "blocks.rs"]
mod blocks;
#[path = "collectives.rs"]
mod collectives;
#[path = "forks.rs"]
mod forks;
#[path = "job.rs"]
mod job;
#[path = "limits.rs"]
mod limits;

use std::process::ExitCode;

use anyhow::Result;
use libtest_mimic::{Arguments, Trial};

/// What a process does. The first number is how many there are as ranks of a job; with 0 there is one, and no job.
type Program = (&'static str, usize, fn() -> Result<()>);

fn programs() -> Vec<Program> {
    [blocks::PROGRAMS, forks::PROGRAMS, limits::PROGRAMS, collectives::PROGRAMS].concat()
}

pub(super) fn main() -> ExitCode {
    if let Ok(name) = std::env::var(job::PROGRAM) {
        return job::run(&name, &programs());
    }
    let arguments = Arguments::from_args();
    let large = std::env::var_os("INTRANODE_HEAP_LARGE").is_some();
    let trial = |(name, ranks, _): Program| {
        let test = move || job::play(name, ranks).map_err(|error| format!("{error:?}").into());
        Trial::test(name, test).with_ignored_flag(name == forks::LARGE && !large)
    };
    libtest_mimic::run(&arguments, programs().into_iter().map(trial).collect()).exit_code()
}
