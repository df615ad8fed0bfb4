//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};

use crate::job::Job;

#[derive(Parser)]
#[command(
    name = "intranode",
    version,
    about = "Starts the ranks of a job on this machine, and measures their collectives"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start a program in N processes that find each other by their environment
    Run(RunArguments),
    /// What a rank's process is before it becomes the program
    #[command(name = "__rank", hide = true)]
    Rank(RankArguments),
    /// The process that cleans up if the launcher is killed
    #[command(name = "__guard", hide = true)]
    Guard(GuardArguments),
}

#[derive(Args)]
pub(crate) struct RunArguments {
    /// How many ranks
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    ranks: u32,

    /// After how long without progress a collective fails [default: the library's]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    timeout: Option<u64>,

    /// Put `[rank] ` in front of every line of output
    #[arg(long)]
    tag: bool,

    /// Keep each rank on its own share of the processors
    #[arg(long)]
    bind: bool,

    /// The job's name; it starts with '/' and must not be used by another job [default: a new one]
    #[arg(long, value_name = "/NAME", value_parser = job_name)]
    name: Option<String>,

    /// After how long ranks that were told to end (SIGTERM) are killed
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    kill_after: u64,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

impl RunArguments {
    pub(crate) fn into_job(self) -> Job {
        Job {
            program: self.program,
            ranks: self.ranks,
            name: self.name,
            timeout: self.timeout,
            tag: self.tag,
            bind: self.bind,
            kill_after: Duration::from_secs(self.kill_after),
        }
    }
}

#[derive(Args)]
pub(crate) struct RankArguments {
    /// The launcher's process id
    #[arg(long)]
    pub(crate) launcher: i32,

    /// The rank and the number of ranks between which the processors are divided
    #[arg(long, num_args = 2, value_names = ["RANK", "RANKS"])]
    pub(crate) bind: Option<Vec<usize>>,

    #[arg(required = true, last = true)]
    pub(crate) program: Vec<OsString>,
}

#[derive(Args)]
pub(crate) struct GuardArguments {
    /// The job whose segments are to be removed; only given when the launcher made the name
    #[arg(long)]
    pub(crate) name: Option<String>,
}

/// A POSIX shared-memory name: a slash, then at least one byte that is none.
fn job_name(text: &str) -> Result<String, String> {
    const LONGEST: usize = 255;
    let Some(rest) = text.strip_prefix('/') else {
        return Err("a job's name starts with '/'".to_owned());
    };
    if rest.is_empty() || rest.contains('/') {
        return Err("a job's name is one '/' and at least one other character, without a second '/'".to_owned());
    }
    if text.len() > LONGEST {
        return Err(format!("a job's name has at most {LONGEST} bytes"));
    }
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn names_follow_the_rules_of_posix_shared_memory() {
        assert!(job_name("/job-42").is_ok());
        for wrong in ["", "/", "job", "/a/b", "//"] {
            assert!(job_name(wrong).is_err(), "{wrong:?}");
        }
        assert!(job_name(&format!("/{}", "x".repeat(255))).is_err());
    }
}
