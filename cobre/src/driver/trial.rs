//! Runs of one case in child processes, and the comparison of their results.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::driver::compare;
use crate::driver::failure::{Failure, Kind, Outcome};

/// A case, and the directory for the results of its runs.
pub(crate) struct Trial<'a> {
    pub(crate) directory: &'a Path,
    pub(crate) case: PathBuf,
}

/// The results of a run.
pub(crate) struct Results {
    pub(crate) output: PathBuf,
    /// The policy of each rank, by rank.
    policies: Vec<PathBuf>,
    /// Their directory.
    all_policies: PathBuf,
    /// The time from the start of the processes to their end.
    pub(crate) seconds: f64,
}

/// The result of a comparison with another run.
pub(crate) struct Verdict {
    /// The number of equal files, without the policies of the ranks.
    pub(crate) files: usize,
    /// The number of ranks' policies.
    pub(crate) policies: usize,
    /// One line for each difference.
    pub(crate) differences: Vec<String>,
}

impl Trial<'_> {
    /// Runs the case with `ranks` ranks of `threads` threads.
    pub(crate) fn run(&self, backend: &str, ranks: usize, threads: usize) -> Outcome<Results> {
        let name = format!("{backend}-{ranks}x{threads}");
        let output = self.directory.join(&name);
        let all_policies = self.directory.join(format!("{name}-policies"));
        let start = Instant::now();
        let program = std::env::current_exe().map_err(|error| Failure::new(Kind::Internal, error))?;
        let status = Command::new(&program)
            .args(["run", "--quiet", "--end-with-parent", "--backend", backend])
            .args(["--ranks", &ranks.to_string()])
            .args(["--threads", &threads.to_string()])
            .arg("--out")
            .arg(&output)
            .arg("--policy-per-rank")
            .arg(&all_policies)
            .arg(&self.case)
            .status()
            .map_err(|error| Failure::io(&program, error))?;
        let seconds = start.elapsed().as_secs_f64();
        if !status.success() {
            return Err(Failure::new(
                Kind::Internal,
                format_args!("the run {name} of {} failed: {status}", self.case.display()),
            ));
        }
        let policies = (0..ranks).map(|rank| all_policies.join(format!("rank-{rank}"))).collect();
        Ok(Results { output, policies, all_policies, seconds })
    }
}

impl Results {
    /// Compares all files, and the policy of every rank.
    pub(crate) fn compare(&self, reference: &Results) -> Outcome<Verdict> {
        let results = compare::directories(&reference.output, &self.output)?;
        let files = results.files();
        let mut differences = results.differences;
        for (rank, policy) in self.policies.iter().enumerate() {
            let lines = compare::directories(&reference.output.join("policy"), policy)?.differences;
            differences.extend(lines.into_iter().map(|line| format!("rank {rank}: {line}")));
        }
        Ok(Verdict { files, policies: self.policies.len(), differences })
    }

    /// Removes the files.
    pub(crate) fn remove(self) -> Outcome<()> {
        for directory in [self.output, self.all_policies] {
            fs::remove_dir_all(&directory).map_err(|error| Failure::io(&directory, error))?;
        }
        Ok(())
    }
}

impl Verdict {
    pub(crate) fn equal(&self) -> bool {
        self.differences.is_empty()
    }
}
