//! A process that cleans up after the launcher's death.
//!
//! A launcher that is killed by SIGKILL cannot clean up. The parent-death signal ends its ranks, but not their children (the
//! program of a shell script), and removes no file. The guard reads a pipe from the launcher, in a process group of its own.
//! When the pipe ends, it kills the process groups that were announced on it and not withdrawn.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result};
use clap::Args;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::cleanup;

#[derive(Args)]
pub(crate) struct GuardArguments {
    /// The job whose files to remove, if the launcher chose its name
    #[arg(long)]
    name: Option<String>,
}

/// The launcher's handle. Drop ends the guard, and every group that is still announced.
pub(crate) struct Guard {
    process: Child,
    /// None during drop only.
    pipe: Option<ChildStdin>,
}

impl Guard {
    pub(crate) fn start(name: Option<&str>) -> Result<Self> {
        let own_path = std::env::current_exe().context("cannot find the launcher's own file")?;
        let mut command = Command::new(own_path);
        command.arg("__guard");
        if let Some(name) = name {
            command.args(["--name", name]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut process = command.spawn().context("cannot start the guard")?;
        let pipe = process.stdin.take();
        Ok(Self { process, pipe })
    }

    pub(crate) fn announce(&mut self, group: Pid) -> Result<()> {
        self.write(format_args!("{group}")).context("the guard has ended")
    }

    /// Must be called before the group's leader is reaped: afterwards the id can be reused.
    pub(crate) fn withdraw(&mut self, group: Pid) {
        // An error means that the guard has ended.
        let _ = self.write(format_args!("-{group}"));
    }

    /// Reaps it if somebody has killed it.
    pub(crate) fn reap(&mut self) {
        let _ = self.process.try_wait();
    }

    fn write(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        // In one call: a launcher that is killed in between leaves no part of a line.
        self.pipe.as_mut().map_or(Ok(()), |pipe| pipe.write_all(format!("{line}\n").as_bytes()))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.pipe = None;
        let _ = self.process.wait();
    }
}

/// Runs in the guard's process.
pub(crate) fn run(arguments: &GuardArguments) -> Result<u8> {
    let mut groups = BTreeSet::new();
    for line in io::stdin().lock().lines() {
        // The launcher has ended within it. The groups before it are killed all the same.
        let Ok(number) = line?.parse::<i32>() else { break };
        if number > 0 {
            groups.insert(number);
        } else {
            groups.remove(&-number);
        }
    }
    for group in groups {
        let _ = killpg(Pid::from_raw(group), Signal::SIGKILL);
    }
    if let Some(name) = &arguments.name {
        cleanup::remove_when_unused(name);
    }
    Ok(0)
}
