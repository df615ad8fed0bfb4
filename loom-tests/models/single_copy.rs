//! Ranks that fetch from each other's memory: the right data, also where it turns out that one can not; and nobody's memory
//! changes as long as another may fetch.

use intranode::protocol::CauseKind::{Died, Left, TimedOut};

use super::faults::POINTS;
use crate::machine::Fate;
use crate::machine::Waiting::{Blocking, Dozing, Parking, Spinning};
use crate::model::Model;
use crate::program::Step::{self, Barrier, Fetch, Leave, Refuse};
use crate::single_copy::Obstacle::{Barred, Hidden, Nothing};
use crate::verdict::{agreement, only};

const CALL: Step = Fetch(Nothing);

pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        let same = |name: &str, script: &[Step]| Model::same(name, waiting, 2, script);
        let bounded = |model: Model| if waiting == Blocking { model } else { model.bound(3) };
        models.extend([
            bounded(same("fetch_once", &[CALL])),
            bounded(same("fetch_twice", &[CALL; 2])),
            bounded(Model::new("fetch_refusal", waiting, &[&[CALL, Barrier], &[Refuse, Barrier]])),
            bounded(Model::new("fetch_mismatch", waiting, &[&[CALL, Barrier], &[Barrier, Barrier]])),
        ]);
        for rank in [0, 1] {
            models.push(bounded(same(&format!("fetch_from_hidden_{rank}"), &[Fetch(Hidden(rank))])));
            models.push(bounded(same(&format!("fetch_by_barred_{rank}"), &[Fetch(Barred(rank))])));
        }
    }
    models.extend(faults());
    models.push(Model::same("fetch_once", Blocking, 3, &[CALL]).bound(2));
    models.push(Model::same("fetch_once", Parking, 3, &[CALL]).bound(1));
    models.push(Model::same("fetch_by_barred_1", Blocking, 3, &[Fetch(Barred(1))]).bound(1));
    models
}

/// Two ranks of which one leaves, is late, or dies.
fn faults() -> Vec<Model> {
    let mut models = Vec::new();
    let same = |name: String| Model::same(name, Parking, 2, &[CALL]);
    for victim in [0, 1] {
        let mut scripts: [&[Step]; 2] = [&[CALL, CALL]; 2];
        scripts[victim] = &[CALL, Leave];
        models.push(
            Model::new(format!("fetch_leave_{victim}"), Parking, &scripts)
                .check(agreement(1, only(Left, victim))),
        );
        for check in [1, 2] {
            models.push(
                same(format!("fetch_time_out_{check}_of_{victim}"))
                    .fate(victim, Fate { expires: Some(check), ..Fate::default() })
                    .check(agreement(0, only(TimedOut, 1 - victim))),
            );
        }
        for (point, _) in POINTS.into_iter().filter(|(_, in_a_round)| *in_a_round) {
            for round in [1, 2] {
                models.push(
                    same(format!("fetch_death_at_{point}_{round}_of_{victim}"))
                        .fate(victim, Fate { dies: Some((point, round)), ..Fate::default() })
                        .check(agreement(0, only(Died, victim))),
                );
            }
        }
    }
    models.into_iter().map(|model| model.bound(2)).collect()
}
