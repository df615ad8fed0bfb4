//! `cobre-shm compare`: whether two output directories contain the same results, bit for bit.
//!
//! A file is equal if its bytes are. If a file contains times, or numbers that depend on the number of ranks, `exceptions`
//! lists those values, and all others are compared one by one. A file in only one directory is a difference.

mod exceptions;
mod manifest;
mod metadata;
mod table;

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::driver::failure::{Failure, Kind, Outcome};
use exceptions::Rule;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// An output directory, or any directory in it
    a: PathBuf,
    /// The directory to compare it with
    b: PathBuf,
}

pub(crate) fn execute(arguments: &Arguments) -> Outcome<ExitCode> {
    let comparison = directories(&arguments.a, &arguments.b)?;
    for difference in &comparison.differences {
        show!("{difference}");
    }
    show!("{}", comparison.summary());
    Ok(if comparison.equal() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The result of a comparison.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    /// Files with the same bytes.
    same_bytes: usize,
    /// Files with the same values except those that differ by nature.
    same_values: usize,
    /// Files that contain no other values.
    not_compared: Vec<String>,
    /// One line for each difference.
    pub(crate) differences: Vec<String>,
}

impl Comparison {
    pub(crate) fn equal(&self) -> bool {
        self.differences.is_empty()
    }

    /// The number of equal files.
    pub(crate) fn files(&self) -> usize {
        self.same_bytes + self.same_values
    }

    pub(crate) fn summary(&self) -> String {
        let mut line = format!(
            "{}: {} files equal byte for byte, {} in every value but clocks and counts of ranks",
            if self.equal() { "equal" } else { "DIFFERENT" },
            self.same_bytes,
            self.same_values,
        );
        if !self.not_compared.is_empty() {
            let _ = write!(line, ", not compared: {}", self.not_compared.join(", "));
        }
        if !self.equal() {
            let _ = write!(line, ", {} differences", self.differences.len());
        }
        line
    }
}

/// Compares all files under `a` and `b`.
pub(crate) fn directories(a: &Path, b: &Path) -> Outcome<Comparison> {
    let mut files = BTreeSet::new();
    for directory in [a, b] {
        list(directory, Path::new(""), &mut files)?;
    }
    let mut comparison = Comparison::default();
    for file in &files {
        compare_file(a, b, file, &mut comparison)?;
    }
    if comparison.files() == 0 && comparison.equal() {
        return Err(Failure::new(
            Kind::Input,
            format_args!("{} and {} hold no results", a.display(), b.display()),
        ));
    }
    Ok(comparison)
}

fn list(root: &Path, below: &Path, files: &mut BTreeSet<PathBuf>) -> Outcome<()> {
    let directory = root.join(below);
    let entries = fs::read_dir(&directory).map_err(|error| Failure::io(&directory, error))?;
    for entry in entries {
        let entry = entry.map_err(|error| Failure::io(&directory, error))?;
        let kind = entry.file_type().map_err(|error| Failure::io(&entry.path(), error))?;
        let name = below.join(entry.file_name());
        if kind.is_dir() {
            list(root, &name, files)?;
        } else {
            files.insert(name);
        }
    }
    Ok(())
}

fn compare_file(a: &Path, b: &Path, file: &Path, comparison: &mut Comparison) -> Outcome<()> {
    let name = file.display();
    let [a, b] = [a.join(file), b.join(file)];
    for path in [&a, &b] {
        if !path.exists() {
            comparison.differences.push(format!("{name}: missing as {}", path.display()));
            return Ok(());
        }
    }
    let rule = exceptions::rule(&a);
    if rule == Rule::Nothing {
        comparison.not_compared.push(name.to_string());
        return Ok(());
    }
    let [left, right] = [read(&a)?, read(&b)?];
    if left == right {
        comparison.same_bytes += 1;
        return Ok(());
    }
    let differences = match rule {
        Rule::Bytes => vec![first_byte(&left, &right)],
        Rule::Columns(ignored) => table::differences(&a, &b, ignored)?,
        Rule::Fields(ignored) => metadata::differences(&a, &left, &b, &right, ignored)?,
        Rule::Manifest => manifest::differences(&a, &left, &b, &right)?,
        Rule::Nothing => Vec::new(),
    };
    if differences.is_empty() {
        comparison.same_values += 1;
    }
    let lines = differences.into_iter().map(|difference| format!("{name}: {difference}"));
    comparison.differences.extend(lines);
    Ok(())
}

fn read(path: &Path) -> Outcome<Vec<u8>> {
    fs::read(path).map_err(|error| Failure::io(path, error))
}

fn first_byte(a: &[u8], b: &[u8]) -> String {
    let at = a.iter().zip(b).position(|(a, b)| a != b);
    match at {
        Some(at) => format!("byte {at} is {:#04x} and {:#04x}", a[at], b[at]),
        None => format!("{} and {} bytes long", a.len(), b.len()),
    }
}
