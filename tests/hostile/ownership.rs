//! Checks that no two ranks owned the same element, and that every value read is the one written last.
//!
//! Replays the recorded events, epoch by epoch, on a copy of the memory.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::agreement::Record;
use crate::journal::Event;
use crate::stamp::{Run, Stamp};

/// The events on one memory in an epoch.
#[derive(Default)]
struct Epoch<'a> {
    owns: Vec<(usize, &'a [Range<usize>], Stamp)>,
    found: Vec<(usize, &'a [Run])>,
    reads: Vec<(usize, &'a [Run])>,
}

/// By name, by epoch.
type History<'a> = BTreeMap<&'a str, BTreeMap<u32, Epoch<'a>>>;

/// All violations that concern memory.
pub(crate) fn check(ranks: &[Record]) -> Vec<String> {
    let mut history = History::new();
    for (rank, record) in ranks.iter().enumerate() {
        for event in &record.events {
            let (memory, number) = match event {
                Event::Owns { memory, epoch, .. }
                | Event::Found { memory, epoch, .. }
                | Event::Reads { memory, epoch, .. } => (memory.as_str(), *epoch),
                _ => continue,
            };
            let epoch = history.entry(memory).or_default().entry(number).or_default();
            match event {
                Event::Owns { ranges, stamp, .. } => epoch.owns.push((rank, ranges, *stamp)),
                Event::Found { runs, .. } => epoch.found.push((rank, runs)),
                Event::Reads { runs, .. } => epoch.reads.push((rank, runs)),
                _ => {}
            }
        }
    }
    let mut violations = Vec::new();
    for (memory, epochs) in &history {
        // An exchange has two buffers.
        let buffers = if memory.contains("exchange") { 2 } else { 1 };
        let mut contents = vec![Content::default(); buffers];
        for (number, epoch) in epochs {
            let place = format!("{memory}, epoch {number}");
            check_disjoint(&place, epoch, &mut violations);
            replay(&place, *number as usize, buffers, epoch, &mut contents, &mut violations);
        }
    }
    violations
}

/// No two ranks own the same element.
fn check_disjoint(place: &str, epoch: &Epoch<'_>, violations: &mut Vec<String>) {
    let parts = |(rank, parts, _): &(usize, &'_ [Range<usize>], Stamp)| {
        let rank = *rank;
        parts
            .iter()
            .filter(|part| !part.is_empty())
            .map(move |part| (part.start, part.end, rank))
            .collect::<Vec<_>>()
    };
    let mut all: Vec<(usize, usize, usize)> = epoch.owns.iter().flat_map(parts).collect();
    all.sort();
    all.dedup();
    for pair in all.windows(2) {
        let ((_, end, first), (start, _, second)) = (pair[0], pair[1]);
        if end > start && first != second {
            violations.push(format!("{place}: ranks {first} and {second} own {start}"));
        }
    }
}

/// The stamp of each element.
#[derive(Clone, Default)]
struct Content(Vec<Stamp>);

impl Content {
    fn write(&mut self, part: &Range<usize>, stamp: Stamp) {
        if self.0.len() < part.end {
            self.0.resize(part.end, Stamp::NONE);
        }
        self.0[part.clone()].fill(stamp);
    }

    fn has(&self, run: &Run) -> bool {
        run.range.clone().all(|index| self.0.get(index).copied().unwrap_or_default() == run.stamp)
    }
}

fn replay(
    place: &str,
    number: usize,
    buffers: usize,
    epoch: &Epoch<'_>,
    contents: &mut [Content],
    violations: &mut Vec<String>,
) {
    // A region is read in another epoch than it is written; an exchange's buffer is read in the epoch after it was written.
    let read = &contents[(number + buffers - 1) % buffers];
    for (rank, runs) in &epoch.reads {
        for run in runs.iter().filter(|run| !read.has(run)) {
            violations.push(format!("{place}: rank {rank} reads {run:?}, which was not written last"));
        }
    }
    let content = &mut contents[number % buffers];
    for (rank, runs) in &epoch.found {
        for run in runs.iter().filter(|run| !content.has(run)) {
            violations.push(format!("{place}: rank {rank} finds {run:?}, which was not written last"));
        }
    }
    for (_, parts, stamp) in epoch.owns.iter().filter(|(.., stamp)| *stamp != Stamp::NONE) {
        parts.iter().for_each(|part| content.write(part, *stamp));
    }
}
