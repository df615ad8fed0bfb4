//! EXPLORED.md: what was found, as tables that one command writes, and that every run is compared with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;
use std::{env, fs};

use libtest_mimic::Failed;

use crate::harness::known_bad::KnownBad;
use crate::harness::mutant::Mutation;
use crate::harness::search::Search;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/loom-tests/EXPLORED.md");

/// Everything that there is a row for.
pub(crate) struct Suite {
    pub(crate) models: Vec<Search>,
    pub(crate) known_bad: Vec<KnownBad>,
    pub(crate) mutations: Vec<Mutation>,
}

/// What was found, by what it was found of.
#[derive(Clone, Default)]
pub(crate) struct Findings {
    /// By the model's id.
    pub(crate) explored: BTreeMap<String, Explored>,
    /// By the protocol's name: the failing execution.
    pub(crate) rejected: BTreeMap<String, u64>,
    pub(crate) caught: BTreeMap<Key, Caught>,
}

/// A site and its weakening.
type Key = [String; 2];

#[derive(Clone)]
pub(crate) struct Explored {
    pub(crate) executions: u64,
    pub(crate) rounds: usize,
    pub(crate) seconds: f64,
}

#[derive(Clone)]
pub(crate) struct Caught {
    /// The model that fails.
    pub(crate) by: String,
    /// How.
    pub(crate) message: String,
}

/// Whether this run is to be recorded.
pub(crate) fn is_recording() -> bool {
    env::var_os("INTRANODE_LOOM_RECORD").is_some()
}

/// What is recorded.
pub(crate) fn recorded() -> &'static Findings {
    static RECORDED: LazyLock<Findings> = LazyLock::new(|| Findings::parse(&text()));
    &RECORDED
}

/// How many executions a model is recorded with.
pub(crate) fn executions(model: &Search) -> Option<u64> {
    recorded().explored.get(&model.id()).map(|explored| explored.executions)
}

fn text() -> String {
    fs::read_to_string(FILE).unwrap_or_default()
}

/// Records what was found, in place of what was recorded of the same. Rows of what is no more go.
pub(crate) fn write(found: &Findings, suite: &Suite) {
    let mut all = recorded().clone();
    all.extend(found.clone());
    fs::write(FILE, all.render(suite)).expect("EXPLORED.md can be written");
}

/// Everything has a row, nothing else has, and what a row says besides follows from what it is about.
pub(crate) fn is_complete(suite: &Suite) -> Result<(), Failed> {
    if is_recording() {
        return Ok(());
    }
    let recorded = recorded();
    let missing_models = suite.models.iter().map(Search::id).filter(|id| !recorded.explored.contains_key(id));
    let missing_protocols = suite.known_bad.iter().map(|bad| bad.name.to_owned());
    let missing_protocols = missing_protocols.filter(|name| !recorded.rejected.contains_key(name));
    let missing_sites = suite.mutations.iter().map(key).filter(|key| !recorded.caught.contains_key(key));
    let missing: Vec<String> =
        missing_models.chain(missing_protocols).chain(missing_sites.map(|key| key.join(" "))).collect();
    if !missing.is_empty() {
        return Err(format!("not in EXPLORED.md, which INTRANODE_LOOM_RECORD=1 writes: {missing:?}").into());
    }
    let ids: BTreeSet<String> = suite.models.iter().map(Search::id).collect();
    if let Some((key, caught)) = recorded.caught.iter().find(|(_, caught)| !ids.contains(&caught.by)) {
        return Err(format!("{key:?} is caught by {}, which is no model", caught.by).into());
    }
    let (text, rendered) = (text(), recorded.render(suite));
    if let Some((line, _)) = text.lines().zip(rendered.lines()).find(|(line, should)| line != should) {
        return Err(format!("not as INTRANODE_LOOM_RECORD=1 writes it, from here on: {line}").into());
    }
    if text == rendered { Ok(()) } else { Err("INTRANODE_LOOM_RECORD=1 would write more, or less".into()) }
}

pub(crate) fn key(mutation: &Mutation) -> Key {
    [mutation.site.to_owned(), format!("{:?}", mutation.weakening)]
}

const HEAD: &str = "# What was explored\n\n\
    Written by `INTRANODE_LOOM_FULL=1 INTRANODE_LOOM_RECORD=1 cargo test --features loom --test loom`, with a part of a \
    name: what has it, in place of what was recorded of the same.\n";
