//! Ranks that sleep until one of their cells has changed: a wait ends with the value that it waits for, and with what was
//! put before that; or with the cause, where the communicator has ended before; and never not at all.
//!
//! No nap ends by itself here, so a wake-up that is lost is a deadlock.

use intranode::protocol::CauseKind::{self, Died, Interrupted, Left};
use intranode::protocol::symmetric::access::Signalling::Set;
use intranode::protocol::{Cause, Failure};

use crate::harness::actor::{Actor, At};
use crate::harness::machine::Fate;
use crate::harness::one_sided::{OneSidedModel, Role, Seen};
use crate::harness::waiting::Waiting::{self, Dozing, Parking};

/// The fail points of a write into another rank's memory, and of a wait.
pub(crate) const IN_WRITING: [&str; 3] = ["written-unrung", "taken-unwoken", "put-unsignalled"];
pub(crate) const IN_WAITING: &str = "wait-marked";

/// What ranks wait for, and data that comes with it.
const FLAG: At = At(0, 0);
const DATA: At = At(0, 1);
const BACK: At = At(1, 0);

/// Waits for the flag, and takes the data.
fn waits(rank: &Actor<'_>) -> Result<(), Failure> {
    rank.wait_until(FLAG, 1)?;
    rank.sees(rank.get(DATA));
    Ok(())
}

/// Waits for two writers, one cell each.
fn waits_for_both(rank: &Actor<'_>) -> Result<(), Failure> {
    rank.wait_all(&[0, 1], 1)
}

fn raises_flag(rank: &Actor<'_>) -> Result<(), Failure> {
    rank.store(FLAG, 1)
}

fn puts_data(rank: &Actor<'_>) -> Result<(), Failure> {
    rank.put(DATA, &[1])
}

fn signals(rank: &Actor<'_>) -> Result<(), Failure> {
    rank.put_signal(DATA, &[1], FLAG, Set)
}

/// A rank that waits, and one that does something.
fn pair(name: impl Into<String>, waiting: Waiting, waiter: Role, other: Role) -> OneSidedModel {
    OneSidedModel::new(name, waiting).rank(0, waiter).rank(1, other)
}

fn all_succeed(seen: &[Seen]) {
    assert!(seen.iter().all(|seen| seen.end.is_ok()), "wrong verdict: {seen:?}");
}

/// The first thread has been told the data with the flag.
fn has_the_data(seen: &[Seen]) {
    all_succeed(seen);
    assert!(seen[0].values == [1], "stale data: {seen:?}");
}

/// Every thread has succeeded, or has ended itself, or was told this cause.
fn succeed_or_know(kind: CauseKind, rank: usize) -> impl Fn(&[Seen]) + Send + Sync {
    move |seen| {
        for seen in seen {
            let cause = Cause { kind, rank, detail: 0 };
            let told = [Ok(()), Err(Failure::Killed), Err(Failure::Dead(Some(cause)))];
            assert!(told.contains(&seen.end), "wrong verdict: {seen:?}");
            assert!(seen.end != Ok(()) || seen.values.iter().all(|value| *value != 0), "stale data: {seen:?}");
        }
    }
}

/// A rank waits for a signal, and has the data that came before it.
fn signal(waiting: Waiting) -> OneSidedModel {
    pair("bell_signal", waiting, waits, signals).check(has_the_data)
}

/// Puts ring too: a rank waits for a put alone.
fn put(waiting: Waiting) -> OneSidedModel {
    pair("bell_put", waiting, |rank| rank.wait_until(DATA, 1).map(drop), puts_data).check(all_succeed)
}

/// Two ranks wait for each other, twice: a bell that has rung can ring again.
fn ping_pong(waiting: Waiting) -> OneSidedModel {
    let plays = |rank: &Actor<'_>| {
        for turn in 1..=2 {
            rank.wait_until(FLAG, turn)?;
            rank.store(BACK, turn)?;
        }
        Ok(())
    };
    let answers = |rank: &Actor<'_>| {
        for turn in 1..=2 {
            rank.store(FLAG, turn)?;
            rank.wait_until(BACK, turn)?;
        }
        Ok(())
    };
    pair("bell_ping_pong", waiting, plays, answers).check(all_succeed)
}

/// A rank waits for two others.
fn two_writers() -> OneSidedModel {
    OneSidedModel::new("bell_two_writers", Parking)
        .rank(0, waits_for_both)
        .rank(1, raises_flag)
        .rank(2, puts_data)
        .check(all_succeed)
}

/// Two threads of a rank wait for one cell: one ring wakes both.
fn two_sleepers() -> OneSidedModel {
    let waits = |rank: &Actor<'_>| rank.wait_until(FLAG, 1).map(drop);
    OneSidedModel::new("bell_two_sleepers", Parking)
        .rank(0, waits)
        .rank(0, waits)
        .rank(1, raises_flag)
        .check(all_succeed)
}

/// Two threads of a rank wait for different cells: the ring for the one takes `WAITER` away from the other too.
fn two_sleepers_of_two_cells() -> OneSidedModel {
    OneSidedModel::new("bell_two_sleepers_of_two_cells", Parking)
        .rank(0, |rank| rank.wait_until(FLAG, 1).map(drop))
        .rank(0, |rank| rank.wait_until(DATA, 1).map(drop))
        .rank(1, |rank| {
            raises_flag(rank)?;
            puts_data(rank)
        })
        .check(all_succeed)
}

/// A sleep ends for no reason.
fn spurious(waiting: Waiting) -> OneSidedModel {
    pair("bell_spurious", waiting, waits, signals)
        .check(has_the_data)
        .fate_of(0, Fate::wakes_spuriously_from(1))
}

