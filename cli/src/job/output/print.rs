//! Copies one stream of all ranks from their pipes to the launcher's own output.

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::lines::Lines;
use crate::say::write_all;

/// The length of a stream's end that is kept: enough for a panic message and a backtrace.
const TAIL: usize = 64 << 10;

/// More than a terminal holds that nobody has read.
const TERMINAL: usize = 1 << 20;

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

/// What is left of a stream when it is printed.
#[derive(Default)]
pub(super) struct Printed {
    pub(super) tails: Vec<Tail>,
    /// Why some of it was not. A reader that has gone is no reason: the ranks are told.
    pub(super) lost: Option<io::Error>,
}

/// The stream of one rank.
pub(super) struct Source {
    pipe: File,
    /// None: it is forwarded unchanged.
    lines: Option<Lines>,
    tail: Tail,
    /// The bytes that are still to be printed; None while ranks write.
    left: Option<usize>,
}

impl Source {
    pub(super) fn new(rank: u32, tag: bool, pipe: OwnedFd) -> Self {
        let tail = Tail { rank, text: Vec::new() };
        Self { pipe: pipe.into(), lines: tag.then(|| Lines::new(rank)), tail, left: None }
    }

    fn push(&mut self, bytes: &[u8], output: &mut Vec<u8>) {
        self.tail.push(bytes);
        match &mut self.lines {
            Some(lines) => lines.push(bytes, output),
            None => output.extend_from_slice(bytes),
        }
    }

    /// All ranks have ended: what they have written is in the pipe. What comes behind it is of other processes.
    fn rank_has_ended(&mut self) {
        let room = fcntl(&self.pipe, FcntlArg::F_GETPIPE_SZ).ok().and_then(|room| usize::try_from(room).ok());
        self.left = Some(room.unwrap_or(TERMINAL));
    }

    /// Reads and takes over what is there. Returns whether more may come.
    fn read(&mut self, bytes: &mut [u8], output: &mut Vec<u8>) -> bool {
        let most = self.left.map_or(bytes.len(), |left| left.min(bytes.len()));
        match self.pipe.read(&mut bytes[..most]) {
            Ok(count) if count > 0 => {
                self.push(&bytes[..count], output);
                self.left = self.left.map(|left| left - count);
                self.left != Some(0)
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => true,
            _ => false,
        }
    }

    fn finish(mut self, output: &mut Vec<u8>) -> Tail {
        if let Some(lines) = &mut self.lines {
            lines.finish(output);
        }
        self.tail
    }
}

/// Prints until every pipe has ended, or until all ranks have ended and what they have written is printed: a rank's child that
/// has left the process group can keep a pipe open for ever, and write to it.
///
/// If the reader of the launcher's output has closed it, or it cannot be written, this returns and closes the pipes, so that the
/// ranks get EPIPE, as they would of a reader without `--tag`.
pub(super) fn print(mut sources: Vec<Source>, ended: &PipeReader, mut output: File) -> Printed {
    let mut tails = Vec::new();
    let mut bytes = vec![0; 1 << 16];
    let mut text = Vec::new();
    let mut running = true;
    while !sources.is_empty() {
        let Ok((ready, now_ended)) = wait(&sources, ended, running) else {
            return Printed { tails, lost: None };
        };
        if now_ended && running {
            // The last output is in the pipes now: poll without waiting from now on.
            running = false;
            sources.iter_mut().for_each(Source::rank_has_ended);
            continue;
        }
        if ready.is_empty() {
            break;
        }
        for &index in ready.iter().rev() {
            if !sources[index].read(&mut bytes, &mut text) {
                tails.push(sources.remove(index).finish(&mut text));
            }
        }
        if let Err(error) = write_all(&mut output, &text) {
            // What came before is needed for the message of a panic.
            tails.extend(sources.into_iter().map(|source| source.tail));
            return Printed { tails, lost: lost(error) };
        }
        text.clear();
    }
    tails.extend(sources.into_iter().map(|source| source.finish(&mut text)));
    let lost = write_all(&mut output, &text).err().and_then(lost);
    Printed { tails, lost }
}

fn lost(error: io::Error) -> Option<io::Error> {
    (error.kind() != io::ErrorKind::BrokenPipe).then_some(error)
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

#[cfg(test)]
mod tests {
    use std::io::{Write, pipe};

    use super::*;

    #[test]
    fn of_a_pipe_that_is_filled_again_and_again_the_rank_s_part_is_read() {
        let (reader, mut writer) = pipe().unwrap();
        writer.write_all(b"the rank's").unwrap();
        let mut source = Source::new(0, false, reader.into());
        source.rank_has_ended();
        let (mut bytes, mut output) = ([0; 1 << 12], Vec::new());
        while source.read(&mut bytes, &mut output) {
            assert!(output.len() <= 1 << 20, "{} bytes", output.len());
            writer.write_all(&[b'x'; 1 << 12]).unwrap();
        }
        assert!(output.starts_with(b"the rank'sx"));
    }
}
