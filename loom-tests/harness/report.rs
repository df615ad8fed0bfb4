//! What this run has found: collected while the tests run, printed at the end, recorded on request.

use std::collections::BTreeMap;
use std::env;
use std::sync::Mutex;

use libtest_mimic::Failed;

use crate::harness::known_bad::KnownBad;
use crate::harness::mutant::Mutation;
use crate::harness::record::{self, Caught, Explored, Findings, Suite};
use crate::harness::search::{Rejected, Search};

static FOUND: Mutex<Findings> =
    Mutex::new(Findings { explored: BTreeMap::new(), rejected: BTreeMap::new(), caught: BTreeMap::new() });

/// Failing executions that were wanted, as they are printed.
static TRACES: Mutex<String> = Mutex::new(String::new());

/// What comes before them.
const FAILING: &str = "\nFailing executions:\n";

/// Whether the searches that take long are asked for.
pub(crate) fn is_long_run() -> bool {
    env::var_os("INTRANODE_LOOM_FULL").is_some()
}

/// Explores a model as a test. It has to explore at least half of what it did when that was recorded: the search is
/// the same each time, so less means that a change has taken interleavings away.
pub(crate) fn explore(model: &Search) -> Result<(), Failed> {
    let explored = model
        .explore(None)
        .map_err(|no| format!("{} (execution {})\n{}", no.message, no.executions, no.trace))?;
    let (executions, rounds, seconds) = (explored.executions, explored.rounds, explored.took.as_secs_f64());
    // A model that is new is printed too: its row is what is to be recorded.
    FOUND.lock().unwrap().explored.insert(model.id(), Explored { executions, rounds, seconds });
    if record::is_recording() {
        return Ok(());
    }
    let recorded = record::executions(model).ok_or("not in EXPLORED.md: record it")?;
    if executions * 2 < recorded {
        return Err(format!("only {executions} executions, and {recorded} before").into());
    }
    Ok(())
}

/// Rejects a known-bad protocol as a test.
pub(crate) fn reject(bad: &KnownBad) -> Result<(), Failed> {
    let rejected = bad.reject()?;
    FOUND.lock().unwrap().rejected.insert(bad.name.to_owned(), rejected.executions);
    add_trace(&format!("{}: {}", bad.name, bad.mistake), &rejected);
    Ok(())
}

/// A model has caught a weakening.
pub(crate) fn add_caught(mutation: Mutation, model: &Search, rejected: Rejected) {
    let by = model.id();
    let line = rejected.message.lines().next().unwrap_or_default();
    let message = line.split([';', '.', ':']).next().unwrap_or_default().to_owned();
    add_trace(&format!("{} with {:?}, in {by}", mutation.site, mutation.weakening), &rejected);
    FOUND.lock().unwrap().caught.insert(record::key(&mutation), Caught { by, message });
}

fn add_trace(title: &str, Rejected { trace, message, .. }: &Rejected) {
    let trace = format!("\n{title}\n\n{trace}\nfails: {message}\n");
    TRACES.lock().unwrap().push_str(&trace);
}

/// Takes over what another process has printed of what it has found.
pub(crate) fn take_over(printed: &str) {
    let (tables, traces) = printed.split_once(FAILING).unwrap_or((printed, ""));
    FOUND.lock().unwrap().extend(Findings::parse(tables));
    TRACES.lock().unwrap().push_str(traces);
}

/// Prints the tables of what ran, and records them on request.
pub(crate) fn print(suite: &Suite) {
    let found = FOUND.lock().unwrap();
    for table in found.tables(suite).iter().filter(|table| table.lines().count() > 2) {
        println!("\n{table}");
    }
    let traces = TRACES.lock().unwrap();
    if env::var_os("INTRANODE_LOOM_TRACE").is_some() && !traces.is_empty() {
        print!("{FAILING}{traces}");
    }
}

/// Writes what was found into EXPLORED.md, if this run is to be recorded.
pub(crate) fn record(suite: &Suite) {
    if record::is_recording() {
        record::write(&FOUND.lock().unwrap(), suite);
    }
}
