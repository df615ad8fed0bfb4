//! What was compared with the same call on one machine, bit for bit: the rows say so while they run, and the table in docs/nodes.md
//! is what they have said. `INTRANODE_WRITE_TABLES=1 cargo test --test nodes` writes it.

use std::any::type_name;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use intranode::Hierarchical;

const PAGE: &str = "docs/nodes.md";
const BEGIN: &str = "<!-- compared: begin -->";
const END: &str = "<!-- compared: end -->";

/// What was compared of a call.
#[derive(Default)]
struct Compared {
    types: BTreeSet<String>,
    operations: BTreeSet<String>,
    lens: BTreeSet<usize>,
    ranks: BTreeSet<usize>,
    nodes: BTreeSet<usize>,
}

static COMPARED: Mutex<BTreeMap<&str, Compared>> = Mutex::new(BTreeMap::new());

/// A call with values of type `T`, of which a rank has `len` or up to `len`, has given the same bits.
pub(crate) fn same<T>(call: &'static str, nodes: &Hierarchical, operation: impl ToString, len: usize) {
    let mut all = COMPARED.lock().unwrap_or_else(PoisonError::into_inner);
    let compared = all.entry(call).or_default();
    compared.types.insert(type_name::<T>().to_owned());
    compared.operations.insert(operation.to_string());
    compared.lens.insert(len);
    compared.ranks.insert(nodes.size());
    compared.nodes.insert(nodes.map().nodes());
}

fn list<T: ToString>(of: &BTreeSet<T>) -> String {
    of.iter().map(T::to_string).collect::<Vec<_>>().join(", ")
}

fn table() -> String {
    let all = COMPARED.lock().unwrap_or_else(PoisonError::into_inner);
    let mut table = "| call | types | operations | elements of a rank, at most | ranks | nodes |\n".to_owned();
    table += "| --- | --- | --- | --- | --- | --- |\n";
    for (call, compared) in all.iter() {
        let Compared { types, operations, lens, ranks, nodes } = compared;
        let columns = [list(types), list(operations), list(lens), list(ranks), list(nodes)];
        table += &format!("| {call} | {} |\n", columns.join(" | "));
    }
    table
}

/// Compares the table of the page with what was compared, or writes it.
pub(crate) fn check_page() -> Result<(), String> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(PAGE);
    let page = std::fs::read_to_string(&path).map_err(|error| format!("{PAGE}: {error}"))?;
    let parts = page.split_once(BEGIN).and_then(|(before, rest)| Some((before, rest.split_once(END)?)));
    let (before, (written, after)) = parts.ok_or_else(|| format!("{PAGE} has no {BEGIN} and {END}"))?;
    let expected = format!("\n\n{}\n", table());
    if written == expected {
        return Ok(());
    }
    if std::env::var_os("INTRANODE_WRITE_TABLES").is_none() {
        return Err(format!(
            "{PAGE} has another table than what was compared: INTRANODE_WRITE_TABLES=1 writes\n{expected}"
        ));
    }
    std::fs::write(&path, format!("{before}{BEGIN}{expected}{END}{after}"))
        .map_err(|error| format!("{PAGE}: {error}"))
}
