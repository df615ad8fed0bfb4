//! What the sources and the documents promise together.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use intranode::segment::layout::{CHUNK_STEP, Layout};
use intranode::{Config, Error, ReduceOp};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn document(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The sources of the library by path, without what is compiled for tests only.
fn sources() -> BTreeMap<String, String> {
    const TESTS: [&str; 4] = ["tests.rs", "testing.rs", "contract.rs", "programs.rs"];
    let src = root().join("src");
    let (mut found, mut folders) = (BTreeMap::new(), vec![src.clone()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder of the sources") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                if !path.ends_with("tests") {
                    folders.push(path);
                }
            } else if !TESTS.iter().any(|test| path.ends_with(test)) {
                found.insert(name_below(&src, &path), code(&path));
            }
        }
    }
    assert!(found.contains_key("lib.rs"));
    found
}

fn name_below(folder: &Path, path: &Path) -> String {
    path.strip_prefix(folder).expect("it is below the folder").display().to_string()
}

/// A source without its unit tests.
fn code(path: &Path) -> String {
    let text = fs::read_to_string(path).expect("a source is text");
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
}

#[test]
fn one_file_reads_the_environment() {
    let reads = |code: &str| ["std::env", "env::var", "getenv"].iter().any(|way| code.contains(way));
    let readers: Vec<String> =
        sources().into_iter().filter(|(_, code)| reads(code)).map(|(path, _)| path).collect();
    assert_eq!(readers, ["job/environment.rs"]);
}

/// Something public with its documentation.
struct Item {
    /// `Communicator::rank`, or `Communicator`.
    path: String,
    /// Where it is.
    file: String,
    declaration: String,
    /// Without the slashes.
    docs: String,
}

/// Modules all of whose public items are meant for programs.
const MODULES: [&str; 2] = ["job/cleanup.rs", "sys/cast.rs"];

/// Folders that `lib.rs` hides: names there may be those of something that programs use.
const HIDDEN: [&str; 2] = ["copy/", "protocol/"];

impl Item {
    /// All that programs can use.
    fn all() -> Vec<Self> {
        let sources = sources();
        let exported = exported(&sources["lib.rs"]);
        let mut all = Vec::new();
        let hidden = |file: &str| HIDDEN.iter().any(|folder| file.starts_with(folder));
        for (file, code) in sources.iter().filter(|(file, _)| !hidden(file)) {
            let is_exported = |name: &str| exported.contains(name) || MODULES.contains(&file.as_str());
            // The type whose methods follow.
            let mut of: Option<&str> = None;
            let lines: Vec<&str> = code.lines().collect();
            for (index, line) in lines.iter().enumerate() {
                if let Some(name) = implemented(line) {
                    of = Some(name);
                } else if *line == "}" {
                    of = None;
                }
                let declaration = line.trim_start();
                let Some(name) = declared(declaration) else { continue };
                let path = match of {
                    Some(of) if is_exported(of) => format!("{of}::{name}"),
                    None if is_exported(name) => name.to_owned(),
                    _ => continue,
                };
                if let Some(docs) = docs_above(&lines[..index]) {
                    // With the result, which may be on a later line.
                    let end = lines[index..].iter().position(|line| line.ends_with(['{', ';'])).unwrap_or(0);
                    let declaration = lines[index..=index + end].join(" ");
                    all.push(Item { path, file: file.clone(), declaration, docs });
                }
            }
        }
        all
    }

    fn name(&self) -> &str {
        self.path.rsplit("::").next().unwrap_or_default()
    }

    /// The code of its examples that are compiled.
    fn examples(&self) -> String {
        let mut parts = self.docs.split("```");
        let mut examples = String::new();
        while let (Some(_), Some(fenced)) = (parts.next(), parts.next()) {
            let (kind, code) = fenced.split_once('\n').unwrap_or_default();
            if ["", "no_run"].contains(&kind) {
                examples += code;
            }
        }
        examples
    }

    /// The item whose example shows this one too: `Example: [`text`](path)`, or without a path of its own.
    fn link_to_example(&self) -> Option<String> {
        let text = self.docs.split_whitespace().collect::<Vec<_>>().join(" ");
        let (_, link) = text.split_once("Example: [`")?;
        let (name, rest) = link.split_once("`]")?;
        let path = rest.strip_prefix('(').and_then(|rest| rest.split(')').next());
        Some(path.unwrap_or(name).trim_start_matches("crate::").to_owned())
    }
}

