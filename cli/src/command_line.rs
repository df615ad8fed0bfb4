//! The user's command line.

use anyhow::Result;
use clap::{CommandFactory, Parser, Subcommand};

use crate::bench::{self, BenchArguments};
use crate::clean::{self, CleanArguments};
use crate::completions::{self, CompletionsArguments};
use crate::manual::{self, ManualArguments};
use crate::run::{self, RunArguments};
use crate::top::{self, TopArguments};

/// Starts the ranks of a job on this machine, shows what they do, measures the collectives, and removes what killed jobs have left
#[derive(Parser)]
#[command(name = "intranode", version)]
pub(crate) struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Run(RunArguments),
    Top(TopArguments),
    Bench(BenchArguments),
    Clean(CleanArguments),
    Completions(CompletionsArguments),
    Man(ManualArguments),
}

impl CommandLine {
    /// Executes the command. Returns the exit status.
    pub(crate) fn execute(self) -> Result<u8> {
        match self.command {
            Command::Run(arguments) => run::run(arguments),
            Command::Top(arguments) => top::run(&arguments),
            Command::Bench(arguments) => bench::run(&arguments),
            Command::Clean(arguments) => clean::run(&arguments),
            Command::Completions(arguments) => completions::print(&arguments, Self::command()),
            Command::Man(arguments) => manual::write(&arguments, Self::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        CommandLine::command().debug_assert();
    }

    #[test]
    fn every_command_and_argument_has_a_help_text() {
        fn check(command: &clap::Command) {
            let name = command.get_name();
            assert!(command.get_about().is_some(), "{name}");
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{name}: {}", argument.get_id());
            }
            command.get_subcommands().for_each(check);
        }
        let mut command = CommandLine::command();
        command.build();
        check(&command);
    }
}
