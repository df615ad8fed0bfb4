//! `intranode clean`: removes the shared memory that killed jobs have left.

use std::io::{BufRead, stdin};
use std::time::{Duration, SystemTime};

use anyhow::{Context, Result};
use clap::Args;
use intranode::job::cleanup::{self, Leftover, Removal};

use crate::say;
use crate::values::job_name;

const AFTER_HELP: &str = "\
Exit status:
  0
      All leftovers were removed, there were none, or you did not agree.
  1
      A leftover could not be removed.
  2
      The command line is wrong, and nothing was removed.
  125
      The names of shared memory cannot be listed, or the output not be written.

Examples:
  intranode clean --dry-run
      List the leftovers of this user's killed jobs.
  intranode clean --yes /job-42
      Remove the leftovers of this job, with its regions.";

/// List the shared memory that killed jobs have left, and remove it
///
/// Lists only memory that provably belongs to a job of this user, and that no process uses. Nothing is removed before you
/// have agreed.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct CleanArguments {
    /// List the leftovers, and remove nothing
    #[arg(long)]
    dry_run: bool,

    /// Remove the leftovers without asking
    #[arg(short, long, conflicts_with = "dry_run")]
    yes: bool,

    /// Only the leftovers of jobs with these names [default: all jobs]
    #[arg(value_name = "/NAME", value_parser = job_name)]
    names: Vec<String>,
}

/// Returns 1 if a leftover could not be removed.
pub(crate) fn run(arguments: &CleanArguments) -> Result<u8> {
    let found = cleanup::find(&arguments.names).context("cannot list the names of shared memory")?;
    if found.is_empty() {
        say::line("nothing to remove: no shared memory of jobs that have ended");
        return Ok(0);
    }
    for leftover in &found {
        say::line(describe(leftover));
    }
    if arguments.dry_run || !(arguments.yes || is_agreed(found.len())?) {
        say::line("nothing was removed");
        return Ok(0);
    }
    let removed = found.iter().map(remove).filter(|removed| *removed).count();
    Ok(u8::from(removed < found.len()))
}

fn describe(leftover: &Leftover) -> String {
    let mut text = format!("{}  {}", say::printable(&leftover.name()), size(leftover.bytes()));
    if let Some(pid) = leftover.maker() {
        text += &format!("  made by process {pid}");
    }
    if let Some(age) = leftover.made().and_then(|made| SystemTime::now().duration_since(made).ok()) {
        text += &format!("  {} ago", time(age));
    }
    text
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1_048_576 => format!("{} KiB", bytes.div_ceil(1024)),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

fn time(age: Duration) -> String {
    match age.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds @ 7200..172_800 => format!("{} h", seconds / 3600),
        seconds => format!("{} days", seconds / 86_400),
    }
}

fn is_agreed(count: usize) -> Result<bool> {
    let which = if count == 1 { "it" } else { "them all" };
    if !say::question(format_args!("Remove {which}? No process uses it any more. [y/N] ")) {
        return Ok(false);
    }
    let mut answer = Vec::new();
    stdin().lock().read_until(b'\n', &mut answer).context("cannot read the answer")?;
    if !answer.ends_with(b"\n") {
        say::line("");
    }
    Ok(["y", "yes"].iter().any(|yes| answer.trim_ascii().eq_ignore_ascii_case(yes.as_bytes())))
}

/// Whether the name no longer exists, or is about to be removed.
fn remove(leftover: &Leftover) -> bool {
    let name = say::printable(&leftover.name());
    match leftover.remove() {
        Ok(Removal::Removed) => say::line(format_args!("removed {name}")),
        Ok(Removal::Gone) => {
            say::line(format_args!("{name} was removed by another process, or has been reused"));
        }
        Ok(_) => say::line(format_args!("{name} is being removed by another process")),
        Err(error) => {
            say::error(format_args!("{name} cannot be removed: {error}"));
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_times_have_units() {
        assert_eq!([size(1), size(6 << 20), size(1 << 30)], ["1 KiB", "6.0 MiB", "1024.0 MiB"]);
        let times = [1, 121, 7201, 172_801].map(|seconds| time(Duration::from_secs(seconds)));
        assert_eq!(times, ["1 s", "2 min", "2 h", "2 days"]);
    }
}
