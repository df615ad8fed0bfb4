//! The standard error of the ranks of a run.
//!
//! Lines are passed on as they arrive. Errors are collected: when a rank fails, the others fail because of it, and all errors
//! are printed in one line.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// The start of an error, and of a warning, which is none.
const ERROR: &[u8] = b"cobre-shm: ";
const WARNING: &[u8] = b"warning: ";

/// An error of a rank.
type RankError = (usize, String);

/// Reads the standard error of all ranks.
pub(crate) struct RankStderr {
    sender: Sender<RankError>,
    receiver: Receiver<RankError>,
    readers: Vec<JoinHandle<()>>,
}

impl RankStderr {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = channel();
        RankStderr { sender, receiver, readers: Vec::new() }
    }

    /// Reads a rank's standard error until it ends.
    pub(crate) fn read(&mut self, rank: usize, stderr: impl Read + Send + 'static) {
        let sender = self.sender.clone();
        self.readers.push(std::thread::spawn(move || {
            let prefix = format!("rank {rank}: ");
            for line in BufReader::new(stderr).split(b'\n').map_while(Result::ok) {
                match error(&line) {
                    // The rank is added once for all ranks with this error.
                    Some(text) => {
                        let text = text.strip_prefix(&prefix).unwrap_or(&text).to_owned();
                        // The receiver lives until all readers have ended.
                        let _ = sender.send((rank, text));
                    }
                    // An error of our own standard error is ignored.
                    None => drop(std::io::stderr().write_all(&[&line[..], b"\n"].concat())),
                }
            }
        }));
    }

    /// The errors of all ranks, after they have ended: each once, in the order of their first occurrence.
    pub(crate) fn errors(self) -> Vec<String> {
        for reader in self.readers {
            // A reader does not panic.
            let _ = reader.join();
        }
        group(self.receiver.try_iter())
    }
}

/// The error in a line.
fn error(line: &[u8]) -> Option<String> {
    let text = line.strip_prefix(ERROR).filter(|text| !text.starts_with(WARNING))?;
    Some(String::from_utf8_lossy(text).into_owned())
}

fn group(errors: impl Iterator<Item = RankError>) -> Vec<String> {
    let mut groups: Vec<(Vec<usize>, String)> = Vec::new();
    for (rank, text) in errors {
        match groups.iter_mut().find(|(_, known)| *known == text) {
            Some((ranks, _)) => ranks.push(rank),
            None => groups.push((vec![rank], text)),
        }
    }
    let line = |(mut ranks, text): (Vec<usize>, String)| {
        ranks.sort_unstable();
        ranks.dedup();
        let numbers: Vec<String> = ranks.iter().map(usize::to_string).collect();
        let plural = if ranks.len() == 1 { "" } else { "s" };
        format!("rank{plural} {}: {text}", numbers.join(", "))
    };
    groups.into_iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_error_is_printed_once() {
        let mut stderr = RankStderr::new();
        // One after the other, so that the order is known.
        for (rank, text) in [
            (2, "cobre-shm: rank 2: it is full\n"),
            (3, "cobre-shm: warning: it is hot\ncobre-shm: rank 3: rank 2 has ended\n"),
            (0, "iteration 1\ncobre-shm: rank 0: rank 2 has ended"),
        ] {
            stderr.read(rank, text.as_bytes());
            stderr.readers.pop().expect("it reads").join().expect("it ends");
        }
        assert_eq!(stderr.errors(), ["rank 2: it is full", "ranks 0, 3: rank 2 has ended"]);
    }
}