const MODELS: &str = "| model | executions | waiting | ranks | rounds | preemptions | seconds |\n\
    | --- | --- | --- | --- | --- | --- | --- |\n";
const KNOWN_BAD: &str =
    "| known-bad protocol | rejected for | at execution | the mistake |\n| --- | --- | --- | --- |\n";
const SWEEP: &str = "| site | weakened | caught by | with |\n| --- | --- | --- | --- |\n";

impl Findings {
    pub(crate) fn extend(&mut self, found: Findings) {
        self.explored.extend(found.explored);
        self.rejected.extend(found.rejected);
        self.caught.extend(found.caught);
    }

    /// What is in such tables.
    pub(crate) fn parse(text: &str) -> Self {
        let rows = |heading: &str| -> Vec<Vec<String>> {
            let table = text.split_once(heading).map_or("", |(_, rest)| rest);
            let rows = table.lines().take_while(|line| line.starts_with('|'));
            rows.map(|row| row.split('|').skip(1).map(|cell| cell.trim().to_owned()).collect()).collect()
        };
        let explored = rows(MODELS).into_iter().filter_map(|row| {
            let (executions, rounds, seconds) =
                (row[1].parse().ok()?, row[4].parse().ok()?, row[6].parse().ok()?);
            Some((row[0].clone(), Explored { executions, rounds, seconds }))
        });
        let rejected =
            rows(KNOWN_BAD).into_iter().filter_map(|row| Some((row[0].clone(), row[2].parse().ok()?)));
        let caught = rows(SWEEP).into_iter().map(|row| {
            let [site, weakening, by, message, ..] = <[String; 5]>::try_from(row).expect("five cells");
            ([site, weakening], Caught { by, message })
        });
        Findings { explored: explored.collect(), rejected: rejected.collect(), caught: caught.collect() }
    }

    /// The document.
    fn render(&self, suite: &Suite) -> String {
        let models: Vec<&Search> =
            suite.models.iter().filter(|model| self.explored.contains_key(&model.id())).collect();
        let explored = || models.iter().map(|model| &self.explored[&model.id()]);
        let executions: u64 = explored().map(|explored| explored.executions).sum();
        let seconds: f64 = explored().map(|explored| explored.seconds).sum();
        let total = format!("{} models, {executions} executions, {seconds:.0} seconds.\n", models.len());
        let [models, known_bad, sweep] = self.tables(suite);
        format!("{HEAD}\n{models}\n{total}\n{known_bad}\n{sweep}")
    }

    /// The three tables, of what was found.
    pub(crate) fn tables(&self, suite: &Suite) -> [String; 3] {
        let table =
            |heading: &str, rows: BTreeSet<String>| heading.to_owned() + &rows.into_iter().collect::<String>();
        let models = suite.models.iter().filter_map(|model| self.model_row(model)).collect();
        let known_bad = suite.known_bad.iter().filter_map(|bad| self.known_bad_row(bad)).collect();
        let sweep = suite.mutations.iter().filter_map(|mutation| self.sweep_row(mutation)).collect();
        [table(MODELS, models), table(KNOWN_BAD, known_bad), table(SWEEP, sweep)]
    }

    fn model_row(&self, model: &Search) -> Option<String> {
        let id = model.id();
        let Explored { executions, rounds, seconds } = self.explored.get(&id)?;
        let bound = model.bound.map_or("none".to_owned(), |bound| bound.to_string());
        let (waiting, ranks) = (model.waiting, model.ranks);
        Some(format!("| {id} | {executions} | {waiting:?} | {ranks} | {rounds} | {bound} | {seconds:.1} |\n"))
    }

    fn known_bad_row(&self, KnownBad { name, reason, mistake, .. }: &KnownBad) -> Option<String> {
        let execution = self.rejected.get(*name)?;
        Some(format!("| {name} | {reason:?} | {execution} | {mistake} |\n"))
    }

    fn sweep_row(&self, mutation: &Mutation) -> Option<String> {
        let key = key(mutation);
        let Caught { by, message } = self.caught.get(&key)?;
        Some(format!("| {} | {} | {by} | {message} |\n", key[0], key[1]))
    }
}
