//! `cobre-shm matrix`: every method of cut selection, with every number of ranks and threads, against Cobre's local backend.
//!
//! Each row of its tables is a case. It is run once with Cobre's local backend and one thread, and then with each number of
//! ranks and threads; a cell is equal if all files, and the policies of all ranks, are.

use std::fs;
use std::num::{NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cobre_io::read_training_metadata;

use crate::driver::case::{self, CutSelection, Shape};
use crate::driver::failure::{Failure, Outcome};
use crate::driver::threads;
use crate::driver::trial::{Results, Trial, Verdict};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The directory for the cases and the results, which must not exist yet
    directory: PathBuf,
    /// The numbers of ranks
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8", value_name = "N,…")]
    ranks: Vec<NonZeroUsize>,
    /// The numbers of threads of each rank
    #[arg(long, value_delimiter = ',', default_value = "1,2", value_name = "T,…")]
    threads: Vec<NonZeroUsize>,
    /// One table of small cases with few iterations instead of two tables
    #[arg(long)]
    short: bool,
}

/// The method of cut selection of a row, and whether the active cuts of a stage are limited.
const SELECTIONS: [(CutSelection, bool); 6] = [
    (CutSelection::Off, false),
    (CutSelection::Level1, false),
    (CutSelection::Lml1, false),
    // The only row that depends on a reduction over all ranks: sums decide which cuts stay active.
    (CutSelection::Lml1, true),
    (CutSelection::Dynamic, false),
    (CutSelection::Domination, false),
];

const fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).expect("a count")
}

/// A year of a river system. Its rows run for about five seconds in a single thread.
const YEAR: Shape = Shape {
    hydros: count(10),
    thermals: count(5),
    stages: 12,
    openings: count(10),
    forward_passes: count(16),
    iterations: count(12),
    scenarios: 64,
    cut_selection: CutSelection::Off,
    check_frequency: count(3),
    max_active_per_stage: Some(count(60)),
    seed: 42,
};

/// Seven forward passes, so that one of 8 ranks has none.
const UNEVEN: Shape =
    Shape { stages: 6, forward_passes: count(7), max_active_per_stage: Some(count(30)), ..YEAR };

/// A case that runs in a fraction of a second.
const SHORT: Shape = Shape {
    hydros: count(4),
    thermals: count(3),
    openings: count(5),
    iterations: count(4),
    scenarios: 6,
    check_frequency: count(2),
    max_active_per_stage: Some(count(10)),
    ..UNEVEN
};

