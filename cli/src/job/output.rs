//! The ranks' output through the launcher: standard error, whose end is kept for the reason of a failure; with `--tag` both
//! streams, line by line, with the rank as a prefix.

mod lines;
mod print;

use std::fs::File;
use std::io::{self, IsTerminal, PipeWriter, pipe, stderr, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread::{Builder, JoinHandle};

use anyhow::{Context, Error, Result};
use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::pty::openpty;
use nix::sys::termios::{cfmakeraw, tcgetattr};

use print::{Printed, Source, print};

/// The ranks' pipes, collected during the start.
pub(crate) struct Output {
    tag: bool,
    stdout: Vec<Source>,
    stderr: Vec<Source>,
}

/// A thread for each stream, so that a slow reader of one does not delay the other.
pub(crate) struct Printing {
    threads: [JoinHandle<Printed>; 2],
    /// Dropped when all ranks have ended.
    running: PipeWriter,
}

impl Output {
    pub(crate) fn new(tag: bool) -> Self {
        Self { tag, stdout: Vec::new(), stderr: Vec::new() }
    }

    /// Redirects the output of a rank to be started through the launcher. Returns the launcher's end if the child does not
    /// have it.
    pub(crate) fn prepare(&self, command: &mut Command) -> Result<Option<OwnedFd>> {
        if self.tag {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            return Ok(None);
        }
        if !stderr().is_terminal() {
            command.stderr(Stdio::piped());
            return Ok(None);
        }
        // If standard error is a terminal, the program gets one too: it may use colours.
        let mut plain = tcgetattr(stderr()).context("cannot read the terminal's settings")?;
        cfmakeraw(&mut plain);
        let terminal = openpty(None, &plain).context("cannot create a terminal")?;
        // The ranks need none of their own and of each other's.
        for end in [&terminal.master, &terminal.slave] {
            fcntl(end, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).context("cannot create a terminal")?;
        }
        command.stderr(terminal.slave);
        Ok(Some(terminal.master))
    }

    pub(crate) fn add(&mut self, rank: u32, child: &mut Child, terminal: Option<OwnedFd>) {
        let source = |pipe| Source::new(rank, self.tag, pipe);
        self.stdout.extend(child.stdout.take().map(|pipe| source(pipe.into())));
        self.stderr.extend(child.stderr.take().map(Into::into).or(terminal).map(source));
    }

    pub(crate) fn start(self) -> Result<Printing> {
        let (ended, running) = pipe().context("cannot create a pipe")?;
        let also_ended = ended.try_clone().context("cannot duplicate a descriptor")?;
        let out = File::from(stdout().as_fd().try_clone_to_owned().context("cannot duplicate stdout")?);
        let err = File::from(stderr().as_fd().try_clone_to_owned().context("cannot duplicate stderr")?);
        let refused = "cannot start a thread that prints";
        let threads = [
            Builder::new().spawn(move || print(self.stdout, &ended, out)).context(refused)?,
            Builder::new().spawn(move || print(self.stderr, &also_ended, err)).context(refused)?,
        ];
        Ok(Printing { threads, running })
    }
}

impl Printing {
    /// Waits until the output of all ranks is printed. Returns the end of the standard error of `rank`, and why output was lost.
    pub(crate) fn finish(self, rank: Option<u32>) -> (Vec<u8>, Vec<Error>) {
        drop(self.running);
        let [stdout, stderr] = self.threads.map(|thread| thread.join().unwrap_or_default());
        let tail = stderr.tails.into_iter().find(|tail| Some(tail.rank) == rank);
        let of = |name: &str, lost: Option<io::Error>| {
            lost.map(|error| Error::new(error).context(format!("cannot write the ranks' standard {name}")))
        };
        let lost = of("output", stdout.lost).into_iter().chain(of("error", stderr.lost));
        (tail.map_or(Vec::new(), |tail| tail.text), lost.collect())
    }
}
