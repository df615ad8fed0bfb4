#[path = "blocks.rs"]
mod blocks;
#[path = "collectives.rs"]
mod collectives;
#[path = "../faults/control_group.rs"]
mod control_group;
#[path = "forks.rs"]
mod forks;
#[path = "job.rs"]
mod job;
#[path = "limits.rs"]
mod limits;
#[path = "mixed.rs"]
mod mixed;
#[path = "mixed_calls.rs"]
mod mixed_calls;
#[path = "patterns.rs"]
mod patterns;
#[path = "surroundings.rs"]
mod surroundings;

use std::process::ExitCode;

use anyhow::Result;
use libtest_mimic::{Arguments, Completion, Trial};

/// What a process does. The first number is how many there are as ranks of a job; with 0 there is one, and no job.
type Program = (&'static str, usize, fn() -> Result<()>);

fn programs() -> Vec<Program> {
    [
        blocks::PROGRAMS,
        forks::PROGRAMS,
        limits::PROGRAMS,
        surroundings::PROGRAMS,
        collectives::PROGRAMS,
        mixed::PROGRAMS,
    ]
    .concat()
}

/// A test that starts its processes itself.
type Test = (&'static str, fn() -> Result<Completion>);

/// A test, which the machine may not allow.
fn trial(name: &'static str, test: impl FnOnce() -> Result<Completion> + Send + 'static) -> Trial {
    Trial::ignorable_test(name, move || match test() {
        Ok(Completion::Ignored { reason }) => {
            eprintln!("{name}: SKIPPED: {}", reason.as_deref().unwrap_or_default());
            Ok(Completion::Ignored { reason })
        }
        other => other.map_err(|error| format!("{error:?}").into()),
    })
}

pub(super) fn main() -> ExitCode {
    if let Ok(name) = std::env::var(job::PROGRAM) {
        return job::run(&name, &[&programs(), surroundings::STARTED, mixed::STARTED].concat());
    }
    let arguments = Arguments::from_args();
    let large = std::env::var_os("INTRANODE_HEAP_LARGE").is_some();
    let of_program = |(name, ranks, _): Program| {
        let test = move || job::play(name, ranks, None, |_, _| ());
        trial(name, test).with_ignored_flag(name == forks::LARGE && !large)
    };
    let mut trials: Vec<Trial> = programs().into_iter().map(of_program).collect();
    trials.extend(surroundings::TESTS.iter().chain(mixed::TESTS).map(|(name, test): &Test| trial(name, *test)));
    libtest_mimic::run(&arguments, trials).exit_code()
}
