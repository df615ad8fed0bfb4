//! Calls that are started, tested and completed later: the right data and the same verdict on every rank, however often a rank
//! tests before it waits, and also where one never goes on.

use intranode::protocol::CauseKind::{Died, Left, TimedOut};
use intranode::protocol::Failure;
use intranode::protocol::allreduce::Shape;
use intranode::protocol::started::{
    ChainedSteps, Link, ReduceScatterSteps, ReductionSteps, Steps, TransferSteps,
};

use super::collectives::{barrier, gather};
use super::faults::{IN_A_ROUND, leave};
use crate::harness::cells::FULL;
use crate::harness::data::{Blocks, Fold, folded, numbers};
use crate::harness::machine::Fate;
use crate::harness::model::Model;
use crate::harness::mutant::Simulated;
use crate::harness::rank::{Operation, Rank, Step};
use crate::harness::verdict::{agreement, only};
use crate::harness::waiting::Waiting::{self, Blocking, Dozing, Parking, Spinning};

/// Starts a call of `count` numbers, tests it this often, and then waits for it.
fn complete(
    rank: &mut Rank<'_>,
    count: usize,
    tests: usize,
    steps: &mut impl Steps<Simulated>,
) -> Result<(), Failure> {
    rank.call(Operation::Started.call(count, 0), |member, call| {
        let mut started = member.start(call, steps)?;
        for _ in 0..tests {
            if member.test(&mut started, steps)? {
                return Ok(());
            }
        }
        member.finish(&mut started, steps)
    })
}

/// Every rank sends `N` numbers, and must get those of all.
fn started<const N: usize, const TESTS: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let sent = numbers(rank.nth(), &vec![N; rank.size()]);
    let mut steps = TransferSteps::new(Blocks::of(rank.number, &sent));
    complete(rank, N, TESTS, &mut steps)?;
    assert!(steps.blocks.all == sent, "wrong data: rank {} got {:?}", rank.number, steps.blocks.all);
    Ok(())
}

/// Every rank sends `N` numbers, and must get their fold, of which each folds a slice.
fn reduced<const N: usize, const TESTS: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let sent = numbers(rank.nth(), &vec![N; rank.size()]);
    let mut steps = ReductionSteps::new(Fold::of(&sent[rank.number]), Shape::All, 0);
    complete(rank, N, TESTS, &mut steps)?;
    let result = &steps.data.result;
    assert!(*result == folded(&sent), "wrong data: rank {} got {result:?}", rank.number);
    Ok(())
}

/// Every rank sends `N` numbers, of which rank 1 gets the fold.
fn reduced_to_1<const N: usize, const TESTS: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let sent = numbers(rank.nth(), &vec![N; rank.size()]);
    let mut steps = ReductionSteps::new(Fold::of(&sent[rank.number]), Shape::Root(1), 0);
    complete(rank, N, TESTS, &mut steps)?;
    let result = &steps.data.result;
    assert!(rank.number != 1 || *result == folded(&sent), "wrong data: rank 1 got {result:?}");
    Ok(())
}

/// Every rank sends `N` numbers for each rank, and must get the fold of its own.
fn reduced_blocks<const N: usize, const TESTS: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let size = rank.size();
    let sent = numbers(rank.nth(), &vec![N * size; size]);
    let blocks: Box<[_]> = (0..size).map(|rank| rank * N..(rank + 1) * N).collect();
    let own = blocks[rank.number].clone();
    let mut steps = ReduceScatterSteps::new(Fold::of(&sent[rank.number]), blocks);
    complete(rank, N, TESTS, &mut steps)?;
    let result = &steps.data.result[own.clone()];
    assert!(*result == folded(&sent)[own], "wrong data: rank {} got {result:?}", rank.number);
    Ok(())
}

/// How many numbers each rank sends, in the header of the first round; then these, through staging.
fn chained<const N: usize, const TESTS: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    struct Numbers {
        rank: usize,
        sent: Vec<Vec<u64>>,
    }
    impl Link<Blocks> for Numbers {
        type Next = Blocks;

        fn link(&mut self, counts: Blocks) -> Option<Blocks> {
            let expected: Vec<_> = self.sent.iter().map(|numbers| vec![numbers.len() as u64]).collect();
            assert!(counts.all == expected, "wrong data: rank {} got {:?}", self.rank, counts.all);
            Some(Blocks::of(self.rank, &self.sent))
        }
    }
    let sent = numbers(rank.nth(), &vec![N; rank.size()]);
    let counts: Vec<_> = sent.iter().map(|numbers| vec![numbers.len() as u64]).collect();
    let link = Numbers { rank: rank.number, sent: sent.clone() };
    let mut steps = ChainedSteps::new(Blocks::of(rank.number, &counts), link);
    complete(rank, N, TESTS, &mut steps)?;
    let all = steps.second.map(|second| second.blocks.all);
    assert!(all.as_ref() == Some(&sent), "wrong data: rank {} got {all:?}", rank.number);
    Ok(())
}

/// A round without data.
fn met<const TESTS: usize>(rank: &mut Rank<'_>) -> Result<(), Failure> {
    complete(rank, 0, TESTS, &mut ())
}

/// The rank starts a call, and forgets it.
fn forgotten(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let sent = numbers(0, &vec![1; rank.size()]);
    let mut steps = TransferSteps::new(Blocks::of(rank.number, &sent));
    rank.member.start(&Operation::Started.call(1, 0), &mut steps).map(drop)
}

