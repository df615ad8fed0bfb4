//! What the ranks of a run say on standard error.
//!
//! Lines are passed on as they come. Complaints are kept: when a rank fails, the others fail because of it, and the user
//! is told in one line.

use std::io::{BufRead, BufReader, Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

/// How a complaint begins, and how a warning goes on, which is none.
const COMPLAINT: &[u8] = b"cobre-shm: ";
const WARNING: &[u8] = b"warning: ";

/// A complaint of a rank.
type Complaint = (usize, String);

/// The voices of all ranks.
pub(crate) struct Voices {
    sender: Sender<Complaint>,
    receiver: Receiver<Complaint>,
    listeners: Vec<JoinHandle<()>>,
}

impl Voices {
    pub(crate) fn new() -> Self {
        let (sender, receiver) = channel();
        Voices { sender, receiver, listeners: Vec::new() }
    }

    /// Listens to a rank until it ends.
    pub(crate) fn listen(&mut self, rank: usize, voice: impl Read + Send + 'static) {
        let sender = self.sender.clone();
        self.listeners.push(std::thread::spawn(move || {
            let own_name = format!("rank {rank}: ");
            for line in BufReader::new(voice).split(b'\n').map_while(Result::ok) {
                match complaint(&line) {
                    // Whoever is told knows who says it.
                    Some(text) => {
                        let text = text.strip_prefix(&own_name).unwrap_or(&text).to_owned();
                        // The receiver is there until all listeners have ended.
                        let _ = sender.send((rank, text));
                    }
                    // Nothing can be done where standard error is gone.
                    None => drop(std::io::stderr().write_all(&[&line[..], b"\n"].concat())),
                }
            }
        }));
    }

    /// What all ranks complain of, after they have ended: each complaint once, the first first.
    pub(crate) fn complaints(self) -> Vec<String> {
        for listener in self.listeners {
            // A listener does not panic.
            let _ = listener.join();
        }
        group(self.receiver.try_iter())
    }
}

/// What a line complains of.
fn complaint(line: &[u8]) -> Option<String> {
    let text = line.strip_prefix(COMPLAINT).filter(|text| !text.starts_with(WARNING))?;
    Some(String::from_utf8_lossy(text).into_owned())
}

fn group(complaints: impl Iterator<Item = Complaint>) -> Vec<String> {
    let mut groups: Vec<(Vec<usize>, String)> = Vec::new();
    for (rank, text) in complaints {
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
    fn the_same_complaint_is_made_once() {
        let mut voices = Voices::new();
        // One after the other, so that the order is known.
        for (rank, says) in [
            (2, "cobre-shm: rank 2: it is full\n"),
            (3, "cobre-shm: warning: it is hot\ncobre-shm: rank 3: rank 2 has ended\n"),
            (0, "iteration 1\ncobre-shm: rank 0: rank 2 has ended"),
        ] {
            voices.listen(rank, says.as_bytes());
            voices.listeners.pop().expect("it listens").join().expect("it ends");
        }
        assert_eq!(voices.complaints(), ["rank 2: it is full", "ranks 0, 3: rank 2 has ended"]);
    }
}
