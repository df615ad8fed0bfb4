//! The state of a job: which ranks wait for which others, in what operation, since when.
//!
//! A sampler reads it from the segment, without the help of the other ranks, which may be stopped. It reads only words
//! that the collectives write anyway, and it is not synchronised with them: two ranks' states can be a round apart.
//!
//! Ranks store no times, since reading the clock costs as much as a small collective. A sampler samples the state
//! periodically, and derives from the samples since when a rank's has not changed.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::codes::Codes;
use crate::error::Operation;
use crate::protocol::Generation;
use crate::segment::mapped::{MappedSegment, Snapshot};
use crate::sys::file_size::write_stderr;

/// A snapshot of a job: [`Communicator::state`](crate::Communicator::state), which has an example. Its text is for people.
///
/// ```
/// let texts = intranode::threads(1, |comm| comm.state().map(|state| state.to_string()))?;
/// for text in texts {
///     let text = text?;
///     assert!(text.contains("as rank 0 sees it") && text.contains("rank 0 (process "));
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct JobState {
    /// The job's name.
    pub name: String,
    /// The rank that took the snapshot.
    pub seen_by: usize,
    /// Whether the communicator has ended: no rank advances any more.
    pub ended: bool,
    /// By rank.
    pub ranks: Vec<RankStatus>,
}

/// The state of one rank, in [`JobState`]. Its text is for people.
///
/// ```
/// use intranode::Operation;
///
/// let states = intranode::threads(1, |comm| {
///     comm.barrier()?;
///     comm.state()
/// })?;
/// for state in states {
///     let own = &state?.ranks[0];
///     assert_eq!((own.rank, own.pid), (0, Some(std::process::id())));
///     assert_eq!((own.operation, own.waits), (Some(Operation::Barrier), false));
/// }
/// # Ok::<(), intranode::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RankStatus {
    /// The rank.
    pub rank: usize,
    /// The number of its process; `None` if it has not joined.
    pub pid: Option<u32>,
    /// The last operation that it has begun; `None` if there was none.
    pub operation: Option<Operation>,
    /// The last round at which it has arrived (modulo 2²⁸).
    pub round: u32,
    /// Whether it waits there, for the ranks of which this is false.
    pub waits: bool,
    /// For how long that has been so at least; `None` unless this rank samples the others:
    /// [`Config::state_reports`](crate::Config::state_reports).
    pub unchanged_for: Option<Duration>,
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ended = if self.ended { ", which has ended" } else { "" };
        write!(f, "the state of {}{ended}, as rank {} sees it:", self.name, self.seen_by)?;
        self.ranks.iter().try_for_each(|rank| write!(f, "\n  {rank}"))
    }
}

impl fmt::Display for RankStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.rank)?;
        let Some(pid) = self.pid else { return write!(f, " has not joined") };
        write!(f, " (process {pid}) ")?;
        let since = self.unchanged_for.unwrap_or_default().as_secs_f64();
        match (self.operation, self.waits) {
            (None, _) => write!(f, "has not called anything"),
            (Some(operation), true) => {
                write!(f, "waits in {operation}, round {}", self.round)?;
                if self.unchanged_for.is_some() { write!(f, ", for {since:.1} s") } else { Ok(()) }
            }
            (Some(operation), false) => {
                write!(f, "has done {operation}, round {}", self.round)?;
                if self.unchanged_for.is_some() { write!(f, ", {since:.1} s ago") } else { Ok(()) }
            }
        }
    }
}

/// Samples the state of a job.
pub(crate) struct StateSampler {
    mapped: Arc<MappedSegment>,
    name: String,
    rank: usize,
    /// By rank: its last round, and when that was sampled first. Empty before the first sample.
    samples: Mutex<Vec<(Generation, Instant)>>,
}

impl StateSampler {
    pub(crate) fn new(mapped: &Arc<MappedSegment>, name: &str, rank: usize) -> Self {
        StateSampler { mapped: Arc::clone(mapped), name: name.to_owned(), rank, samples: Mutex::default() }
    }

    /// Records which ranks have advanced.
    pub(crate) fn sample(&self) {
        let now = Instant::now();
        let mut samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        let rounds = (0..self.mapped.layout().ranks()).map(|rank| self.mapped.snapshot(rank).round);
        if samples.is_empty() {
            samples.extend(rounds.map(|round| (round, now)));
            return;
        }
        for (sample, round) in samples.iter_mut().zip(rounds) {
            if sample.0 != round {
                *sample = (round, now);
            }
        }
    }

    /// The current state.
    pub(crate) fn state(&self) -> JobState {
        let ranks = 0..self.mapped.layout().ranks();
        let snapshots: Vec<Snapshot> = ranks.map(|rank| self.mapped.snapshot(rank)).collect();
        let samples = self.samples.lock().unwrap_or_else(PoisonError::into_inner);
        // No rank is more than one round ahead of another.
        let is_behind =
            |one: &Snapshot| snapshots.iter().any(|other| one.pid == 0 || one.round.next() == other.round);
        let level = !snapshots.iter().any(is_behind);
        let rank = |(rank, snapshot): (usize, &Snapshot)| RankStatus {
            rank,
            pid: Some(snapshot.pid).filter(|pid| *pid != 0),
            operation: Operation::from_code(snapshot.operation),
            round: snapshot.round.number(),
            waits: !level && !is_behind(snapshot),
            unchanged_for: samples
                .get(rank)
                .map(|(round, since)| if *round == snapshot.round { since.elapsed() } else { Duration::ZERO }),
        };
        JobState {
            name: self.name.clone(),
            seen_by: self.rank,
            // One that is not poisoned yet may still arrive.
            ended: snapshots.iter().all(|snapshot| snapshot.poisoned),
            ranks: snapshots.iter().enumerate().map(rank).collect(),
        }
    }

    /// Writes the state to standard error, in one call.
    pub(crate) fn write(&self) {
        self.sample();
        write_stderr(&format!("intranode: {}\n", self.state()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_s_text_says_what_is_known_of_it() {
        let text = |operation, waits, unchanged_for| {
            RankStatus { rank: 1, pid: Some(42), operation, round: 7, waits, unchanged_for }.to_string()
        };
        let (barrier, time) = (Some(Operation::Barrier), Some(Duration::from_millis(1500)));
        assert_eq!(text(None, false, time), "rank 1 (process 42) has not called anything");
        assert_eq!(text(barrier, true, None), "rank 1 (process 42) waits in barrier, round 7");
        assert_eq!(text(barrier, true, time), "rank 1 (process 42) waits in barrier, round 7, for 1.5 s");
        assert_eq!(text(barrier, false, None), "rank 1 (process 42) has done barrier, round 7");
        assert_eq!(text(barrier, false, time), "rank 1 (process 42) has done barrier, round 7, 1.5 s ago");
        let nobody =
            RankStatus { rank: 1, pid: None, operation: None, round: 0, waits: false, unchanged_for: None };
        assert_eq!(nobody.to_string(), "rank 1 has not joined");
    }
}
