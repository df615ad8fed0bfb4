//! Keeps SAFETY.md and the source in step.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::SeqCst;

use sites::Weakening;

#[path = "../loom-tests/harness/sites.rs"]
mod sites;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn safety() -> String {
    fs::read_to_string(root().join("SAFETY.md")).expect("SAFETY.md is there")
}

fn rust_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}

/// The source without its unit tests, by path.
fn sources(folder: &str) -> BTreeMap<String, String> {
    const TESTS: [&str; 3] = ["tests.rs", "testing.rs", "contract.rs"];
    let mut files = Vec::new();
    rust_files(&root().join(folder), &mut files);
    files.retain(|path| !TESTS.iter().any(|test| path.ends_with(test)));
    files.retain(|path| !path.parent().is_some_and(|folder| folder.ends_with("tests")));
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        (path.strip_prefix(root()).expect("below the root").display().to_string(), code)
    };
    files.into_iter().map(source).collect()
}

/// A table of SAFETY.md. The first cells of each row follow from the source, and one command writes them:
/// `INTRANODE_WRITE_TABLES=1 cargo test --test safety`. The others are prose, which stays with its row.
struct Table {
    /// The names of the columns.
    columns: Vec<&'static str>,
    /// The cells that follow from the source.
    rows: Vec<Vec<String>>,
    /// How many of these tell rows apart.
    keys: usize,
}

impl Table {
    /// The text with this table brought up to date.
    fn written_into(&self, text: &str) -> String {
        let heading = format!("| {} |\n", self.columns.join(" | "));
        let (before, rest) = text.split_once(&heading).unwrap_or_else(|| panic!("no table {heading}"));
        let end = rest.lines().take_while(|line| line.starts_with('|')).map(|line| line.len() + 1).sum();
        let (old, after) = rest.split_at(end);
        let old: Vec<Vec<&str>> = old.lines().skip(1).map(cells).collect();
        let prose = |row: &Vec<String>| -> Vec<&str> {
            let same = |old: &&Vec<&str>| row.iter().zip(*old).take(self.keys).all(|(new, old)| new == old);
            let kept = old.iter().find(same).map_or(&[][..], |old| &old[row.len()..]);
            (row.len()..self.columns.len())
                .map(|cell| kept.get(cell - row.len()).copied().unwrap_or_default())
                .collect()
        };
        let line = |row: &Vec<String>| {
            let all: Vec<&str> = row.iter().map(String::as_str).chain(prose(row)).collect();
            format!("| {} |\n", all.join(" | "))
        };
        let rule = format!("|{}\n", " --- |".repeat(self.columns.len()));
        before.to_owned() + &heading + &rule + &self.rows.iter().map(line).collect::<String>() + after
    }
}

fn cells(row: &str) -> Vec<&str> {
    row.trim_start_matches("| ").trim_end_matches(" |").split(" | ").map(str::trim).collect()
}

/// Every site of the protocols, with what it does, how it can be weakened, and why it must not be.
fn orderings() -> Table {
    let row = |site: sites::Site| {
        let ordering = match &site.orderings[..] {
            [] => "none".to_owned(),
            [order] => format!("{order:?}"),
            [success, failure, ..] => format!("{success:?}; {failure:?} on failure"),
        };
        let mutants: Vec<String> = site.weakenings().into_iter().map(describe).collect();
        vec![format!("`{}`", site.name), site.file, site.operation.to_owned(), ordering, mutants.join(", ")]
    };
    Table {
        columns: vec!["site", "file", "operation", "ordering", "mutants", "of", "pairs with", "without it"],
        rows: sites::all().into_iter().map(row).collect(),
        keys: 2,
    }
}

fn describe(weakening: Weakening) -> String {
    match weakening {
        Weakening::Order(order) => format!("{order:?}"),
        Weakening::Failure(order) => format!("{order:?} on failure"),
        Weakening::Skipped => "skipped".to_owned(),
        Weakening::Unconditional => "unconditional".to_owned(),
        Weakening::NoWake => "wakes none".to_owned(),
        Weakening::WakeOne => "wakes one".to_owned(),
        Weakening::Unchecked => "no comparison".to_owned(),
        Weakening::Believed => "not read".to_owned(),
    }
}

/// Every file with unsafe code.
fn inventory() -> Table {
    let rows = files_with_unsafe_code().into_iter().map(|path| vec![format!("`{path}`")]);
    Table { columns: vec!["file", "what for"], rows: rows.collect(), keys: 1 }
}

#[test]
fn the_tables_follow_from_the_source() {
    let expected = inventory().written_into(&orderings().written_into(&safety()));
    if std::env::var_os("INTRANODE_WRITE_TABLES").is_some() {
        fs::write(root().join("SAFETY.md"), &expected).expect("SAFETY.md can be written");
    }
    let text = safety();
    let differs = text.lines().zip(expected.lines()).find(|(line, expected)| line != expected);
    assert!(text == expected, "INTRANODE_WRITE_TABLES=1 writes the tables of SAFETY.md anew: {differs:?}");
}

