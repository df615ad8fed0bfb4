//! The sites of `src/protocol`, read from its text, so that none is forgotten here.

use std::fs;
use std::path::{Path, PathBuf};

use intranode::protocol::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

/// A call of a platform's operation.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) operation: &'static str,
    pub(crate) name: &'static str,
    pub(crate) orderings: Vec<Ordering>,
    /// Whether it is one of ranks that watch each other.
    pub(crate) watching: bool,
}

const OPERATIONS: [&str; 10] = [
    "load",
    "load64",
    "store",
    "compare_exchange",
    "compare_exchange64",
    "fetch_or",
    "spin",
    "wait",
    "wait_any",
    "wake_all",
];

const ORDERINGS: [(&str, Ordering); 5] =
    [("Relaxed", Relaxed), ("Acquire", Acquire), ("Release", Release), ("AcqRel", AcqRel), ("SeqCst", SeqCst)];

/// The protocols' code, without comments and unit tests.
fn code() -> String {
    files().into_iter().map(|(_, code)| code).collect()
}

/// The code of each file.
fn files() -> Vec<(PathBuf, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protocol");
    let code = |path: &Path| {
        let source = fs::read_to_string(path).expect("a source");
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = source.lines().filter(|line| !line.starts_with("use ") && !line.starts_with("pub use "));
        lines.flat_map(|line| [line.split("//").next().unwrap_or_default(), "\n"]).collect()
    };
    let entries = fs::read_dir(folder).expect("the protocols' sources");
    let paths = entries.map(|entry| entry.expect("a source").path());
    paths.map(|path| (path.clone(), code(&path))).collect()
}

/// What stands between the parenthesis at the start of `text` and the one that closes it.
fn arguments(text: &str) -> &str {
    let mut depth = 0;
    let end = text.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    &text[..end.expect("a closing parenthesis")]
}

fn orderings(text: &str) -> Vec<Ordering> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter_map(|word| ORDERINGS.iter().find(|(name, _)| *name == word).map(|(_, ordering)| *ordering))
        .collect()
}

fn name(arguments: &str) -> &'static str {
    let name = arguments.split('"').nth(1).unwrap_or_else(|| panic!("a site without a name: {arguments}"));
    Box::leak(name.to_owned().into_boxed_str())
}

/// All sites.
pub(crate) fn all() -> Vec<Site> {
    let mut sites = Vec::new();
    for (path, code) in files() {
        let watching = path.ends_with("watch.rs");
        for operation in OPERATIONS {
            for (at, found) in code.match_indices(&format!(".{operation}(")) {
                let arguments = arguments(&code[at + found.len() - 1..]);
                let (name, orderings) = (name(arguments), orderings(arguments));
                sites.push(Site { operation, name, orderings, watching });
            }
        }
    }
    sites
}

/// The names of all points at which a rank can die.
pub(crate) fn points() -> Vec<&'static str> {
    let code = code();
    code.match_indices(".fail_point(")
        .map(|(at, found)| name(arguments(&code[at + found.len() - 1..])))
        .collect()
}

/// Every ordering in the protocols belongs to a site that was found, and every name to one site.
pub(crate) fn nothing_hides() -> Result<(), libtest_mimic::Failed> {
    let sites = all();
    let (written, found) = (orderings(&code()).len(), sites.iter().flat_map(|site| &site.orderings).count());
    if written != found {
        return Err(format!("{written} orderings are written, {found} of them at sites").into());
    }
    for (index, site) in sites.iter().enumerate() {
        if sites[..index].iter().any(|other| other.name == site.name) {
            return Err(format!("two sites are called {}", site.name).into());
        }
    }
    let mut points = points();
    let mut modelled: Vec<_> = crate::models::faults::POINTS.iter().map(|point| point.0).collect();
    modelled.push(crate::models::groups::PROGRESS);
    modelled.extend(crate::models::watch::POINTS);
    points.sort_unstable();
    modelled.sort_unstable();
    if points != modelled {
        return Err(format!("points {points:?}, of which a rank dies at {modelled:?}").into());
    }
    Ok(())
}
