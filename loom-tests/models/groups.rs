//! The hierarchical barrier: the same verdicts, and the same agreement, though most ranks read one word only.
//!
//! How a rank waits is the flat barrier's business, whose models have every kind of it. Here are the two between which
//! they lie: one that explores every order of arrivals, and one that sleeps as a futex does.

use intranode::protocol::CauseKind::{Aborted, Died, Left, TimedOut};

use super::faults::POINTS;
use crate::machine::Fate;
use crate::machine::Waiting::{self, Blocking, Parking};
use crate::model::Model;
use crate::program::Step::{self, Abort, Barrier, Leave, Mourn, Publish, Refuse, TakeBack};
use crate::verdict::{agreement, only};

/// Where a rank can die only in groups.
pub(crate) const PROGRESS: &str = "progress";

/// A leader and another rank; two leaders.
const PAIRS: [&[usize]; 2] = [&[0, 0], &[0, 1]];

/// A leader with one rank, and one that is alone; one group.
const TRIPLES: [&[usize]; 2] = [&[0, 0, 2], &[0, 0, 0]];

const GATHER: Step = Step::Gather { numbers: 1 };

pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for leaders in PAIRS {
        for waiting in [Blocking, Parking] {
            models.extend(two_ranks(waiting, leaders).map(|model| model.led_by(leaders)));
        }
        models.extend(faults(leaders).into_iter().map(|model| model.led_by(leaders).bound(2)));
    }
    for leaders in TRIPLES {
        models.extend(three_ranks().map(|model| model.led_by(leaders)));
        models.extend(three_with_faults().into_iter().map(|model| model.led_by(leaders)));
    }
    models
}

/// A leader's second wait multiplies the executions, so that most models have a bound.
fn bounded(model: Model) -> Model {
    model.bound(3)
}

fn two_ranks(waiting: Waiting, leaders: &[usize]) -> impl Iterator<Item = Model> {
    let same = |name: &str, script: &[Step]| Model::same(name, waiting, 2, script);
    let last = u32::MAX >> 4;
    // The one who only follows, or leads alone, does something else.
    let odd = |name: &str, one: &[Step], two: &[Step]| {
        let scripts = if leaders[1] == 0 { [one, two] } else { [two, one] };
        Model::new(name, waiting, &scripts)
    };
    let models = [
        same("meet_once", &[Barrier]),
        bounded(same("meet_twice", &[Barrier; 2])),
        same("meet_thrice", &[Barrier; 3]).bound(2),
        same("meet_thrice", &[Barrier; 3]).bound(3).long(),
        same("meet_after_others", &[GATHER, Barrier, Barrier]).bound(2),
        same("meet_after_others", &[GATHER, Barrier, Barrier]).bound(3).long(),
        bounded(same("meet_wraps", &[Barrier; 2]).start(last - 1)),
        bounded(same("meet_in_regions", &[Publish, TakeBack])),
        bounded(same("meet_refusal_by_both", &[Refuse, Barrier])),
        bounded(odd("meet_refusal", &[Barrier, Barrier], &[Refuse, Barrier])),
        bounded(odd("meet_refusal_of_the_other", &[Refuse, Barrier], &[Barrier, Barrier])),
        bounded(odd("meet_mismatch", &[Barrier, Barrier], &[GATHER, Barrier])),
        bounded(odd("meet_mismatch_of_the_other", &[GATHER, Barrier], &[Barrier, Barrier])),
        bounded(odd("meet_mismatch_in_groups", &[Publish, Barrier], &[Barrier, Barrier])),
    ];
    models.into_iter()
}