/// The rank gives up who has not arrived when it tests.
fn impatient(rank: &mut Rank<'_>) -> Result<(), Failure> {
    let sent = numbers(rank.nth(), &vec![1; rank.size()]);
    let mut steps = TransferSteps::new(Blocks::of(rank.number, &sent));
    rank.call(Operation::Started.call(1, 0), |member, call| {
        let mut started = member.start(call, &mut steps)?;
        member.expire(&mut started)?;
        member.finish(&mut started, &mut steps)
    })?;
    assert!(steps.blocks.all == sent, "wrong data: rank {} got {:?}", rank.number, steps.blocks.all);
    Ok(())
}

const TWO_CHUNKS: usize = FULL + 1;

fn two_ranks(waiting: Waiting) -> [Model; 15] {
    let same = |name: &str, script: &[Step]| Model::same(name, waiting, 2, script);
    let both = |name: &str, one: &[Step], other: &[Step]| Model::new(name, waiting, &[one, other]);
    [
        same("started_barrier_tested_once", &[met::<1>, met::<1>]),
        same("started_inline_tested_twice", &[started::<1, 2>]),
        both(
            "started_inline_tested_and_waited_for",
            &[started::<1, 1>, started::<1, 1>],
            &[started::<1, 0>, started::<1, 0>],
        )
        .bound(3),
        both("started_two_chunks", &[started::<TWO_CHUNKS, 1>], &[started::<TWO_CHUNKS, 0>]).bound(3),
        both("started_slices", &[reduced::<FULL, 1>], &[reduced::<FULL, 0>]).bound(3),
        both("started_slices_of_two_chunks", &[reduced::<TWO_CHUNKS, 1>], &[reduced::<TWO_CHUNKS, 1>]).bound(2),
        both("started_reduce_inline", &[reduced_to_1::<1, 1>], &[reduced_to_1::<1, 0>]),
        both(
            "started_reduce_of_two_chunks",
            &[reduced_to_1::<TWO_CHUNKS, 1>],
            &[reduced_to_1::<TWO_CHUNKS, 0>],
        )
        .bound(3),
        both("started_reduce_scatter", &[reduced_blocks::<FULL, 1>], &[reduced_blocks::<FULL, 0>]).bound(3),
        both("started_chain_of_short_transfers", &[chained::<1, 1>], &[chained::<1, 0>]).bound(3),
        both("started_chain_of_two_chunks", &[chained::<TWO_CHUNKS, 1>], &[chained::<TWO_CHUNKS, 0>]).bound(2),
        same("started_then_blocking", &[started::<1, 1>, gather::<1>, started::<1, 0>]).bound(2),
        same("staged_started_then_blocking", &[started::<FULL, 1>, gather::<FULL>, started::<FULL, 0>])
            .bound(2),
        both("started_against_blocking", &[started::<1, 1>, barrier], &[barrier, barrier]),
        both("started_and_given_up", &[impatient], &[started::<1, 1>]).check(agreement(0, only(TimedOut, 1))),
    ]
}

/// Rank 1 dies at a fail point of a call of two rounds.
fn death(fail_point: &'static str, occurrence: usize) -> Model {
    Model::same(format!("started_death_at_{fail_point}_{occurrence}"), Parking, 2, &[started::<TWO_CHUNKS, 1>])
        .fate(1, Fate::dies_at(fail_point, occurrence))
        .check(agreement(0, only(Died, 1)))
}

/// On which machines each runs, and how far it is searched.
pub(crate) fn models() -> Vec<Model> {
    let mut models = Vec::new();
    for waiting in [Spinning, Dozing, Blocking, Parking] {
        models.extend(two_ranks(waiting));
        models.push(
            Model::new("started_and_forgotten", waiting, &[&[forgotten, leave], &[started::<1, 1>]])
                .check(agreement(0, only(Left, 0)))
                .bound(3),
        );
    }
    for fail_point in IN_A_ROUND {
        models.extend([1, 2].map(|occurrence| death(fail_point, occurrence).bound(2)));
    }
    models.push(Model::same("started_inline_tested_once", Blocking, 3, &[started::<1, 1>]).bound(2));
    // Each of three ranks goes on in a way of its own.
    let three = |name: &str, scripts: [&[Step]; 3]| Model::new(name, Blocking, &scripts);
    models.extend([
        three(
            "started_and_completed_in_three_ways",
            [&[started::<1, 0>, gather::<1>], &[started::<1, 1>, gather::<1>], &[started::<1, 2>, gather::<1>]],
        )
        .bound(1),
        three(
            "started_two_chunks_by_three",
            [&[started::<TWO_CHUNKS, 0>], &[started::<TWO_CHUNKS, 1>], &[started::<TWO_CHUNKS, 2>]],
        )
        .bound(1),
        three("started_slices_by_three", [&[reduced::<FULL, 0>], &[reduced::<FULL, 1>], &[reduced::<FULL, 2>]])
            .bound(1),
        three(
            "started_against_two_blocking",
            [&[started::<1, 1>, barrier], &[barrier, barrier], &[barrier, barrier]],
        )
        .bound(2),
        three(
            "started_and_forgotten_by_one_of_three",
            [&[forgotten, leave], &[started::<1, 1>], &[started::<1, 0>]],
        )
        .check(agreement(0, only(Left, 0)))
        .bound(2),
    ]);
    models
}
