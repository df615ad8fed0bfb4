//! `intranode bench`: what the collectives cost on this machine.
//!
//! The launcher starts this program once for each rank; the ranks measure one case after the other, in the same
//! order, and rank 0 prints.

mod collective;
mod measure;
mod report;

use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use intranode::Communicator;
use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

use crate::arguments::ranks;
use crate::job::{self, Job};
use collective::{Allgatherv, Allreduce, Barrier, Broadcast, Collective};
use measure::Budget;
use report::{Report, Row};

#[derive(Args)]
pub(crate) struct BenchArguments {
    /// How many ranks
    #[arg(short = 'n', long, value_name = "N", value_parser = ranks)]
    ranks: u32,

    /// Keep each rank on its own share of the processors
    #[arg(long)]
    bind: bool,

    #[command(flatten)]
    cases: Cases,
}

/// What is measured; every rank gets the same.
#[derive(Args, Clone)]
pub(crate) struct Cases {
    /// Print one JSON object a line instead of a table
    #[arg(long)]
    json: bool,

    /// Only this operation; may be given several times
    #[arg(long = "op", value_name = "OP")]
    operations: Vec<Operation>,

    /// Only this size, a multiple of 8; may be given several times. The total that a rank receives (allgatherv) or
    /// the buffer (allreduce, broadcast)
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    bytes: Vec<usize>,

    /// About how long each line may take
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    seconds: Duration,

    /// How many repetitions each line has, however long they take [default: what the seconds allow]
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    repetitions: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    Barrier,
    Allreduce,
    Allgatherv,
    Broadcast,
}

impl Operation {
    /// Small as in one message, in the cache, beyond the cache, and as much as the largest cases in practice.
    fn default_bytes(self) -> &'static [usize] {
        match self {
            Operation::Barrier => &[0],
            Operation::Allreduce => &[32, 8 << 10, 1 << 20, 32 << 20],
            Operation::Allgatherv => &[1 << 10, 64 << 10, 3_200_000, 206_000_000],
            Operation::Broadcast => &[10 << 10, 1 << 20, 64 << 20],
        }
    }

    fn collective(self, bytes: usize, comm: &Communicator) -> Box<dyn Collective> {
        let elements = bytes / size_of::<f64>();
        match self {
            Operation::Barrier => Box::new(Barrier),
            Operation::Allreduce => Box::new(Allreduce::new(elements, comm)),
            Operation::Allgatherv => Box::new(Allgatherv::new(elements, comm)),
            Operation::Broadcast => Box::new(Broadcast::new(elements, comm)),
        }
    }
}

impl Cases {
    fn list(&self) -> Vec<(Operation, usize)> {
        let operations =
            if self.operations.is_empty() { Operation::value_variants() } else { &self.operations };
        let sizes = |operation: Operation| {
            let own = operation == Operation::Barrier || self.bytes.is_empty();
            if own { operation.default_bytes() } else { &self.bytes }
        };
        operations
            .iter()
            .flat_map(|&operation| sizes(operation).iter().map(move |&bytes| (operation, bytes)))
            .collect()
    }

    /// The command line that gives these cases.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec!["--seconds".to_owned(), self.seconds.as_secs_f64().to_string()];
        let mut option = |name: &str, value: String| arguments.extend([name.to_owned(), value]);
        for operation in self.operations.iter().filter_map(ValueEnum::to_possible_value) {
            option("--op", operation.get_name().to_owned());
        }
        for bytes in &self.bytes {
            option("--bytes", bytes.to_string());
        }
        if let Some(repetitions) = self.repetitions {
            option("--repetitions", repetitions.to_string());
        }
        if self.json {
            arguments.push("--json".to_owned());
        }
        arguments
    }
}

/// In the launcher.
pub(crate) fn run(arguments: &BenchArguments) -> Result<u8> {
    let itself = std::env::current_exe().context("cannot find the launcher's own file")?;
    let mut program = vec![itself.into(), "__bench".into()];
    program.extend(arguments.cases.arguments().into_iter().map(Into::into));
    job::run(&Job { bind: arguments.bind, ..Job::new(program, arguments.ranks) })
}

/// In each rank.
pub(crate) fn measure(cases: &Cases) -> Result<u8> {
    let comm = Communicator::from_env()?;
    let mut report = (comm.rank() == 0).then(|| Report::new(cases.json));
    let budget = Budget { time: cases.seconds, repetitions: cases.repetitions };
    for (operation, bytes) in cases.list() {
        let mut collective = operation.collective(bytes, &comm);
        let times = measure::measure(collective.as_mut(), bytes, &comm, &budget)
            .with_context(|| format!("{operation:?} of {bytes} bytes on rank {}", comm.rank()))?;
        if let Some(report) = &mut report {
            report.print(&Row::new(operation, bytes, comm.size(), times))?;
        }
    }
    comm.leave()?;
    Ok(0)
}

/// In each rank whose start is measured: tells when it has been through the first barrier, by a clock that its starter
/// can read too.
pub(crate) fn start_up() -> Result<u8> {
    let comm = Communicator::from_env()?;
    comm.barrier()?;
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)?;
    println!("{}.{:09}", now.tv_sec(), now.tv_nsec());
    comm.leave()?;
    Ok(0)
}

fn bytes(text: &str) -> Result<usize, String> {
    let bytes: usize = text.parse().map_err(|error| format!("{error}"))?;
    if bytes == 0 || !bytes.is_multiple_of(size_of::<f64>()) {
        return Err("a positive multiple of 8 is expected, since what moves is f64".to_owned());
    }
    Ok(bytes)
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|error| format!("{error}"))?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        cases: Cases,
    }

    fn parse(arguments: &[String]) -> Cases {
        Line::parse_from([String::new()].iter().chain(arguments)).cases
    }

    #[test]
    fn ranks_get_the_cases_that_the_user_asked_for() {
        let given = ["--op", "broadcast", "--op", "barrier", "--bytes", "8", "--bytes", "16"].map(String::from);
        let passed_on = parse(&parse(&given).arguments());
        let (broadcast, barrier) = (Operation::Broadcast, Operation::Barrier);
        assert_eq!(passed_on.list(), [(broadcast, 8), (broadcast, 16), (barrier, 0)]);
    }

    #[test]
    fn every_operation_is_measured_by_default() {
        let cases = parse(&[]).list();
        for operation in Operation::value_variants() {
            let bytes: Vec<usize> =
                cases.iter().filter(|case| case.0 == *operation).map(|case| case.1).collect();
            assert_eq!(bytes, operation.default_bytes());
        }
    }

    #[test]
    fn sizes_are_whole_elements() {
        assert_eq!(bytes("16"), Ok(16));
        for wrong in ["0", "12", "-8", "x"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
    }
}
