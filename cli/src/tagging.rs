//! The ranks' output that goes through the launcher: standard error, of which it keeps the end to tell why a rank has
//! failed, and with `--tag` everything, line by line, each with its rank in front.

use std::fs::File;
use std::io::{self, IsTerminal, PipeReader, PipeWriter, Read, Write, pipe, stderr, stdout};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::thread::{self, JoinHandle};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::pty::openpty;
use nix::sys::termios::{cfmakeraw, tcgetattr};

/// A line that is longer is cut: a program that never ends its line must not fill the launcher's memory.
const LONGEST_LINE: usize = 1 << 20;

/// How much of a rank's standard error is kept: room for a panic's message, and for a backtrace after it.
const KEPT: usize = 64 << 10;

/// The pipes of the ranks, collected while they are started.
pub(crate) struct Tagging {
    tag: bool,
    stdout: Vec<Source>,
    stderr: Vec<Source>,
}

/// Two threads at work, one for each stream, so that neither waits for the other's reader.
pub(crate) struct Printing {
    threads: [JoinHandle<Vec<LastWords>>; 2],
    /// Dropped when all ranks have ended.
    running: PipeWriter,
}

impl Tagging {
    pub(crate) fn new(tag: bool) -> Self {
        Self { tag, stdout: Vec::new(), stderr: Vec::new() }
    }

    /// Has the output of a rank that is about to be started go through the launcher. Returns the launcher's end, where
    /// that is not in the child.
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
        let last = stderr.into_iter().find(|words| Some(words.rank) == rank);
        last.map_or(Vec::new(), |words| words.text)
    }
}

/// The end of a stream.
struct LastWords {
    rank: u32,
    text: Vec<u8>,
}

impl LastWords {
    fn push(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
        // Not each time: what is in front moves.
        if self.text.len() > 2 * KEPT {
            self.text.drain(..self.text.len() - KEPT);
        }
    }
}

/// One stream of one rank.
struct Source {
    pipe: File,
    /// None: it is handed on as it comes.
    lines: Option<Lines>,
    last: LastWords,
}

impl Source {
    fn new(rank: u32, tag: bool, pipe: OwnedFd) -> Self {
        let last = LastWords { rank, text: Vec::new() };
        Self { pipe: pipe.into(), lines: tag.then(|| Lines::new(rank)), last }
    }

    fn push(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        self.last.push(bytes);
        match &mut self.lines {
            Some(lines) => lines.push(bytes, output),
            None => output.extend_from_slice(bytes),
        }
    }

    fn finish(mut self, output: &mut Vec<u8>) -> LastWords {
        if let Some(lines) = &mut self.lines {
            lines.finish(output);
        }
        self.last
    }
}

/// Prints until every pipe has ended, or all ranks have and the pipes are empty: something that was started by
/// a rank and left its process group can keep a pipe open for ever.
///
/// If nobody reads the launcher's output any more, this returns and closes the pipes, so that the ranks meet the
/// broken pipe that they would have met without `--tag`.
fn print(mut sources: Vec<Source>, ended: &PipeReader, mut output: File) -> Vec<LastWords> {
    let mut last = Vec::new();
    let mut bytes = vec![0; 1 << 16];
    let mut tagged = Vec::new();
    let mut running = true;
    while !sources.is_empty() {
        let Ok((ready, now_ended)) = wait(&sources, ended, running) else {
            return last;
        };
        if now_ended && running {
            // What was written before is in the pipes now: look once more, without waiting.
            running = false;
            continue;
        }
        if ready.is_empty() {
            break;
        }
        for &index in ready.iter().rev() {
            let source = &mut sources[index];
            match source.pipe.read(&mut bytes) {
                Ok(count) if count > 0 => source.push(&bytes[..count], &mut tagged),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => last.push(sources.remove(index).finish(&mut tagged)),
            }
        }
        if output.write_all(&tagged).is_err() {
            return last;
        }
        tagged.clear();
    }
    last.extend(sources.into_iter().map(|source| source.finish(&mut tagged)));
    let _ = output.write_all(&tagged);
    last
}

/// The sources that can be read, and whether the ranks have ended.
fn wait(sources: &[Source], ended: &PipeReader, running: bool) -> nix::Result<(Vec<usize>, bool)> {
    let mut descriptors: Vec<PollFd> =
        sources.iter().map(|source| PollFd::new(source.pipe.as_fd(), PollFlags::POLLIN)).collect();
    descriptors.push(PollFd::new(ended.as_fd(), PollFlags::POLLIN));
    let timeout = if running { PollTimeout::NONE } else { PollTimeout::ZERO };
    while let Err(error) = poll(&mut descriptors, timeout) {
        if error != Errno::EINTR {
            return Err(error);
        }
    }
    let is_ready = |index: &usize| descriptors[*index].any() == Some(true);
    let ready = (0..sources.len()).filter(is_ready).collect();
    Ok((ready, is_ready(&sources.len())))
}

/// Cuts a stream into lines with the rank in front.
struct Lines {
    tag: String,
    partial: Vec<u8>,
}

impl Lines {
    fn new(rank: u32) -> Self {
        Self { tag: format!("[{rank}] "), partial: Vec::new() }
    }

    fn push(&mut self, bytes: &[u8], tagged: &mut Vec<u8>) {
        for piece in bytes.split_inclusive(|&byte| byte == b'\n') {
            self.partial.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.partial.len() >= LONGEST_LINE {
                self.finish(tagged);
            }
        }
    }

    /// Ends the line, whether or not its end has been seen.
    fn finish(&mut self, tagged: &mut Vec<u8>) {
        if self.partial.is_empty() {
            return;
        }
        tagged.extend_from_slice(self.tag.as_bytes());
        tagged.append(&mut self.partial);
        if !tagged.ends_with(b"\n") {
            tagged.push(b'\n');
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tagged(pieces: &[&str]) -> String {
        let mut lines = Lines::new(3);
        let mut tagged = Vec::new();
        for piece in pieces {
            lines.push(piece.as_bytes(), &mut tagged);
        }
        lines.finish(&mut tagged);
        String::from_utf8(tagged).unwrap()
    }

    #[test]
    fn lines_are_whole_however_they_arrive() {
        assert_eq!(tagged(&["a\nb\n"]), "[3] a\n[3] b\n");
        assert_eq!(tagged(&["a", "b\nc", "\n\n"]), "[3] ab\n[3] c\n[3] \n");
    }

    #[test]
    fn a_last_line_without_its_end_is_not_lost() {
        assert_eq!(tagged(&["a\nb"]), "[3] a\n[3] b\n");
        assert_eq!(tagged(&[]), "");
    }

    #[test]
    fn a_line_without_end_does_not_grow_for_ever() {
        let mut lines = Lines::new(0);
        let mut tagged = Vec::new();
        for _ in 0..20 {
            lines.push(&[b'x'; 1 << 16], &mut tagged);
        }
        assert_eq!(tagged.len(), "[0] ".len() + LONGEST_LINE + 1);
    }
}
