//! Ranks that die, leave and are stopped while others watch them: every survivor is told of every death, once, and of
//! nothing else.

use crate::machine::Fate;
use crate::machine::Waiting::Parking;
use crate::model::Model;
use crate::program::Step;
use crate::watching::{Part, Plan, told_once};
use Part::{Come, Depart, Die, Watch};

/// Where a rank can die, or be stopped, while it watches, comes or leaves.
pub(crate) const POINTS: [&str; 7] =
    ["coming", "departing", "watching", "found", "noticed", "announced-unwoken", "woken-unmarked"];

/// Those of one that has found a death.
const FINDING: [&str; 4] = ["found", "noticed", "announced-unwoken", "woken-unmarked"];

/// A ring of `ranks`, each watched by `width` others, some of which do something.
fn ring(name: impl Into<String>, ranks: usize, width: usize, parts: &[(usize, &[Part])]) -> Model {
    let scripts: Vec<Vec<Step>> =
        parts.iter().map(|(_, parts)| parts.iter().map(|part| Step::Ring(*part)).collect()).collect();
    let scripts: Vec<&[Step]> = scripts.iter().map(Vec::as_slice).collect();
    let mut model = Model::new(name, Parking, &scripts).check(told_once);
    for (actor, (rank, _)) in model.actors.iter_mut().zip(parts) {
        actor.rank = Some(*rank);
    }
    model.ring = Some(Plan { ranks, width, left: &[], stopped: &[], ticks: false });
    // Threads that sleep on several words each are too much without a bound.
    match (parts.len(), width) {
        (2, _) => model,
        (3, 1) => model.bound(3),
        (3, _) => model.bound(2),
        _ => model.bound(1),
    }
}

fn with(mut model: Model, change: impl FnOnce(&mut Plan)) -> Model {
    change(model.ring.as_mut().expect("a ring"));
    model
}

fn dies(point: &'static str, occurrence: usize) -> Fate {
    Fate { dies: Some((point, occurrence)), ..Fate::default() }
}

pub(crate) fn models() -> Vec<Model> {
    [deaths(), half_way(), leaving(), stopped()].concat()
}

/// One rank or several die.
fn deaths() -> Vec<Model> {
    vec![
        ring("watch_one_death", 2, 1, &[(0, &[Watch(&[1])]), (1, &[Die])]),
        ring("watch_one_death", 3, 1, &[(0, &[Watch(&[2])]), (1, &[Watch(&[2])]), (2, &[Die])]),
        ring("watch_one_death", 3, 2, &[(0, &[Watch(&[2])]), (1, &[Watch(&[2])]), (2, &[Die])]),
        ring(
            "watch_one_death",
            4,
            1,
            &[(0, &[Watch(&[2])]), (1, &[Watch(&[2])]), (2, &[Die]), (3, &[Watch(&[2])])],
        ),
        // A rank and all of its watchers at once.
        ring("watch_two_deaths", 3, 1, &[(0, &[Watch(&[1, 2])]), (1, &[Die]), (2, &[Die])]),
        ring("watch_two_deaths", 3, 2, &[(0, &[Watch(&[1, 2])]), (1, &[Die]), (2, &[Die])]),
        ring(
            "watch_a_rank_and_its_watchers",
            4,
            2,
            &[(0, &[Watch(&[1, 2, 3])]), (1, &[Die]), (2, &[Die]), (3, &[Die])],
        ),
        two_finders(),
        two_finders().bound(2).long(),
        // One that has come last.
        ring("watch_one_that_comes", 3, 1, &[(0, &[Watch(&[2])]), (1, &[Watch(&[2])]), (2, &[Come, Die])]),
    ]
}

/// Two ranks die, each of which is found by another.
fn two_finders() -> Model {
    let survivor: &[Part] = &[Watch(&[1, 3])];
    ring("watch_two_finders", 4, 1, &[(0, survivor), (1, &[Die]), (2, survivor), (3, &[Die])])
}

