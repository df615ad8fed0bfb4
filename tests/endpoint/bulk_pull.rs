//! The example of a bulk pull, with less memory than it takes by itself.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Completion;

use super::Test;

pub(super) const TESTS: &[Test] = &[("example_bulk_pull", example)];

/// The program of an example, which `cargo test` builds if it is not told to build less.
pub(super) fn program(name: &str) -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let profile = this.ancestors().nth(2).context("tests are two levels below the target directory")?;
    Ok(profile.join("examples").join(name))
}

fn example() -> Result<Completion> {
    let program = program("bulk_pull")?;
    if !program.exists() {
        return Ok(Completion::ignored_with("the example has not been built"));
    }
    // Not a multiple of a segment's length on either side.
    let output = Command::new(program).arg("37").output()?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "{}: {text}", output.status);
    let speeds = text.lines().filter(|line| line.starts_with("37 MiB into") && line.ends_with("GB/s")).count();
    ensure!(speeds == 4 && text.ends_with("all words are right\n"), "{text}");
    Ok(Completion::Completed)
}
