//! The epochs of a region: nobody reads what another may write, and what was published is read by all.

use intranode::protocol::CauseKind::Died;

use super::faults::POINTS;
use crate::machine::Fate;
use crate::machine::Waiting::{Blocking, Dozing, Parking, Spinning};
use crate::model::Model;
use crate::program::Step::{self, Barrier, Publish, TakeBack, Turn, Unprotected};
use crate::verdict::{agreement, only};

/// Written, read, and written again.
const TURN: &[Step] = &[Publish, TakeBack];
const TURNS: &[Step] = &[Publish, TakeBack, Publish];

pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        // Three rounds are a million executions where ranks park.
        let thrice = |model: Model| if waiting == Parking { model.bound(3) } else { model };
        let turns = Model::same("region_turns", waiting, 2, TURNS);
        models.extend([
            Model::same("region_turn", waiting, 2, TURN),
            thrice(turns),
            thrice(Model::same("exchange_turns", waiting, 2, &[Turn; 3])),
            Model::new("region_that_stays_protected", waiting, &[&[Unprotected, Barrier], &[Publish, Barrier]]),
            Model::new("region_out_of_step", waiting, &[&[Publish, Barrier], &[Barrier, Barrier]]),
        ]);
    }
    models.push(Model::same("region_turn", Blocking, 3, TURN).bound(2));
    models.push(Model::same("region_turns", Blocking, 3, TURNS).bound(1));
    models.push(Model::same("exchange_turns", Blocking, 3, &[Turn; 3]).bound(2));
    models.push(Model::same("region_turn", Parking, 3, TURN).bound(1).long());
    models.extend(deaths());
    models
}

/// A rank dies while it publishes or takes back: its peer reads, or writes, only if the round was complete.
fn deaths() -> Vec<Model> {
    let mut models = Vec::new();
    for (point, _) in POINTS.into_iter().filter(|(_, in_a_round)| *in_a_round) {
        for occurrence in 1..=2 {
            let dies = Fate { dies: Some((point, occurrence)), ..Fate::default() };
            let model = Model::same(format!("region_death_at_{point}_{occurrence}"), Parking, 2, TURN);
            models.push(model.check(agreement(0, only(Died, 1))).bound(3).fate(1, dies));
        }
    }
    models
}