/// Two ranks of which one leaves, is late, or dies.
fn faults(leaders: &[usize]) -> Vec<Model> {
    let mut models = Vec::new();
    let same = |name: String, script: &[Step]| Model::same(name, Parking, 2, script);
    for victim in [0, 1] {
        let other = 1 - victim;
        let mut scripts: [&[Step]; 2] = [&[Barrier; 2]; 2];
        scripts[victim] = &[Barrier, Leave];
        models.push(
            Model::new(format!("meet_leave_{victim}"), Parking, &scripts)
                .check(agreement(1, only(Left, victim))),
        );
        scripts[victim] = &[Barrier, Abort];
        models.push(
            Model::new(format!("meet_abort_{victim}"), Parking, &scripts)
                .check(agreement(1, only(Aborted, victim))),
        );
        for check in [1, 2] {
            models.push(
                same(format!("meet_time_out_{check}_of_{victim}"), &[Barrier; 2])
                    .fate(victim, Fate { hurries: true, expires: Some(check), ..Fate::default() })
                    .check(agreement(0, only(TimedOut, other))),
            );
        }
        // The leader of all others waits for no leader.
        if leaders[other] == other {
            models.push(
                same(format!("meet_in_a_hurry_of_{victim}"), &[Barrier; 2])
                    .fate(victim, Fate { hurries: true, ..Fate::default() }),
            );
        }
        let reached = POINTS.into_iter().filter(|(_, in_a_round)| *in_a_round).map(|(point, _)| point);
        let leads = leaders[victim] == victim;
        for point in reached.chain([PROGRESS].into_iter().filter(|_| leads)) {
            models.push(
                same(format!("meet_death_at_{point}_of_{victim}"), &[Barrier; 2])
                    .fate(victim, Fate { dies: Some((point, 1)), ..Fate::default() })
                    .check(agreement(0, only(Died, victim))),
            );
        }
    }
    models.push(
        same("meet_poison_races".to_owned(), &[Barrier])
            .bystander(&[Mourn(1)])
            .check(agreement(0, only(Died, 1))),
    );
    models
}

fn three_ranks() -> impl Iterator<Item = Model> {
    let same = |name: &str, waiting, script: &[Step]| Model::same(name, waiting, 3, script);
    let odd: [&[Step]; 3] = [&[Barrier; 2], &[GATHER, Barrier], &[Barrier; 2]];
    let refusing: [&[Step]; 3] = [&[Barrier; 2], &[Barrier; 2], &[Refuse, Barrier]];
    let models = [
        same("meet_once", Blocking, &[Barrier]).bound(3),
        same("meet_once", Blocking, &[Barrier]).long(),
        same("meet_once", Parking, &[Barrier]).bound(2),
        same("meet_twice", Blocking, &[Barrier; 2]).bound(2),
        same("meet_thrice", Blocking, &[Barrier; 3]).bound(1),
        same("meet_in_regions", Blocking, &[Publish, TakeBack]).bound(2),
        same("meet_after_others", Blocking, &[GATHER, Barrier]).bound(2),
        Model::new("meet_mismatch", Blocking, &odd).bound(1),
        Model::new("meet_mismatch", Blocking, &odd).bound(2).long(),
        Model::new("meet_refusal", Blocking, &refusing).bound(2),
    ];
    models.into_iter()
}

fn three_with_faults() -> Vec<Model> {
    let same = |name: String, script: &[Step]| Model::same(name, Parking, 3, script);
    let hurries = Fate { hurries: true, ..Fate::default() };
    let mut models = vec![
        // Two of them do not wait for their leader for long, and may be a round ahead of it.
        same("meet_in_a_hurry".to_owned(), &[Barrier; 2]).fate(1, hurries).fate(2, hurries).bound(1).long(),
        // The first waits for the second, and is waited for itself: the second is to blame.
        same("meet_time_out_of_all".to_owned(), &[Barrier])
            .fate(0, Fate { hurries: true, expires: Some(1), ..Fate::default() })
            .fate(2, Fate { hurries: true, expires: Some(1), ..Fate::default() })
            .check(agreement(0, |cause| cause.kind == TimedOut))
            .bound(1),
        same("meet_poison_races".to_owned(), &[Barrier])
            .bystander(&[Mourn(1)])
            .check(agreement(0, only(Died, 1)))
            .bound(1)
            .long(),
    ];
    for (victim, point) in [(0, "arrived"), (0, PROGRESS), (1, "arrived"), (1, "arrived-unwoken"), (2, "round")]
    {
        models.push(
            same(format!("meet_death_at_{point}_of_{victim}"), &[Barrier])
                .fate(victim, Fate { dies: Some((point, 1)), ..Fate::default() })
                .check(agreement(0, only(Died, victim)))
                .bound(1),
        );
    }
    models
}
