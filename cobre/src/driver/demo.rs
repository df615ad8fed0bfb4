//! `cobre-shm demo`: one case with Cobre's local backend and with several numbers of ranks.

use std::fs;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::ExitCode;

use cobre_io::{read_simulation_metadata, read_training_metadata};

use crate::driver::case;
use crate::driver::failure::{Failure, Outcome};
use crate::driver::trial::{Results, Trial, Verdict};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Where the case and the results go; a directory that does not exist yet
    directory: PathBuf,
    /// The numbers of ranks to run with
    #[arg(long, value_delimiter = ',', default_value = "1,2,4", value_name = "N,…")]
    ranks: Vec<NonZeroUsize>,
    /// Threads of each rank
    #[arg(long, default_value = "1", value_name = "T")]
    threads: NonZeroUsize,
    #[command(flatten)]
    shape: case::Shape,
}

/// One row of the table.
struct Run {
    backend: &'static str,
    ranks: usize,
    seconds: f64,
    training_seconds: f64,
    lower_bound: f64,
    upper_bound: f64,
    mean_cost: f64,
    /// None for the reference.
    verdict: Option<Verdict>,
}

pub(crate) fn execute(arguments: &Arguments) -> Outcome<ExitCode> {
    let directory = &arguments.directory;
    fs::create_dir(directory).map_err(|error| Failure::io(directory, error))?;
    let trial = Trial { directory, case: directory.join("case") };
    case::write(&trial.case, &arguments.shape)?;

    let threads = arguments.threads.get();
    let run = |backend: &'static str, ranks: usize| {
        tell!("running with the {backend} backend, {ranks} rank(s) …");
        trial.run(backend, ranks, threads)
    };
    let reference = run("local", 1)?;
    let mut runs = vec![Run::read("local", 1, &reference, None)?];
    for ranks in arguments.ranks.iter().map(|ranks| ranks.get()) {
        let results = run("shm", ranks)?;
        let verdict = results.compare(&reference)?;
        runs.push(Run::read("shm", ranks, &results, Some(verdict))?);
    }
    print_table(&runs);
    let mut all_equal = true;
    for run in &runs {
        if let Some(verdict) = run.verdict.as_ref().filter(|verdict| !verdict.equal()) {
            all_equal = false;
            show!("{} rank(s) differ from the local backend:", run.ranks);
            for difference in &verdict.differences {
                show!("  {difference}");
            }
        }
    }
    show!("results: {}", directory.display());
    Ok(if all_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

impl Run {
    fn read(backend: &'static str, ranks: usize, results: &Results, verdict: Option<Verdict>) -> Outcome<Run> {
        let training = read_training_metadata(&results.output.join("training/metadata.json"))?;
        let simulation = results.output.join("simulation/metadata.json");
        let mean_cost = if simulation.exists() { read_simulation_metadata(&simulation)?.cost } else { None };
        Ok(Run {
            backend,
            ranks,
            seconds: results.seconds,
            training_seconds: training.duration_seconds,
            lower_bound: training.bounds.final_lower_bound,
            upper_bound: training.bounds.final_upper_bound.unwrap_or(f64::NAN),
            mean_cost: mean_cost.map_or(f64::NAN, |cost| cost.mean_cost),
            verdict,
        })
    }
}

fn print_table(runs: &[Run]) {
    show!();
    show!(
        "{:<8} {:>5} {:>9} {:>9} {:>22} {:>22} {:>22}  equal to local, bit for bit",
        "backend",
        "ranks",
        "seconds",
        "training",
        "lower bound",
        "upper bound",
        "simulated cost"
    );
    for run in runs {
        let verdict = match &run.verdict {
            None => "(the reference)".to_string(),
            Some(verdict) if verdict.equal() => {
                format!("yes: {} files, {} policies", verdict.files, verdict.policies)
            }
            Some(verdict) => format!("NO: {} differences", verdict.differences.len()),
        };
        show!(
            "{:<8} {:>5} {:>9.2} {:>9.2} {:>22e} {:>22e} {:>22e}  {verdict}",
            run.backend,
            run.ranks,
            run.seconds,
            run.training_seconds,
            run.lower_bound,
            run.upper_bound,
            run.mean_cost
        );
    }
    show!();
}
