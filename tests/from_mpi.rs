//! The page for people from MPI has each call of the chapters that it promises, and names no call of ours that does not exist.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The collectives of MPI 4.1, chapter 6, in its order.
const COLLECTIVES: [&str; 17] = [
    "Barrier",
    "Bcast",
    "Gather",
    "Gatherv",
    "Scatter",
    "Scatterv",
    "Allgather",
    "Allgatherv",
    "Alltoall",
    "Alltoallv",
    "Alltoallw",
    "Reduce",
    "Allreduce",
    "Reduce_scatter_block",
    "Reduce_scatter",
    "Scan",
    "Exscan",
];

/// The other calls of that chapter, and its operations.
const OTHERS: [&str; 20] = [
    "Reduce_local",
    "Op_create",
    "Op_create_c",
    "Op_free",
    "Op_commutative",
    "IN_PLACE",
    "SUM",
    "PROD",
    "MIN",
    "MAX",
    "BAND",
    "BOR",
    "BXOR",
    "LAND",
    "LOR",
    "LXOR",
    "MINLOC",
    "MAXLOC",
    "REPLACE",
    "NO_OP",
];

/// Those of neighbours, chapter 8.
const NEIGHBORS: [&str; 5] = ["allgather", "allgatherv", "alltoall", "alltoallv", "alltoallw"];

/// Chapter 7, on groups and communicators.
const COMMUNICATORS: [&str; 46] = [
    "Group_size",
    "Group_rank",
    "Group_translate_ranks",
    "Group_compare",
    "Comm_group",
    "Group_union",
    "Group_intersection",
    "Group_difference",
    "Group_incl",
    "Group_excl",
    "Group_range_incl",
    "Group_range_excl",
    "Group_from_session_pset",
    "Group_free",
    "Comm_size",
    "Comm_rank",
    "Comm_compare",
    "Comm_dup",
    "Comm_dup_with_info",
    "Comm_idup",
    "Comm_idup_with_info",
    "Comm_create",
    "Comm_create_group",
    "Comm_split",
    "Comm_split_type",
    "Comm_create_from_group",
    "Comm_free",
    "Comm_set_info",
    "Comm_get_info",
    "Comm_test_inter",
    "Comm_remote_size",
    "Comm_remote_group",
    "Intercomm_create",
    "Intercomm_create_from_groups",
    "Intercomm_merge",
    "Comm_create_keyval",
    "Comm_free_keyval",
    "Comm_set_attr",
    "Comm_get_attr",
    "Comm_delete_attr",
    "Comm_set_name",
    "Comm_get_name",
    "Comm_set_errhandler",
    "Comm_spawn",
    "Init",
    "Finalize",
];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn page() -> String {
    fs::read_to_string(root().join("docs/from-mpi.md")).expect("the page")
}

/// The pieces of a text that consist of such characters.
fn pieces(text: &str, is_part: impl Fn(char) -> bool) -> BTreeSet<&str> {
    text.split(|c| !is_part(c)).filter(|piece| !piece.is_empty()).collect()
}

#[test]
fn every_call_of_mpi_has_a_row() {
    let page = page();
    let named = pieces(&page, |c| c.is_ascii_alphanumeric() || c == '_' || c == '*');
    let is_named = |call: &String| {
        let stands_for = |name: &&str| name.strip_suffix('*').is_some_and(|start| call.starts_with(start));
        named.contains(&**call) || named.iter().filter(|name| name.len() > "MPI_*".len()).any(stands_for)
    };
    let forms = |name: &str| {
        [format!("MPI_{name}"), format!("MPI_I{}", name.to_lowercase()), format!("MPI_{name}_init")]
    };
    let neighbors = NEIGHBORS.map(|name| forms(&format!("Neighbor_{name}")));
    let others = OTHERS.iter().chain(&COMMUNICATORS).map(|name| format!("MPI_{name}"));
    let all = COLLECTIVES.map(forms).into_iter().chain(neighbors).flatten().chain(others);
    let missing: Vec<String> = all.filter(|call| !is_named(call)).collect();
    assert!(missing.is_empty(), "docs/from-mpi.md has no row for {missing:?}");
    assert!(!is_named(&"MPI_Bcast_all".to_owned()), "it would find anything");
}

#[test]
fn every_call_of_ours_exists() {
    let mut functions = BTreeSet::new();
    functions_below(&root().join("src"), &mut functions);
    let page = page();
    // In code: `comm.call(…)`, `call` with a `_` in its name.
    let code = page.split('`').skip(1).step_by(2);
    let ours = code.flat_map(|code| match code.strip_prefix("comm.") {
        Some(call) => call.split('(').next(),
        None => Some(code).filter(|code| {
            code.contains('_')
                && !code.ends_with('_')
                && code.chars().all(|c| c == '_' || c.is_ascii_lowercase())
        }),
    });
    // The end of the names of MPI that have large counts.
    let ours: BTreeSet<&str> = ours.filter(|name| *name != "_c").collect();
    assert!(ours.len() > 30, "{ours:?}");
    let unknown: Vec<_> = ours.into_iter().filter(|name| !functions.contains(*name)).collect();
    assert!(unknown.is_empty(), "docs/from-mpi.md names {unknown:?}, which nothing public in src is called");
}

/// The names of all public functions.
fn functions_below(folder: &Path, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("a folder of the sources") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            functions_below(&path, found);
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source is text");
        let names = text.split("pub fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
        found.extend(names.map(str::to_owned));
    }
}
