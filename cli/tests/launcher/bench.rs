//! `intranode bench`, and with it the launcher under ranks that have really joined.

use std::fs;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;

use crate::support::{Launcher, eventually, intranode, run, start};

/// The collectives that have a payload.
const COLLECTIVES: [&str; 13] = [
    "allreduce",
    "allreduce-with",
    "allgatherv",
    "broadcast",
    "reduce",
    "gather",
    "scatter",
    "alltoall",
    "gatherv",
    "scatterv",
    "alltoallv",
    "reduce-scatter",
    "exscan",
];

#[test]
fn every_line_is_a_json_object_with_the_promised_fields() {
    for ranks in [1, 2, 4] {
        let mut command =
            intranode(["bench", "--json", "--bytes", "8", "--bytes", "4096", "--repetitions", "3"]);
        command.args(["-n", &ranks.to_string()]);
        let finished = run(command).succeeded();
        let rows: Vec<Value> =
            finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let cases: Vec<_> = rows.iter().map(|row| (text(row, "op"), number(row, "bytes") as u64)).collect();
        let of_each_size = |operation| [(operation, 8), (operation, 4096)];
        let mut expected = vec![("barrier", 0)];
        expected.extend(COLLECTIVES.into_iter().chain(["put", "get"]).flat_map(of_each_size));
        expected.push(("fetch-add", 8));
        expected.extend(["put-signal", "ping-pong", "stream"].into_iter().flat_map(of_each_size));
        expected.push(("wake-up", 16));
        assert_eq!(cases, expected);
        for row in &rows {
            assert_eq!(row["ranks"], ranks);
            assert_eq!(row["repetitions"], 3);
            assert_eq!((text(row, "buffers"), text(row, "memory")), ("renewed", "private"));
            let [min, median, max] = ["min_us", "median_us", "max_us"].map(|name| number(row, name));
            assert!(0.0 < min && min <= median && median <= max, "{row}");
        }
    }
}

#[test]
fn a_payload_is_measured_by_both_definitions_in_each_memory() {
    for memory in ["private", "shared", "buffer"] {
        let both = ["--buffers", "renewed", "--buffers", "unchanged", "--memory", memory];
        let mut command = intranode(["bench", "-n", "2", "--json", "--bytes", "800008", "--repetitions", "3"]);
        command.args(both);
        let sent: Vec<&str> = COLLECTIVES.into_iter().chain(["ping-pong"]).collect();
        command.args(sent.iter().flat_map(|operation| ["--op", operation]));
        let finished = run(command).succeeded();
        let rows: Vec<Value> =
            finished.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let cases: Vec<_> =
            rows.iter().map(|row| ["op", "buffers", "memory"].map(|field| text(row, field))).collect();
        let expected: Vec<_> = sent
            .iter()
            .flat_map(|operation| ["renewed", "unchanged"].map(|buffers| [operation, buffers, memory]))
            .collect();
        assert_eq!(cases, expected);
    }
}

fn text<'a>(row: &'a Value, field: &str) -> &'a str {
    row[field].as_str().unwrap_or_else(|| panic!("{field} of {row}"))
}

fn number(row: &Value, field: &str) -> f64 {
    row[field].as_f64().unwrap_or_else(|| panic!("{field} of {row}"))
}

#[test]
fn without_json_there_is_a_table() {
    let finished =
        run(intranode(["bench", "-n", "2", "--op", "broadcast", "--bytes", "64", "--repetitions", "1"]));
    let finished = finished.succeeded();
    let lines: Vec<Vec<&str>> = finished.stdout.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(lines.len(), 2, "{}", finished.stdout);
    assert_eq!(lines[0][..3], ["op", "bytes", "ranks"]);
    assert_eq!(lines[1][..3], ["broadcast", "64", "2"]);
}

#[test]
fn the_seconds_bound_a_line_with_more_ranks_than_processors() {
    let ranks = 2 * std::thread::available_parallelism().unwrap().get();
    let mut command = intranode(["bench", "--op", "barrier", "--op", "allreduce", "--bytes", "1024"]);
    command.args(["--json", "--seconds", "0.1", "-n", &ranks.to_string()]);
    assert_eq!(run(command).succeeded().stdout.lines().count(), 2);
}

#[test]
fn a_killed_rank_ends_the_job() {
    let launcher = start(intranode(["bench", "-n", "2", "--op", "barrier", "--seconds", "100"]));
    kill(ranks(&launcher, 2)[0], Signal::SIGKILL).unwrap();
    let finished = launcher.finish();
    assert_eq!(finished.code(), 128 + 9, "{}", finished.stderr);
    assert!(finished.last_error().ends_with("failed first: it was ended by signal 9 (SIGKILL)"));
}

#[test]
fn row_15_joined_ranks_end_with_a_killed_launcher() {
    let launcher = start(intranode(["bench", "-n", "2", "--op", "barrier", "--seconds", "100"]));
    ranks(&launcher, 2);
    launcher.signal(Signal::SIGKILL);
    // `finish` gives them a second.
    launcher.finish();
}

/// The benchmark's ranks, when all are there.
fn ranks(launcher: &Launcher, count: usize) -> Vec<Pid> {
    let is_rank = |pid: &Pid| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split(|&byte| byte == 0).nth(1) == Some(b"__bench")
    };
    let mut ranks = Vec::new();
    assert!(eventually(Duration::from_secs(20), || {
        ranks = launcher.processes().into_iter().filter(is_rank).collect();
        ranks.len() == count
    }));
    ranks
}
