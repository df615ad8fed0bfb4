//! A process that cleans up after the launcher's death.
//!
//! A launcher that is killed by SIGKILL cannot clean up. The parent-death signal ends its ranks, but not their children (the
//! program of a shell script), and removes no file. The guard reads a pipe from the launcher, in a process group of its own.
//! When the pipe ends, it kills the process groups that were announced on it and not withdrawn.
//!
//! Each rank announces itself before it becomes the program, and has the pipe until then: by the time the launcher has announced
//! it, the program may run already, and the launcher be killed. The launcher does it too, for ranks that cannot open its files.

use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, Write};
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context, Result};
use clap::Args;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::{Pid, getpid};

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

    /// By which a rank announces itself.
    pub(crate) fn descriptor(&self) -> Option<i32> {
        self.pipe.as_ref().map(AsRawFd::as_raw_fd)
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
        self.pipe.as_mut().map_or(Ok(()), |pipe| write_line(pipe, line))
    }
}

/// Announces this process, as the leader of a group. The pipe is to be closed when it becomes the program, and not before.
///
/// # Errors
/// If the launcher has ended, or its files cannot be opened, as those of a program that this user may execute and not read.
pub(crate) fn announce(launcher: i32, descriptor: i32) -> io::Result<File> {
    let mut pipe = File::options().write(true).open(format!("/proc/{launcher}/fd/{descriptor}"))?;
    write_line(&mut pipe, format_args!("{}", getpid()))?;
    Ok(pipe)
}

/// In one call: who is killed in between leaves no part of a line.
fn write_line(pipe: &mut impl Write, line: fmt::Arguments<'_>) -> io::Result<()> {
    pipe.write_all(format!("{line}\n").as_bytes())
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
