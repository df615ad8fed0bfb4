//! A report as a table.

use std::fmt::Write;

use super::report::{JobReport, RankReport};
use crate::say;

pub(super) const COLUMNS: [&str; 14] = [
    "",
    "rank",
    "pid",
    "cpu",
    "cpu%",
    "state",
    "operation",
    "round",
    "rounds/s",
    "bytes/s",
    "waits for",
    "since",
    "late",
    "memory",
];

/// Dead and frozen ranks are red, if `colours` are wanted.
pub(super) fn text(report: &JobReport, colours: bool) -> String {
    let mut rows: Vec<Vec<String>> = vec![COLUMNS.map(str::to_owned).to_vec()];
    rows.extend(report.ranks.iter().map(cells));
    let columns = rows[0].len();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = title(report) + "\n";
    for (index, row) in rows.iter().enumerate() {
        let padded: Vec<String> =
            row.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        let line = padded.join("  ");
        let is_red = colours && index > 0 && report.ranks[index - 1].state.is_alarming();
        let (on, off) = if is_red { ("\x1b[31m", "\x1b[0m") } else { ("", "") };
        // Writing to a string does not fail.
        let _ = writeln!(text, "{on}{line}{off}");
    }
    text + "\n"
}

pub(super) fn title(report: &JobReport) -> String {
    let split = if report.split { ", split" } else { "" };
    let ended = report.ended.as_ref().map_or(String::new(), |reason| format!(", has ended: {reason}"));
    format!(
        "{}{split}: {} ranks, segment {}{ended}",
        say::printable(&report.name),
        report.ranks.len(),
        bytes(report.segment_bytes as f64)
    )
}

/// One for each column.
pub(super) fn cells(rank: &RankReport) -> Vec<String> {
    let known = |value: Option<String>| value.unwrap_or_else(|| "-".to_owned());
    vec![
        if rank.slowest { "*" } else { "" }.to_owned(),
        rank.rank.to_string(),
        known(rank.pid.map(|pid| pid.to_string())),
        known(rank.cpu.map(|cpu| cpu.to_string())),
        known(rank.cpu_percent.map(|percent| format!("{percent:.0}"))),
        rank.state.as_str().to_owned(),
        known(rank.operation.map(str::to_owned)),
        rank.round.to_string(),
        format!("{:.0}", rank.rounds_per_second),
        bytes(rank.bytes_per_second),
        list(&rank.waits_for),
        format!("{:.1} s", rank.seconds_at_round),
        format!("{:.0}%", rank.late_percent),
        known(rank.memory_bytes.map(|memory| bytes(memory as f64))),
    ]
}

/// A few of the ranks, and how many more.
fn list(ranks: &[usize]) -> String {
    const SHOWN: usize = 4;
    let names: Vec<String> = ranks.iter().take(SHOWN).map(usize::to_string).collect();
    let more = ranks.len().saturating_sub(SHOWN);
    if more > 0 { format!("{} and {more} more", names.join(",")) } else { names.join(",") }
}

fn bytes(count: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = (count, UNITS[0]);
    for unit in &UNITS[1..] {
        if scaled.0 >= 1024.0 {
            scaled = (scaled.0 / 1024.0, unit);
        }
    }
    let digits = usize::from(scaled.1 != UNITS[0]);
    format!("{:.digits$} {}", scaled.0, scaled.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::report::RankState;

    fn rank(rank: usize, state: RankState) -> RankReport {
        RankReport {
            rank,
            pid: Some(100),
            cpu: Some(1),
            cpu_percent: Some(99.6),
            state,
            operation: Some("barrier"),
            round: 7,
            rounds_per_second: 12.3,
            bytes_per_second: 2048.0,
            waits_for: (2..8).collect(),
            slept_on: false,
            seconds_at_round: 1.25,
            late_percent: 5.0,
            slowest: rank == 1,
            memory_bytes: None,
        }
    }

    #[test]
    fn what_is_wrong_stands_out() {
        let ranks = vec![rank(0, RankState::Waits), rank(1, RankState::Dead)];
        let ended = Some("rank 1 has died".to_owned());
        let name = "/job".to_owned();
        let report = JobReport { name, split: false, segment_bytes: 3 << 20, ended, seconds: 1.0, ranks };
        let shown = text(&report, true);
        assert!(shown.starts_with("/job: 2 ranks, segment 3.0 MiB, has ended: rank 1 has died\n"), "{shown}");
        assert!(shown.contains("2,3,4,5 and 2 more") && shown.contains("2.0 KiB"), "{shown}");
        let red: Vec<&str> = shown.lines().filter(|line| line.contains("\x1b[31m")).collect();
        assert!(matches!(red.as_slice(), [line] if line.contains("dead") && line.contains('*')), "{shown}");
        assert!(!text(&report, false).contains('\x1b'));
    }

    #[test]
    fn sizes_have_units() {
        assert_eq!(
            [bytes(0.0), bytes(1023.0), bytes(1536.0), bytes(3e12)],
            ["0 B", "1023 B", "1.5 KiB", "2.7 TiB"]
        );
    }
}
