//! The hierarchical barrier: the same verdicts, and the same agreement, though most ranks read one word only.
//!
//! How a rank waits is the flat barrier's business, whose models have every kind of it. Here are the two between which
//! they lie: one that explores every order of arrivals, and one that sleeps as a futex does.

use intranode::protocol::CauseKind::{Aborted, Died, Left, TimedOut};

use super::collectives::{barrier, gather, refuse};
use super::faults::{IN_A_ROUND, abort, leave};
use super::regions::{publish, reclaim};
use crate::harness::machine::Fate;
use crate::harness::model::Model;
use crate::harness::rank::Step;
use crate::harness::verdict::{agreement, only};
use crate::harness::waiting::Waiting::{self, Blocking, Parking};

/// A fail point that only leaders pass.
pub(crate) const PROGRESS: &str = "progress";

/// A leader and another rank; two leaders.
const PAIRS: [&[usize]; 2] = [&[0, 0], &[0, 1]];

/// A leader with one rank, and one that is alone; one group.
const TRIPLES: [&[usize]; 2] = [&[0, 0, 2], &[0, 0, 0]];

const GATHER: Step = gather::<1>;

/// A rank that does not wait for its leader for long.
const HURRIES: Fate = Fate { hurries: true, ..Fate::NONE };

/// Two ranks meet, between other calls too, or refuse, or call different things.
fn two_ranks(waiting: Waiting, leaders: &[usize]) -> [Model; 14] {
    let same = |name: &str, script: &[Step]| Model::same(name, waiting, 2, script);
    // `one` is what the rank calls that follows, or, of two leaders, the first of them.
    let odd = |name: &str, one: &[Step], other: &[Step]| {
        let scripts = if leaders[1] == 0 { [one, other] } else { [other, one] };
        Model::new(name, waiting, &scripts).bound(3)
    };
    let last = u32::MAX >> 4;
    [
        same("meet_once", &[barrier]),
        same("meet_twice", &[barrier, barrier]).bound(3),
        same("meet_thrice", &[barrier, barrier, barrier]).bound(2).long(),
        same("meet_thrice", &[barrier, barrier, barrier]).bound(3).long(),
        same("meet_after_others", &[GATHER, barrier, barrier]).bound(2),
        same("meet_after_others", &[GATHER, barrier, barrier]).bound(3).long(),
        same("meet_wraps", &[barrier, barrier]).start(last - 1).bound(3),
        same("meet_in_regions", &[publish, reclaim]).bound(3),
        same("meet_refusal_by_both", &[refuse, barrier]).bound(3),
        odd("meet_refusal", &[barrier, barrier], &[refuse, barrier]),
        odd("meet_refusal_of_the_other", &[refuse, barrier], &[barrier, barrier]),
        odd("meet_mismatch", &[barrier, barrier], &[GATHER, barrier]),
        odd("meet_mismatch_of_the_other", &[GATHER, barrier], &[barrier, barrier]),
        odd("meet_mismatch_in_groups", &[publish, barrier], &[barrier, barrier]),
    ]
}

/// A rank leaves after a barrier, and its peer begins another.
fn left_by(victim: usize) -> Model {
    let mut scripts: [&[Step]; 2] = [&[barrier, barrier]; 2];
    scripts[victim] = &[barrier, leave];
    Model::new(format!("meet_leave_{victim}"), Parking, &scripts).check(agreement(1, only(Left, victim)))
}

/// A rank aborts after a barrier that its peer may still be in.
fn aborted_by(victim: usize) -> Model {
    let mut scripts: [&[Step]; 2] = [&[barrier, barrier]; 2];
    scripts[victim] = &[barrier, abort];
    Model::new(format!("meet_abort_{victim}"), Parking, &scripts).check(agreement(1, only(Aborted, victim)))
}

/// A rank gives up its peer, which may arrive meanwhile.
fn time_out(check: usize, victim: usize) -> Model {
    Model::same(format!("meet_time_out_{check}_of_{victim}"), Parking, 2, &[barrier, barrier])
        .fate(victim, Fate { expires: Some(check), ..HURRIES })
        .check(agreement(0, only(TimedOut, 1 - victim)))
}

/// A rank reads all words, because it does not wait for its leader.
fn in_a_hurry(victim: usize) -> Model {
    Model::same(format!("meet_in_a_hurry_of_{victim}"), Parking, 2, &[barrier, barrier]).fate(victim, HURRIES)
}

