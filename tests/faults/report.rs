//! The report of a rank's error to the test: one line.

use std::time::Duration;

use anyhow::{Context, Result};
use intranode::Error;

/// The error that a rank got.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Report {
    /// When the call returned, on the monotonic clock, which all processes share.
    pub(crate) at: Duration,
    /// The variant.
    pub(crate) kind: String,
    /// The ranks in the error.
    pub(crate) ranks: Vec<usize>,
    /// The process in the error, that of the first rank.
    pub(crate) pid: Option<u32>,
    /// The message.
    pub(crate) text: String,
}

/// The time on the monotonic clock.
pub(crate) fn now() -> Duration {
    let clock = nix::time::ClockId::CLOCK_MONOTONIC;
    nix::time::clock_gettime(clock).expect("every system has the monotonic clock").into()
}

impl Report {
    pub(crate) fn of(error: &Error) -> Self {
        let at = now();
        let (kind, ranks, pid) = match error {
            Error::RankDied { rank, pid, .. } => ("died", vec![*rank], Some(*pid)),
            Error::RankLeft { rank, .. } => ("left", vec![*rank], None),
            Error::TimedOut { late, info, .. } => ("timed-out", late.to_vec(), info.pids.first().copied()),
            Error::NodeLate(late) => ("node-late", late.ranks.clone().collect(), None),
            Error::Aborted { rank, .. } => ("aborted", vec![*rank], None),
            Error::Interrupted { rank, .. } => ("interrupted", vec![*rank], None),
            Error::Poisoned { rank, .. } => ("poisoned", vec![*rank], None),
            Error::Forked { .. } => ("forked", vec![], None),
            Error::InitializationFailed(failure) => ("not-joined", failure.missing.clone(), None),
            Error::AllocationFailed { .. } => ("no-memory", vec![], None),
            _ => ("other", vec![], None),
        };
        Report { at, kind: kind.to_owned(), ranks, pid, text: error.to_string() }
    }

    /// The line that [`Report::parse`] reads.
    pub(crate) fn line(&self) -> String {
        let ranks: Vec<String> = self.ranks.iter().map(usize::to_string).collect();
        let ranks = if ranks.is_empty() { "-".to_owned() } else { ranks.join(",") };
        let pid = self.pid.map_or("-".to_owned(), |pid| pid.to_string());
        let text = self.text.replace('\n', " ");
        format!("error {} {} {ranks} {pid} {text}", self.at.as_nanos(), self.kind)
    }

    pub(crate) fn parse(line: &str) -> Result<Self> {
        let mut fields = line.strip_prefix("error ").context("not an error")?.splitn(5, ' ');
        let mut next = || fields.next().context("a field is missing");
        let at = Duration::from_nanos(next()?.parse()?);
        let kind = next()?.to_owned();
        let ranks = next()?.split(',').filter_map(|rank| rank.parse().ok()).collect();
        let pid = next()?.parse().ok();
        Ok(Report { at, kind, ranks, pid, text: next()?.to_owned() })
    }
}
