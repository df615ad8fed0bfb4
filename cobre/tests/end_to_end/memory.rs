//! The memory that shared regions save.

use crate::bench::{Bench, finish, start, succeeded};

/// How many copies of the data a row of the table has.
fn copies(table: &str, row: &str) -> f64 {
    let line = table.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("{table}"));
    line.split_whitespace().last().and_then(|last| last.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

const CASE: [&str; 6] = ["memory", "memory", "-n4", "--hydros=100", "--thermals=50", "--stages=48"];

#[test]
fn shared_data_is_held_once() {
    let bench = Bench::new();
    let table = bench.succeed(&CASE);
    let (own, shared) = (copies(&table, "each rank its own copy"), copies(&table, "one copy, shared"));
    assert!((3.9..4.3).contains(&own), "{table}");
    assert!((0.95..1.15).contains(&shared), "{table}");
}

#[test]
fn shared_data_is_held_once_on_each_node() {
    let bench = Bench::new();
    let mut command = bench.program(&CASE);
    command.env("INTRANODE_NODES", "3,1");
    let table = succeeded(finish(start(command)));
    let (own, shared) = (copies(&table, "each rank its own copy"), copies(&table, "one copy a node, shared"));
    assert!((3.9..4.3).contains(&own), "{table}");
    assert!((1.9..2.2).contains(&shared), "{table}");
}
