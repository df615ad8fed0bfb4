//! The start of a rank's process, before it executes the program.
//!
//! The parent-death signal and the affinity belong to the process that sets them, and are preserved over exec. They are set
//! in this program and not between fork and exec, where few calls are safe.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Error, Result, anyhow};
use clap::Args;
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use super::program::CannotStart;
use super::{descriptors, guard, processors, signals};

#[derive(Args)]
pub(crate) struct RankArguments {
    /// The launcher's process id
    #[arg(long)]
    launcher: i32,

    /// The launcher's descriptor of the pipe to the guard
    #[arg(long)]
    guard: i32,

    /// The rank, and the number of ranks that share the processors
    #[arg(long, num_args = 2, value_names = ["RANK", "RANKS"])]
    bind: Option<Vec<usize>>,

    /// The limit on open files, if the launcher has raised its own
    #[arg(long)]
    descriptors: Option<u64>,

    #[arg(required = true, last = true)]
    program: Vec<OsString>,
}

/// Executes the program. Returns on failure only.
pub(crate) fn become_program(arguments: &RankArguments) -> Error {
    // Closed by exec.
    let _announced = guard::announce(arguments.launcher, arguments.guard);
    if let Err(error) = prepare(arguments) {
        return error;
    }
    let program = &arguments.program[0];
    let error = Command::new(program).args(&arguments.program[1..]).exec();
    CannotStart::new(program, &error).into()
}

fn prepare(arguments: &RankArguments) -> Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot set the parent-death signal")?;
    // The launcher may have died before the signal was set.
    if getppid().as_raw() != arguments.launcher {
        return Err(anyhow!("the launcher has ended"));
    }
    if let Some([rank, ranks]) = arguments.bind.as_deref() {
        processors::bind(*rank, *ranks)?;
    }
    if let Some(limit) = arguments.descriptors {
        descriptors::restore(limit)?;
    }
    signals::unblock()
}
