//! The memory that shared regions save.

use crate::bench::Bench;

#[test]
fn shared_data_is_held_once() {
    let bench = Bench::new();
    let table = bench.succeed(&["memory", "memory", "-n4", "--hydros=100", "--thermals=50", "--stages=48"]);
    let copies = |row: &str| -> f64 {
        let line = table.lines().find(|line| line.starts_with(row)).unwrap_or_else(|| panic!("{table}"));
        line.split_whitespace().last().and_then(|last| last.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    let (own, shared) = (copies("each rank its own copy"), copies("one copy, shared"));
    assert!((3.9..4.3).contains(&own), "{table}");
    assert!((0.95..1.15).contains(&shared), "{table}");
}
