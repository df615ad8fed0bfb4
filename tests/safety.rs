//! Keeps SAFETY.md and the source in step.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

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
    let source = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("a source file");
        let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned();
        (path.strip_prefix(root()).expect("below the root").display().to_string(), code)
    };
    files.into_iter().map(source).collect()
}

/// The words in code font in the first column of the table that has this first heading.
fn first_column(text: &str, heading: &str) -> BTreeSet<String> {
    let start = text.find(&format!("| {heading} |")).expect("the table is there");
    let rows = text[start..].lines().skip(2).take_while(|line| line.starts_with('|'));
    rows.filter_map(|row| row.split('`').nth(1)).map(str::to_owned).collect()
}

/// The site names of all operations of the platform in `src/protocol`, with the operations.
fn sites() -> BTreeMap<String, BTreeSet<&'static str>> {
    const OPERATIONS: [&str; 10] = [
        ".load(",
        ".load64(",
        ".compare_exchange(",
        ".compare_exchange64(",
        ".fetch_or(",
        ".spin(",
        ".wait(",
        ".wait_any(",
        ".wake_all(",
        ".store(",
    ];
    let mut sites: BTreeMap<String, BTreeSet<&'static str>> = BTreeMap::new();
    for (path, source) in sources("src/protocol") {
        for operation in OPERATIONS {
            for call in source.split(operation).skip(1) {
                let name = call.trim_start().strip_prefix('"').and_then(|rest| rest.split('"').next());
                let name =
                    name.unwrap_or_else(|| panic!("{path}: a {operation} whose site has no literal name"));
                sites.entry(name.to_owned()).or_default().insert(operation);
            }
        }
    }
    sites
}

#[test]
fn every_site_of_the_protocols_is_explained() {
    let text = safety();
    let explained = first_column(&text, "site");
    let sleeping = [".wait(", ".wait_any(", ".wake_all("];
    for (site, operations) in sites() {
        if operations.iter().any(|operation| sleeping.contains(operation)) {
            assert!(text.contains(&format!("`{site}`")), "SAFETY.md does not mention `{site}`");
        } else {
            assert!(explained.contains(&site), "SAFETY.md has no row for the ordering of `{site}`");
        }
    }
    for site in explained {
        assert!(sites().contains_key(&site), "SAFETY.md explains `{site}`, which is not in src/protocol");
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
    let inventory = first_column(&safety(), "file");
    let mut found = BTreeSet::new();
    for (path, source) in sources("src") {
        let is_unsafe =
            |line: &str| line.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == "unsafe");
        if source.lines().filter(|line| !line.trim_start().starts_with("//")).any(is_unsafe) {
            found.insert(path);
        }
    }
    assert_eq!(found, inventory, "left: files with unsafe code; right: SAFETY.md's inventory");
    for path in found {
        let folders = ["src/sys/", "src/copy/", "src/segment/", "src/liveness/"];
        let declares = path == "src/protocol/platform.rs";
        assert!(declares || folders.iter().any(|folder| path.starts_with(folder)), "unsafe code in {path}");
    }
}

#[test]
fn the_protocols_know_no_machine() {
    for (path, source) in sources("src/protocol") {
        for forbidden in ["std::sync", "atomic::Atomic", "std::time", "libc", "crate::sys", "SeqCst"] {
            assert!(!source.contains(forbidden), "{path} mentions {forbidden}");
        }
    }
}
