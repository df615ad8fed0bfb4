//! How often what has happened: programs in which nothing succeeds, or nothing fails, would show nothing.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Result, ensure};
use serde::{Deserialize, Serialize};

use crate::agreement::Record;
use crate::journal::{Event, Outcome};
use crate::stamp::Stamp;

/// What has to happen somewhere among this many programs, whatever their ranks are.
const ENOUGH: usize = 200;
const EXPECTED: [&str; 23] = [
    "barrier",
    "Sum",
    "allgather",
    "allgatherv",
    "broadcast",
    "region",
    "set_ownership",
    "publish",
    "reclaim",
    "exchange",
    "share",
    "WideRegion",
    "RegionOfNothing",
    "Refused",
    "Mismatch",
    "Overlap",
    "NoMemory",
    "Fatal",
    "Concurrent",
    "Part",
    "writes",
    "reads",
    "meets",
];

/// How often what has happened.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    programs: usize,
    counts: BTreeMap<String, usize>,
}

impl Tally {
    /// Counts what the ranks of a program have recorded.
    pub(crate) fn add(&mut self, records: &[Record]) {
        self.programs += 1;
        for event in records.iter().flat_map(|record| &record.events) {
            if let Some(what) = kind(event) {
                *self.counts.entry(what).or_default() += 1;
            }
        }
    }

    /// Counts what another has counted.
    pub(crate) fn add_all(&mut self, other: &Tally) {
        self.programs += other.programs;
        for (what, count) in &other.counts {
            *self.counts.entry(what.clone()).or_default() += count;
        }
    }

    /// # Errors
    /// Something has never happened.
    pub(crate) fn check(&self) -> Result<()> {
        let missing: Vec<_> = EXPECTED.iter().filter(|what| !self.counts.contains_key(**what)).collect();
        ensure!(self.programs < ENOUGH || missing.is_empty(), "{missing:?} never happened: {self}");
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
            Outcome::Ok(_) | Outcome::NoPart => return None,
            Outcome::Refused => "Refused",
            Outcome::Mismatch { .. } => "Mismatch",
            Outcome::Overlap { .. } => "Overlap",
            Outcome::NoMemory => "NoMemory",
            Outcome::Fatal(_) => "Fatal",
            Outcome::Concurrent => "Concurrent",
            Outcome::Part => "Part",
        },
        Event::Owns { ranges, stamp, .. } if *stamp != Stamp::NOBODY && !ranges.is_empty() => "writes",
        Event::Reads { runs, .. } if runs.iter().any(|run| run.stamp != Stamp::NOBODY) => "reads",
        Event::Met { with, .. } if !with.is_empty() => "meets",
        _ => return None,
    };
    Some(what.to_owned())
}
