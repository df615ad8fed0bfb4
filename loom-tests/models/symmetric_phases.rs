//! The phases of a symmetric object: no rank has a reference to an instance that another may write. Each rank has an
//! instance, and loom checks every access to it against all others. What ranks put into others' instances are plain cells
//! here, since no two ranks access the same one in the same open phase.

use intranode::protocol::CauseKind::Died;
use intranode::protocol::{Failure, Payload};

use super::faults::IN_A_ROUND;
use crate::harness::data::{Blocks, number, numbers};
use crate::harness::machine::Fate;
use crate::harness::model::Model;
use crate::harness::rank::{Operation, Rank, Step};
use crate::harness::verdict::{agreement, only};
use crate::harness::waiting::Waiting::{self, Blocking, Dozing, Parking, Spinning};

/// What the calls publish besides the operation, which those of regions have too.
const OWN: usize = 101;
const READ: usize = 102;
const OPEN: usize = 103;

/// The rank whose instance this rank puts into, and gets from.
fn target(rank: &Rank<'_>) -> usize {
    (rank.number + 1) % rank.size()
}

/// The rank that puts into this rank's instance.
fn source(rank: &Rank<'_>) -> usize {
    (rank.number + rank.size() - 1) % rank.size()
}

/// Puts a number into another rank's instance.
fn put(rank: &Rank<'_>, number: u64) {
    rank.blocks()[target(rank)][0].write(|mut view| view.put(0, &number.to_ne_bytes()));
}

fn must_have(rank: &Rank<'_>, owner: usize, expected: u64) {
    let got = rank.read_block(owner, 0);
    assert!(got == expected, "wrong data: rank {} read {got} of {owner}, and not {expected}", rank.number);
}

/// The rank puts into another's instance, begins the phase `own`, must find what was put into its own, and writes that.
fn put_and_own(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let (nth, barrier) = (rank.nth(), rank.barrier());
    put(rank, number(nth, rank.number, 0));
    rank.call(Operation::Publish.call(1, OWN), |member, call| member.into_own(barrier, call))?;
    must_have(rank, rank.number, number(nth, source(rank), 0));
    rank.write_block(0, &[number(nth + 1, rank.number, 0)]);
    Ok(())
}

/// The rank opens the object, and must get what the owner has written.
fn open_and_get(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let (nth, barrier) = (rank.nth(), rank.barrier());
    rank.call(Operation::Reclaim.call(1, OPEN), |member, call| member.open(barrier, call))?;
    must_have(rank, target(rank), number(nth, target(rank), 0));
    Ok(())
}

/// The rank puts into another's instance, begins the phase `read`, and must find in every instance what was put there.
fn put_and_read(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let (nth, barrier) = (rank.nth(), rank.barrier());
    put(rank, number(nth, rank.number, 0));
    rank.call(Operation::Publish.call(1, READ), |member, call| member.into_read(barrier, call))?;
    for owner in 0..rank.size() {
        must_have(rank, owner, number(nth, (owner + rank.size() - 1) % rank.size(), 0));
    }
    Ok(())
}

/// The rank opens the object when it has read for the last time, and puts into another's instance again.
fn open_and_put(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let barrier = rank.barrier();
    rank.call(Operation::Reclaim.call(1, OPEN), |member, call| member.open(barrier, call))?;
    put(rank, 0);
    Ok(())
}

/// The rank puts into an object and drops it, tells that in the call that gives its memory out anew, and clears its own
/// instance.
fn put_and_reuse(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let (nth, size) = (rank.nth(), rank.size());
    put(rank, number(nth, rank.number, 0));
    let mut dropped = Blocks::of(rank.number, &numbers(nth, &vec![1; size]));
    rank.call(Operation::Gather.call(1, OWN), |member, call| member.own_with(call, &mut dropped))?;
    assert!(dropped.all == numbers(nth, &vec![1; size]), "wrong data: {:?} were dropped", dropped.all);
    must_have(rank, rank.number, number(nth, source(rank), 0));
    rank.write_block(0, &[number(nth + 1, rank.number, 0)]);
    Ok(())
}

const OWN_CYCLE: &[Step] = &[put_and_own, open_and_get];
const READ_CYCLE: &[Step] = &[put_and_read, open_and_put];
const REUSE: &[Step] = &[put_and_reuse, open_and_get];

/// Two ranks go from phase to phase, or disagree about which comes next.
fn two_ranks(waiting: Waiting) -> [Model; 4] {
    let two = |name: &str, one: &[Step], other: &[Step]| {
        let model = Model::new(name, waiting, &[one, other]);
        if waiting == Parking { model.bound(3) } else { model }
    };
    [
        two("symmetric_own", OWN_CYCLE, OWN_CYCLE),
        two("symmetric_read", READ_CYCLE, READ_CYCLE),
        two("symmetric_reuse", REUSE, REUSE),
        two("symmetric_mismatch", &[put_and_own], &[put_and_read]),
    ]
}

/// A rank dies between two phases: its peer has a reference only if the round was complete.
fn death(name: &str, script: &[Step], fail_point: &'static str, occurrence: usize) -> Model {
    Model::same(format!("{name}_death_at_{fail_point}_{occurrence}"), Parking, 2, script)
        .fate(1, Fate::dies_at(fail_point, occurrence))
        .check(agreement(0, only(Died, 1)))
        .bound(2)
}

/// On which machines each runs.
pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.extend(two_ranks(waiting));
    }
    models.push(Model::same("symmetric_own", Blocking, 3, OWN_CYCLE).bound(2));
    models.push(Model::same("symmetric_read", Blocking, 3, READ_CYCLE).bound(2));
    for fail_point in IN_A_ROUND {
        for occurrence in [1, 2] {
            models.push(death("symmetric_own", OWN_CYCLE, fail_point, occurrence));
            models.push(death("symmetric_read", READ_CYCLE, fail_point, occurrence));
            models.push(death("symmetric_reuse", REUSE, fail_point, occurrence));
        }
    }
    models
}
