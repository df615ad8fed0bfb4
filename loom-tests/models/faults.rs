//! A rank that is late, leaves, aborts or dies: the right data on every surviving rank, or the same error on every
//! one, and never a hang.

use intranode::protocol::CauseKind::{Aborted, Died, Interrupted, Left, TimedOut};
use intranode::protocol::{Failure, Generation, membership};

use super::collectives::gather;
use crate::harness::cells::FULL;
use crate::harness::machine::Fate;
use crate::harness::model::Model;
use crate::harness::mutant::Simulated;
use crate::harness::rank::{Rank, Step};
use crate::harness::search::{Run, Search};
use crate::harness::segment::SegmentMemory;
use crate::harness::verdict::{agreement, only};
use crate::harness::waiting::Waiting::{self, Blocking, Dozing, Parking, Spinning};

/// The rank leaves.
pub(crate) fn leave(rank: &mut Rank<'_>) -> Result<(), Failure> {
    Ok(rank.member.leave()?)
}

/// The rank ends the communicator.
pub(crate) fn abort(rank: &mut Rank<'_>) -> Result<(), Failure> {
    Ok(rank.member.poison(Aborted, rank.number, 77)?)
}

/// One number, which fits into a header.
const GATHER: Step = gather::<1>;

/// The fail points that a rank passes in a round.
pub(crate) const IN_A_ROUND: [&str; 5] = ["round", "arrived", "completed", "arrived-unwoken", "sleeping"];

/// Those that a rank passes while it poisons.
pub(crate) const IN_POISONING: [&str; 2] = ["cause-written", "poisoned-unwoken"];

/// Several processes want the same rank, and one of them gets it.
fn claim(processes: usize) -> Search {
    let names = (0..processes).map(|process| format!("process {process}")).collect();
    Search::new("claim", Spinning, names, move |run: &Run| {
        let memory = SegmentMemory::new(processes, Generation::new(4)).unclaimed();
        let claim_rank_0 = |process: usize, platform: &Simulated, memory: &SegmentMemory| {
            membership::claim(platform, &memory.segment(), 0, process as u32 + 1).is_ok()
        };
        run.threads(memory, &vec![Fate::NONE; processes], claim_rank_0, |claimed| {
            let winners = claimed.iter().filter(|claimed| **claimed).count();
            assert!(winners == 1, "{winners} threads have claimed one rank");
        });
    })
}

/// A rank leaves after a round that its peer may still be in. That round succeeds for both.
fn leave_after_last_round(waiting: Waiting) -> Model {
    Model::new("leave_after_last_round", waiting, &[&[GATHER, leave], &[GATHER]])
        .check(agreement(1, only(Left, 0)))
}

/// The same where a third rank may still be in the round too.
fn leave_of_three(waiting: Waiting) -> Model {
    Model::new("leave_after_last_round", waiting, &[&[GATHER, leave], &[GATHER], &[GATHER]])
        .check(agreement(1, only(Left, 0)))
}

/// Both ranks leave after a round.
fn leave_both(waiting: Waiting) -> Model {
    Model::same("leave_both", waiting, 2, &[GATHER, leave]).check(agreement(1, only(Left, 0)))
}

/// A rank leaves, and its peer begins another round, which fails.
fn leave_and_go_on(waiting: Waiting) -> Model {
    Model::new("leave_and_go_on", waiting, &[&[GATHER, leave], &[GATHER, GATHER]])
        .check(agreement(1, only(Left, 0)))
}

/// A rank aborts after a call that its peer may still be in.
fn abort_between_calls(waiting: Waiting) -> Model {
    Model::new("abort", waiting, &[&[GATHER, abort], &[GATHER, GATHER]]).check(agreement(1, only(Aborted, 0)))
}

/// A rank is taken to be dead while it takes part in a round, which succeeds for all ranks or fails for all.
fn poison_races_completion(waiting: Waiting, ranks: usize) -> Model {
    Model::same("poison_races_completion", waiting, ranks, &[GATHER])
        .found_dead(1)
        .check(agreement(0, only(Died, 1)))
}

/// The same in a call of two rounds.
fn poison_races_completion_of_chunks(waiting: Waiting) -> Model {
    Model::same("poison_races_completion_chunks", waiting, 2, &[gather::<{ FULL + 1 }>])
        .found_dead(1)
        .check(agreement(0, only(Died, 1)))
}