#[test]
fn every_site_of_the_protocols_is_explained() {
    let text = safety();
    let names: BTreeSet<&str> = sites::all().into_iter().map(|site| site.name).collect();
    for site in sites::all() {
        let start = format!("| `{}` | {} |", site.name, site.file);
        let row = text.lines().find(|line| line.starts_with(&start)).map(cells).expect("a row for each site");
        let [.., of, pairs_with, without_it] = row[..] else { panic!("{row:?}") };
        assert!(
            !of.is_empty() && !pairs_with.is_empty(),
            "say of {start} what it accesses, and what pairs with it"
        );
        let can_fail = !site.weakenings().is_empty();
        assert!(!can_fail || !without_it.is_empty(), "say what goes wrong without {start}");
        for name in pairs_with.split('`').skip(1).step_by(2) {
            assert!(names.contains(name), "{start} pairs with `{name}`, which is no site");
        }
    }
}

#[test]
fn invariants_are_stated_and_relied_on() {
    let number = |line: &str| line.strip_prefix("**I")?.split_whitespace().next().map(|n| format!("I{n}"));
    let stated: BTreeSet<String> = safety().lines().filter_map(number).collect();
    let mut cited = BTreeSet::new();
    for (path, source) in sources("src") {
        for comment in safety_comments(&source) {
            let words = comment.split(|c: char| !c.is_alphanumeric());
            let numbers: Vec<String> = words.filter(|word| is_invariant(word)).map(str::to_owned).collect();
            let promised = comment.contains("the caller's promise");
            assert!(promised || !numbers.is_empty(), "{path}: no invariant is named: {comment}");
            cited.extend(numbers);
        }
    }
    assert_eq!(cited, stated, "left: cited in the source; right: stated in SAFETY.md");
}

/// Each comment that begins with `SAFETY:`, on one line.
fn safety_comments(source: &str) -> Vec<String> {
    let mut comments = Vec::new();
    let mut lines = source.lines().peekable();
    while let Some(line) = lines.next() {
        let Some((_, comment)) = line.split_once("// SAFETY: ") else { continue };
        let mut comment = comment.to_owned();
        while let Some(more) = lines.next_if(|line| line.trim_start().starts_with("// ")) {
            comment += more.trim_start().trim_start_matches("//");
        }
        comments.push(comment);
    }
    comments
}

fn is_invariant(word: &str) -> bool {
    word.strip_prefix('I')
        .is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

#[test]
fn unsafe_code_is_where_it_may_be() {
    for path in files_with_unsafe_code() {
        let folders = ["src/sys/", "src/copy/", "src/segment/", "src/liveness/"];
        let declares = ["src/protocol/platform.rs", "src/protocol/symmetric/platform.rs"].contains(&&*path);
        assert!(declares || folders.iter().any(|folder| path.starts_with(folder)), "unsafe code in {path}");
    }
    for row in inventory().rows {
        let start = format!("| {} |", row[0]);
        let prose = safety().lines().find(|line| line.starts_with(&start)).map(|line| cells(line).len());
        assert_eq!(prose, Some(2), "say what the unsafe code of {start} is for");
    }
}

fn files_with_unsafe_code() -> Vec<String> {
    let is_unsafe = |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == "unsafe");
    let code = |source: &str| source.lines().filter(|line| !line.trim_start().starts_with("//")).any(is_unsafe);
    sources("src").into_iter().filter(|(_, source)| code(source)).map(|(path, _)| path).collect()
}

#[test]
fn the_protocols_know_no_machine() {
    for (path, source) in sources("src/protocol") {
        for forbidden in ["std::sync", "atomic::Atomic", "std::time", "libc", "crate::sys"] {
            assert!(!source.contains(forbidden), "{path} mentions {forbidden}");
        }
    }
}

/// loom takes any other access of this ordering for a weaker one.
#[test]
fn only_fences_are_seq_cst() {
    for site in sites::all() {
        let allowed = site.operation == "fence" || !site.orderings.contains(&SeqCst);
        assert!(allowed, "{} in {} is a {} that is SeqCst", site.name, site.file, site.operation);
    }
}

/// The page about the memory model names models that there are.
#[test]
fn every_model_that_the_memory_model_names_was_explored() {
    let read = |path: &str| fs::read_to_string(root().join(path)).expect("a page");
    let (page, explored) = (read("docs/symmetric-memory.md"), read("loom-tests/EXPLORED.md"));
    let names: Vec<&str> = page.split('`').skip(1).step_by(2).collect();
    let models =
        names.iter().filter(|name| ["litmus_", "bell_", "lock_"].iter().any(|kind| name.starts_with(kind)));
    let mut count = 0;
    for name in models {
        count += 1;
        assert!(explored.contains(&format!("\n| {name}::")), "{name} is no model");
    }
    assert!(count > 20, "{count} models are named");
}
