//! The command line.

use std::ffi::OsString;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use intranode::Config;

use crate::bench::{BenchArguments, Cases};
use crate::clean::CleanArguments;
use crate::job::Job;

#[derive(Parser)]
#[command(
    name = "intranode",
    version,
    about = "Starts the ranks of a job on this machine, measures their collectives, and cleans up"
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Start a program in N processes that find each other by their environment
    Run(RunArguments),
    /// Measure the collectives between N processes
    Bench(BenchArguments),
    /// List the shared memory that jobs which were killed have left, and remove it if you agree
    Clean(CleanArguments),
    /// What a rank's process is before it becomes the program
    #[command(name = "__rank", hide = true)]
    Rank(RankArguments),
    /// The process that cleans up if the launcher is killed
    #[command(name = "__guard", hide = true)]
    Guard(GuardArguments),
    /// A rank of the benchmark
    #[command(name = "__bench", hide = true)]
    Measure(Cases),
    /// A rank whose start is measured
    #[command(name = "__start-up", hide = true)]
    StartUp,
}

#[derive(Args)]
pub(crate) struct RunArguments {
    /// How many ranks
    #[arg(short = 'n', long, value_name = "N", value_parser = ranks)]
    ranks: u32,

    /// After how long without progress a collective fails; `none` waits for ever [default: the library's]
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    timeout: Option<String>,

    /// Put `[rank] ` in front of every line of output
    #[arg(long)]
    tag: bool,

    /// Keep each rank on its own share of the processors
    #[arg(long)]
    bind: bool,

    /// The job's name: '/' and up to 230 bytes without '/'; no other job may use it [default: a new one]
    #[arg(long, value_name = "/NAME", value_parser = job_name)]
    name: Option<String>,

    /// After how long ranks that were told to end (SIGTERM) are killed
    #[arg(long, value_name = "SECONDS", default_value_t = Job::KILL_AFTER)]
    kill_after: u64,

    /// Write who waits for whom, since when: at a time-out, and when the launcher or a rank gets SIGUSR2
    #[arg(long)]
    state: bool,

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
            state: self.state,
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

/// A value that the library will accept for a variable: its rules are not written down a second time here.
fn setting(variable: &str, value: &str) -> Result<String, String> {
    let look_up = |name: &str| match name {
        name if name == variable => Some(value),
        "INTRANODE_NAME" => Some("/name"),
        "INTRANODE_RANK" => Some("0"),
        "INTRANODE_SIZE" => Some("1"),
        _ => None,
    };
    let config = Config::from_lookup("INTRANODE", |name| look_up(name).map(str::to_owned));
    config.map(|_| value.to_owned()).map_err(|error| error.to_string())
}

/// A job's name, for every command that takes one.
pub(crate) fn job_name(text: &str) -> Result<String, String> {
    setting("INTRANODE_NAME", text)
}

fn timeout(text: &str) -> Result<String, String> {
    setting("INTRANODE_TIMEOUT", text)
}

/// How many ranks, for every command that starts some.
pub(crate) fn ranks(text: &str) -> Result<u32, String> {
    setting("INTRANODE_SIZE", text)?.parse().map_err(|error| format!("{error}"))
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
    fn the_help_tells_how_long_a_name_can_be() {
        let mut command = Arguments::command();
        let run = command.find_subcommand_mut("run").expect("it runs jobs");
        let limit = format!("up to {} bytes", Config::MAX_NAME_BYTES);
        assert!(run.render_help().to_string().contains(&limit), "not {limit}");
    }

    #[test]
    fn values_follow_the_library_s_rules() {
        assert_eq!(job_name("/job-42").as_deref(), Ok("/job-42"));
        assert_eq!(timeout("0.5").as_deref(), Ok("0.5"));
        assert_eq!(ranks("4"), Ok(4));
        for wrong in ["", "/", "job", "/a/b"] {
            assert!(job_name(wrong).is_err(), "{wrong:?}");
        }
        for wrong in ["0", "-1", "soon"] {
            assert!(timeout(wrong).is_err(), "{wrong:?}");
            assert!(ranks(wrong).is_err(), "{wrong:?}");
        }
    }
}