/// Two threads poison at once, for different reasons, of which one is reported.
fn two_poisons() -> Model {
    Model::same("two_poisons", Blocking, 2, &[GATHER])
        .found_dead(0)
        .found_dead(1)
        .check(agreement(0, |cause| cause.kind == Died))
}

/// A rank gives up its peer, which may arrive meanwhile.
fn time_out(waiting: Waiting, check: usize) -> Model {
    Model::same(format!("time_out_{check}"), waiting, 2, &[GATHER, GATHER])
        .fate(0, Fate::expires_at(check))
        .check(agreement(0, only(TimedOut, 1)))
}

/// Two ranks give each other up.
fn time_out_of_both(waiting: Waiting) -> Model {
    Model::same("time_out_of_both", waiting, 2, &[GATHER])
        .fate(0, Fate::expires_at(1))
        .fate(1, Fate::expires_at(1))
        .check(agreement(0, |cause| cause.kind == TimedOut))
}

/// A rank gives up one of two others.
fn time_out_of_three() -> Model {
    Model::same("time_out_1", Parking, 3, &[GATHER])
        .fate(0, Fate::expires_at(1))
        .check(agreement(0, |cause| cause.kind == TimedOut && cause.rank != 0))
}

/// A rank is interrupted in a sleep. Its peer, which may arrive meanwhile, is told the same, or both succeed.
fn interrupt(waiting: Waiting, sleep: usize) -> Model {
    Model::same(format!("interrupt_{sleep}"), waiting, 2, &[GATHER, GATHER])
        .fate(0, Fate::is_interrupted_at(sleep))
        .check(agreement(0, only(Interrupted, 0)))
}

/// The same with two peers.
fn interrupt_of_three() -> Model {
    Model::same("interrupt_1", Parking, 3, &[GATHER])
        .fate(0, Fate::is_interrupted_at(1))
        .check(agreement(0, only(Interrupted, 0)))
}

/// A rank is interrupted while its peer dies.
fn interrupt_races_death(waiting: Waiting, fail_point: &'static str) -> Model {
    Model::same(format!("death_at_{fail_point}_races_interrupt"), waiting, 2, &[GATHER])
        .fate(0, Fate::is_interrupted_at(1))
        .fate(1, Fate::dies_at(fail_point, 1))
        .check(agreement(0, |cause| matches!((cause.kind, cause.rank), (Died, 1) | (Interrupted, 0))))
}

/// Two ranks send each other a number, twice. Rank 1 dies at a fail point, and a watcher that finds it dead poisons. Each
/// call must have succeeded on both ranks, or fail on rank 0 because rank 1 has died.
fn death(waiting: Waiting, fail_point: &'static str, occurrence: usize) -> Model {
    Model::same(format!("death_at_{fail_point}_{occurrence}"), waiting, 2, &[gather::<1>, gather::<1>])
        .fate(1, Fate::dies_at(fail_point, occurrence))
        .check(agreement(0, only(Died, 1)))
}

/// Rank 1 of two that do the same dies at each fail point of its first round, or of its second.
pub(super) fn deaths_in_rounds(name: &str, waiting: Waiting, script: &[Step]) -> Vec<Model> {
    let death = |fail_point, occurrence| {
        Model::same(format!("{name}_death_at_{fail_point}_{occurrence}"), waiting, 2, script)
            .fate(1, Fate::dies_at(fail_point, occurrence))
            .check(agreement(0, only(Died, 1)))
            .bound(2)
    };
    IN_A_ROUND
        .into_iter()
        .flat_map(|fail_point| [1, 2].map(|occurrence| death(fail_point, occurrence)))
        .collect()
}

/// The same with two survivors, which must agree.
fn death_of_three(fail_point: &'static str) -> Model {
    Model::same(format!("death_at_{fail_point}"), Parking, 3, &[GATHER])
        .fate(1, Fate::dies_at(fail_point, 1))
        .check(agreement(0, only(Died, 1)))
}

/// A rank dies while it aborts. It has aborted then, or it has died.
fn death_in_abort(waiting: Waiting, fail_point: &'static str) -> Model {
    Model::new(format!("death_at_{fail_point}_1"), waiting, &[&[GATHER, GATHER], &[GATHER, abort]])
        .fate(1, Fate::dies_at(fail_point, 1))
        .check(agreement(0, |cause| matches!(cause.kind, Died | Aborted) && cause.rank == 1))
}

