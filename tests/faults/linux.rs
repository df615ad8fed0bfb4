//! Fault injection over real processes: deaths, departures, stopped ranks, limits, damaged memory.
//!
//! Each test belongs to a row of docs/faults.md, by its number. In addition every test asserts that nothing hangs, that no
//! wrong data is returned as a success, that the survivors live on, and that no file and no process is left. All survivors
//! must report a death within a second; `cargo run --release --example chaos` measures the actual time.
//!
//! A rank is a process that runs this program, with the name of a function in its environment: see `programs`.
//!
//! `FAULTS_REPEAT=10` repeats random tests ten times as often.

mod buffer_memory;
mod buffers;
mod calls;
mod control_group;
mod crashes;
mod deaths;
mod departures;
mod endings;
mod families;
mod foreign;
mod freezing;
mod inheriting;
mod interrupts;
mod job;
mod joining;
mod late_peers;
mod limits;
mod liveness;
mod locking;
mod memory;
mod names;
mod nodes;
mod one_sided;
mod operations;
mod processes;
mod rank;
mod receivers;
mod report;
mod resources;
mod rings;
mod scribbling;
mod segment;
mod senders;
mod single_copy;
mod states;
mod stepping;
mod symmetric;
mod traffic;
mod unloading;

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use libtest_mimic::{Arguments, Completion, Trial};

/// A test, by its name.
type Test = (&'static str, fn() -> Result<Completion>);

/// What a rank runs, by its name.
type Program = (&'static str, fn() -> Result<()>);

fn tests() -> Vec<Test> {
    let all = [
        deaths::TESTS,
        crashes::TESTS,
        inheriting::TESTS,
        processes::TESTS,
        joining::TESTS,
        freezing::TESTS,
        families::TESTS,
        buffer_memory::TESTS,
        buffers::TESTS,
        single_copy::TESTS,
        foreign::TESTS,
        liveness::TESTS,
        limits::TESTS,
        endings::TESTS,
        names::TESTS,
        resources::TESTS,
        calls::TESTS,
        memory::TESTS,
        rings::TESTS,
        states::TESTS,
        unloading::TESTS,
        scribbling::TESTS,
        symmetric::TESTS,
        locking::TESTS,
        senders::TESTS,
        receivers::TESTS,
        interrupts::TESTS,
        late_peers::TESTS,
        departures::TESTS,
        nodes::TESTS,
        &[("every_row_names_its_tests", every_row_names_its_tests)],
    ];
    let mut all = all.concat();
    all.sort_by_key(|(name, _)| *name);
    all
}

fn programs() -> Vec<Program> {
    let all = [
        deaths::PROGRAMS,
        crashes::PROGRAMS,
        inheriting::PROGRAMS,
        processes::PROGRAMS,
        joining::PROGRAMS,
        families::PROGRAMS,
        buffer_memory::PROGRAMS,
        buffers::PROGRAMS,
        single_copy::PROGRAMS,
        foreign::PROGRAMS,
        liveness::PROGRAMS,
        limits::PROGRAMS,
        endings::PROGRAMS,
        names::PROGRAMS,
        resources::PROGRAMS,
        calls::PROGRAMS,
        memory::PROGRAMS,
        rings::PROGRAMS,
        states::PROGRAMS,
        unloading::PROGRAMS,
        scribbling::PROGRAMS,
        symmetric::PROGRAMS,
        locking::PROGRAMS,
        senders::PROGRAMS,
        receivers::PROGRAMS,
        interrupts::PROGRAMS,
        late_peers::PROGRAMS,
        departures::PROGRAMS,
        nodes::PROGRAMS,
    ];
    all.concat()
}

/// docs/faults.md names a test for every row, only existing tests, and all that begin with the row's number.
fn every_row_names_its_tests() -> Result<Completion> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(root.join("docs/faults.md"))?;
    let mut own: BTreeSet<&str> = tests().into_iter().map(|(name, _)| name).collect();
    let mut elsewhere = String::new();
    // The launcher is no part of the package.
    let launcher = root.join("cli").exists();
    for file in ["leftovers.rs", "bench.rs"].iter().filter(|_| launcher) {
        elsewhere += &std::fs::read_to_string(root.join("cli/tests/launcher").join(file))?;
    }
    let rows = text.lines().filter(|line| line.starts_with("| ") && line.as_bytes()[2].is_ascii_digit());
    for (line, row) in rows.zip(1..) {
        let mut cells = line.trim_matches('|').split(" | ");
        ensure!(cells.next().map(str::trim) == Some(&row.to_string()), "not row {row}: {line}");
        let tests = cells.last().context("a last cell")?;
        let parts: Vec<&str> = tests.split('`').collect();
        ensure!(parts.len() > 1, "row {row} names no test");
        for (name, after) in parts[1..].iter().zip(&parts[2..]).step_by(2) {
            if name.starts_with("row_") {
                ensure!(name.starts_with(&format!("row_{row:02}_")), "{name} stands in row {row}");
                let known =
                    own.remove(name) || row == 15 && !launcher || elsewhere.contains(&format!("fn {name}("));
                ensure!(known, "there is no {name}");
            } else if let Some(file) = after.trim_start().strip_prefix('(') {
                let file = file.split(')').next().unwrap_or_default();
                let source = std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
                // Some tests are entries of a list.
                let known = source.contains(&format!("fn {name}(")) || source.contains(&format!("\"{name}\""));
                ensure!(known, "there is no {name} in {file}");
            }
        }
    }
    // The tests of limits are in another table.
    let known = |name: &&str| name.starts_with("limit") && text.contains(&format!("`{name}`"));
    own.retain(|name| (name.starts_with("row_") || name.starts_with("limit")) && !known(name));
    ensure!(own.is_empty(), "docs/faults.md does not name {own:?}");
    Ok(Completion::Completed)
}

/// The number of repetitions of a random test, by default `times`.
fn repeat(times: usize) -> usize {
    let factor =
        std::env::var("FAULTS_REPEAT").ok().map(|factor| factor.parse().expect("FAULTS_REPEAT is a number"));
    times * factor.unwrap_or(1)
}

pub(crate) fn main() -> ExitCode {
    if let Ok(name) = std::env::var(job::PROGRAM) {
        let programs = programs();
        let (_, program) = programs.iter().find(|(known, _)| *known == name).expect("the program is known");
        return match program() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("{error:?}");
                ExitCode::FAILURE
            }
        };
    }
    let trial = |(name, test): Test| {
        let run = move || match test() {
            Ok(Completion::Ignored { reason }) => {
                eprintln!("{name}: SKIPPED: {}", reason.as_deref().unwrap_or_default());
                Ok(Completion::Ignored { reason })
            }
            other => other.map_err(|error| format!("{error:#}").into()),
        };
        Trial::ignorable_test(name, run)
    };
    let mut arguments = Arguments::from_args();
    // A job of two ranks that wait needs one processor.
    let processors = std::thread::available_parallelism().map_or(1, |processors| processors.get());
    arguments.test_threads.get_or_insert(processors);
    libtest_mimic::run(&arguments, tests().into_iter().map(trial).collect()).exit_code()
}