/// A rank dies in its first barrier.
fn death(fail_point: &'static str, victim: usize) -> Model {
    Model::same(format!("meet_death_at_{fail_point}_of_{victim}"), Parking, 2, &[barrier, barrier])
        .fate(victim, Fate::dies_at(fail_point, 1))
        .check(agreement(0, only(Died, victim)))
}

/// A rank is taken to be dead while a barrier completes in which it takes part.
fn poison_races(ranks: usize) -> Model {
    Model::same("meet_poison_races", Parking, ranks, &[barrier])
        .found_dead(1)
        .check(agreement(0, only(Died, 1)))
}

/// Three ranks meet, between other calls too, or refuse, or call different things.
fn three_ranks() -> [Model; 10] {
    let same = |name: &str, waiting, script: &[Step]| Model::same(name, waiting, 3, script);
    let odd: [&[Step]; 3] = [&[barrier, barrier], &[GATHER, barrier], &[barrier, barrier]];
    let refusing: [&[Step]; 3] = [&[barrier, barrier], &[barrier, barrier], &[refuse, barrier]];
    [
        same("meet_once", Blocking, &[barrier]).bound(3),
        same("meet_once", Blocking, &[barrier]).long(),
        same("meet_once", Parking, &[barrier]).bound(2),
        same("meet_twice", Blocking, &[barrier, barrier]).bound(2).long(),
        same("meet_thrice", Blocking, &[barrier, barrier, barrier]).bound(1),
        same("meet_in_regions", Blocking, &[publish, reclaim]).bound(2).long(),
        same("meet_after_others", Blocking, &[GATHER, barrier]).bound(2),
        Model::new("meet_mismatch", Blocking, &odd).bound(1),
        Model::new("meet_mismatch", Blocking, &odd).bound(2).long(),
        Model::new("meet_refusal", Blocking, &refusing).bound(2),
    ]
}

/// Two of three ranks do not wait for their leader for long, and may be a round ahead of it.
fn two_in_a_hurry() -> Model {
    Model::same("meet_in_a_hurry", Parking, 3, &[barrier, barrier]).fate(1, HURRIES).fate(2, HURRIES)
}

/// The first rank waits for the second, and is waited for itself: the second is to blame.
fn time_out_of_all() -> Model {
    let expires = Fate { expires: Some(1), ..HURRIES };
    Model::same("meet_time_out_of_all", Parking, 3, &[barrier])
        .fate(0, expires)
        .fate(2, expires)
        .check(agreement(0, |cause| cause.kind == TimedOut))
}

/// One of three ranks dies, and the survivors must agree.
fn death_of_three(fail_point: &'static str, victim: usize) -> Model {
    Model::same(format!("meet_death_at_{fail_point}_of_{victim}"), Parking, 3, &[barrier])
        .fate(victim, Fate::dies_at(fail_point, 1))
        .check(agreement(0, only(Died, victim)))
}

/// In which groups each runs, and how far it is searched. A leader's second wait multiplies the executions, so that most
/// have a bound.
pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for leaders in PAIRS {
        let mut pairs = Vec::new();
        for waiting in [Blocking, Parking] {
            pairs.extend(two_ranks(waiting, leaders));
        }
        for victim in [0, 1] {
            pairs.extend(faults(victim, leaders).into_iter().map(|model| model.bound(2)));
        }
        pairs.push(poison_races(2).bound(2));
        models.extend(pairs.into_iter().map(|model| model.led_by(leaders)));
    }
    for leaders in TRIPLES {
        let mut triples = Vec::from(three_ranks());
        triples.push(two_in_a_hurry().bound(1).long());
        triples.push(time_out_of_all().bound(1));
        triples.push(poison_races(3).bound(1).long());
        let deaths = [("arrived", 0), (PROGRESS, 0), ("arrived", 1), ("arrived-unwoken", 1), ("round", 2)];
        triples.extend(deaths.map(|(fail_point, victim)| death_of_three(fail_point, victim).bound(1)));
        models.extend(triples.into_iter().map(|model| model.led_by(leaders)));
    }
    models
}

/// What may happen to one of two ranks.
fn faults(victim: usize, leaders: &[usize]) -> Vec<Model> {
    let mut models = vec![left_by(victim), aborted_by(victim), time_out(1, victim), time_out(2, victim)];
    // The leader of all others waits for no leader.
    let other = 1 - victim;
    if leaders[other] == other {
        models.push(in_a_hurry(victim));
    }
    models.extend(IN_A_ROUND.map(|fail_point| death(fail_point, victim)));
    if leaders[victim] == victim {
        models.push(death(PROGRESS, victim));
    }
    models
}
