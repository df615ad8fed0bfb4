//! Processes that are measured with, each bound to a core.

use std::io::{BufRead, BufReader};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::OnceLock;

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The two processors that are used: the first two that the program was started on. Asked for first before it is bound.
pub(crate) fn processors() -> Result<[usize; 2]> {
    static FOUND: OnceLock<[usize; 2]> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(*found);
    }
    let allowed = sched_getaffinity(Pid::from_raw(0))?;
    let mut found = (0..CpuSet::count()).filter(|number| allowed.is_set(*number).unwrap_or(false));
    let (first, second) = (found.next().context("a processor")?, found.next());
    let second = second.context("two processors are needed: both sides poll")?;
    Ok(*FOUND.get_or_init(|| [first, second]))
}

/// Both, as taskset takes them.
pub(crate) fn list() -> Result<String> {
    let [first, second] = processors()?;
    Ok(format!("{first},{second}"))
}

/// Binds this thread, and what it starts, to a processor.
pub(crate) fn bind(processor: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(processor)?;
    Ok(sched_setaffinity(Pid::from_raw(0), &set)?)
}

/// A server that is killed with this value. It runs as long as its input is open, too.
pub(crate) struct Server {
    pub(crate) process: Child,
    lines: BufReader<ChildStdout>,
}

impl Server {
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let lines = BufReader::new(process.stdout.take().context("a pipe")?);
        Ok(Server { process, lines })
    }

    /// The next line that it prints.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        ensure!(self.lines.read_line(&mut line)? > 0, "it has ended: {:?}", self.process.try_wait());
        Ok(line.trim_end().to_owned())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What a command prints, which has to succeed.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
