//! A process that outlives the launcher, if only by a moment.
//!
//! A launcher that is killed outright can clean up nothing. The parent-death signal ends its ranks, but not
//! what they have started themselves (the program behind a shell script), and removes no file. The guard
//! sleeps on a pipe from the launcher, in a process group of its own. When the pipe ends, it kills the
//! process groups that were announced on it and not taken back.

use std::collections::BTreeSet;
use std::fmt;
use std::io::{self, BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::arguments::GuardArguments;
use crate::leftovers;

/// The launcher's end. To drop it is to end the guard, and with it every group that is still announced.
pub(crate) struct Guard {
    process: Child,
    /// None only while it is dropped.
    pipe: Option<ChildStdin>,
}

impl Guard {
    pub(crate) fn start(name: Option<&str>) -> Result<Self> {
        let itself = std::env::current_exe().context("cannot find the launcher's own file")?;
        let mut command = Command::new(itself);
        command.arg("__guard");
        if let Some(name) = name {
            command.args(["--name", name]);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        let mut process = command.spawn().context("cannot start the guard")?;
        let pipe = process.stdin.take();
        Ok(Self { process, pipe })
    }

    pub(crate) fn watch(&mut self, group: Pid) -> Result<()> {
        self.write(format_args!("{group}")).context("the guard has ended")
    }

    /// To be called while the group's leader is not collected: afterwards the number may be another's.
    pub(crate) fn forget(&mut self, group: Pid) {
        // A guard that has ended kills nobody.
        let _ = self.write(format_args!("-{group}"));
    }

    fn write(&mut self, line: fmt::Arguments<'_>) -> io::Result<()> {
        self.pipe.as_mut().map_or(Ok(()), |pipe| writeln!(pipe, "{line}"))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.pipe = None;
        let _ = self.process.wait();
    }
}

/// The guard itself.
pub(crate) fn stand(arguments: &GuardArguments) -> Result<u8> {
    let mut groups = BTreeSet::new();
    for line in io::stdin().lock().lines() {
        let number: i32 = line?.parse().context("not the number of a process group")?;
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
        leftovers::remove_at_last(name);
    }
    Ok(0)
}
