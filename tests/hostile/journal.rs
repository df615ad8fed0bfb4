//! The events that a rank records, for the oracle to read when all have ended.

use std::fs::File;
use std::io::Write;
use std::ops::Range;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use intranode::{Error, Operation};
use serde::{Deserialize, Serialize};

use crate::stamp::{Run, Stamp};

/// An event on a rank. Communicators and memory have names that are the same on all ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Event {
    /// A thread is about to call.
    Began { by: Stamp, comm: String },
    /// The call has returned.
    Ended { by: Stamp, comm: String, outcome: Outcome },
    /// A call was a success, and these calls took part in it, as its result shows.
    Met { by: Stamp, with: Vec<Stamp> },
    /// The rank is a member of a new communicator of these ranks of the job.
    Joined { comm: String, ranks: Vec<usize> },
    /// The rank has `&mut` to these ranges, and writes them if there is a stamp.
    Owns { memory: String, epoch: u32, ranges: Vec<Range<usize>>, stamp: Stamp },
    /// The contents of what the rank owns, before its first write in this epoch.
    Found { memory: String, epoch: u32, runs: Vec<Run> },
    /// The contents that the rank reads through `&`.
    Reads { memory: String, epoch: u32, runs: Vec<Run> },
    /// A collective has sent a buffer of this length.
    Sent { bytes: usize },
    /// A violation that the rank has detected by itself.
    Violation(String),
}

/// How a call ended.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// A success, with the call and its arguments.
    Ok(String),
    /// The arguments of this rank or another are invalid.
    Refused,
    Mismatch {
        round: u32,
        calls: String,
    },
    /// Two ranks claim the same element of a region.
    Overlap {
        first: usize,
        second: usize,
    },
    NoMemory,
    /// The communicator has ended, for this reason.
    Fatal(String),
    /// The communicator has ended because of two calls of this rank at the same time.
    Concurrent,
    /// A split has succeeded. Only the members of the new communicator agree on that, since the last round is theirs.
    Split,
    /// A split has failed because the parent or the new communicator has ended.
    NoSplit,
}

impl Outcome {
    /// The outcome of an error, without rounds and reasons that differ between ranks.
    pub(crate) fn of(error: &Error) -> Self {
        match error {
            Error::InvalidBufferSize { .. }
            | Error::InvalidRange { .. }
            | Error::InvalidRoot { .. }
            | Error::InvalidReduction { .. }
            | Error::OverlappingBlocks { operation: Operation::Allgatherv, .. }
            | Error::Refused { .. } => Outcome::Refused,
            Error::OverlappingBlocks { first, second, .. } => {
                Outcome::Overlap { first: *first, second: *second }
            }
            Error::Mismatch { round, calls, .. } => {
                Outcome::Mismatch { round: *round, calls: format!("{calls:?}") }
            }
            Error::AllocationFailed { .. } | Error::ProtectionFailed { .. } => Outcome::NoMemory,
            Error::ConcurrentUse { .. } => Outcome::Concurrent,
            Error::TimedOut { late, .. } => Outcome::Fatal(format!("{late:?} timed out")),
            Error::RankLeft { rank, .. } => Outcome::Fatal(format!("{rank} left")),
            Error::RankDied { rank, .. } => Outcome::Fatal(format!("{rank} died")),
            Error::Aborted { rank, code, .. } => Outcome::Fatal(format!("{rank} aborted with {code}")),
            Error::Interrupted { rank, .. } => Outcome::Fatal(format!("{rank} was interrupted")),
            Error::Poisoned { rank, reason, .. } => Outcome::Fatal(format!("{rank}: {reason}")),
            other => Outcome::Fatal(format!("unexpected: {other}")),
        }
    }

    pub(crate) fn is_fatal(&self) -> bool {
        matches!(self, Outcome::Fatal(_) | Outcome::Concurrent)
    }
}

/// Records events in their order. Also in a file, if the rank's process may end at any moment.
pub(crate) struct Journal {
    events: Mutex<Vec<Event>>,
    file: Option<File>,
}

impl Journal {
    pub(crate) fn in_memory() -> Self {
        Journal { events: Mutex::default(), file: None }
    }

    pub(crate) fn in_file(path: &Path) -> std::io::Result<Self> {
        Ok(Journal { events: Mutex::default(), file: Some(File::create(path)?) })
    }

    pub(crate) fn record(&self, event: Event) {
        let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(mut file) = self.file.as_ref() {
            let line = serde_json::to_string(&event).expect("an event is plain data");
            // In one call: another thread may end the process at any moment.
            file.write_all(format!("{line}\n").as_bytes()).expect("there is room for the journal");
        }
        events.push(event);
    }

    pub(crate) fn violation(&self, what: String) {
        self.record(Event::Violation(what));
    }

    pub(crate) fn into_events(self) -> Vec<Event> {
        self.events.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events of a rank that was a process. The last line may be incomplete.
pub(crate) fn read(path: &Path) -> Vec<Event> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map_while(|line| serde_json::from_str(line).ok()).collect()
}