/// The names that the library's root hands on.
fn exported(root: &str) -> BTreeSet<&str> {
    let declarations = root.lines().filter_map(|line| line.strip_prefix("pub use ")?.strip_suffix(';'));
    let mut found = BTreeSet::new();
    for declaration in declarations {
        let last = declaration.rsplit("::").next().unwrap_or_default();
        match declaration.split_once('{') {
            Some((_, list)) => found.extend(list.trim_end_matches('}').split(", ")),
            None => found.extend([last]),
        }
    }
    assert!(found.len() > 20, "{found:?}");
    found
}

/// The type in `impl<T> Type<T> {`; `None` for a trait's implementation too.
fn implemented(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("impl")?;
    if line.contains(" for ") || !line.ends_with('{') {
        return None;
    }
    let rest = if rest.starts_with('<') { rest.split_once("> ")?.1 } else { rest.trim_start() };
    rest.split(|c: char| !c.is_alphanumeric()).next()
}

/// The name in `pub fn name(…)` and the like.
fn declared(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("pub ")?;
    for qualifier in ["async ", "unsafe "] {
        rest = rest.strip_prefix(qualifier).unwrap_or(rest);
    }
    let kinds = ["const fn ", "const unsafe fn ", "fn ", "struct ", "enum ", "trait ", "type ", "const "];
    let rest = kinds.iter().find_map(|kind| rest.strip_prefix(kind))?;
    rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()
}

/// The documentation that ends above an item; `None` if it is hidden.
fn docs_above(lines: &[&str]) -> Option<String> {
    let above = lines.iter().rev().map(|line| line.trim_start());
    let mut docs: Vec<&str> = Vec::new();
    for line in above {
        if line == "#[doc(hidden)]" {
            return None;
        } else if let Some(text) = line.strip_prefix("///") {
            docs.push(text.strip_prefix(' ').unwrap_or(text));
        } else if !line.starts_with("#[") {
            break;
        }
    }
    docs.reverse();
    Some(docs.join("\n"))
}

#[test]
fn everything_public_has_an_example() {
    let all = Item::all();
    for expected in
        ["Communicator", "Communicator::barrier", "Config::MAX_RANKS", "threads", "slice_mut", "Error"]
    {
        assert!(all.iter().any(|item| item.path == expected), "{expected} is not found");
    }
    let mut without = Vec::new();
    for item in &all {
        let own = item.examples();
        let linked = item.link_to_example().map(|path| {
            let target = all.iter().find(|other| other.path == path);
            target.unwrap_or_else(|| panic!("{}: there is no {path}", item.path)).examples()
        });
        let is_shown = [Some(own), linked].into_iter().flatten().any(|code| shows(&code, item));
        if !is_shown {
            without.push(format!("{}: {}", item.file, item.path));
        }
    }
    assert!(without.is_empty(), "no example, or none that shows it:\n{}", without.join("\n"));
}

/// Whether an example has to do with an item.
fn shows(code: &str, item: &Item) -> bool {
    let is_call = item.declaration.contains("fn ");
    let is_const = item.declaration.contains("const ");
    if !is_call && !is_const {
        // A type is inferred more often than named.
        return !code.trim().is_empty();
    }
    let words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
    let mut rest = code;
    for word in words {
        let after = &rest[rest.find(word).map_or(0, |at| at + word.len())..];
        // `region::<T>(…)` is a call too.
        if word == item.name() && (!is_call || after.starts_with(['(', ':', ')'])) {
            return true;
        }
        rest = after;
    }
    false
}

#[test]
fn an_example_is_found_and_must_show_its_item() {
    let lines = ["/// Text.", "///", "/// ```", "/// comm.region::<u8>(1);", "/// ```", "#[inline]"];
    let item = |name: &str| Item {
        path: format!("Communicator::{name}"),
        file: String::new(),
        declaration: format!("pub fn {name}(&self) {{"),
        docs: docs_above(&lines).expect("it is not hidden"),
    };
    assert_eq!(item("region").examples(), "comm.region::<u8>(1);\n");
    assert!(shows(&item("region").examples(), &item("region")));
    assert!(!shows(&item("region").examples(), &item("reg")) && !shows("let region = 1;", &item("region")));
    assert_eq!(docs_above(&["/// Text.", "#[doc(hidden)]"]), None);
    assert_eq!(implemented("impl<T: Pod, E> Region<T, E> {"), Some("Region"));
    assert_eq!(implemented("impl<T: Pod> Deref for Shared<T> {"), None);
    let functions = ["pub fn f() {", "pub const fn f() {", "pub async fn f() {", "pub const unsafe fn f() {"];
    assert!(functions.iter().chain(&["pub const f: u8 = 1;"]).all(|line| declared(line) == Some("f")));
    assert_eq!(declared("pub(crate) async fn f() {"), None);
}

