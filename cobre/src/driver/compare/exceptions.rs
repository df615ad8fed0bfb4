//! The values that differ between two runs of one case by their nature.

use std::path::Path;

/// How a file is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rule {
    /// Every byte.
    Bytes,
    /// Every column of a Parquet file but these.
    Columns(&'static [&'static str]),
    /// Every field of a JSON file but these, given as JSON pointers.
    Fields(&'static [&'static str]),
    /// Every field of a policy's manifest but the time of writing.
    Manifest,
    /// Not at all: the file contains times, and its rows depend on the ranks and threads.
    Nothing,
}

/// By the end of the path, so that a directory inside an output directory can be compared too.
const RULES: &[(&str, Rule)] = &[
    ("training/convergence.parquet", Rule::Columns(&["time_forward_ms", "time_backward_ms", "time_total_ms"])),
    ("training/cut_selection/iterations.parquet", Rule::Columns(&["selection_time_ms"])),
    ("training/timing/iterations.parquet", Rule::Nothing),
    ("training/solver/iterations.parquet", Rule::Nothing),
    (
        "simulation/solver/iterations.parquet",
        Rule::Columns(&["solve_time_ms", "load_model_time_ms", "set_bounds_time_ms", "basis_set_time_ms"]),
    ),
    ("training/dictionaries/codes.json", Rule::Fields(&["/generated_at"])),
    (
        "training/metadata.json",
        Rule::Fields(&[
            "/hostname",
            "/started_at",
            "/completed_at",
            "/duration_seconds",
            "/solve_stats/forward_solve_seconds",
            "/solve_stats/backward_solve_seconds",
            "/solve_stats/parallelism",
            "/setup",
            "/distribution",
        ]),
    ),
    (
        "simulation/metadata.json",
        Rule::Fields(&[
            "/hostname",
            "/started_at",
            "/completed_at",
            "/duration_seconds",
            "/solve_stats/solve_seconds",
            "/solve_stats/parallelism",
            "/distribution",
        ]),
    ),
];

/// How the file at `path` is compared.
pub(super) fn rule(path: &Path) -> Rule {
    if path.file_name().is_some_and(|name| name == "manifest.bin") {
        return Rule::Manifest;
    }
    RULES.iter().find(|(end, _)| path.ends_with(end)).map_or(Rule::Bytes, |(_, rule)| *rule)
}
