//! What is measured in a block, and the table of all.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::ours::AWAKE;

/// How long a row is measured in a block, and how many blocks there are.
#[derive(Clone, Copy)]
pub(crate) struct Length {
    pub(crate) row: Duration,
    pub(crate) blocks: usize,
}

/// A row: how it is measured, and what has been.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) unit: &'static str,
    /// The row whose figure is the machine's own for this one.
    pub(crate) beside: Option<usize>,
    pub(crate) measure: Box<dyn FnMut(Duration) -> Result<f64>>,
    pub(crate) wanted: bool,
    figures: Vec<f64>,
}

impl Row {
    pub(crate) fn new(
        name: impl Into<String>,
        unit: &'static str,
        beside: Option<usize>,
        measure: impl FnMut(Duration) -> Result<f64> + 'static,
    ) -> Self {
        Row { name: name.into(), unit, beside, measure: Box::new(measure), wanted: true, figures: Vec::new() }
    }

    fn median(&self) -> f64 {
        self.figures[self.figures.len() / 2]
    }
}

/// Repeats something for so long, after a tenth of that. Returns the seconds that it took on average.
pub(crate) fn repeated(length: Duration, mut repeat: impl FnMut() -> Result<()>) -> Result<f64> {
    let (mut start, mut count, mut warm) = (Instant::now(), 0_u64, false);
    loop {
        repeat()?;
        count += 1;
        let elapsed = start.elapsed();
        if !warm && elapsed >= length / 10 {
            (start, count, warm) = (Instant::now(), 0, true);
        } else if warm && elapsed >= length {
            return Ok(elapsed.as_secs_f64() / count as f64);
        }
    }
}

/// The client's side of calls.
pub(crate) trait Client {
    /// Makes the call with this number.
    fn call(&mut self, number: u64) -> Result<()>;

    /// Waits for its answer, which is the number, too.
    fn answer(&mut self, number: u64) -> Result<u64>;

    /// Microseconds of a call, with this number in flight.
    fn calls(&mut self, in_flight: u64, length: Duration) -> Result<f64> {
        let mut next = in_flight;
        for number in 0..in_flight {
            self.call(number)?;
        }
        let seconds = repeated(length, || {
            for _ in 0..16 {
                let (number, answer) = (next - in_flight, self.answer(next - in_flight)?);
                ensure!(answer == number, "{answer} instead of {number}");
                self.call(next)?;
                next += 1;
            }
            Ok(())
        })?;
        for number in next - in_flight..next {
            self.answer(number)?;
        }
        Ok(seconds * 1e6 / 16.0)
    }
}

/// Measures the rows that are wanted, and those beside them, in turns, and prints them.
pub(crate) fn run(mut rows: Vec<Row>, length: Length) -> Result<()> {
    let beside: Vec<_> = rows.iter().filter(|row| row.wanted).filter_map(|row| row.beside).collect();
    beside.into_iter().for_each(|index| rows[index].wanted = true);
    for _ in 0..length.blocks {
        for row in rows.iter_mut().filter(|row| row.wanted) {
            row.figures.push((row.measure)(length.row)?);
            // What has polled for this row sleeps before the next one.
            thread::sleep(2 * AWAKE);
        }
    }
    rows.iter_mut().for_each(|row| row.figures.sort_by(f64::total_cmp));
    println!("{:<42} {:>10} {:>10} {:>10}  {:<5} {:>10}", "", "median", "lowest", "highest", "", "× machine");
    for row in rows.iter().filter(|row| row.wanted) {
        let times = row.beside.map(|beside| row.median() / rows[beside].median());
        let times = times.map(|times| format!("{times:.2}")).unwrap_or_default();
        let (lowest, highest) = (row.figures[0], row.figures[row.figures.len() - 1]);
        let figures = [row.median(), lowest, highest].map(|figure| format!("{figure:>10.3}")).join(" ");
        println!("{:<42} {figures}  {:<5} {times:>10}", row.name, row.unit);
    }
    Ok(())
}
