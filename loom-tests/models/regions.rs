//! The epochs of a region: no rank reads what another may write, and what was published is read by all. A rank owns one
//! block, and loom checks every access to it against all others.

use intranode::protocol::CauseKind::Died;
use intranode::protocol::{Call, Failure};

use super::collectives::barrier;
use super::faults::IN_A_ROUND;
use crate::harness::data::number;
use crate::harness::machine::Fate;
use crate::harness::model::Model;
use crate::harness::rank::{Operation, Rank, Step};
use crate::harness::verdict::{agreement, only};
use crate::harness::waiting::Waiting::{self, Blocking, Dozing, Parking, Spinning};

/// The rank writes its block, ends the write epoch, and must read what every rank has written.
pub(crate) fn publish(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let (nth, barrier) = (rank.nth(), rank.barrier());
    rank.write_block(0, &[number(nth, rank.number, 0)]);
    rank.call(Operation::Publish.call(0, 0), |member, call| member.publish(barrier, call, true))?;
    must_read(rank, nth, 0);
    Ok(())
}

/// The same where the rank's mapping cannot be made read-only: it refuses.
fn publish_unprotected(rank: &mut Rank<'_>) -> Result<(), Failure> {
    rank.write_block(0, &[number(rank.nth(), rank.number, 0)]);
    let (call, barrier) = (Call { refused: true, ..Operation::Publish.call(0, 0) }, rank.barrier());
    rank.call(call, |member, call| member.publish(barrier, call, false)).map(drop)
}

/// The rank reads for the last time, ends the read epoch, and writes its block again.
pub(crate) fn reclaim(rank: &mut Rank<'_>) -> Result<(), Failure> {
    for owner in 0..rank.size() {
        rank.read_block(owner, 0);
    }
    let barrier = rank.barrier();
    rank.call(Operation::Reclaim.call(0, 0), |member, call| member.reclaim(barrier, call, true))?;
    rank.write_block(0, &[0]);
    Ok(())
}

/// The rank writes its block of one of an exchange's two buffers, while a slower peer may read the other, and must read
/// what every rank has written.
fn exchange(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let (nth, barrier) = (rank.nth(), rank.barrier());
    rank.write_block(nth % 2, &[number(nth, rank.number, 0)]);
    rank.call(Operation::Exchange.call(0, 0), |member, call| member.publish(barrier, call, true))?;
    must_read(rank, nth, nth % 2);
    Ok(())
}

fn must_read(rank: &Rank<'_>, nth: usize, index: usize) {
    for owner in 0..rank.size() {
        let (got, expected) = (rank.read_block(owner, index), number(nth, owner, 0));
        assert!(got == expected, "wrong data: rank {} read {got} of {owner}, and not {expected}", rank.number);
    }
}

/// Written, read, and written again.
const ONE_CYCLE: &[Step] = &[publish, reclaim];

/// And read again.
const TWO_CYCLES: &[Step] = &[publish, reclaim, publish];

/// Two ranks take turns with a region or an exchange, or disagree about what to do with it.
fn two_ranks(waiting: Waiting) -> [Model; 5] {
    // Three rounds are a million executions where ranks park.
    let thrice = |model: Model| if waiting == Parking { model.bound(3) } else { model };
    let two = |name: &str, one: &[Step], other: &[Step]| Model::new(name, waiting, &[one, other]);
    [
        two("region_cycle", ONE_CYCLE, ONE_CYCLE),
        thrice(two("region_cycles", TWO_CYCLES, TWO_CYCLES)),
        thrice(two("exchange_thrice", &[exchange, exchange, exchange], &[exchange, exchange, exchange])),
        two("region_unprotected", &[publish_unprotected, barrier], &[publish, barrier]),
        two("region_mismatch", &[publish, barrier], &[barrier, barrier]),
    ]
}

/// A rank dies while it publishes or reclaims: its peer reads, or writes, only if the round was complete.
fn death(fail_point: &'static str, occurrence: usize) -> Model {
    Model::same(format!("region_death_at_{fail_point}_{occurrence}"), Parking, 2, ONE_CYCLE)
        .fate(1, Fate::dies_at(fail_point, occurrence))
        .check(agreement(0, only(Died, 1)))
        .bound(3)
}

/// On which machines each runs.
pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.extend(two_ranks(waiting));
    }
    models.push(Model::same("region_cycle", Blocking, 3, ONE_CYCLE).bound(2));
    models.push(Model::same("region_cycles", Blocking, 3, TWO_CYCLES).bound(1));
    models.push(Model::same("exchange_thrice", Blocking, 3, &[exchange, exchange, exchange]).bound(2));
    models.push(Model::same("region_cycle", Parking, 3, ONE_CYCLE).bound(1).long());
    for fail_point in IN_A_ROUND {
        models.extend([1, 2].map(|occurrence| death(fail_point, occurrence)));
    }
    models
}
