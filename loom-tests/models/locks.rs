//! Ranks that take turns by a lock: never two at once, each with what the one before it has written, in the order in which
//! they have asked, which [`Actor::critical_section`] asserts. Where a rank dies or is late, the others have the lock or
//! the cause.

use intranode::protocol::CauseKind::{Died, Left, LockTimedOut};
use intranode::protocol::{Cause, Failure};

use crate::harness::actor::Actor;
use crate::harness::machine::Fate;
use crate::harness::one_sided::{OneSidedModel, Role, Seen};
use crate::harness::waiting::Waiting::{self, Dozing, Parking, Spinning};

/// The fail points of taking a lock and of giving it back.
pub(crate) const IN_LOCKING: [&str; 3] = ["queued-unlinked", "locked", "unlock-unlinked"];

/// Takes the lock, and gives it back.
fn locks(rank: &Actor<'_>) -> Result<(), Failure> {
    rank.lock()?;
    rank.critical_section();
    rank.unlock()
}

fn locks_twice(rank: &Actor<'_>) -> Result<(), Failure> {
    locks(rank)?;
    locks(rank)
}

/// Takes the lock if it is free.
fn tries(rank: &Actor<'_>) -> Result<(), Failure> {
    if rank.try_lock()? {
        rank.critical_section();
        rank.unlock()?;
    }
    Ok(())
}

fn tries_twice(rank: &Actor<'_>) -> Result<(), Failure> {
    tries(rank)?;
    tries(rank)
}

fn ranks(name: impl Into<String>, waiting: Waiting, roles: &[Role]) -> OneSidedModel {
    let model = OneSidedModel::new(name, waiting);
    roles.iter().enumerate().fold(model, |model, (rank, role)| model.rank(rank, *role))
}

/// What the ranks have counted up to, each number once.
fn counted(seen: &[Seen]) -> Vec<u64> {
    let mut counts: Vec<u64> = seen.iter().flat_map(|seen| seen.values.clone()).collect();
    counts.sort_unstable();
    assert!(counts.windows(2).all(|pair| pair[0] != pair[1]), "two at once: {seen:?}");
    counts
}

/// Each of them has the lock as often as it asks.
fn takes_turns(name: &str, waiting: Waiting, roles: &[Role], turns: usize) -> OneSidedModel {
    ranks(name, waiting, roles).check(move |seen| {
        assert!(seen.iter().all(|seen| seen.end.is_ok()), "wrong verdict: {seen:?}");
        assert!(counted(seen).len() == turns, "a turn is missing: {seen:?}");
    })
}

/// One rank takes the lock, another tries to.
fn lock_and_try(waiting: Waiting) -> OneSidedModel {
    ranks("lock_and_try", waiting, &[locks_twice, tries_twice]).check(|seen| {
        assert!(seen.iter().all(|seen| seen.end.is_ok()), "wrong verdict: {seen:?}");
        assert!(counted(seen).len() >= 2, "a turn is missing: {seen:?}");
    })
}

/// Both try, and at least one has it.
fn both_try(waiting: Waiting) -> OneSidedModel {
    ranks("lock_both_try", waiting, &[tries, tries]).check(|seen| {
        assert!(seen.iter().all(|seen| seen.end.is_ok()), "wrong verdict: {seen:?}");
        assert!(!counted(seen).is_empty(), "nobody has the lock: {seen:?}");
    })
}

/// A rank dies. The others have the lock, or are told.
fn death(waiting: Waiting, fail_point: &'static str, roles: &[Role], who: usize) -> OneSidedModel {
    ranks(format!("lock_death_at_{fail_point}_of_{who}"), waiting, roles)
        .fate_of(who, Fate::dies_at(fail_point, 1))
        .check(move |seen| {
            counted(seen);
            let cause = Cause { kind: Died, rank: who, detail: 0 };
            for (rank, seen) in seen.iter().enumerate() {
                let told = seen.end == Ok(()) || seen.end == Err(Failure::Dead(Some(cause)));
                assert!(told || rank == who, "wrong verdict: {seen:?}");
            }
        })
}

/// A rank leaves with the lock, and who waits for it is told.
fn leave_with_the_lock(waiting: Waiting) -> OneSidedModel {
    let leaves = |rank: &Actor<'_>| {
        rank.lock()?;
        rank.leave()
    };
    ranks("lock_leave", waiting, &[leaves, locks]).check(|seen| {
        let cause = Cause { kind: Left, rank: 0, detail: 0 };
        let told = seen[1].end == Err(Failure::Dead(Some(cause)));
        assert!(told || seen[1].end == Ok(()), "wrong verdict: {seen:?}");
    })
}

/// A rank has waited for too long: it names the other, also where it was itself the last to hold the lock, and both are
/// told the same. Or the lock has come meanwhile.
fn late(name: &str, waiting: Waiting, roles: &[Role]) -> OneSidedModel {
    ranks(name, waiting, roles).fate_of(0, Fate::is_late_at(1)).check(|seen| {
        counted(seen);
        for seen in seen {
            let cause = Cause { kind: LockTimedOut, rank: 1, detail: 0 };
            assert!([Ok(()), Err(Failure::Dead(Some(cause)))].contains(&seen.end), "wrong verdict: {seen:?}");
        }
    })
}