/// The rank that is given up is the one that dies.
fn death_races_time_out(waiting: Waiting, fail_point: &'static str) -> Model {
    Model::same(format!("death_at_{fail_point}_races_time_out"), waiting, 2, &[GATHER])
        .fate(0, Fate::expires_at(1))
        .fate(1, Fate::dies_at(fail_point, 1))
        .check(agreement(0, |cause| matches!(cause.kind, Died | TimedOut) && cause.rank == 1))
}

/// A rank leaves while its peer dies in the next round.
fn leave_races_death(waiting: Waiting) -> Model {
    Model::new("leave_races_death", waiting, &[&[GATHER, leave], &[GATHER, GATHER]])
        .fate(1, Fate::dies_at("round", 2))
        .check(agreement(1, |cause| matches!((cause.kind, cause.rank), (Left, 0) | (Died, 1))))
}

/// The same with a third rank, which is told one of the two.
fn leave_races_death_of_three(waiting: Waiting) -> Model {
    Model::new("leave_races_death", waiting, &[&[GATHER, leave], &[GATHER, GATHER], &[GATHER, GATHER]])
        .fate(1, Fate::dies_at("round", 2))
        .check(agreement(1, |cause| matches!((cause.kind, cause.rank), (Left, 0) | (Died, 1))))
}

/// Two of three ranks die. The third is alone, but alive.
fn two_deaths(fail_point: &'static str) -> Model {
    Model::same(format!("two_deaths_at_{fail_point}"), Parking, 3, &[GATHER])
        .fate(1, Fate::dies_at(fail_point, 1))
        .fate(2, Fate::dies_at(fail_point, 1))
        .check(agreement(0, |cause| cause.kind == Died && cause.rank != 0))
}

pub(crate) fn claims() -> Vec<Search> {
    [2, 3].map(claim).into()
}

/// On which machines each runs, and how far it is searched.
pub(crate) fn models() -> Vec<Model> {
    let all = [Spinning, Dozing, Blocking, Parking];
    let mut models = Vec::new();
    for waiting in all {
        let last_round = leave_after_last_round(waiting);
        models.extend(if waiting == Parking { vec![last_round] } else { feasible(last_round) });
        models.extend(feasible(leave_both(waiting)));
        models.extend(feasible(leave_and_go_on(waiting)));
    }
    models.extend([leave_of_three(Blocking).long(), leave_of_three(Parking).bound(2)]);
    for waiting in all {
        models.extend(feasible(abort_between_calls(waiting)));
        models.push(poison_races_completion(waiting, 2).bound(2));
        models.push(poison_races_completion_of_chunks(waiting).bound(2));
    }
    models.push(two_poisons().bound(2));
    models.push(poison_races_completion(Blocking, 3).bound(1));
    models.push(poison_races_completion(Blocking, 3).bound(2).long());
    let sleeping = [Dozing, Parking];
    for waiting in sleeping {
        models.extend([1, 2].map(|check| time_out(waiting, check).bound(3)));
        models.push(time_out_of_both(waiting).bound(3));
        models.extend([1, 2].map(|sleep| interrupt(waiting, sleep).bound(3)));
    }
    models.extend([time_out_of_three().bound(2), interrupt_of_three().bound(2)]);
    for fail_point in IN_A_ROUND {
        for waiting in sleeping {
            models.extend([1, 2].into_iter().flat_map(|nth| feasible(death(waiting, fail_point, nth))));
        }
        models.push(death_of_three(fail_point).bound(2));
    }
    for fail_point in IN_POISONING {
        models.extend(sleeping.into_iter().flat_map(|waiting| feasible(death_in_abort(waiting, fail_point))));
    }
    for waiting in sleeping {
        let fail_points = ["round", "arrived", "sleeping"];
        models.extend(fail_points.map(|fail_point| death_races_time_out(waiting, fail_point).bound(3)));
        models.push(interrupt_races_death(waiting, "arrived").bound(3));
        models.extend(feasible(leave_races_death(waiting)));
    }
    models.extend(["round", "arrived"].map(|fail_point| two_deaths(fail_point).bound(2)));
    models.push(leave_races_death_of_three(Blocking).bound(1));
    models.push(leave_races_death_of_three(Parking).bound(1).long());
    models
}

/// Poison that goes through all words is much wherever loads or sleeps are explored: up to three preemptions, and all
/// executions, where that is possible at all, in the long run.
fn feasible(model: Model) -> Vec<Model> {
    match model.waiting {
        Blocking => vec![model],
        Parking => vec![model.bound(3)],
        Spinning | Dozing => vec![model.clone().bound(3), model.long()],
    }
}
