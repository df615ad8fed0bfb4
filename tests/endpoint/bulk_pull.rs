//! The example of a bulk pull, with less memory than it takes by itself.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Completion;

use super::Test;

pub(super) const TESTS: &[Test] = &[("example_bulk_pull", example)];

pub(super) const NOT_BUILT: &str = "the example has not been built as it is now: cargo build --examples";

/// The program of an example, which `cargo test` builds if it is not told to build less. `None`: it is not there, or older than its source.
pub(super) fn program(name: &str) -> Result<Option<PathBuf>> {
    let this = std::env::current_exe()?;
    let profile = this.ancestors().nth(2).context("tests are two levels below the target directory")?;
    let program = profile.join("examples").join(name);
    let Ok(built) = program.metadata() else { return Ok(None) };
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name);
    for file in source.read_dir()? {
        if file?.metadata()?.modified()? > built.modified()? {
            return Ok(None);
        }
    }
    Ok(Some(program))
}

fn example() -> Result<Completion> {
    let Some(program) = program("bulk_pull")? else { return Ok(Completion::ignored_with(NOT_BUILT)) };
    // Not a multiple of a segment's length on either side.
    let output = Command::new(program).arg("37").output()?;
    let text = String::from_utf8(output.stdout)?;
    ensure!(output.status.success(), "{}: {text}", output.status);
    let speeds = text.lines().filter(|line| line.starts_with("37 MiB into") && line.ends_with("GB/s")).count();
    ensure!(speeds == 4 && text.ends_with("all words are right\n"), "{text}");
    Ok(Completion::Completed)
}