/// A wait ends because it is late, with the value if that has come meanwhile; the next one goes on.
fn late(waiting: Waiting) -> OneSidedModel {
    let waits_twice = |rank: &Actor<'_>| {
        rank.wait_until(FLAG, 1)?;
        waits(rank)
    };
    pair("bell_late", waiting, waits_twice, signals).check(has_the_data).fate_of(0, Fate::is_late_at(1))
}

/// A rank is interrupted in its sleep: it has the value and the data, or the cause.
fn interrupted(waiting: Waiting) -> OneSidedModel {
    pair("bell_interrupted", waiting, waits, signals)
        .fate_of(0, Fate::is_interrupted_at(1))
        .check(succeed_or_know(Interrupted, 0))
}

/// A writer dies. The rank that waits has the value and the data, or the cause.
fn death_of_writer(waiting: Waiting, fail_point: &'static str) -> OneSidedModel {
    pair(format!("bell_death_at_{fail_point}"), waiting, waits, signals)
        .fate_of(1, Fate::dies_at(fail_point, 1))
        .check(succeed_or_know(Died, 1))
}

/// The same with two threads that wait.
fn death_with_two_sleepers(fail_point: &'static str) -> OneSidedModel {
    OneSidedModel::new(format!("bell_death_at_{fail_point}_two_sleepers"), Parking)
        .rank(0, |rank| rank.wait_until(FLAG, 1).map(drop))
        .rank(0, |rank| rank.wait_until(FLAG, 1).map(drop))
        .rank(1, raises_flag)
        .fate_of(2, Fate::dies_at(fail_point, 1))
        .check(succeed_or_know(Died, 1))
}

/// A writer dies when it has taken `WAITER`, and so another finds nobody to wake. Its value is not lost.
fn death_beside_a_writer() -> OneSidedModel {
    OneSidedModel::new("bell_death_at_taken-unwoken_beside_a_writer", Parking)
        .rank(0, |rank| rank.wait_until(DATA, 1).map(drop))
        .rank(1, raises_flag)
        .rank(2, puts_data)
        .fate_of(1, Fate::dies_at("taken-unwoken", 1))
        .check(succeed_or_know(Died, 1))
}

/// A rank dies as it goes to sleep. Who writes to it does not notice, and who waits for it is told.
fn death_of_waiter(waiting: Waiting) -> OneSidedModel {
    let answers = |rank: &Actor<'_>| {
        signals(rank)?;
        rank.wait_until(BACK, 1).map(drop)
    };
    let waits = |rank: &Actor<'_>| {
        waits(rank)?;
        rank.store(BACK, 1)
    };
    pair(format!("bell_death_at_{IN_WAITING}"), waiting, waits, answers)
        .fate_of(0, Fate::dies_at(IN_WAITING, 1))
        .check(succeed_or_know(Died, 0))
}

/// A rank is taken to be dead while it writes, by a watcher: poison and the ring meet in one word, and neither is lost.
fn poison_races_ring() -> OneSidedModel {
    let waits_for_more = |rank: &Actor<'_>| rank.wait_until(FLAG, 2).map(drop);
    pair("bell_poison_races_ring", Parking, waits_for_more, raises_flag).found_dead(1).check(|seen| {
        let cause = Cause { kind: Died, rank: 1, detail: 0 };
        assert!(seen[0].end == Err(Failure::Dead(Some(cause))), "wrong verdict: {seen:?}");
    })
}

/// A rank leaves without having written. Who waits for it is told; what it has written otherwise is there.
fn leave_unwritten(waiting: Waiting) -> OneSidedModel {
    let leaves = |rank: &Actor<'_>| {
        rank.put(DATA, &[1])?;
        rank.leave()
    };
    let waits = |rank: &Actor<'_>| {
        let end = rank.wait_until(FLAG, 1);
        rank.sees(rank.get(DATA));
        end.map(drop)
    };
    pair("bell_leave_unwritten", waiting, waits, leaves).check(|seen| {
        let cause = Cause { kind: Left, rank: 1, detail: 0 };
        assert!(seen[0].end == Err(Failure::Dead(Some(cause))), "wrong verdict: {seen:?}");
        assert!(seen[0].values == [1], "stale data: {seen:?}");
    })
}

/// A rank writes, and leaves. The value wins over poison: who waits for it succeeds.
fn leave_written(waiting: Waiting) -> OneSidedModel {
    let leaves = |rank: &Actor<'_>| {
        signals(rank)?;
        rank.leave()
    };
    pair("bell_leave_written", waiting, waits, leaves).check(has_the_data)
}

pub(crate) fn models() -> Vec<OneSidedModel> {
    let mut models = Vec::new();
    for waiting in [Dozing, Parking] {
        models.extend([signal(waiting), put(waiting), spurious(waiting), late(waiting), interrupted(waiting)]);
        models.push(ping_pong(waiting).bound(3));
        models.extend(IN_WRITING.map(|fail_point| death_of_writer(waiting, fail_point)));
        models.extend([death_of_waiter(waiting), leave_written(waiting)]);
    }
    models.extend([leave_unwritten(Dozing), leave_unwritten(Parking).bound(3)]);
    // Three threads that sleep and wake are too much without a bound.
    let of_three = [two_writers(), two_sleepers(), two_sleepers_of_two_cells(), poison_races_ring()];
    let deaths = ["written-unrung", "taken-unwoken"].map(death_with_two_sleepers);
    let deaths = deaths.into_iter().chain([death_beside_a_writer()]);
    models.extend(of_three.into_iter().chain(deaths).map(|model| model.bound(3)));
    models
}
