//! The program `cobre-shm`: train and simulate a Cobre case over the processes of one machine, or of several nodes.

/// A line on standard error. A reader that has gone is no reason to end a run: `eprintln!` and `println!` panic then.
macro_rules! tell {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stderr(), $($text)*);
    }};
}

/// The same on standard output.
macro_rules! show {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod case;
mod compare;
mod demo;
mod failure;
mod hosts;
mod json;
mod launch;
mod matrix;
mod memory;
mod policy;
mod pss;
mod rank_stderr;
mod report;
mod run;
mod simulation;
mod stop;
mod study;
mod threads;
mod training;
mod trial;

use std::error::Error;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::ShmBackend;
use crate::driver::failure::{Failure, Kind, Outcome};

/// Train and simulate a Cobre case over the processes of one machine, or of several nodes.
#[derive(Parser)]
#[command(name = "cobre-shm", version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Load a case, train its policy, simulate it, and write what `cobre run` writes.
    Run(run::Arguments),
    /// Write a complete case directory of a made-up river system.
    Case(case::Arguments),
    /// Compare two output directories, bit for bit.
    Compare(compare::Arguments),
    /// Train one case with Cobre's local backend and with several numbers of ranks, and compare.
    Demo(demo::Arguments),
    /// Compare every method of cut selection, with every number of ranks and threads, with Cobre's local backend.
    Matrix(matrix::Arguments),
    /// Measure the memory for a case's data in one shared copy, and in one copy for each rank.
    Memory(memory::Arguments),
}

/// The program `cobre-shm`, with the command line of this process.
pub fn program() -> ExitCode {
    let command = match command() {
        Ok(command) => command,
        Err(code) => return code,
    };
    let outcome = match command {
        Command::Run(arguments) => run::execute(&arguments),
        Command::Case(arguments) => case::execute(&arguments),
        Command::Compare(arguments) => compare::execute(&arguments),
        Command::Demo(arguments) => demo::execute(&arguments),
        Command::Matrix(arguments) => matrix::execute(&arguments),
        Command::Memory(arguments) => memory::execute(&arguments),
    };
    ended(outcome)
}

/// The same for one rank of a job whose ranks have been started, and are connected by `connect`: over MPI, for example. It has
/// `run` and `memory`. What connects the ranks has to live until this returns.
pub fn program_of_rank(connect: impl FnOnce() -> Result<ShmBackend, Box<dyn Error>>) -> ExitCode {
    let command = match command() {
        Ok(command) => command,
        Err(code) => return code,
    };
    let connect = || connect().map_err(|error| Failure::new(Kind::Internal, error));
    ended(match command {
        Command::Run(arguments) => connect().and_then(|comm| run::execute_rank(&arguments, comm)),
        Command::Memory(arguments) => connect().and_then(|comm| memory::execute_rank(&arguments, &comm)),
        _ => Err(Failure::new(
            Kind::Input,
            "ranks that a launcher has started do run and memory; for the rest there is cobre-shm",
        )),
    })
}

/// The command of this process's command line. Where there is none the text for the user has been printed, and this is the exit code.
fn command() -> Result<Command, ExitCode> {
    Arguments::try_parse().map(|arguments| arguments.command).map_err(|refused| {
        // A reader that has gone is no reason to fail.
        let _ = refused.print();
        // Help is no error, and goes to standard output.
        if refused.use_stderr() { ExitCode::from(Kind::Input as u8) } else { ExitCode::SUCCESS }
    })
}

fn ended(outcome: Outcome<ExitCode>) -> ExitCode {
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}
