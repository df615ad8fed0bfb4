//! What a rank's process does before it becomes the program.
//!
//! The parent-death signal and the affinity belong to the process that sets them and outlive exec. Setting
//! them here, in a program of its own, needs no code between fork and exec, where little is safe.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Error, Result, anyhow};
use nix::sys::prctl;
use nix::sys::signal::Signal;
use nix::unistd::getppid;

use crate::arguments::RankArguments;
use crate::program::CannotStart;
use crate::{processors, signals};

/// Returns only if it fails.
pub(crate) fn become_program(arguments: &RankArguments) -> Error {
    if let Err(error) = prepare(arguments) {
        return error;
    }
    let program = &arguments.program[0];
    let error = Command::new(program).args(&arguments.program[1..]).exec();
    CannotStart::new(program, &error).into()
}

fn prepare(arguments: &RankArguments) -> Result<()> {
    prctl::set_pdeathsig(Signal::SIGKILL).context("cannot tie the rank's life to the launcher's")?;
    // The launcher may have died before that took effect.
    if getppid().as_raw() != arguments.launcher {
        return Err(anyhow!("the launcher has ended"));
    }
    if let Some([rank, ranks]) = arguments.bind.as_deref() {
        processors::bind(*rank, *ranks)?;
    }
    signals::unblock()
}
