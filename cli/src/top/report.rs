//! What is shown of a job: the fields of the JSON.

use serde::Serialize;

#[derive(Clone, Debug, Serialize)]
pub(crate) struct JobReport {
    pub(crate) name: String,
    /// Whether it is a communicator that was split from a job.
    pub(crate) split: bool,
    pub(crate) segment_bytes: usize,
    /// Why it has ended; none while it runs.
    pub(crate) ended: Option<String>,
    /// The time over which rates are measured.
    pub(crate) seconds: f64,
    pub(crate) ranks: Vec<RankReport>,
}

#[derive(Clone, Debug, Serialize)]
pub(crate) struct RankReport {
    pub(crate) rank: usize,
    /// As this program sees it; none if there is no process.
    pub(crate) pid: Option<u32>,
    /// The processor that it ran on last.
    pub(crate) cpu: Option<u32>,
    /// Of one processor: a rank with several threads may have more than a hundred.
    pub(crate) cpu_percent: Option<f64>,
    pub(crate) state: RankState,
    /// The last that it has begun.
    pub(crate) operation: Option<&'static str>,
    /// Modulo 2²⁸.
    pub(crate) round: u32,
    pub(crate) rounds_per_second: f64,
    /// An estimate: the bytes of the calls that were seen, times the rounds.
    pub(crate) bytes_per_second: f64,
    pub(crate) waits_for: Vec<usize>,
    /// Whether another rank sleeps until this one arrives.
    pub(crate) slept_on: bool,
    /// For how long it has been at this round, at least.
    pub(crate) seconds_at_round: f64,
    /// In how many of a hundred samples another rank was ahead.
    pub(crate) late_percent: f64,
    /// Whether it was behind most often.
    pub(crate) slowest: bool,
    pub(crate) memory_bytes: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum RankState {
    Joining,
    Runs,
    Waits,
    Frozen,
    Dead,
    Left,
}

impl RankState {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            RankState::Joining => "joining",
            RankState::Runs => "runs",
            RankState::Waits => "waits",
            RankState::Frozen => "frozen",
            RankState::Dead => "dead",
            RankState::Left => "left",
        }
    }

    /// Whether others wait in vain.
    pub(crate) fn is_alarming(self) -> bool {
        matches!(self, RankState::Frozen | RankState::Dead)
    }
}
