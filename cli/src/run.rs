//! `intranode run`: starts a program as the ranks of a job.

use std::ffi::OsString;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Args;

use crate::job::{self, Job, KILL_AFTER};
use crate::report::Files;
use crate::values::{job_name, one_for_each_processor, ranks, timeout};

const AFTER_HELP: &str = "\
Environment of each rank:
  INTRANODE_NAME, INTRANODE_RANK, INTRANODE_SIZE
      The job's name, this rank, and the number of ranks, for Communicator::from_env().
  INTRANODE_TIMEOUT, INTRANODE_STATE
      Set by --timeout and --state.
  INTRANODE_REPORT
      Where the ranks count their calls, with --report or --trace.
  COBRE_SHM_NAME, COBRE_SHM_RANK, COBRE_SHM_SIZE, COBRE_SHM_TIMEOUT, COBRE_COMM_BACKEND
      The same for programs that use the backend for Cobre.
  RAYON_NUM_THREADS, OMP_NUM_THREADS
      The rank's share of the processors, unless the variable is set already.

Exit status:
  0
      Every rank ended with status 0.
  2
      The command line is wrong, and nothing was started.
  125
      The launcher itself failed.
  126, 127
      The program cannot be executed, or is not found.
  128 + N
      The rank that failed first was ended by signal N.
  other
      The status of the rank that failed first.

Signals:
  HUP, INT, QUIT, TERM, USR1, USR2, TSTP, CONT
      The launcher forwards each of them to every rank.

Examples:
  intranode run ./program --its-option
      A rank for each processor.
  intranode run -n 4 -- ./program --its-option
      Four ranks of one program.
  intranode run -n 4 --report job.html --trace job.trace.json -- ./program
      Writes job.html and job.json at the end, and a timeline for https://ui.perfetto.dev.
  intranode run -n 2 --tag --bind -- sh -c 'echo $INTRANODE_RANK'
      Prefixes each line of output with its rank, and binds each rank to its own processors.";

/// What a user of another launcher needs to know.
const SEVERAL_MACHINES: &str = "\
hosts and host files are refused: a job has the ranks of one machine, and intranode run starts them here. On several machines \
start the program by mpiexec or srun, with INTRANODE_SCOPE=node: the ranks of each machine are then a job of their own, and \
MPI connects the machines";

/// Start a program as the ranks of a job
///
/// Environment variables tell each rank its job and its number. The launcher forwards the ranks' output, and signals to the
/// ranks. When a rank fails, the others have a second to end by themselves, then they get SIGTERM, then SIGKILL.
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct RunArguments {
    /// The number of ranks [default: the number of processors]
    #[arg(short = 'n', long, value_name = "N", value_parser = ranks)]
    ranks: Option<u32>,

    /// Seconds without progress after which a collective fails, or `none` [default: the library's]
    #[arg(long, value_name = "SECONDS", value_parser = timeout)]
    timeout: Option<String>,

    /// Prefix every line of output with `[rank] `
    #[arg(long)]
    tag: bool,

    /// Bind each rank to its own share of the processors; ranks in a row to one, if there are more ranks than processors
    #[arg(long)]
    bind: bool,

    /// The job's name: '/' and up to 230 bytes without '/', not used by another job [default: a new name]
    #[arg(long, value_name = "/NAME", value_parser = job_name)]
    name: Option<String>,

    /// Seconds between SIGTERM and SIGKILL
    #[arg(long, value_name = "SECONDS", default_value_t = KILL_AFTER.as_secs())]
    kill_after: u64,

    /// Write which rank waits for which, and since when: after a time-out, and when the launcher or a rank gets SIGUSR2
    #[arg(long)]
    state: bool,

    #[command(flatten)]
    files: Files,

    /// Refused, with the way to several machines: a job has the ranks of one
    #[arg(long, short = 'H', alias = "hosts", value_name = "HOSTS")]
    host: Vec<String>,

    /// Refused, with the way to several machines: a job has the ranks of one
    #[arg(long, alias = "machinefile", value_name = "FILE")]
    hostfile: Option<OsString>,

    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    program: Vec<OsString>,
}

/// Returns the exit status of the job.
pub(crate) fn run(arguments: RunArguments) -> Result<u8> {
    if !arguments.host.is_empty() || arguments.hostfile.is_some() {
        bail!("{SEVERAL_MACHINES}");
    }
    job::run(&Job {
        program: arguments.program,
        ranks: arguments.ranks.unwrap_or_else(one_for_each_processor),
        name: arguments.name,
        timeout: arguments.timeout,
        tag: arguments.tag,
        bind: arguments.bind,
        state: arguments.state,
        kill_after: Duration::from_secs(arguments.kill_after),
        files: arguments.files,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Command;
    use intranode::Config;

    #[test]
    fn the_help_contains_the_limit_of_a_name() {
        let help = RunArguments::augment_args(Command::new("run")).render_help().to_string();
        let limit = format!("up to {} bytes", Config::MAX_NAME_BYTES);
        assert!(help.contains(&limit), "not {limit}: {help}");
    }
}
