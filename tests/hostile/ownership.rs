//! Whether no two ranks have owned the same element, and everything read is what its owner wrote last.
//!
//! What the ranks recorded is played once more, epoch by epoch, on one copy of the memory.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::agreement::Record;
use crate::journal::Event;
use crate::stamp::{Run, Stamp};

/// What happened to some memory in an epoch.
#[derive(Default)]
struct Epoch<'a> {
    owns: Vec<(usize, &'a [Range<usize>], Stamp)>,
    found: Vec<(usize, &'a [Run])>,
    reads: Vec<(usize, &'a [Run])>,
}

/// By name, by epoch.
type History<'a> = BTreeMap<&'a str, BTreeMap<u32, Epoch<'a>>>;

/// Everything that has gone wrong with memory.
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
    let mut broken = Vec::new();
    for (memory, epochs) in &history {
        // An exchange has two buffers.
        let buffers = if memory.contains("exchange") { 2 } else { 1 };
        let mut contents = vec![Content::default(); buffers];
        for (number, epoch) in epochs {
            let place = format!("{memory}, epoch {number}");
            check_apart(&place, epoch, &mut broken);
            replay(&place, *number as usize, buffers, epoch, &mut contents, &mut broken);
        }
    }
    broken
}

/// No two ranks own the same element.
fn check_apart(place: &str, epoch: &Epoch<'_>, broken: &mut Vec<String>) {
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
            broken.push(format!("{place}: ranks {first} and {second} own {start}"));
        }
    }
}

/// Who wrote what: the stamp of each element that somebody has written.
#[derive(Clone, Default)]
struct Content(Vec<Stamp>);

impl Content {
    fn write(&mut self, part: &Range<usize>, stamp: Stamp) {
        if self.0.len() < part.end {
            self.0.resize(part.end, Stamp::NOBODY);
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
    broken: &mut Vec<String>,
) {
    // A region is published in one epoch and written in another; in an exchange a turn is read when the next has begun.
    let read = &contents[(number + buffers - 1) % buffers];
    for (rank, runs) in &epoch.reads {
        for run in runs.iter().filter(|run| !read.has(run)) {
            broken.push(format!("{place}: rank {rank} reads {run:?}, which was not written last"));
        }
    }
    let content = &mut contents[number % buffers];
    for (rank, runs) in &epoch.found {
        for run in runs.iter().filter(|run| !content.has(run)) {
            broken.push(format!("{place}: rank {rank} finds {run:?}, which was not written last"));
        }
    }
    for (_, parts, stamp) in epoch.owns.iter().filter(|(.., stamp)| *stamp != Stamp::NOBODY) {
        parts.iter().for_each(|part| content.write(part, *stamp));
    }
}
