//! The figures of a report, by rank: what the page shows, and the JSON as it is.

use std::ffi::OsString;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use intranode::job::recorded::{OperationRecord, RankRecord, Unfinished};
use serde::Serialize;

/// How a job has ended.
pub(crate) struct Ended<'a> {
    pub(crate) program: &'a [OsString],
    /// Which rank failed first, and how.
    pub(crate) failure: Option<&'a str>,
    pub(crate) status: u8,
}

#[derive(Serialize)]
pub(super) struct Summary {
    /// The version of this format.
    pub(super) version: u32,
    pub(super) job: String,
    pub(super) program: Vec<String>,
    /// When the job ended, in seconds since 1970.
    pub(super) ended_at: u64,
    /// From the start of the first rank to the end of the last.
    pub(super) seconds: f64,
    /// That of the launcher.
    pub(super) status: u8,
    pub(super) failure: Option<String>,
    pub(super) ranks: Vec<Rank>,
}

#[derive(Serialize)]
pub(super) struct Rank {
    pub(super) rank: usize,
    /// `null`: no process of this rank has joined.
    pub(super) pid: Option<u32>,
    /// Since the job's start. `left_seconds` is `null` if the rank has ended without leaving.
    pub(super) joined_seconds: Option<f64>,
    pub(super) left_seconds: Option<f64>,
    pub(super) calls: u64,
    pub(super) bytes: u64,
    /// In calls, and the part of that in long waits.
    pub(super) call_seconds: f64,
    pub(super) wait_seconds: f64,
    pub(super) parks: u64,
    pub(super) wakes: u64,
    /// The rounds at which this rank arrived last, and others had waited long for it; and for how long one of them has.
    pub(super) late_rounds: u64,
    pub(super) late_seconds: f64,
    pub(super) operations: Vec<Operation>,
    pub(super) waited_for: Vec<WaitedFor>,
    pub(super) unfinished: Vec<UnfinishedCall>,
    /// Communicators that are not in these figures.
    pub(super) communicators_not_recorded: u64,
}

#[derive(Serialize)]
pub(super) struct Operation {
    pub(super) operation: &'static str,
    pub(super) calls: u64,
    pub(super) timed_calls: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) wait_seconds: f64,
    pub(super) parks: u64,
    pub(super) wakes: u64,
    /// Accesses are timed if they are long, and the others take no time here.
    #[serde(skip)]
    pub(super) is_access: bool,
}

/// A rank that this one has waited for.
#[derive(Serialize)]
pub(super) struct WaitedFor {
    pub(super) rank: usize,
    /// In which it was the last that was waited for.
    pub(super) rounds: u64,
    pub(super) seconds: f64,
}

/// A call in which the rank was when it ended.
#[derive(Serialize)]
pub(super) struct UnfinishedCall {
    pub(super) operation: &'static str,
    /// Since the job's start.
    pub(super) since_seconds: f64,
    pub(super) waits_for: Option<usize>,
}

/// What an operation is called. Making a lock and taking it have one name in the interface.
pub(super) fn name(operation: intranode::Operation) -> &'static str {
    match operation {
        intranode::Operation::LockNew => "new lock",
        other => other.as_str(),
    }
}

fn seconds(nanoseconds: u64) -> f64 {
    Duration::from_nanos(nanoseconds).as_secs_f64()
}

impl Summary {
    /// `span`: when the job began and ended, by the clock of the ranks.
    pub(super) fn new(job: &str, ended: &Ended<'_>, span: (Duration, Duration), ranks: &[RankRecord]) -> Self {
        let (began, end) = span;
        let since_start = |moment: u64| Duration::from_nanos(moment).saturating_sub(began).as_secs_f64();
        let rank = |(rank, record): (usize, &RankRecord)| {
            Rank::new(rank, record, ranks, &since_start, end.as_nanos() as u64)
        };
        Summary {
            version: 1,
            job: job.to_owned(),
            program: ended.program.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
            ended_at: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs(),
            seconds: end.saturating_sub(began).as_secs_f64(),
            status: ended.status,
            failure: ended.failure.map(str::to_owned),
            ranks: ranks.iter().enumerate().map(rank).collect(),
        }
    }