/// A rank dies in the midst of telling others about a death, or of watching.
fn half_way() -> Vec<Model> {
    let mut models = Vec::new();
    for point in FINDING.into_iter().chain(["watching"]) {
        let parts: [(usize, &[Part]); 3] = [(0, &[Watch(&[1, 2])]), (1, &[Watch(&[2]), Die]), (2, &[Die])];
        for width in [1, 2] {
            models.push(ring(format!("watch_death_at_{point}"), 3, width, &parts).fate(1, dies(point, 1)));
        }
        let all: &[Part] = &[Watch(&[1, 2])];
        let parts: [(usize, &[Part]); 4] = [(0, all), (1, &[Watch(&[2]), Die]), (2, &[Die]), (3, all)];
        models.push(ring(format!("watch_death_at_{point}"), 4, 1, &parts).fate(1, dies(point, 1)));
    }
    // Some of its words say that it is there.
    let parts: [(usize, &[Part]); 3] = [(0, &[Watch(&[1])]), (1, &[Come, Die]), (2, &[Watch(&[1])])];
    models.push(ring("watch_death_at_coming", 3, 2, &parts).fate(1, dies("coming", 1)));
    // Some of its words say that it has left.
    let parts: [(usize, &[Part]); 3] = [(0, &[Watch(&[1])]), (1, &[Depart, Die]), (2, &[Watch(&[1])])];
    models.push(ring("watch_death_at_departing", 3, 2, &parts).fate(1, dies("departing", 1)));
    models
}

/// A rank leaves, and the one dies that it has watched.
fn leaving() -> Vec<Model> {
    let survivor: &[Part] = &[Watch(&[2])];
    vec![
        ring("watch_leaver_s_neighbour", 3, 1, &[(0, survivor), (1, &[Depart]), (2, &[Die])]),
        ring("watch_leaver_s_neighbour", 3, 2, &[(0, survivor), (1, &[Depart]), (2, &[Die])]),
        ring("watch_leaver_s_neighbour", 4, 1, &[(0, survivor), (1, &[Depart]), (2, &[Die]), (3, survivor)]),
    ]
}

/// A rank is stopped, which nobody can tell from being slow.
fn stopped() -> Vec<Model> {
    let mut models = vec![
        // The first watcher of the rank that dies.
        with(ring("watch_stopped_watcher", 3, 2, &[(0, &[Watch(&[2])]), (2, &[Die])]), |plan| {
            plan.stopped = &[(2, 0)];
        }),
        // Rank 1 was stopped before it knew that rank 2 has left: so it sleeps where rank 0 sleeps, before it.
        with(
            ring("watch_stopped_in_another_s_place", 5, 2, &[(0, &[Watch(&[4])]), (3, &[Depart]), (4, &[Die])]),
            |plan| {
                plan.left = &[2];
                plan.stopped = &[(2, 0), (3, 1)];
            },
        ),
        // Nobody is told that it has left, before a tick.
        with(
            ring(
                "watch_tick_after_death_at_departing",
                3,
                1,
                &[(0, &[Watch(&[2])]), (1, &[Depart]), (2, &[Die])],
            )
            .fate(1, dies("departing", 1)),
            |plan| plan.ticks = true,
        ),
    ];
    // Who has found a death is stopped before it has told the others.
    for point in FINDING {
        let parts: [(usize, &[Part]); 3] = [(0, &[Watch(&[2])]), (1, &[Watch(&[2])]), (2, &[Die])];
        let model = ring(format!("watch_stopped_at_{point}"), 3, 2, &parts).fate(1, dies(point, 1));
        models.push(with(model, |plan| plan.ticks = true));
    }
    let parts: [(usize, &[Part]); 3] = [(0, &[Watch(&[2])]), (1, &[Watch(&[2]), Depart]), (2, &[Die])];
    for point in ["noticed", "announced-unwoken"] {
        let model =
            ring(format!("watch_tick_after_stop_at_{point}"), 3, 1, &parts).bound(2).fate(1, dies(point, 1));
        models.push(with(model, |plan| plan.ticks = true));
    }
    models
}
