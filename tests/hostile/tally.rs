//! Counts kinds of events: programs in which nothing succeeds, or nothing fails, would test nothing.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::agreement::Record;
use crate::journal::{Event, Outcome};
use crate::stamp::Stamp;

/// The number of programs among which each of these kinds has to occur.
const ENOUGH: usize = 200;
const EXPECTED: [&str; 37] = [
    "barrier",
    "Sum",
    "allgather",
    "allgatherv",
    "broadcast",
    "Gather",
    "Scatter",
    "Alltoall",
    "Reduce",
    "Scan",
    "ReduceScatter",
    "StartBarrier",
    "StartAllreduce",
    "StartBroadcast",
    "StartAllgatherv",
    "region",
    "set_ownership",
    "publish",
    "reclaim",
    "exchange",
    "share",
    "symmetric",
    "own",
    "read",
    "open",
    "RegionOfNothing",
    "Refused",
    "Mismatch",
    "NoMemory",
    "Fatal",
    "Concurrent",
    "Split",
    "sends",
    "long-sends",
    "writes",
    "reads",
    "meets",
];

/// The same for kinds of which few programs have any, and those have several.
const ENOUGH_FOR_RARE: usize = 800;
const RARE: [&str; 3] = ["WideRegion", "Overlap", "free"];

/// The number of events of each kind.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    programs: usize,
    counts: BTreeMap<String, usize>,
}

impl Tally {
    /// Counts the events of a program.
    pub(crate) fn add(&mut self, records: &[Record]) {
        self.programs += 1;
        for event in records.iter().flat_map(|record| &record.events) {
            if let Some(what) = kind(event) {
                *self.counts.entry(what).or_default() += 1;
            }
        }
    }

    /// Adds the counts of another tally.
    pub(crate) fn add_all(&mut self, other: &Tally) {
        self.programs += other.programs;
        for (what, count) in &other.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
    }

    /// # Errors
    /// When a kind has never occurred.
    pub(crate) fn check(&self) -> Result<()> {
        for (kinds, enough) in [(&EXPECTED[..], ENOUGH), (&RARE, ENOUGH_FOR_RARE)] {
            let missing: Vec<_> = kinds.iter().filter(|what| !self.counts.contains_key(**what)).collect();
            ensure!(self.programs < enough || missing.is_empty(), "{missing:?} never happened: {self}");
        }
        Ok(())
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} programs", self.programs)?;
        self.counts.iter().try_for_each(|(what, count)| write!(f, ", {what} {count}"))
    }
}

fn kind(event: &Event) -> Option<String> {
    let what = match event {
        Event::Ended { outcome: Outcome::Ok(what), .. } => what.split(' ').next().unwrap_or_default(),
        Event::Ended { outcome, .. } => match outcome {
            Outcome::Ok(_) | Outcome::NoSplit => return None,
            Outcome::Refused => "Refused",
            Outcome::Mismatch { .. } => "Mismatch",
            Outcome::Overlap { .. } => "Overlap",
            Outcome::NoMemory => "NoMemory",
            Outcome::Fatal(_) => "Fatal",
            Outcome::Concurrent => "Concurrent",
            Outcome::Split => "Split",
        },
        // Long enough to be read in place.
        Event::Sent { bytes } if *bytes >= 1 << 20 => "long-sends",
        Event::Sent { .. } => "sends",
        Event::Owns { ranges, stamp, .. } if *stamp != Stamp::NONE && !ranges.is_empty() => "writes",
        Event::Reads { runs, .. } if runs.iter().any(|run| run.stamp != Stamp::NONE) => "reads",
        Event::Met { with, .. } if !with.is_empty() => "meets",
        _ => return None,
    };
    Some(what.to_owned())
}
