//! What was explored, as tables; and what has to be explored at least.

use std::collections::{BTreeMap, BTreeSet};
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
    // A model that is new is shown too: its row is what is to be recorded.
    EXPLORED.lock().unwrap().push((model.clone(), explored));
    if !is_recording() {
        let recorded = recorded(&model.id()).ok_or("not in EXPLORED.md: slot it")?;
        if explored.executions * 2 < recorded {
            return Err(format!("only {} executions, and {recorded} before", explored.executions).into());
        }
    }
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

/// A table of the slot: its rows by what tells them apart.
struct Table {
    heading: &'static str,
    /// How many cells these are.
    keys: usize,
}

const MODELS: Table = Table {
    heading: "| model | executions | waiting | ranks | rounds | preemptions | seconds |\n\
              | --- | --- | --- | --- | --- | --- | --- |\n",
    keys: 1,
};

const KNOWN_BAD: Table = Table {
    heading: "| known-bad protocol | rejected for | at execution | the mistake |\n| --- | --- | --- | --- |\n",
    keys: 1,
};

const SWEEP: Table =
    Table { heading: "| site | weakened | caught by | with |\n| --- | --- | --- | --- |\n", keys: 2 };

impl Table {
    fn key(&self, row: &str) -> Vec<String> {
        row.split('|').skip(1).take(self.keys).map(|cell| cell.trim().to_owned()).collect()
    }

    /// These rows, and those of the slot that there are still reasons for, sorted.
    fn with_recorded(&self, fresh: &str, is_known: impl Fn(&str) -> bool) -> BTreeMap<Vec<String>, String> {
        let slot = fs::read_to_string(RECORD).unwrap_or_default();
        let recorded = slot.split_once(self.heading).map_or("", |(_, rest)| rest);
        let recorded = recorded.lines().take_while(|line| line.starts_with('|'));
        let rows = recorded.filter(|row| is_known(&self.key(row)[0])).chain(fresh.lines());
        rows.map(|row| (self.key(row), row.to_owned())).collect()
    }
}

/// Prints the tables of what ran, and slots them on request.
pub(crate) fn print() {
    let (models, known_bad, swept) = (models(), known_bad(), swept());
    for (table, rows) in [(MODELS, &models), (KNOWN_BAD, &known_bad), (SWEEP, &swept)] {
        if !rows.is_empty() {
            println!("\n{}{rows}", table.heading);
        }
    }
    if env::var_os("INTRANODE_LOOM_TRACE").is_some() {
        print_traces();
    }
    if is_recording() {
        slot(&models, &known_bad, &swept);
    }
}

/// Writes down what ran, in place of what was recorded of the same.
fn slot(models: &str, known_bad: &str, swept: &str) {
    let ids: BTreeSet<String> = crate::models::all().iter().map(Model::id).collect();
    let names = crate::known_bad::names();
    let sites = crate::sites::all();
    let models = MODELS.with_recorded(models, |id| ids.contains(id));
    let known_bad = KNOWN_BAD.with_recorded(known_bad, |name| names.contains(&name));
    let swept = SWEEP.with_recorded(swept, |name| sites.iter().any(|site| site.name == name));
    let sum = |cell: usize| -> f64 {
        models.values().filter_map(|row| row.split('|').nth(cell)?.trim().parse::<f64>().ok()).sum()
    };
    let total = format!("\n{} models, {} executions, {:.0} seconds.\n", models.len(), sum(2), sum(7));
    let head = "# What was explored\n\nWritten by `INTRANODE_LOOM_FULL=1 INTRANODE_LOOM_RECORD=1 cargo test --features \
                loom --test loom`, with a part of a name: what has it, in place of what was recorded of the same.\n";
    let mut text = head.to_owned();
    for (table, rows, after) in
        [(MODELS, models, total), (KNOWN_BAD, known_bad, String::new()), (SWEEP, swept, String::new())]
    {
        let rows: Vec<String> = rows.into_values().collect();
        write!(text, "\n{}{}\n{after}", table.heading, rows.join("\n")).unwrap();
    }
    fs::write(RECORD, text).expect("EXPLORED.md can be written");
}

fn models() -> String {
    let mut rows = EXPLORED.lock().unwrap();
    rows.sort_by_key(|(model, _)| model.id());
    let mut table = String::new();
    for (model, explored) in &*rows {
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
    table
}

fn known_bad() -> String {
    let mut rows = REJECTED.lock().unwrap();
    rows.sort_by_key(|row| row.0);
    let mut table = String::new();
    for (name, story, reason, no) in &*rows {
        writeln!(table, "| {name} | {reason:?} | {} | {story} |", no.executions).unwrap();
    }
    table
}

fn swept() -> String {
    let mut rows = SWEPT.lock().unwrap();
    rows.sort_by_key(|row| (row.mutation.site, format!("{:?}", row.mutation.weakening)));
    let mut table = String::new();
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
