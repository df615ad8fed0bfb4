//! What was explored, as a table.

use std::sync::Mutex;

use libtest_mimic::Failed;

use crate::explore::Explored;
use crate::model::Model;

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

/// Prints the table.
pub(crate) fn print() {
    let mut rows = ROWS.lock().unwrap();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    println!("| model | executions | seconds |\n| --- | --- | --- |");
    for (id, explored) in &*rows {
        println!("| {id} | {} | {:.1} |", explored.executions, explored.took.as_secs_f64());
    }
}
