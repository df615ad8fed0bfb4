//! A rank that is late, leaves, aborts or dies: the right data on every surviving rank, or the same error on
//! every one, and never a hang.

use intranode::protocol::CauseKind::{Aborted, Died, Left, TimedOut};

use crate::machine::Fate;
use crate::machine::Waiting::{Blocking, Dozing, Parking, Spinning};
use crate::model::Model;
use crate::program::{FULL, Step};
use crate::verdict::{agreement, claimed_once, only};

/// Where a rank can die, and whether a program of two barriers, or one that aborts, comes there.
pub(crate) const POINTS: [(&str, bool); 7] = [
    ("round", true),
    ("arrived", true),
    ("completed", true),
    ("arrived-unwoken", true),
    ("sleeping", true),
    ("cause-written", false),
    ("poisoned-unwoken", false),
];

const TWICE: &[Step] = &[Step::Gather { numbers: 1 }; 2];
const ONCE: &[Step] = &[Step::Gather { numbers: 1 }];
const CHUNKS: &[Step] = &[Step::Gather { numbers: FULL + 1 }];

pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for model in [membership(), poison(), late(), deaths(), together()].concat() {
        // Two ranks that poison each other's words are too much without a bound.
        let large = model.waiting == Parking && model.name != "leave_after_last_round";
        let large = large || model.name.contains("time_out");
        let large = model.bound.is_none() && large;
        // Poison that goes through all words, and says so, is much wherever loads are explored.
        let explores_loads = matches!(model.waiting, Spinning | Dozing) && model.name != "claim";
        if explores_loads && model.bound.is_none() && !large {
            models.extend([model.clone().bound(3), model.long()]);
        } else {
            models.push(if large { model.bound(3) } else { model });
        }
    }
    models
}

/// Joining and leaving.
fn membership() -> Vec<Model> {
    let gather = Step::Gather { numbers: 1 };
    let mut models = vec![
        Model::same("claim", Spinning, 2, &[Step::Claim]).check(claimed_once),
        Model::same("claim", Spinning, 3, &[Step::Claim]).check(claimed_once),
    ];
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.extend([
            Model::new("leave_after_last_round", waiting, &[&[gather, Step::Leave], &[gather]])
                .check(agreement(1, only(Left, 0))),
            Model::same("leave_both", waiting, 2, &[gather, Step::Leave]).check(agreement(1, only(Left, 0))),
            Model::new("leave_and_go_on", waiting, &[&[gather, Step::Leave], &[gather; 2]])
                .check(agreement(1, only(Left, 0))),
        ]);
    }
    models.push(
        Model::new("leave_after_last_round", Blocking, &[&[gather, Step::Leave], &[gather], &[gather]])
            .check(agreement(1, only(Left, 0))),
    );
    models.push(
        Model::new("leave_after_last_round", Parking, &[&[gather, Step::Leave], &[gather], &[gather]])
            .check(agreement(1, only(Left, 0)))
            .bound(2),
    );
    models
}

/// Somebody poisons while a round completes.
fn poison() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.push(
            Model::new("abort", waiting, &[&[ONCE[0], Step::Abort], TWICE])
                .check(agreement(1, only(Aborted, 0))),
        );
        models.push(
            Model::same("poison_races_completion", waiting, 2, ONCE)
                .bystander(&[Step::Mourn(1)])
                .check(agreement(0, only(Died, 1)))
                .bound(2),
        );
        models.push(
            Model::same("poison_races_completion_chunks", waiting, 2, CHUNKS)
                .bystander(&[Step::Mourn(1)])
                .check(agreement(0, only(Died, 1)))
                .bound(2),
        );
    }
    models.push(
        Model::same("two_poisons", Blocking, 2, ONCE)
            .bystander(&[Step::Mourn(0)])
            .bystander(&[Step::Mourn(1)])
            .check(agreement(0, |cause| cause.kind == Died))
            .bound(2),
    );
    let three = Model::same("poison_races_completion", Blocking, 3, ONCE)
        .bystander(&[Step::Mourn(1)])
        .check(agreement(0, only(Died, 1)));
    models.push(three.clone().bound(1));
    models.push(three.bound(2).long());
    models
}

