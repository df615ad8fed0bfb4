//! What was explored, as a table.

use std::sync::Mutex;

use libtest_mimic::Failed;

use crate::explore::{Explored, Rejected};
use crate::known_bad::Reason;
use crate::model::Model;

static REJECTED: Mutex<Vec<(&str, &str, Reason, Rejected)>> = Mutex::new(Vec::new());
static ROWS: Mutex<Vec<(String, Explored)>> = Mutex::new(Vec::new());

/// Whether the searches that take long are asked for.
pub(crate) fn is_long_run() -> bool {
    std::env::var_os("INTRANODE_LOOM_FULL").is_some()
}

/// Explores a model as a test.
pub(crate) fn run(model: &Model) -> Result<(), Failed> {
    let explored = model
        .explore(None)
        .map_err(|no| format!("{} (execution {})\n{}", no.message, no.executions, no.trace))?;
    ROWS.lock().unwrap().push((model.id(), explored));
    Ok(())
}

/// Notes that a known-bad protocol was rejected, and how it failed.
pub(crate) fn add_rejected(name: &'static str, story: &'static str, reason: Reason, rejected: Rejected) {
    REJECTED.lock().unwrap().push((name, story, reason, rejected));
}

/// Prints the tables.
pub(crate) fn print() {
    print_models();
    print_rejected();
}

/// Prints which known-bad protocol was rejected and why; on request the failing executions themselves.
fn print_rejected() {
    let mut rejected = REJECTED.lock().unwrap();
    rejected.sort_by_key(|row| row.0);
    if !rejected.is_empty() {
        println!("\n| known-bad protocol | rejected for | at execution |\n| --- | --- | --- |");
    }
    for (name, _, reason, no) in &*rejected {
        println!("| {name} | {reason:?} | {} |", no.executions);
    }
    if std::env::var_os("INTRANODE_LOOM_TRACE").is_some() {
        for (name, story, _, no) in &*rejected {
            println!("\n{name}: {story}\n\n{}\n=> {}", no.trace, no.message);
        }
    }
}

fn print_models() {
    let mut rows = ROWS.lock().unwrap();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    println!("\n| model | executions | seconds |\n| --- | --- | --- |");
    for (id, explored) in &*rows {
        println!("| {id} | {} | {:.1} |", explored.executions, explored.took.as_secs_f64());
    }
}
