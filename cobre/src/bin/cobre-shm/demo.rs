//! `cobre-shm demo`: the same case by Cobre's local backend and by several numbers of ranks.

use std::fs;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use cobre_io::{read_simulation_metadata, read_training_metadata};

use crate::case;
use crate::compare;
use crate::failure::{Failure, Kind, Outcome};

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
    verdict: Verdict,
}

enum Verdict {
    /// What the others are compared with.
    Reference,
    Equal(String),
    Different(Vec<String>),
}

pub(crate) fn execute(arguments: &Arguments) -> Outcome<ExitCode> {
    let directory = &arguments.directory;
    fs::create_dir(directory).map_err(|error| Failure::io(directory, error))?;
    let demo = Demo { case: directory.join("case"), directory, threads: arguments.threads };
    case::write(&demo.case, &arguments.shape)?;

    let mut runs = vec![demo.run("local", 1)?];
    for ranks in &arguments.ranks {
        runs.push(demo.run("shm", ranks.get())?);
    }
    print_table(&runs);
    let mut all_equal = true;
    for run in &runs {
        if let Verdict::Different(differences) = &run.verdict {
            all_equal = false;
            println!("{} rank(s) differ from the local backend:", run.ranks);
            for difference in differences {
                println!("  {difference}");
            }
        }
    }
    println!("results: {}", directory.display());
    Ok(if all_equal { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

struct Demo<'a> {
    directory: &'a Path,
    case: PathBuf,
    threads: NonZeroUsize,
}

impl Demo<'_> {
    /// Runs the case in processes of its own, and compares what they wrote.
    fn run(&self, backend: &'static str, ranks: usize) -> Outcome<Run> {
        let output = self.directory.join(format!("{backend}-{ranks}"));
        let policies = self.directory.join(format!("{backend}-{ranks}-policies"));
        eprintln!("running with the {backend} backend, {ranks} rank(s) …");
        let start = Instant::now();
        let program = std::env::current_exe().map_err(|error| Failure::new(Kind::Internal, error))?;
        let status = Command::new(&program)
            .args(["run", "--quiet", "--backend", backend])
            .args(["--ranks", &ranks.to_string()])
            .args(["--threads", &self.threads.to_string()])
            .arg("--out")
            .arg(&output)
            .arg("--policy-per-rank")
            .arg(&policies)
            .arg(&self.case)
            .status()
            .map_err(|error| Failure::io(&program, error))?;
        let seconds = start.elapsed().as_secs_f64();
        if !status.success() {
            return Err(Failure::new(
                Kind::Internal,
                format_args!("the run with {ranks} rank(s) of the {backend} backend failed: {status}"),
            ));
        }

        let training = read_training_metadata(&output.join("training/metadata.json"))?;
        let simulation = output.join("simulation/metadata.json");
        let mean_cost = if simulation.exists() { read_simulation_metadata(&simulation)?.cost } else { None };
        Ok(Run {
            backend,
            ranks,
            seconds,
            training_seconds: training.duration_seconds,
            lower_bound: training.bounds.final_lower_bound,
            upper_bound: training.bounds.final_upper_bound.unwrap_or(f64::NAN),
            mean_cost: mean_cost.map_or(f64::NAN, |cost| cost.mean_cost),
            verdict: if backend == "local" {
                Verdict::Reference
            } else {
                self.compare(&output, &policies, ranks)?
            },
        })
    }

    /// Compares all results with those of the local backend, and the policy of every rank.
    fn compare(&self, output: &Path, policies: &Path, ranks: usize) -> Outcome<Verdict> {
        let reference = self.directory.join("local-1");
        let results = compare::directories(&reference, output)?;
        let mut differences = results.differences.clone();
        for rank in 0..ranks {
            let policy = policies.join(format!("rank-{rank}"));
            let found = compare::directories(&reference.join("policy"), &policy)?.differences;
            differences.extend(found.into_iter().map(|line| format!("rank {rank}: {line}")));
        }
        Ok(if differences.is_empty() {
            Verdict::Equal(format!("{} files, {ranks} policies", results.files()))
        } else {
            Verdict::Different(differences)
        })
    }
}

fn print_table(runs: &[Run]) {
    println!();
    println!(
        "{:<8} {:>5} {:>9} {:>9} {:>22} {:>22} {:>22}  equal to local, bit for bit",
        "backend", "ranks", "seconds", "training", "lower bound", "upper bound", "simulated cost"
    );
    for run in runs {
        let verdict = match &run.verdict {
            Verdict::Reference => "(the reference)".to_string(),
            Verdict::Equal(what) => format!("yes: {what}"),
            Verdict::Different(differences) => format!("NO: {} differences", differences.len()),
        };
        println!(
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
    println!();
}
