//! `intranode run` starts the ranks of a job, `intranode top` shows what they do, `intranode bench` measures the collectives,
//! `intranode clean` removes the shared memory that killed jobs have left.
//!
//! Linux only: the launcher relies on signalfd, process groups and the parent-death signal.
//!
//! The layers from the top down: this file; the user's commands ([`command_line`]) and those with which the launcher starts
//! itself ([`process`]); a module for each command, with its arguments; [`job`], which starts and ends ranks; [`report`], of what they did;
//! [`values`]; [`say`]. A
//! file imports only from lower layers (tests/layers.rs in the repository).

mod bench;
mod clean;
mod command_line;
mod completions;
mod job;
mod manual;
mod process;
mod report;
mod run;
mod say;
mod top;
mod values;

use std::process::ExitCode;

use clap::Parser;

use command_line::CommandLine;
use job::LAUNCHER_FAILED;
use job::program::CannotStart;
use process::Process;

/// Set by `benches/heap.py`: then what the ranks of a benchmark send lies where the others can read it.
#[cfg(shared_heap)]
#[global_allocator]
static HEAP: intranode::SharedHeap = intranode::SharedHeap::new();

fn main() -> ExitCode {
    let is_process = std::env::args_os().nth(1).is_some_and(|first| Process::is_command(&first));
    let (failed, outcome) = if is_process {
        let process = Process::parse();
        (process.failed(), process.execute())
    } else {
        (LAUNCHER_FAILED, CommandLine::parse().execute())
    };
    match outcome {
        Ok(status) => {
            let Some(error) = say::lost() else { return ExitCode::from(status) };
            say::error(format_args!("cannot write to standard output: {error}"));
            ExitCode::from(if status == 0 { failed } else { status })
        }
        Err(error) => {
            say::error(format_args!("{error:#}"));
            ExitCode::from(error.downcast_ref::<CannotStart>().map_or(failed, CannotStart::status))
        }
    }
}
