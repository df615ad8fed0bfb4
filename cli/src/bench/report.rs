//! The output: a table, or JSON.

use std::io::{self, Write, stdout};

use clap::ValueEnum;
use clap::builder::PossibleValue;
use serde::Serialize;

use super::cases::Case;
use super::operation::Operation;
use super::payload::{Buffers, Memory};

/// One line. Other programs rely on the fields and their names.
#[derive(Serialize)]
pub(crate) struct Row {
    op: Operation,
    bytes: usize,
    ranks: usize,
    buffers: Buffers,
    memory: Memory,
    median_us: f64,
    min_us: f64,
    max_us: f64,
    repetitions: usize,
}

impl Row {
    /// `times` in microseconds per call, at least one.
    pub(super) fn new(case: Case, ranks: usize, mut times: Vec<f64>) -> Self {
        let Case { operation: op, bytes, buffers, memory } = case;
        times.sort_by(f64::total_cmp);
        let (lower, upper) = (times[(times.len() - 1) / 2], times[times.len() / 2]);
        Self {
            op,
            bytes,
            ranks,
            buffers,
            memory,
            median_us: lower.midpoint(upper),
            min_us: times[0],
            max_us: times[times.len() - 1],
            repetitions: times.len(),
        }
    }
}

pub(crate) struct Report {
    json: bool,
    header_due: bool,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        Self { json, header_due: !json }
    }

    /// Flushes, so that each row appears as soon as it is measured.
    pub(crate) fn print(&mut self, row: &Row) -> io::Result<()> {
        let mut out = stdout().lock();
        if std::mem::take(&mut self.header_due) {
            let names = ["median µs", "min µs", "max µs"];
            let [median, min, max] = names;
            let head = format!("{:<10} {:>11} {:>5} {:<9} {:<7}", "op", "bytes", "ranks", "buffers", "memory");
            writeln!(out, "{head} {median:>12} {min:>12} {max:>12}")?;
        }
        if self.json {
            serde_json::to_writer(&mut out, row)?;
            writeln!(out)?;
        } else {
            let Row { op, bytes, ranks, buffers, memory, median_us, min_us, max_us, .. } = row;
            let values = [op.to_possible_value(), buffers.to_possible_value(), memory.to_possible_value()];
            let [op, buffers, memory] =
                values.each_ref().map(|value| value.as_ref().map_or("", PossibleValue::get_name));
            write!(out, "{op:<10} {bytes:>11} {ranks:>5} {buffers:<9} {memory:<7} ")?;
            writeln!(out, "{median_us:>12.3} {min_us:>12.3} {max_us:>12.3}")?;
        }
        out.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let (buffers, memory) = (Buffers::Renewed, Memory::Private);
        let case = Case { operation: Operation::Barrier, bytes: 0, buffers, memory };
        let row = |times: &[f64]| Row::new(case, 2, times.to_vec());
        let odd = row(&[5.0, 1.0, 2.0]);
        assert_eq!((odd.min_us, odd.median_us, odd.max_us, odd.repetitions), (1.0, 2.0, 5.0, 3));
        assert_eq!(row(&[5.0, 1.0, 2.0, 3.0]).median_us, 2.5);
        assert_eq!(row(&[4.0]).median_us, 4.0);
    }
}
