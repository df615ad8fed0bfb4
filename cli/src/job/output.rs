//! The ranks' output that goes through the launcher: standard error, of which the end is kept to tell why a rank has
//! failed, and with `--tag` everything, line by line, each with its rank in front.

mod lines;
mod print;

use std::fs::File;
use std::io::{IsTerminal, PipeWriter, pipe, stderr, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use nix::pty::openpty;
use nix::sys::termios::{cfmakeraw, tcgetattr};

use print::{Source, Tail, print};

/// The pipes of the ranks, collected while they are started.
pub(crate) struct Output {
    tag: bool,
    stdout: Vec<Source>,
    stderr: Vec<Source>,
}

/// Two threads at work, one for each stream, so that a slow reader of one does not hold up the other.
pub(crate) struct Printing {
    threads: [JoinHandle<Vec<Tail>>; 2],
    /// Dropped when all ranks have ended.
    running: PipeWriter,
}

impl Output {
    pub(crate) fn new(tag: bool) -> Self {
        Self { tag, stdout: Vec::new(), stderr: Vec::new() }
    }

    /// Makes the output of a rank that is about to be started go through the launcher. Returns the launcher's end if
    /// that will not be in the child.
    pub(crate) fn prepare(&self, command: &mut Command) -> Result<Option<OwnedFd>> {
        if self.tag {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
            return Ok(None);
        }
        if !stderr().is_terminal() {
            command.stderr(Stdio::piped());
            return Ok(None);
        }
        // A program that writes to a terminal finds one: it may use colours.
        let mut plain = tcgetattr(stderr()).context("cannot ask for the terminal's settings")?;
        cfmakeraw(&mut plain);
        let terminal = openpty(None, &plain).context("cannot make a terminal")?;
        command.stderr(terminal.slave);
        Ok(Some(terminal.master))
    }

    pub(crate) fn add(&mut self, rank: u32, child: &mut Child, terminal: Option<OwnedFd>) {
        let source = |pipe| Source::new(rank, self.tag, pipe);
        self.stdout.extend(child.stdout.take().map(|pipe| source(pipe.into())));
        self.stderr.extend(child.stderr.take().map(Into::into).or(terminal).map(source));
    }

    pub(crate) fn start(self) -> Result<Printing> {
        let (ended, running) = pipe().context("cannot make a pipe")?;
        let also_ended = ended.try_clone().context("cannot copy a descriptor")?;
        let out = File::from(stdout().as_fd().try_clone_to_owned().context("cannot copy stdout")?);
        let err = File::from(stderr().as_fd().try_clone_to_owned().context("cannot copy stderr")?);
        let threads = [
            thread::spawn(move || print(self.stdout, &ended, out)),
            thread::spawn(move || print(self.stderr, &also_ended, err)),
        ];
        Ok(Printing { threads, running })
    }
}

impl Printing {
    /// Returns when everything that the ranks have written is printed, with the end of what `rank` has written to
    /// standard error.
    pub(crate) fn finish(self, rank: Option<u32>) -> Vec<u8> {
        drop(self.running);
        let [stdout, stderr] = self.threads.map(|thread| thread.join().unwrap_or_default());
        drop(stdout);
        let tail = stderr.into_iter().find(|tail| Some(tail.rank) == rank);
        tail.map_or(Vec::new(), |tail| tail.text)
    }
}
