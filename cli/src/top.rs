//! `intranode top`: the jobs on this machine, seen from outside.
//!
//! A job is found by the mappings of its ranks in `/proc`. The words by which ranks tell each other how far they have come are
//! copied out of a rank's memory by the kernel: nothing is attached to, stopped, or written.

mod found;
#[cfg(feature = "live")]
mod live;
mod processes;
mod report;
mod table;
mod tracker;

use std::io::{IsTerminal, stdout};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;

use report::JobReport;
use tracker::Tracker;

use crate::say;

/// How many samples are taken in an interval.
const SAMPLES: u32 = 20;

const AFTER_HELP: &str = "\
Columns:
  state
      runs: between two calls, or busy in one. waits: has arrived, and waits for the ranks that are named. frozen: stopped by
      a signal or a debugger. dead: its process has ended. joining, left: not yet, or no longer a rank.
  round, rounds/s
      A call takes one round or several.
  bytes/s
      An estimate: what the calls that were seen contribute to a round, times the rounds.
  since
      For how long the rank has not arrived at a further round, at least: it is not known before this program began to look.
  late
      In how many of a hundred samples another rank was ahead of it. The slowest rank, which was behind most often, has a *.

Exit status:
  0
      A job was found.
  1
      There is none.
  2
      The command line is wrong, and nothing was looked for.
  125
      The memory of the ranks cannot be read, or another failure.

Permissions:
  The kernel lets a user read the memory of the user's own processes, unless a policy forbids it: with Yama
  (kernel.yama.ptrace_scope) 1 or more only root may. Then sudo intranode top works, or sudo sysctl kernel.yama.ptrace_scope=0.

Examples:
  intranode top
      All jobs, live, until q is pressed.
  intranode top --once /job-42
      A table of one job, and no more.
  intranode top --json --interval 5 | jq '.ranks[] | select(.slowest)'
      A line of JSON for each job, over five seconds.";

/// Show what the ranks of jobs do: which wait for which, and which is slow
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct TopArguments {
    /// Look for this time and print a table
    #[arg(long)]
    once: bool,

    /// Look for this time and print a line of JSON for each job
    #[arg(long)]
    json: bool,

    /// Seconds over which rates are measured
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: Duration,

    /// Only this job: its name, or the process id of one of its ranks [default: all jobs]
    #[arg(value_name = "JOB")]
    job: Option<String>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().map_err(|_| "a number of seconds".to_owned())?;
    let interval = Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())?;
    let allowed = Duration::from_millis(10)..=Duration::from_secs(3600);
    if allowed.contains(&interval) { Ok(interval) } else { Err("0.01 to 3600 seconds".to_owned()) }
}

/// Returns 1 if there is no job.
pub(crate) fn run(arguments: &TopArguments) -> Result<u8> {
    #[cfg(feature = "live")]
    if !arguments.once && !arguments.json && stdout().is_terminal() {
        return live::run(arguments.job.as_deref(), arguments.interval);
    }
    let mut trackers = track(arguments.job.as_deref())?;
    for _ in 0..SAMPLES {
        sleep(arguments.interval / SAMPLES);
        trackers.iter_mut().for_each(Tracker::sample);
    }
    let reports: Vec<JobReport> = trackers.iter().map(Tracker::report).collect();
    for report in &reports {
        if arguments.json {
            say::line(serde_json::to_string(report).context("a report as JSON")?);
        } else {
            say::lines(table::text(report, stdout().is_terminal()));
        }
    }
    if reports.is_empty() && !arguments.json {
        say::line(nothing(arguments.job.as_deref()));
    }
    Ok(u8::from(reports.is_empty()))
}

/// The jobs of this name, or with this process.
fn track(job: Option<&str>) -> Result<Vec<Tracker>> {
    let found = found::all().context("cannot look for jobs")?;
    Ok(found.into_iter().filter(|found| job.is_none_or(|job| found.is(job))).map(Tracker::new).collect())
}

fn nothing(job: Option<&str>) -> String {
    match job {
        None => "no job of this user is running".to_owned(),
        Some(job) => format!("no job {job} is running: give a name as /job-42, or the process id of a rank"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_a_number_of_seconds() {
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["", "0", "-1", "soon", "1e9"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
