//! The launcher's own processes: it starts its own program with one of these commands.

use std::ffi::OsStr;

use anyhow::Result;
use clap::Parser;

use crate::bench::{self, Cases};
use crate::job::LAUNCHER_FAILED;
use crate::job::guard::{self, GuardArguments};
use crate::job::rank::{self, RankArguments};

#[derive(Parser)]
#[command(name = "intranode")]
pub(crate) enum Process {
    /// A rank's process before it becomes the program
    #[command(name = "__rank")]
    Rank(RankArguments),
    /// The process that cleans up if the launcher is killed
    #[command(name = "__guard")]
    Guard(GuardArguments),
    /// A rank of the benchmark
    #[command(name = "__bench")]
    Bench(Cases),
    /// A rank whose start is measured
    #[command(name = "__start-up")]
    StartUp,
}

impl Process {
    /// Whether the first argument is one of these commands, and not a user's.
    pub(crate) fn is_command(first: &OsStr) -> bool {
        first.as_encoded_bytes().starts_with(b"__")
    }

    /// Executes the command. Returns the exit status.
    pub(crate) fn execute(self) -> Result<u8> {
        match self {
            Process::Rank(arguments) => Err(rank::become_program(&arguments)),
            Process::Guard(arguments) => guard::run(&arguments),
            Process::Bench(cases) => bench::measure_as_rank(&cases),
            Process::StartUp => bench::start_up_as_rank(),
        }
    }

    /// The exit status after an error.
    pub(crate) fn failed(&self) -> u8 {
        match self {
            Process::Rank(_) | Process::Guard(_) => LAUNCHER_FAILED,
            // These run as ranks, like a user's program.
            Process::Bench(_) | Process::StartUp => 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn every_command_is_recognised_by_its_name() {
        let command = Process::command();
        command.clone().debug_assert();
        for process in command.get_subcommands() {
            assert!(Process::is_command(process.get_name().as_ref()), "{}", process.get_name());
        }
    }
}
