//! The state of a job: who waits for whom, in what, since when.
//!
//! A rank sees this from outside, in the segment, without a message from the others: also of ranks that are frozen. Nothing
//! is written for it that is not written anyway, and the rank that takes the snapshot takes no part in what is being done.
//! So it is taken while things move: neighbouring lines can be a round apart.
//!
//! Nor does a rank write *when* it does something, since reading the clock would cost as much as a small collective. An
//! observer samples the ranks every now and then, and knows since when nothing has changed.

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

/// What a rank can see of another, or of itself: in [`JobState`]. Its text is for people.
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

/// Samples a job, and remembers since when what it sees has not changed.
pub(crate) struct Observer {
    world: Arc<MappedSegment>,
    name: String,
    rank: usize,
    /// By rank, after the first sample.
    seen: Mutex<Vec<(Generation, Instant)>>,
}

impl Observer {
    pub(crate) fn new(world: &Arc<MappedSegment>, name: &str, rank: usize) -> Self {
        Observer { world: Arc::clone(world), name: name.to_owned(), rank, seen: Mutex::default() }
    }

    /// Takes a sample, so that it can be told later since when things are as they are.
    pub(crate) fn sample(&self) {
        let now = Instant::now();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let rounds = (0..self.world.layout().ranks()).map(|rank| self.world.snapshot(rank).round);
        if seen.is_empty() {
            seen.extend(rounds.map(|round| (round, now)));
            return;
        }
        for (seen, round) in seen.iter_mut().zip(rounds) {
            if seen.0 != round {
                *seen = (round, now);
            }
        }
    }

    /// What is to be seen now.
    pub(crate) fn state(&self) -> JobState {
        let ranks = 0..self.world.layout().ranks();
        let snapshots: Vec<Snapshot> = ranks.map(|rank| self.world.snapshot(rank)).collect();
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        // No rank is more than a round ahead of another.
        let is_behind =
            |one: &Snapshot| snapshots.iter().any(|other| one.pid == 0 || one.round.next() == other.round);
        let everywhere = !snapshots.iter().any(is_behind);
        let rank = |(rank, snapshot): (usize, &Snapshot)| RankStatus {
            rank,
            pid: Some(snapshot.pid).filter(|pid| *pid != 0),
            operation: Operation::from_code(snapshot.operation),
            round: snapshot.round.number(),
            waits: !everywhere && !is_behind(snapshot),
            unchanged_for: seen
                .get(rank)
                .map(|(round, since)| if *round == snapshot.round { since.elapsed() } else { Duration::ZERO }),
        };
        JobState {
            name: self.name.clone(),
            seen_by: self.rank,
            ended: snapshots.iter().any(|snapshot| snapshot.poisoned),
            ranks: snapshots.iter().enumerate().map(rank).collect(),
        }
    }

    /// Writes the state to standard error, in one piece.
    pub(crate) fn write(&self) {
        self.sample();
        write_stderr(&format!("intranode: {}\n", self.state()));
    }
}
