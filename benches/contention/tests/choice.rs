use crate::model::machine::Machine;
use crate::study::{Choice, RULES, Row, Sweep, Took};

fn took(time: f64) -> Took {
    Took { least: time, median: time }
}

/// The times of flat, and of groups by each rule.
fn sweep(rows: &[(usize, f64, [f64; RULES.len()])]) -> Sweep {
    let row = |&(ranks, flat, groups): &(usize, f64, [f64; RULES.len()])| Row {
        ranks,
        flat: took(flat),
        groups: groups.map(took),
    };
    Sweep { machine: Machine::pair(), rows: rows.iter().map(row).collect() }
}

const SLOW: f64 = 100.0;

#[test]
fn a_crossover_is_where_groups_are_never_slower_again() {
    let others = [SLOW; RULES.len() - 3];
    let groups = |one: f64, other: f64| {
        let mut groups = [one, other, SLOW, 0.0, 0.0, 0.0];
        groups[3..].copy_from_slice(&others);
        groups
    };
    let sweep = sweep(&[
        (2, 1.0, groups(2.0, 0.5)),
        (4, 2.0, groups(1.0, 3.0)),
        (8, 4.0, groups(5.0, 4.0)),
        (16, 8.0, groups(6.0, 7.0)),
    ]);
    assert_eq!([0, 1, 2].map(|rule| sweep.crossover(rule)), [Some(16), Some(8), None]);
}

#[test]
fn a_choice_is_judged_where_it_is_slowest() {
    let sweeps = [
        sweep(&[
            (2, 1.0, [3.0, SLOW, SLOW, SLOW, SLOW, SLOW]),
            (64, 10.0, [2.0, SLOW, SLOW, SLOW, SLOW, SLOW]),
        ]),
        sweep(&[(2, 1.0, [3.0, SLOW, SLOW, SLOW, SLOW, SLOW]), (64, 2.0, [2.5, SLOW, SLOW, SLOW, SLOW, SLOW])]),
    ];
    let worst = |threshold| Choice::new(&sweeps, 0, threshold).worst;
    assert_eq!([2, 4, 64, 192].map(worst), [3.0, 1.25, 1.25, 5.0]);
    let Choice { rule, threshold, .. } = Choice::made(&sweeps);
    assert_eq!((rule, threshold), (0, 64), "of equals, the one that is flat for longest");
}