/// What each rank does, one after the other, of which the last one gives up; and that it names rank 1.
fn names_rank_1(name: &str, waiting: Waiting, steps: Role) -> OneSidedModel {
    OneSidedModel::new(name, waiting).rank(2, steps).check(|seen| {
        let cause = Cause { kind: LockTimedOut, rank: 1, detail: 0 };
        assert!(seen[0].end == Err(Failure::Dead(Some(cause))), "wrong verdict: {seen:?}");
    })
}

fn asks(rank: &Actor<'_>) -> Result<(), Failure> {
    rank.lock()
}

fn gives_back(rank: &Actor<'_>) -> Result<(), Failure> {
    rank.unlock()
}

/// It asks, and stands still at a fail point for ever. Nobody finds it dead.
fn stands_still(thread: &Actor<'_>, rank: usize, fail_point: &'static str) {
    let end = thread.as_rank(rank, Fate::dies_at(fail_point, 1), asks);
    assert!(end == Err(Failure::Killed), "rank {rank} stands still at {fail_point}");
}

/// Rank 0 has had the lock; rank 1 has taken it, and has noted nothing.
fn frozen_as_it_takes_a_free_lock(rank_2: &Actor<'_>) -> Result<(), Failure> {
    rank_2.as_rank(0, Fate::NONE, locks)?;
    stands_still(rank_2, 1, "queued-unlinked");
    rank_2.as_rank(2, Fate::is_late_at(1), asks)
}

/// Rank 0 has handed the lock to rank 1, which does not notice.
fn frozen_as_it_is_handed_the_lock(rank_2: &Actor<'_>) -> Result<(), Failure> {
    rank_2.as_rank(0, Fate::NONE, asks)?;
    stands_still(rank_2, 1, "wait-marked");
    rank_2.as_rank(0, Fate::NONE, gives_back)?;
    rank_2.as_rank(2, Fate::is_late_at(1), asks)
}

/// Rank 1 has the lock, rank 0 waits for it, and rank 2 behind that.
fn frozen_two_places_ahead(rank_2: &Actor<'_>) -> Result<(), Failure> {
    rank_2.as_rank(1, Fate::NONE, asks)?;
    stands_still(rank_2, 0, "wait-marked");
    rank_2.as_rank(2, Fate::is_late_at(1), asks)
}

/// Rank 0 has the lock, rank 1 does not link itself behind it, and rank 2 waits behind that: who names rank 1?
fn gap(thread: &Actor<'_>, waits: fn(&Actor<'_>) -> Result<(), Failure>) -> Result<(), Failure> {
    thread.as_rank(0, Fate::NONE, asks)?;
    stands_still(thread, 1, "queued-unlinked");
    waits(thread)
}

fn frozen_in_a_gap_before_a_rank_that_waits(rank_2: &Actor<'_>) -> Result<(), Failure> {
    gap(rank_2, |rank_2| rank_2.as_rank(2, Fate::is_late_at(1), asks))
}

fn frozen_in_a_gap_behind_a_rank_that_unlocks(rank_2: &Actor<'_>) -> Result<(), Failure> {
    gap(rank_2, |rank_2| {
        stands_still(rank_2, 2, "wait-marked");
        rank_2.as_rank(0, Fate::is_late_at(1), gives_back)
    })
}

const LATE: [(&str, Role); 5] = [
    ("lock_late_for_one_that_takes_it", frozen_as_it_takes_a_free_lock),
    ("lock_late_for_one_that_is_handed_it", frozen_as_it_is_handed_the_lock),
    ("lock_late_for_one_two_places_ahead", frozen_two_places_ahead),
    ("lock_late_before_a_gap", frozen_in_a_gap_before_a_rank_that_waits),
    ("lock_late_behind_a_gap", frozen_in_a_gap_behind_a_rank_that_unlocks),
];

pub(crate) fn models() -> Vec<OneSidedModel> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Parking] {
        let once = takes_turns("lock_once", waiting, &[locks, locks], 2);
        let twice = takes_turns("lock_twice", waiting, &[locks_twice, locks], 3);
        models.extend([once, twice, lock_and_try(waiting)].map(feasible));
        models.push(both_try(waiting));
    }
    for waiting in [Dozing, Parking] {
        models.extend(IN_LOCKING.map(|fail_point| feasible(death(waiting, fail_point, &[locks, locks], 1))));
        models.push(feasible(leave_with_the_lock(waiting)));
        models.push(feasible(late("lock_late", waiting, &[locks, locks])));
        models.push(feasible(late("lock_late_again", waiting, &[locks_twice, locks])));
        models.extend(LATE.map(|(name, steps)| names_rank_1(name, waiting, steps)));
    }
    models.push(takes_turns("lock_once", Parking, &[locks, locks], 2).long());
    models.push(death(Parking, "locked", &[locks, locks], 1).long());
    let three: [Role; 3] = [locks; 3];
    models.push(takes_turns("lock_once", Parking, &three, 3).bound(3));
    models.extend(IN_LOCKING.map(|fail_point| death(Parking, fail_point, &three, 1).bound(2)));
    models
}

/// Where ranks sleep, up to three preemptions.
fn feasible(model: OneSidedModel) -> OneSidedModel {
    if model.waiting == Spinning { model } else { model.bound(3) }
}
