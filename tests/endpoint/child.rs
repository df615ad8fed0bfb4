//! Processes of a test. They are killed when it ends, however it ends.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, ExitCode, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::Role;

/// By which this program knows that it is a child.
pub(super) const FLAG: &str = "--child";

/// How long a line is waited for.
const LINE: Duration = Duration::from_secs(60);

/// Runs the function of this name.
pub(super) fn run(roles: &[Role], args: &[String]) -> ExitCode {
    // Its parent is the thread of a test: a test that is given up takes its children along.
    let tied = nix::sys::prctl::set_pdeathsig(Signal::SIGKILL);
    let role = roles.iter().find(|(name, _)| args.first().is_some_and(|arg| arg == name));
    let result = match (tied, role) {
        (Ok(()), Some((_, role))) => role(&args[1..]),
        (tied, _) => Err(anyhow::anyhow!("{tied:?}, no role {args:?}")),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{args:?}: {error:?}");
            ExitCode::FAILURE
        }
    }
}

/// In a child: a line to the test.
pub(super) fn say(line: &str) -> Result<()> {
    let mut output = std::io::stdout();
    writeln!(output, "{line}")?;
    Ok(output.flush()?)
}

/// In a child: the next line from the test; `None` when the test has closed the pipe.
pub(super) fn hear() -> Result<Option<String>> {
    let mut line = String::new();
    let read = std::io::stdin().lock().read_line(&mut line)?;
    Ok((read > 0).then(|| line.trim_end().to_owned()))
}

/// A process that ends with its owner, however that ends.
pub(super) struct Started(pub(super) std::process::Child);

impl Drop for Started {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub(super) struct Child {
    process: Started,
    lines: Receiver<String>,
}

impl Child {
    pub(super) fn start(role: &str, args: &[&str]) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args([FLAG, role]).args(args).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = Started(command.spawn()?);
        let output = BufReader::new(process.0.stdout.take().context("a pipe")?);
        let (sender, lines) = channel();
        thread::spawn(move || output.lines().map_while(Result::ok).try_for_each(|line| sender.send(line)));
        Ok(Child { process, lines })
    }

    pub(super) fn pid(&self) -> u32 {
        self.process.0.id()
    }

    pub(super) fn tell(&mut self, line: &str) -> Result<()> {
        Ok(writeln!(self.process.0.stdin.as_mut().context("a pipe")?, "{line}")?)
    }

    pub(super) fn line(&mut self) -> Result<String> {
        match self.lines.recv_timeout(LINE) {
            Ok(line) => Ok(line),
            Err(error) => bail!("no line: {error}, {:?}", self.process.0.try_wait()),
        }
    }

    pub(super) fn says(&mut self, expected: &str) -> Result<()> {
        let line = self.line()?;
        ensure!(line == expected, "{line:?} instead of {expected:?}");
        Ok(())
    }

    pub(super) fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill(Pid::from_raw(i32::try_from(self.pid())?), signal)?)
    }

    /// Kills it, and waits until it is gone.
    pub(super) fn kill(mut self) -> Result<ExitStatus> {
        self.process.0.kill()?;
        Ok(self.process.0.wait()?)
    }

    /// Closes its input, and waits until it has ended without an error.
    pub(super) fn ends(mut self) -> Result<()> {
        drop(self.process.0.stdin.take());
        let status = self.process.0.wait()?;
        ensure!(status.success(), "{status}");
        Ok(())
    }
}
