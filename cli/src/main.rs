//! `intranode run` starts the ranks of a job, `intranode bench` measures the collectives, `intranode clean` removes what
//! was left behind.
//!
//! Linux only: the launcher relies on signalfd, process groups and the parent-death signal.

mod arguments;
mod bench;
mod clean;
mod guard;
mod job;
mod last_words;
mod leftovers;
mod processors;
mod program;
mod rank;
mod signals;
mod tagging;
mod terminal;
mod watch;

use std::process::ExitCode;

use arguments::{Arguments, Command};
use clap::Parser;

/// The launcher's own failures, told apart from any status of a program (`env` and `timeout` do the same).
const LAUNCHER_FAILED: u8 = 125;

fn main() -> ExitCode {
    let command = Arguments::parse().command;
    let failed = if matches!(command, Command::Measure(_) | Command::StartUp) { 1 } else { LAUNCHER_FAILED };
    let outcome = match command {
        Command::Run(arguments) => job::run(&arguments.into_job()),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Clean(arguments) => clean::run(&arguments),
        Command::Measure(cases) => bench::measure(&cases),
        Command::StartUp => bench::start_up(),
        Command::Rank(arguments) => Err(rank::become_program(&arguments)),
        Command::Guard(arguments) => guard::stand(&arguments),
    };
    match outcome {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            eprintln!("intranode: {error:#}");
            let cannot_start = error.downcast_ref::<program::CannotStart>();
            ExitCode::from(cannot_start.map_or(failed, program::CannotStart::status))
        }
    }
}
