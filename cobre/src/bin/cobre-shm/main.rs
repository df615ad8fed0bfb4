//! Train and simulate a Cobre case over the processes of one machine.

mod case;
mod compare;
mod demo;
mod failure;
mod json;
mod launch;
mod matrix;
mod memory;
mod policy;
mod rank_stderr;
mod report;
mod run;
mod simulation;
mod stop;
mod study;
mod threads;
mod training;
mod trial;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cobre-shm", version, about)]
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

fn main() -> ExitCode {
    let outcome = match Arguments::parse().command {
        Command::Run(arguments) => run::execute(&arguments),
        Command::Case(arguments) => case::execute(&arguments),
        Command::Compare(arguments) => compare::execute(&arguments),
        Command::Demo(arguments) => demo::execute(&arguments),
        Command::Matrix(arguments) => matrix::execute(&arguments),
        Command::Memory(arguments) => memory::execute(&arguments),
    };
    match outcome {
        Ok(code) => code,
        Err(failure) => {
            failure.print();
            failure.exit_code()
        }
    }
}
