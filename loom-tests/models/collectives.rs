//! Every collective gives every rank the right data and the right verdict.
//!
//! The first half of the page is what a rank does; the models follow.

use intranode::protocol::Failure;
use intranode::protocol::allreduce::Shape;

use crate::harness::cells::{FULL, SHORT};
use crate::harness::data::{Blocks, Fold, folded, numbers};
use crate::harness::machine::Fate;
use crate::harness::model::Model;
use crate::harness::rank::{Operation, Rank, Step};
use crate::harness::waiting::Waiting::{self, Blocking, Dozing, Parking, Spinning};

/// A bare round.
fn round(rank: &mut Rank<'_>) -> Result<(), Failure> {
    rank.call(Operation::Round.call(0, 0), |member, _| member.round()).map(drop)
}

/// A round with a verdict.
pub(crate) fn barrier(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let barrier = rank.barrier();
    rank.call(Operation::Barrier.call(0, 0), |member, call| barrier.enter(member, call))
}

/// Every rank sends `N` numbers, and must get those of all.
pub(crate) fn gather<const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let sent = numbers(rank.nth(), &vec![N; rank.size()]);
    let mut blocks = Blocks::of(rank.number, &sent);
    rank.call(Operation::Gather.call(N, 0), |member, call| member.transfer(call, &mut blocks))?;
    assert!(blocks.all == sent, "wrong data: rank {} got {:?}", rank.number, blocks.all);
    Ok(())
}

/// `ROOT` sends `N` numbers, and every rank must get them.
pub(crate) fn broadcast<const ROOT: usize, const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let mut counts = vec![0; rank.size()];
    counts[ROOT] = N;
    let sent = numbers(rank.nth(), &counts);
    let mut blocks = Blocks::of(rank.number, &sent);
    rank.call(Operation::Broadcast.call(N, ROOT), |member, call| member.transfer(call, &mut blocks))?;
    assert!(blocks.all == sent, "wrong data: rank {} got {:?}", rank.number, blocks.all);
    Ok(())
}

/// Every rank sends `N` numbers, folds those of all, and must get the fold in the order of the ranks.
pub(crate) fn allreduce<const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    reduce(rank, N, usize::MAX)
}

/// The same where each rank folds a slice, and copies the slices of the others.
pub(crate) fn allreduce_slices<const N: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    reduce(rank, N, 0)
}

fn reduce(rank: &mut Rank<'_>, count: usize, slices_from: usize) -> Result<(), Failure> {
    let sent = numbers(rank.nth(), &vec![count; rank.size()]);
    let mut fold = Fold::of(&sent[rank.number]);
    let call = Operation::Allreduce.call(count, 0);
    rank.call(call, |member, call| member.reduction(call, Shape::All, slices_from, &mut fold))?;
    assert!(fold.result == folded(&sent), "wrong data: rank {} got {:?}", rank.number, fold.result);
    Ok(())
}

/// The rank refuses to take part, and must succeed in that.
pub(crate) fn refuse(rank: &mut Rank<'_>) -> Result<(), Failure> {
    rank.refuse(Operation::Refuse.call(0, 0))
}

/// One number, which fits into a header.
const GATHER: Step = gather::<1>;

/// Numbers that do not fit into a header, and are never in place.
const GATHER_SHORT: Step = gather::<SHORT>;

/// Two ranks meet, again and again.
fn rounds(waiting: Waiting) -> [Model; 3] {
    [
        Model::same("round_twice", waiting, 2, &[round, round]),
        bounded_if_parking(Model::same("round_thrice", waiting, 2, &[round, round, round])),
        Model::same("barrier_twice", waiting, 2, &[barrier, barrier]),
    ]
}

/// Two ranks exchange what fits into a header, into one chunk, or into several, which takes a round for each.
fn transfers(waiting: Waiting) -> [Model; 13] {
    let once = |name: &str, call: Step| Model::same(name, waiting, 2, &[call]);
    [
        once("allreduce_inline", allreduce::<1>),
        once("allreduce_short", allreduce::<SHORT>),
        once("allreduce_one_phase", allreduce::<FULL>),
        once("allreduce_one_phase_two_chunks", allreduce::<{ FULL + 1 }>),
        once("allreduce_slices", allreduce_slices::<FULL>),
        bounded_if_parking(once("allreduce_slices_of_two_chunks", allreduce_slices::<{ FULL + 1 }>)),
        once("allreduce_slices_of_three_chunks", allreduce_slices::<{ 2 * FULL + 1 }>).bound(2),
        once("gather_inline", GATHER),
        once("gather_short", GATHER_SHORT),
        Model::same("gather_short_twice", waiting, 2, &[GATHER_SHORT; 2]),
        once("gather_one_chunk", gather::<FULL>),
        once("gather_two_chunks", gather::<{ FULL + 1 }>),
        bounded_if_parking(once("gather_three_chunks", gather::<{ 2 * FULL + 1 }>)),
    ]
}