/// What can fail says how, and what a rank calls says whether the others have to call it too.
#[test]
fn errors_and_collectives_are_documented() {
    const OF_RANKS: [&str; 4] = ["Communicator::", "Region::", "Shared::", "Exchange::"];
    let mut wrong = Vec::new();
    for item in Item::all().into_iter().filter(|item| item.declaration.contains("fn ")) {
        if item.declaration.contains("Result<") && !item.docs.contains("# Errors") {
            wrong.push(format!("{} has no section on errors", item.path));
        }
        let of_a_rank = OF_RANKS.iter().any(|of| item.path.starts_with(of));
        if of_a_rank && !item.docs.contains("ollective") {
            wrong.push(format!("{} does not say whether it is collective", item.path));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Where nothing is set, a table of figures decides.
#[test]
fn the_threshold_of_hierarchical_barriers_is_that_of_the_table() {
    let table = document("src/tuning.rs");
    let (_, rest) = table.split_once("HIERARCHICAL_FROM_RANKS: usize = ").expect("the threshold");
    let (ranks, _) = rest.split_once(';').expect("a number");
    for path in ["README.md", "src/job/config.rs"] {
        let text = document(path).replace("///", " ").split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(&format!("from {ranks} ranks on")), "{path} does not say: from {ranks} ranks on");
    }
}

/// Rounds wrap where their counter does.
#[test]
fn rounds_wrap_where_the_documents_say() {
    let generation = document("src/protocol/generation.rs");
    let (_, rest) = generation.split_once("const FLAGS: u32 = ").expect("the bits of a word that are no round");
    let flags: u32 = rest.split(';').next().and_then(|flags| flags.parse().ok()).expect("a number");
    let digits = (u32::BITS - flags).to_string();
    let raised = digits
        .bytes()
        .map(|digit| ['⁰', '¹', '²', '³', '⁴', '⁵', '⁶', '⁷', '⁸', '⁹'][usize::from(digit - b'0')]);
    let modulus = format!("modulo 2{}", raised.collect::<String>());
    for path in ["src/error/mod.rs", "src/error/details.rs", "src/rank/job_state.rs", "docs/GLOSSARY.md"] {
        let text = document(path);
        assert!(text.contains(&modulus), "{path} does not say: {modulus}");
        assert_eq!(text.matches("modulo 2").count(), text.matches(&modulus).count(), "{path}: {modulus}");
    }
}

/// A number as the documents write it.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
    groups.collect::<Vec<_>>().join(",")
}

fn segment_bytes(ranks: usize, chunk: usize) -> usize {
    Layout::new(ranks, chunk).expect("it is allowed").len()
}

/// The bytes of each rank of many, apart from its chunks. Between these numbers nothing is rounded.
fn bytes_a_rank() -> usize {
    let (few, many) = (1 << 10, 1 << 11);
    (segment_bytes(many, CHUNK_STEP) - segment_bytes(few, CHUNK_STEP)) / (many - few) - 2 * CHUNK_STEP
}

#[test]
fn the_formula_for_memory_holds() {
    let a_rank = bytes_a_rank();
    let beyond = |ranks, chunk| segment_bytes(ranks, chunk) as i64 - (ranks * (2 * chunk + a_rank)) as i64;
    let chunks = [CHUNK_STEP, 4096, 1 << 20];
    let most = (1..=5000).flat_map(|ranks| chunks.map(|chunk| beyond(ranks, chunk))).max().expect("some");
    let most = usize::try_from(most).expect("there is a part that does not depend on the ranks");
    let rounded = most.next_multiple_of(1 << 10);
    // Beyond, where there are too many to try them all.
    for ranks in (5000..=Config::MAX_RANKS).step_by(97).chain([Config::MAX_RANKS]) {
        assert!(beyond(ranks, CHUNK_STEP) <= rounded as i64, "{ranks} ranks");
    }
    let formula = format!("ranks × (2 × chunk + {a_rank}) + {}", grouped(rounded));
    let in_words = format!("{a_rank} bytes a rank, and {} KiB", rounded >> 10);
    for (path, says) in [("docs/limits.md", &formula), ("README.md", &formula), ("src/lib.rs", &in_words)] {
        assert!(document(path).contains(says), "{path} does not say: {says}");
    }
}

#[test]
fn the_limits_are_those_of_the_library() {
    let limits = document("docs/limits.md");
    let mut lines: Vec<String> = [2, 4, 8, 64, 256, 1024, Config::MAX_RANKS]
        .map(|ranks| {
            let chunk = Layout::default_chunk(ranks);
            format!("| {} | {} | {} |", grouped(ranks), grouped(chunk), grouped(segment_bytes(ranks, chunk)))
        })
        .into();
    lines.push(format!("| ranks of a job | 1 to {} ", grouped(Config::MAX_RANKS)));
    lines.push(format!("| name of a job | `/` and 1 to {} bytes", Config::MAX_NAME_BYTES));
    lines.push(format!("a multiple of {CHUNK_STEP} up to {} (1 GiB", grouped(Config::MAX_CHUNK_BYTES)));
    assert_eq!(Config::MAX_CHUNK_BYTES, 1 << 30);
    for line in lines {
        assert!(limits.contains(&line), "docs/limits.md does not say: {line}");
    }
    for (path, says) in [("README.md", "`/` and up to"), ("cobre/README.md", "`/` and up to")] {
        // The packaged library is without the backend.
        if root().join(path).exists() {
            let name = format!("{says} {} bytes", Config::MAX_NAME_BYTES);
            assert!(document(path).contains(&name), "{path} does not say: {name}");
        }
    }
}

#[test]
fn a_call_inside_the_operation_of_a_reduction_is_told_from_one_of_another_thread() {
    let errors = intranode::threads(2, |comm| {
        let inner = std::cell::RefCell::new(None);
        let outer = comm.allreduce_with(&[1u64], &mut [0], "sum", |sum, next| {
            *sum += next;
            if comm.rank() == 0 {
                inner.replace(comm.barrier().err());
            }
        });
        (inner.take(), outer.and_then(|()| comm.barrier()))
    })
    .expect("two threads");
    let [(inner, _), (_, other)] = &errors[..] else { panic!("two ranks: {errors:?}") };
    let inner = inner.as_ref().expect("the operation was called");
    assert!(matches!(inner, Error::ConcurrentUse { .. }), "{inner:?}");
    assert!(inner.to_string().contains("in the operation of a reduction"), "{inner}");
    let other = other.as_ref().expect_err("the communicator has ended");
    assert!(matches!(other, Error::Poisoned { rank: 0, .. }), "{other:?}");
    assert!(other.to_string().contains("inside the operation of a reduction"), "{other}");
}

#[test]
fn the_text_of_an_error_shows_no_arguments_of_calls_that_have_none() {
    let texts = intranode::threads(3, |comm| {
        let error = match comm.rank() {
            0 => comm.messages().map(drop),
            1 => comm.lock().map(drop),
            _ => comm.allreduce_in_place(&mut [1u8], ReduceOp::Sum),
        };
        error.expect_err("other calls").to_string()
    })
    .expect("three threads");
    for text in texts {
        assert!(
            text.contains("rank 0 called messages; rank 1 called lock; rank 2 called allreduce(Sum, 1 × u8)"),
            "{text}"
        );
    }
}

#[test]
fn a_region_without_its_communicator_is_told_what_is_missing() {
    let results = intranode::threads(2, |comm| {
        let (region, object) = (comm.region::<u8>(10)?, comm.symmetric::<u8>(10)?);
        comm.leave()?;
        object.at(0)?.store(1, 7);
        Ok::<_, Error>((region.publish().map(drop), object.into_read().map(drop)))
    })
    .expect("two threads");
    for result in results {
        let (publish, into_read) = result.expect("the objects remain");
        for error in [publish, into_read].map(|result| result.expect_err("nobody has the communicator")) {
            assert!(matches!(error, Error::RankLeft { .. }), "{error:?}");
            assert!(error.to_string().contains("it has dropped its communicator"), "{error}");
        }
    }
}
