//! `intranode bench`: measures the collectives, one-sided accesses and messages on this machine.
//!
//! The launcher starts this program once for each rank. The ranks measure the cases in the same order, and rank 0 prints.

mod blocks;
mod cases;
mod collective;
mod measure;
mod message;
mod one_sided;
mod operation;
mod payload;
mod report;

use anyhow::{Context, Result};
use clap::Args;
use intranode::Communicator;
use nix::time::{ClockId, clock_gettime};

use crate::job::{self, Job};
use crate::values::{one_for_each_processor, ranks};
use report::{Report, Row};

pub(crate) use cases::Cases;

const AFTER_HELP: &str = "\
Exit status:
  0
      Everything was measured.
  2
      The command line is wrong, and nothing was started.
  125
      The launcher itself failed.
  other
      The status of the rank that failed first, as with `intranode run`.

Examples:
  intranode bench -n 4
      A table of all operations, each with several sizes.
  intranode bench -n 4 --op allreduce --bytes 8192 --json
      One line of JSON: op, bytes, ranks, buffers, memory, median_us, min_us, max_us, repetitions.
  intranode bench -n 4 --buffers renewed --buffers unchanged --memory shared
      Both definitions of a collective's time, with the payload in memory that all ranks map.";

/// Measure the collectives between the processes of a job
#[derive(Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct BenchArguments {
    /// The number of ranks [default: the number of processors]
    #[arg(short = 'n', long, value_name = "N", value_parser = ranks)]
    ranks: Option<u32>,

    /// Bind each rank to its own share of the processors; ranks in a row to one, if there are more ranks than processors
    #[arg(long)]
    bind: bool,

    #[command(flatten)]
    cases: Cases,
}

/// Runs in the launcher.
pub(crate) fn run(arguments: &BenchArguments) -> Result<u8> {
    let own_path = std::env::current_exe().context("cannot find the launcher's own file")?;
    let mut program = vec![own_path.into(), "__bench".into()];
    program.extend(arguments.cases.arguments().into_iter().map(Into::into));
    let ranks = arguments.ranks.unwrap_or_else(one_for_each_processor);
    job::run(&Job { bind: arguments.bind, ..Job::new(program, ranks) })
}

/// Runs in each rank.
pub(crate) fn measure_as_rank(cases: &Cases) -> Result<u8> {
    let comm = Communicator::from_env()?;
    let mut report = (comm.rank() == 0).then(|| Report::new(cases.json));
    let budget = cases.budget();
    for case in cases.list() {
        let mut collective = case.operation.collective(case.bytes, case.memory, &comm)?;
        let times = measure::measure(collective.as_mut(), case.bytes, case.buffers, &comm, &budget)
            .with_context(|| format!("{:?} of {} bytes on rank {}", case.operation, case.bytes, comm.rank()))?;
        if let Some(report) = &mut report {
            report.print(&Row::new(case, comm.size(), times))?;
        }
    }
    comm.leave()?;
    Ok(0)
}

/// Runs in each rank whose start-up is measured: prints the time after the first barrier, by a clock that all processes
/// share.
pub(crate) fn start_up_as_rank() -> Result<u8> {
    let comm = Communicator::from_env()?;
    comm.barrier()?;
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    println!("{}.{:09}", now.tv_sec(), now.tv_nsec());
    comm.leave()?;
    Ok(0)
}
