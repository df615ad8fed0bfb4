//! Copies one stream of all ranks from their pipes to the launcher's own output.

use std::fs::File;
use std::io::{self, PipeReader, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::lines::Lines;

/// The length of a stream's end that is kept: enough for a panic message and a backtrace.
const TAIL: usize = 64 << 10;

/// The end of a rank's stream.
pub(super) struct Tail {
    pub(super) rank: u32,
    pub(super) text: Vec<u8>,
}

impl Tail {
    fn push(&mut self, bytes: &[u8]) {
        self.text.extend_from_slice(bytes);
        // Rarely, since it moves the kept bytes.
        if self.text.len() > 2 * TAIL {
            self.text.drain(..self.text.len() - TAIL);
        }
    }
}

/// The stream of one rank.
pub(super) struct Source {
    pipe: File,
    /// None: it is forwarded unchanged.
    lines: Option<Lines>,
    tail: Tail,
}

impl Source {
    pub(super) fn new(rank: u32, tag: bool, pipe: OwnedFd) -> Self {
        let tail = Tail { rank, text: Vec::new() };
        Self { pipe: pipe.into(), lines: tag.then(|| Lines::new(rank)), tail }
    }

    fn push(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        self.tail.push(bytes);
        match &mut self.lines {
            Some(lines) => lines.push(bytes, output),
            None => output.extend_from_slice(bytes),
        }
    }

    fn finish(mut self, output: &mut Vec<u8>) -> Tail {
        if let Some(lines) = &mut self.lines {
            lines.finish(output);
        }
        self.tail
    }
}

/// Prints until every pipe has ended, or until all ranks have ended and the pipes are empty: a rank's child that has left the
/// process group can keep a pipe open for ever.
///
/// If the reader of the launcher's output has closed it, this returns and closes the pipes, so that the ranks get EPIPE, as
/// they would without `--tag`.
pub(super) fn print(mut sources: Vec<Source>, ended: &PipeReader, mut output: File) -> Vec<Tail> {
    let mut tails = Vec::new();
    let mut bytes = vec![0; 1 << 16];
    let mut text = Vec::new();
    let mut running = true;
    while !sources.is_empty() {
        let Ok((ready, now_ended)) = wait(&sources, ended, running) else {
            return tails;
        };
        if now_ended && running {
            // The last output is in the pipes now: poll once more, without waiting.
            running = false;
            continue;
        }
        if ready.is_empty() {
            break;
        }
        for &index in ready.iter().rev() {
            let source = &mut sources[index];
            match source.pipe.read(&mut bytes) {
                Ok(count) if count > 0 => source.push(&bytes[..count], &mut text),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                _ => tails.push(sources.remove(index).finish(&mut text)),
            }
        }
        if output.write_all(&text).is_err() {
            return tails;
        }
        text.clear();
    }
    tails.extend(sources.into_iter().map(|source| source.finish(&mut text)));
    let _ = output.write_all(&text);
    tails
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