/// One of two ranks sends to the other.
fn broadcasts<const ROOT: usize>(waiting: Waiting) -> [Model; 6] {
    let same =
        |what: &str, script: &[Step]| Model::same(format!("broadcast_from_{ROOT}_{what}"), waiting, 2, script);
    [
        same("inline", &[broadcast::<ROOT, 1>]),
        same("short", &[broadcast::<ROOT, SHORT>]),
        bounded_if_parking(same("short_three_times", &[broadcast::<ROOT, SHORT> as Step; 3])),
        same("one_chunk", &[broadcast::<ROOT, FULL>]),
        same("two_chunks", &[broadcast::<ROOT, { FULL + 1 }>]),
        bounded_if_parking(same(
            "three_times",
            &[broadcast::<ROOT, 1>, broadcast::<ROOT, 1>, broadcast::<ROOT, 1>],
        )),
    ]
}

/// The first round after each of these numbers, and the second, are on both sides of the wrap or next to it.
fn wrapping(waiting: Waiting) -> [Model; 3] {
    let last = u32::MAX >> 4;
    [("wrap_before", last - 2), ("wrap_first", last - 1), ("wrap_second", last)]
        .map(|(name, start)| Model::same(name, waiting, 2, &[GATHER; 2]).start(start))
}

/// Rounds whose data go through staging until each rank writes to the other's buffer, and between them rounds without data, and rounds whose calls
/// differ.
fn turns(waiting: Waiting) -> [Model; 4] {
    let thrice: [Step; 3] = [GATHER_SHORT; 3];
    let same = |name: &str, script: &[Step]| bounded_if_parking(Model::same(name, waiting, 2, script));
    let differ = |name: &str, other: &[Step]| bounded_if_parking(Model::new(name, waiting, &[&thrice, other]));
    [
        same("staged_three_times", &thrice),
        same("staged_around_a_barrier", &[GATHER_SHORT, barrier, GATHER_SHORT]),
        differ("staged_around_a_mismatch", &[GATHER_SHORT, barrier, GATHER_SHORT]),
        differ("staged_after_a_mismatch", &[barrier, GATHER_SHORT, GATHER_SHORT]),
    ]
}

/// Two ranks that refuse, or call different things: both are told, and the next call finds everything in order.
fn verdicts(waiting: Waiting) -> [Model; 7] {
    let two = |name: &str, one: &[Step], other: &[Step]| Model::new(name, waiting, &[one, other]);
    [
        two("refusal", &[refuse, GATHER], &[GATHER, GATHER]),
        two("refusal_by_both", &[refuse, GATHER], &[refuse, GATHER]),
        two("mismatch", &[barrier, GATHER], &[GATHER, GATHER]),
        two("mismatch_of_lengths", &[gather::<FULL>], &[gather::<{ FULL + 1 }>]),
        two("mismatch_of_short_and_long", &[GATHER_SHORT, GATHER], &[gather::<FULL>, GATHER]),
        two("mismatch_of_roots", &[broadcast::<0, FULL>], &[broadcast::<1, FULL>]),
        bounded_if_parking(two("two_refusals", &[refuse, refuse, GATHER], &[GATHER; 3])),
    ]
}

/// A sleep ends though no rank has woken the sleeper.
fn spurious_return(sleep: usize) -> Model {
    Model::same(format!("spurious_return_{sleep}"), Parking, 2, &[GATHER; 2])
        .fate(0, Fate::wakes_spuriously_from(sleep))
}

/// Three ranks: blocking without a bound where that is finite enough, and with a bound.
fn three_ranks() -> Vec<Model> {
    let same = |name: &str, waiting, script: &[Step]| Model::same(name, waiting, 3, script);
    let two_chunks: Step = gather::<{ FULL + 1 }>;
    let refusals: [&[Step]; 3] = [&[refuse, refuse, GATHER], &[GATHER; 3], &[GATHER, refuse, GATHER]];
    vec![
        same("gather_inline", Blocking, &[GATHER]),
        same("allreduce_inline", Blocking, &[allreduce::<1>]),
        same("gather_short", Blocking, &[GATHER_SHORT]).bound(2),
        same("gather_two_chunks", Blocking, &[two_chunks]).bound(2),
        same("gather_two_chunks", Blocking, &[two_chunks]).long(),
        same("allreduce_slices", Blocking, &[allreduce_slices::<FULL>]).bound(2),
        same("allreduce_slices_of_two_chunks", Blocking, &[allreduce_slices::<{ FULL + 1 }>]).bound(2),
        same("broadcast_three_times", Blocking, &[broadcast::<1, 1>, broadcast::<1, 1>, broadcast::<1, 1>])
            .bound(2),
        Model::new("refusals", Blocking, &refusals).bound(2),
        same("gather_inline", Parking, &[GATHER]).bound(2),
        same("gather_inline", Parking, &[GATHER]).bound(3).long(),
        same("gather_two_chunks", Parking, &[two_chunks]).bound(1).long(),
    ]
}

/// On which machines each runs.
pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.extend(rounds(waiting));
        models.extend(transfers(waiting));
        models.extend(broadcasts::<0>(waiting));
        models.extend(broadcasts::<1>(waiting));
        models.extend(wrapping(waiting));
        models.extend(verdicts(waiting));
        models.extend(turns(waiting));
        if waiting == Parking {
            models.extend([1, 2].map(spurious_return));
        }
    }
    models.extend(three_ranks());
    models.push(Model::same("round_thrice", Parking, 2, &[round, round, round]).long());
    models
}

/// Three rounds come back to the first buffer. Where that is a million executions, a bound has to do.
fn bounded_if_parking(model: Model) -> Model {
    if model.waiting == Parking { model.bound(3) } else { model }
}
