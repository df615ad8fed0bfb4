//! The sites of `src/protocol`, read from its text, so that none is forgotten: each is a call of one of the platform's
//! operations, and can be weakened in some ways. `tests/safety.rs` reads this file too.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering::{self, AcqRel, Acquire, Relaxed, Release, SeqCst};

/// A call of a platform's operation.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) name: &'static str,
    /// The file in `src/protocol`, as `barrier.rs` or `symmetric/bell.rs`.
    pub(crate) file: String,
    pub(crate) operation: &'static str,
    pub(crate) orderings: Vec<Ordering>,
}

/// What is wrong with a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weakening {
    /// The (successful) access has this ordering.
    Order(Ordering),
    /// A failed exchange has this ordering.
    Failure(Ordering),
    /// A fence does not happen. An exchange does not either, and reports that it did.
    Skipped,
    /// An exchange overwrites whatever the word holds.
    Unconditional,
    /// No sleeper is woken.
    NoWake,
    /// Only the longest sleeper is woken.
    WakeOne,
    /// The sleep begins whatever the word holds by then, as if the expected value had been read before.
    Unchecked,
    /// A value is not read but taken to be what the sleeper hopes for.
    Believed,
}

/// Which machine has it, and what it is called.
const OPERATIONS: [(&str, &str); 21] = [
    ("platform", "load"),
    ("platform", "load64"),
    ("platform", "store"),
    ("platform", "compare_exchange"),
    ("platform", "compare_exchange64"),
    ("platform", "fetch_or"),
    ("platform", "spin"),
    ("platform", "wait"),
    ("sleeper", "wait_any"),
    ("platform", "wake_all"),
    ("platform", "load_cell"),
    ("platform", "store_cell"),
    ("platform", "swap_cell"),
    ("platform", "exchange_cell"),
    ("platform", "fetch_cell"),
    ("platform", "put_cells"),
    ("platform", "get_cells"),
    ("platform", "fence"),
    ("platform", "fence_light"),
    ("platform", "fence_heavy"),
    ("platform", "poll"),
];

const ORDERINGS: [(&str, Ordering); 5] =
    [("Relaxed", Relaxed), ("Acquire", Acquire), ("Release", Release), ("AcqRel", AcqRel), ("SeqCst", SeqCst)];

impl Site {
    /// Every way to weaken it. The models must reject each.
    pub(crate) fn weakenings(&self) -> Vec<Weakening> {
        let mut weakenings = match self.operation {
            "wake_all" => vec![Weakening::NoWake, Weakening::WakeOne],
            "wait" | "wait_any" => vec![Weakening::Unchecked],
            "compare_exchange" | "compare_exchange64" | "exchange_cell" => {
                vec![Weakening::Skipped, Weakening::Unconditional]
            }
            "fence_light" | "fence_heavy" => vec![Weakening::Skipped],
            // There is no weaker fence than one of these two.
            "fence" if matches!(self.orderings[..], [Acquire | Release]) => return vec![Weakening::Skipped],
            _ => vec![],
        };
        for (index, ordering) in self.orderings.iter().enumerate() {
            let weaker = match ordering {
                Relaxed => vec![],
                AcqRel => vec![Acquire, Release],
                Acquire | Release => vec![Relaxed],
                // loom takes any other access of this ordering for AcqRel.
                SeqCst if self.operation == "fence" => vec![AcqRel],
                other => unreachable!("{other:?} at {} in the protocols", self.name),
            };
            let weakening = if index == 0 { Weakening::Order } else { Weakening::Failure };
            weakenings.extend(weaker.into_iter().map(weakening));
        }
        if self.name == "woken" {
            weakenings.push(Weakening::Believed);
        }
        weakenings
    }
}

/// All sites, file by file, in the order of the text.
pub(crate) fn all() -> Vec<Site> {
    let mut all = Vec::new();
    for (file, code) in protocol_code() {
        let mut sites = Vec::new();
        for (machine, operation) in OPERATIONS {
            for (at, arguments) in calls(&code, machine, operation) {
                let (name, orderings) = (first_string(arguments), orderings(arguments));
                sites.push((at, Site { name, file: file.clone(), operation, orderings }));
            }
        }
        sites.sort_by_key(|(at, _)| *at);
        all.extend(sites.into_iter().map(|(_, site)| site));
    }
    all
}

/// The code of each file of the protocols and of their folders, without comments, imports and unit tests.
pub(crate) fn protocol_code() -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/protocol");
    let code = |path: &Path| {
        let source = fs::read_to_string(path).expect("a source");
        let source = source.split("#[cfg(test)]").next().unwrap_or_default();
        let lines = source.lines().filter(|line| !line.starts_with("use ") && !line.starts_with("pub use "));
        lines.flat_map(|line| [line.split("//").next().unwrap_or_default(), "\n"]).collect()
    };
    let name = |path: &Path| path.strip_prefix(&folder).expect("below it").to_string_lossy().into_owned();
    files_below(&folder).iter().map(|path| (name(path), code(path))).collect()
}

fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the protocols' sources");
    let paths = entries.map(|entry| entry.expect("a source").path());
    paths.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

/// Every call of this method of this machine: where it is, and its arguments.
pub(crate) fn calls<'c>(code: &'c str, machine: &str, method: &str) -> Vec<(usize, &'c str)> {
    let start = format!(".{method}(");
    code.match_indices(&start)
        .filter(|(at, _)| code[..*at].trim_end().ends_with(machine))
        .map(|(at, _)| (at, up_to_the_closing(&code[at + start.len() - 1..])))
        .collect()
}

/// What stands between the parenthesis at the start of `text` and the one that closes it.
fn up_to_the_closing(text: &str) -> &str {
    let mut depth = 0;
    let end = text.find(|c| {
        depth += i32::from(c == '(') - i32::from(c == ')');
        depth == 0
    });
    &text[..end.expect("a closing parenthesis")]
}

/// The name that a call gives to its site.
pub(crate) fn first_string(arguments: &str) -> &'static str {
    let name = arguments.split('"').nth(1).unwrap_or_else(|| panic!("a site without a name: {arguments}"));
    Box::leak(name.to_owned().into_boxed_str())
}

/// The orderings that are written in this text.
pub(crate) fn orderings(text: &str) -> Vec<Ordering> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_')
        .filter_map(|word| ORDERINGS.iter().find(|(name, _)| *name == word).map(|(_, ordering)| *ordering))
        .collect()
}
