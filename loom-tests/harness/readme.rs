//! README.md shows a model whole, as it stands in the source.

use std::fs;
use std::path::{Path, PathBuf};

use libtest_mimic::Failed;

use crate::harness::record::is_recording;

/// What it shows: functions of these files.
const SHOWN: [(&str, &str); 2] = [("models/collectives.rs", "gather"), ("models/faults.rs", "death")];

/// What stands before and after that.
const MARKS: [&str; 2] = ["<!-- Written by INTRANODE_LOOM_RECORD=1, from the sources. -->\n```rust\n", "```\n"];

/// The README shows what the sources have. A run that records puts it there.
pub(crate) fn shows_a_model() -> Result<(), Failed> {
    let file = path("README.md");
    let text = fs::read_to_string(&file)?;
    let (before, rest) = text.split_once(MARKS[0]).ok_or("README.md has no place for a model")?;
    let (_, after) = rest.split_once(MARKS[1]).ok_or("the model does not end")?;
    let functions = SHOWN.map(|(file, name)| function(file, name)).join("\n");
    let expected = [before, MARKS[0], &functions, MARKS[1], after].concat();
    if is_recording() {
        fs::write(file, expected)?;
    } else if text != expected {
        return Err(
            "README.md shows another model than the sources have: INTRANODE_LOOM_RECORD=1 writes it".into()
        );
    }
    Ok(())
}

fn path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("loom-tests").join(file)
}

/// A function with its documentation.
fn function(file: &str, name: &str) -> String {
    let source = fs::read_to_string(path(file)).expect("a source");
    let lines: Vec<&str> = source.lines().collect();
    let begins = |line: &&str| line.split_once("fn ").is_some_and(|(_, rest)| rest.starts_with(name));
    let head = lines.iter().position(begins).unwrap_or_else(|| panic!("{file} has no function {name}"));
    let documented = lines[..head].iter().rev().take_while(|line| line.starts_with("///")).count();
    let length = lines[head..].iter().position(|line| *line == "}").expect("it ends") + 1;
    lines[head - documented..head + length].iter().map(|line| format!("{line}\n")).collect()
}