    /// The rank that was late most often, if one was.
    pub(super) fn latest(&self) -> Option<&Rank> {
        self.ranks.iter().max_by_key(|rank| rank.late_rounds).filter(|rank| rank.late_rounds > 0)
    }
}

impl Rank {
    /// `end`: of the job.
    fn new(
        rank: usize,
        record: &RankRecord,
        all: &[RankRecord],
        since_start: &dyn Fn(u64) -> f64,
        end: u64,
    ) -> Self {
        let operation = |record: &OperationRecord| Operation {
            operation: name(record.operation),
            calls: record.calls,
            timed_calls: record.timed,
            bytes: record.bytes,
            seconds: seconds(record.total_ns),
            wait_seconds: seconds(record.wait_ns),
            parks: record.parks,
            wakes: record.wakes,
            is_access: record.operation.is_access(),
        };
        let unfinished = |call: &Unfinished| UnfinishedCall {
            operation: name(call.operation),
            since_seconds: since_start(call.since),
            waits_for: call.waits_for,
        };
        // Every other rank has counted the same rounds, but for those in which it waited only shortly.
        let observed = || all.iter().flat_map(|other| &other.late).filter(|late| late.rank == rank);
        let mut operations: Vec<Operation> = record.operations.iter().map(operation).collect();
        if let Some(joined) = record.joined {
            fit(&mut operations, seconds(record.left.unwrap_or(end).saturating_sub(joined)));
        }
        let waited_for = record.late.iter().map(|late| WaitedFor {
            rank: late.rank,
            rounds: late.rounds,
            seconds: seconds(late.wait_ns),
        });
        Rank {
            rank,
            pid: record.process,
            joined_seconds: record.joined.map(since_start),
            left_seconds: record.left.map(since_start),
            calls: operations.iter().map(|operation| operation.calls).sum(),
            bytes: operations.iter().map(|operation| operation.bytes).sum(),
            call_seconds: operations.iter().map(|operation| operation.seconds).sum(),
            wait_seconds: operations.iter().map(|operation| operation.wait_seconds).sum(),
            parks: operations.iter().map(|operation| operation.parks).sum(),
            wakes: operations.iter().map(|operation| operation.wakes).sum(),
            late_rounds: observed().map(|late| late.rounds).max().unwrap_or(0),
            late_seconds: seconds(observed().map(|late| late.wait_ns).max().unwrap_or(0)),
            operations,
            waited_for: waited_for.collect(),
            unfinished: record.unfinished.iter().map(unfinished).collect(),
            communicators_not_recorded: record.not_recorded,
        }
    }
}

/// A rank was not in calls for longer than it was there. Where the mean of some calls says so, these were slower than the others.
fn fit(operations: &mut [Operation], presence: f64) {
    let estimated = |operation: &Operation| {
        let is_estimated = operation.timed_calls < operation.calls && !operation.is_access;
        if is_estimated { operation.seconds - operation.wait_seconds } else { 0.0 }
    };
    let all: f64 = operations.iter().map(|operation| operation.seconds).sum();
    let guessed: f64 = operations.iter().map(estimated).sum();
    let room = presence - (all - guessed);
    if guessed <= room || guessed <= 0.0 {
        return;
    }
    for operation in operations {
        operation.seconds -= estimated(operation) * (1.0 - room.max(0.0) / guessed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_not_in_calls_for_longer_than_it_was_there() {
        let operation = |calls, seconds, wait_seconds| Operation {
            operation: "barrier",
            calls,
            timed_calls: 10,
            bytes: 0,
            seconds,
            wait_seconds,
            parks: 0,
            wakes: 0,
            is_access: false,
        };
        let fitted = |presence: f64| {
            let mut operations = [operation(10, 1.0, 0.5), operation(100, 4.0, 1.0), operation(100, 1.0, 0.0)];
            fit(&mut operations, presence);
            operations.map(|operation| operation.seconds)
        };
        assert_eq!(fitted(7.0), [1.0, 4.0, 1.0]);
        // 2 s are known, and 2 s are left for what is guessed to be 4 s.
        assert_eq!(fitted(4.0), [1.0, 2.5, 0.5]);
        assert_eq!(fitted(1.0), [1.0, 1.0, 0.0]);
    }
}
