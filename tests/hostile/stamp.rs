//! Values that name who wrote them, and where.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// Who wrote a value: a call of a thread of a rank. Ranks are numbered as they joined, also in a part of the job.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Stamp(u64);

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Stamp::NOBODY => write!(f, "nobody"),
            _ => write!(f, "rank {}, thread {}, call {}", self.rank(), self.thread(), self.call()),
        }
    }
}

impl Stamp {
    /// What nobody wrote: zeros.
    pub(crate) const NOBODY: Stamp = Stamp(0);

    pub(crate) fn new(rank: usize, thread: usize, call: u16) -> Self {
        Stamp((rank as u64 + 1) << 56 | (thread as u64) << 48 | u64::from(call) << 32)
    }

    /// Who has written a value.
    pub(crate) fn of(value: u64) -> Self {
        Stamp(value & !0xFFFF_FFFF)
    }

    /// The value that this writer puts at an index.
    pub(crate) fn at(self, index: usize) -> u64 {
        self.0 | index as u64 & 0xFFFF_FFFF
    }

    pub(crate) fn rank(self) -> usize {
        (self.0 >> 56).wrapping_sub(1) as usize
    }

    pub(crate) fn thread(self) -> usize {
        (self.0 >> 48 & 0xFF) as usize
    }

    pub(crate) fn call(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// The writer in twelve bits of a sum of 64: those that belong to a rank.
    pub(crate) fn in_a_sum(self) -> u64 {
        ((self.thread() as u64 & 3) << 10 | u64::from(self.call()) & 0x3FF) << (12 * self.rank())
    }

    /// The writer that has put these bits into a sum for a rank.
    pub(crate) fn of_a_sum(sum: u64, rank: usize) -> Self {
        let bits = sum >> (12 * rank) & 0xFFF;
        Stamp::new(rank, (bits >> 10) as usize, (bits & 0x3FF) as u16)
    }
}

/// Neighbouring values that one writer has put where they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) range: Range<usize>,
    pub(crate) stamp: Stamp,
}

/// Fills a slice that begins at an index.
pub(crate) fn fill(values: &mut [u64], start: usize, stamp: Stamp) {
    values.iter_mut().enumerate().for_each(|(offset, value)| *value = stamp.at(start + offset));
}

/// Who wrote a slice that begins at an index.
///
/// # Errors
/// A value that nobody puts there.
pub(crate) fn runs(values: &[u64], start: usize) -> Result<Vec<Run>, String> {
    let mut runs: Vec<Run> = Vec::new();
    for (index, value) in (start..).zip(std::hint::black_box(values)) {
        let stamp = Stamp::of(*value);
        let expected = if stamp == Stamp::NOBODY { 0 } else { stamp.at(index) };
        if *value != expected {
            return Err(format!("{value:#x} lies at {index}, which nobody puts there"));
        }
        match runs.last_mut() {
            Some(run) if run.stamp == stamp => run.range.end = index + 1,
            _ => runs.push(Run { range: index..index + 1, stamp }),
        }
    }
    Ok(runs)
}