/// A time-out races the last arrival.
fn late() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Dozing, Parking] {
        let expires = |check| Fate { expires: Some(check), ..Fate::default() };
        for check in [1, 2] {
            models.push(
                Model::same(format!("time_out_{check}"), waiting, 2, TWICE)
                    .fate(0, expires(check))
                    .check(agreement(0, only(TimedOut, 1))),
            );
        }
        models.push(
            Model::same("time_out_of_both", waiting, 2, ONCE)
                .fate(0, expires(1))
                .fate(1, expires(1))
                .check(agreement(0, |cause| cause.kind == TimedOut)),
        );
    }
    let expires = Fate { expires: Some(1), ..Fate::default() };
    models.push(
        Model::same("time_out_1", Parking, 3, ONCE)
            .fate(0, expires)
            .check(agreement(0, |cause| cause.kind == TimedOut && cause.rank != 0))
            .bound(2),
    );
    models
}

/// A rank dies at a named point, and whoever notices poisons.
fn deaths() -> Vec<Model> {
    let mut models = Vec::new();
    for (point, in_a_round) in POINTS {
        for waiting in [Dozing, Parking] {
            for occurrence in if in_a_round { 1..=2 } else { 1..=1 } {
                let dies = Fate { dies: Some((point, occurrence)), ..Fate::default() };
                let name = format!("death_at_{point}_{occurrence}");
                let model = if in_a_round {
                    Model::same(name, waiting, 2, TWICE).check(agreement(0, only(Died, 1)))
                } else {
                    Model::new(name, waiting, &[TWICE, &[ONCE[0], Step::Abort]])
                        .check(agreement(0, |cause| matches!(cause.kind, Died | Aborted) && cause.rank == 1))
                };
                models.push(model.fate(1, dies));
            }
        }
        let dies = Fate { dies: Some((point, 1)), ..Fate::default() };
        if in_a_round {
            models.push(
                Model::same(format!("death_at_{point}"), Parking, 3, ONCE)
                    .fate(1, dies)
                    .check(agreement(0, only(Died, 1)))
                    .bound(2),
            );
        }
    }
    models
}

/// Two things go wrong at once.
fn together() -> Vec<Model> {
    let mut models = Vec::new();
    let dies = |point, occurrence| Fate { dies: Some((point, occurrence)), ..Fate::default() };
    for waiting in [Dozing, Parking] {
        // The rank that is given up is the one that dies.
        for (point, _) in POINTS.iter().filter(|(point, _)| matches!(*point, "round" | "arrived" | "sleeping"))
        {
            models.push(
                Model::same(format!("death_at_{point}_races_time_out"), waiting, 2, ONCE)
                    .fate(0, Fate { expires: Some(1), ..Fate::default() })
                    .fate(1, dies(point, 1))
                    .check(agreement(0, |cause| matches!(cause.kind, Died | TimedOut) && cause.rank == 1)),
            );
        }
        models.push(
            Model::new("leave_races_death", waiting, &[&[ONCE[0], Step::Leave], TWICE])
                .fate(1, dies("round", 2))
                .check(agreement(1, |cause| matches!((cause.kind, cause.rank), (Left, 0) | (Died, 1)))),
        );
    }
    // The third rank is alone, but alive.
    for (point, _) in POINTS.iter().filter(|(point, _)| matches!(*point, "round" | "arrived")) {
        models.push(
            Model::same(format!("two_deaths_at_{point}"), Parking, 3, ONCE)
                .fate(1, dies(point, 1))
                .fate(2, dies(point, 1))
                .check(agreement(0, |cause| cause.kind == Died && cause.rank != 0))
                .bound(2),
        );
    }
    models.push(
        Model::new("leave_races_death", Parking, &[&[ONCE[0], Step::Leave], TWICE, TWICE])
            .fate(1, dies("round", 2))
            .check(agreement(1, |cause| matches!((cause.kind, cause.rank), (Left, 0) | (Died, 1))))
            .bound(1),
    );
    models
}
