//! Values that identify their writer and their index.

use std::fmt;
use std::ops::Range;

use serde::{Deserialize, Serialize};

/// The writer of a value: a call of a thread of a rank. Ranks are those of the job, also in split communicators.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Stamp(u64);

impl fmt::Debug for Stamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Stamp::NONE => write!(f, "no writer"),
            _ => write!(f, "rank {}, thread {}, call {}", self.rank(), self.thread(), self.call()),
        }
    }
}

impl Stamp {
    /// The stamp of zeros, which no call has written.
    pub(crate) const NONE: Stamp = Stamp(0);

    pub(crate) fn new(rank: usize, thread: usize, call: u16) -> Self {
        Stamp((rank as u64 + 1) << 56 | (thread as u64) << 48 | u64::from(call) << 32)
    }

    /// The writer of a value.
    pub(crate) fn of(value: u64) -> Self {
        Stamp(value & !0xFFFF_FFFF)
    }

    /// The value of this writer at an index.
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

    /// The writer in the twelve bits of its rank, for a sum of 64 bits.
    pub(crate) fn to_sum_bits(self) -> u64 {
        ((self.thread() as u64 & 3) << 10 | u64::from(self.call()) & 0x3FF) << (12 * self.rank())
    }

    /// The writer in the bits of a rank in a sum.
    pub(crate) fn from_sum_bits(sum: u64, rank: usize) -> Self {
        let bits = sum >> (12 * rank) & 0xFFF;
        Stamp::new(rank, (bits >> 10) as usize, (bits & 0x3FF) as u16)
    }
}

/// Consecutive values of one writer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) range: Range<usize>,
    pub(crate) stamp: Stamp,
}

/// Fills a slice whose first element has the index `start`.
pub(crate) fn fill(values: &mut [u64], start: usize, stamp: Stamp) {
    values.iter_mut().enumerate().for_each(|(offset, value)| *value = stamp.at(start + offset));
}

/// The writers of a slice whose first element has the index `start`.
///
/// # Errors
/// When a value has another index than its place, or is no stamp.
pub(crate) fn runs(values: &[u64], start: usize) -> Result<Vec<Run>, String> {
    let mut runs: Vec<Run> = Vec::new();
    for (index, value) in (start..).zip(std::hint::black_box(values)) {
        let stamp = Stamp::of(*value);
        let expected = if stamp == Stamp::NONE { 0 } else { stamp.at(index) };
        if *value != expected {
            return Err(format!("{value:#x} is at {index}, which no rank writes there"));
        }
        match runs.last_mut() {
            Some(run) if run.stamp == stamp => run.range.end = index + 1,
            _ => runs.push(Run { range: index..index + 1, stamp }),
        }
    }
    Ok(runs)
}
