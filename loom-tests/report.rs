//! What was explored, as tables; and what has to be explored at least.

use std::fmt::Write;
use std::sync::{LazyLock, Mutex};
use std::{env, fs};

use libtest_mimic::Failed;

use crate::explore::{Explored, Rejected};
use crate::known_bad::Reason;
use crate::model::Model;
use crate::weakened::Mutation;

/// The executions of every model, as written by a run that was asked to.
const RECORD: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/loom-tests/EXPLORED.md");

const HEADING: &str = "| model | executions | waiting | ranks | rounds | preemptions | seconds |\n\
                       | --- | --- | --- | --- | --- | --- | --- |\n";

struct Swept {
    mutation: Mutation,
    /// The model that failed.
    caught_by: String,
    rejected: Rejected,
}

static EXPLORED: Mutex<Vec<(Model, Explored)>> = Mutex::new(Vec::new());
static REJECTED: Mutex<Vec<(&str, &str, Reason, Rejected)>> = Mutex::new(Vec::new());
static SWEPT: Mutex<Vec<Swept>> = Mutex::new(Vec::new());

/// Whether the searches that take long are asked for.
pub(crate) fn is_long_run() -> bool {
    env::var_os("INTRANODE_LOOM_FULL").is_some()
}

/// Whether this run is to be recorded.
pub(crate) fn is_recording() -> bool {
    env::var_os("INTRANODE_LOOM_RECORD").is_some()
}

/// The executions that a model had when they were recorded.
pub(crate) fn recorded(id: &str) -> Option<u64> {
    row(id)?.split('|').nth(2)?.trim().parse().ok()
}

fn row(id: &str) -> Option<&'static str> {
    static ROWS: LazyLock<String> = LazyLock::new(|| fs::read_to_string(RECORD).unwrap_or_default());
    ROWS.lines().find(|row| row.split('|').nth(1).is_some_and(|cell| cell.trim() == id))
}

/// Explores a model as a test. It has to explore at least half of what it did when that was recorded: the search is
/// the same each time, so less means that a change has taken interleavings away.
pub(crate) fn run(model: &Model) -> Result<(), Failed> {
    let explored = model
        .explore(None)
        .map_err(|no| format!("{} (execution {})\n{}", no.message, no.executions, no.trace))?;
    if !is_recording() {
        let recorded = recorded(&model.id()).ok_or("not in EXPLORED.md: record it")?;
        if explored.executions * 2 < recorded {
            return Err(format!("only {} executions, and {recorded} before", explored.executions).into());
        }
    }
    EXPLORED.lock().unwrap().push((model.clone(), explored));
    Ok(())
}

/// Notes that a known-bad protocol was rejected, and how it failed.
pub(crate) fn add_rejected(name: &'static str, story: &'static str, reason: Reason, rejected: Rejected) {
    REJECTED.lock().unwrap().push((name, story, reason, rejected));
}

/// Notes which model has caught a weakening, and how it failed.
pub(crate) fn add_swept(mutation: Mutation, caught_by: String, rejected: Rejected) {
    SWEPT.lock().unwrap().push(Swept { mutation, caught_by, rejected });
}

/// Prints the tables, and records them on request.
pub(crate) fn print() {
    let tables = models() + &known_bad() + &swept();
    println!("{tables}");
    if env::var_os("INTRANODE_LOOM_TRACE").is_some() {
        print_traces();
    }
    if is_recording() {
        let kept = kept().join("\n");
        let head = "# What was explored\n\nWritten by `INTRANODE_LOOM_FULL=1 INTRANODE_LOOM_RECORD=1 cargo test \
                    --features loom --test loom`.\n";
        let rest = format!("\nFrom an earlier run:\n\n{HEADING}{kept}\n");
        fs::write(RECORD, head.to_owned() + &tables + &rest).expect("EXPLORED.md can be written");
    }
}

/// The rows of the record for models that did not run now.
fn kept() -> Vec<String> {
    let ran: Vec<_> = EXPLORED.lock().unwrap().iter().map(|(model, _)| model.id()).collect();
    let ids = crate::models::all().into_iter().map(|model| model.id()).filter(|id| !ran.contains(id));
    ids.filter_map(|id| row(&id).map(str::to_owned)).collect()
}

fn models() -> String {
    let mut rows = EXPLORED.lock().unwrap();
    rows.sort_by_key(|(model, _)| model.id());
    let mut table = String::new();
    let (mut executions, mut seconds) = (0, 0.0);
    for (model, explored) in &*rows {
        executions += explored.executions;
        seconds += explored.took.as_secs_f64();
        let bound = model.bound.map_or("none".to_owned(), |bound| bound.to_string());
        writeln!(
            table,
            "| {} | {} | {:?} | {} | {} | {bound} | {:.1} |",
            model.id(),
            explored.executions,
            model.waiting,
            model.ranks(),
            model.rounds(),
            explored.took.as_secs_f64()
        )
        .unwrap();
    }
    if table.is_empty() {
        return table;
    }
    format!("\n{HEADING}{table}\n{} models, {executions} executions, {seconds:.0} seconds.\n", rows.len())
}

fn known_bad() -> String {
    let mut rows = REJECTED.lock().unwrap();
    rows.sort_by_key(|row| row.0);
    if rows.is_empty() {
        return String::new();
    }
    let mut table = "\n| known-bad protocol | rejected for | at execution | the mistake |\n\
                     | --- | --- | --- | --- |\n"
        .to_owned();
    for (name, story, reason, no) in &*rows {
        writeln!(table, "| {name} | {reason:?} | {} | {story} |", no.executions).unwrap();
    }
    table
}

fn swept() -> String {
    let mut rows = SWEPT.lock().unwrap();
    rows.sort_by_key(|row| (row.mutation.site, format!("{:?}", row.mutation.weakening)));
    if rows.is_empty() {
        return String::new();
    }
    let mut table = "\n| site | weakened | caught by | with |\n| --- | --- | --- | --- |\n".to_owned();
    for Swept { mutation, caught_by, rejected } in &*rows {
        let line = rejected.message.lines().next().unwrap_or_default();
        let with = line.split([';', '.', ':']).next().unwrap_or_default();
        writeln!(table, "| {} | {:?} | {caught_by} | {with} |", mutation.site, mutation.weakening).unwrap();
    }
    table
}

/// Prints the failing executions.
fn print_traces() {
    for (name, story, _, no) in &*REJECTED.lock().unwrap() {
        println!("\n{name}: {story}\n\n{}\nfails: {}", no.trace, no.message);
    }
    for Swept { mutation, caught_by, rejected } in &*SWEPT.lock().unwrap() {
        let Mutation { site, weakening } = mutation;
        let Rejected { trace, message, .. } = rejected;
        println!("\n{site} with {weakening:?}, in {caught_by}:\n\n{trace}\nfails: {message}");
    }
}