pub(crate) fn execute(arguments: &Arguments) -> Outcome<ExitCode> {
    let directory = &arguments.directory;
    fs::create_dir(directory).map_err(|error| Failure::io(directory, error))?;
    let cells: Vec<(usize, usize)> = arguments
        .ranks
        .iter()
        .flat_map(|ranks| arguments.threads.iter().map(|threads| (ranks.get(), threads.get())))
        .collect();
    let shapes = if arguments.short { &[SHORT][..] } else { &[YEAR, UNEVEN] };
    let mut total = Total::default();
    for shape in shapes {
        print_head(shape, &cells);
        for (selection, limited) in SELECTIONS {
            let max_active_per_stage = shape.max_active_per_stage.filter(|_| limited);
            run_row(directory, &Shape { cut_selection: selection, max_active_per_stage, ..*shape }, &cells)?
                .print(&mut total);
        }
        show!();
    }
    total.print();
    Ok(if total.equal == total.cells { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A row of results.
struct Row {
    name: String,
    /// The active cuts at the end, and all generated ones.
    cuts: [u64; 2],
    cells: Vec<Cell>,
}

struct Cell {
    /// The numbers of ranks and threads.
    name: String,
    /// Cobre cannot use all the requested threads.
    fewer_threads: bool,
    verdict: Outcome<Verdict>,
}

fn run_row(directory: &Path, shape: &Shape, cells: &[(usize, usize)]) -> Outcome<Row> {
    let name = row_name(shape);
    let limited = if shape.max_active_per_stage.is_some() { "-limited" } else { "" };
    let subdirectory = format!("{}-passes-{}{limited}", shape.forward_passes, shape.cut_selection.name());
    let directory = directory.join(subdirectory);
    fs::create_dir(&directory).map_err(|error| Failure::io(&directory, error))?;
    let trial = Trial { directory: &directory, case: directory.join("case") };
    case::write(&trial.case, shape)?;
    let reference = trial.run("local", 1, 1)?;
    let metadata = read_training_metadata(&reference.output.join("training/metadata.json"))?;
    let cuts = [metadata.row_pool.cuts_active, metadata.row_pool.total_generated];

    let passes = shape.forward_passes.get() as usize;
    let cells = cells
        .iter()
        .map(|&(ranks, threads)| {
            let name = format!("{ranks}×{threads}");
            tell!("{} forward passes, {}: {name} …", shape.forward_passes, row_name(shape));
            let fewer_threads = threads::for_training(passes, ranks, threads) < threads;
            let run = trial.run("shm", ranks, threads);
            let verdict = run.and_then(|results| compare(results, &reference));
            Cell { name, fewer_threads, verdict }
        })
        .collect();
    Ok(Row { name, cuts, cells })
}

/// Compares, and removes equal results.
fn compare(results: Results, reference: &Results) -> Outcome<Verdict> {
    let verdict = results.compare(reference)?;
    if verdict.equal() {
        results.remove()?;
    }
    Ok(verdict)
}

fn row_name(shape: &Shape) -> String {
    let selection = shape.cut_selection.name();
    match shape.max_active_per_stage {
        Some(limit) => format!("{selection}, at most {limit} a stage"),
        None => selection,
    }
}

fn print_head(shape: &Shape, cells: &[(usize, usize)]) {
    show!(
        "{} hydros, {} thermals, {} stages, {} openings, {} forward passes, {} iterations",
        shape.hydros,
        shape.thermals,
        shape.stages,
        shape.openings,
        shape.forward_passes,
        shape.iterations
    );
    let cells: String =
        cells.iter().map(|(ranks, threads)| format!(" {:>6}", format!("{ranks}×{threads}"))).collect();
    show!("{:<28} {:>13}{cells}   (ranks × threads)", "cut selection", "cuts active");
}

impl Row {
    fn print(&self, total: &mut Total) {
        let [active, generated] = self.cuts;
        let cells: String =
            self.cells.iter().map(|cell| format!(" {:>6}", total.add(&self.name, cell))).collect();
        show!("{:<28} {:>13}{cells}", self.name, format!("{active} of {generated}"));
    }
}

/// All cells so far.
#[derive(Default)]
struct Total {
    cells: usize,
    equal: usize,
    files: usize,
    policies: usize,
    fewer_threads: bool,
    /// Differences and failures.
    problems: Vec<String>,
}

impl Total {
    /// Counts a cell. Returns its text in the table.
    fn add(&mut self, row: &str, cell: &Cell) -> String {
        self.cells += 1;
        self.fewer_threads |= cell.fewer_threads;
        let text = match &cell.verdict {
            Ok(verdict) if verdict.equal() => {
                self.equal += 1;
                self.files += verdict.files;
                self.policies += verdict.policies;
                "equal"
            }
            Ok(verdict) => {
                let lines = verdict.differences.iter().map(|line| format!("{row}, {}: {line}", cell.name));
                self.problems.extend(lines);
                "DIFFER"
            }
            Err(failure) => {
                self.problems.push(format!("{row}, {}: {failure}", cell.name));
                "FAILED"
            }
        };
        format!("{text}{}", if cell.fewer_threads { "*" } else { "" })
    }

    fn print(&self) {
        if self.fewer_threads {
            show!("* trained by fewer threads: Cobre cannot distribute the forward passes over more");
        }
        for problem in &self.problems {
            show!("{problem}");
        }
        show!(
            "{} of {} cells equal Cobre's local backend, bit for bit, in {} files and the policies of {} ranks",
            self.equal,
            self.cells,
            self.files,
            self.policies
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::driver::failure::Kind;

    #[test]
    fn a_cell_that_differs_or_fails_is_not_equal() {
        let cell = |verdict| Cell { name: "2×1".into(), fewer_threads: false, verdict };
        let mut total = Total::default();
        let equal = Verdict { files: 3, policies: 2, differences: Vec::new() };
        assert_eq!(total.add("off", &cell(Ok(equal))), "equal");
        let different = Verdict { files: 2, policies: 2, differences: vec!["rank 1: cuts".into()] };
        assert_eq!(total.add("off", &cell(Ok(different))), "DIFFER");
        assert_eq!(total.add("off", &cell(Err(Failure::new(Kind::Internal, "hung")))), "FAILED");
        assert_eq!((total.cells, total.equal, total.files), (3, 1, 3));
        assert_eq!(total.problems, ["off, 2×1: rank 1: cuts", "off, 2×1: hung"]);
    }
}
