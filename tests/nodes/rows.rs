//! Ranks on several nodes, which are simulated: every result has the bits that a communicator of the same ranks gives.

use std::fmt::Debug;

use anyhow::{Context, ensure};
use fastrand::Rng;
use intranode::bytemuck::Pod;
use intranode::{CallSummary, Communicator, Error, Hierarchical, NodeMap, Operation, ReduceOp, Reducible};

use crate::compared;
use crate::model::{Value, ensure_same, values};
use crate::scenario::{Outcome, Scenario, ensure_matches, row, seed};

pub(crate) const RANKS: &[usize] = &[1, 2, 3, 4, 5, 8];
pub(crate) const FEWER: &[usize] = &[2, 4, 8];

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(nodes_number_ranks_one_after_the_other).ranks(RANKS),
        row!(nodes_allreduce_every_type_and_operation).ranks(RANKS),
        row!(nodes_allreduce_around_every_threshold).ranks(FEWER),
        row!(nodes_allreduce_of_bool_and_pairs).ranks(FEWER),
        row!(nodes_gather_and_broadcast_every_length).ranks(RANKS),
        row!(nodes_allgatherv_with_gaps_in_any_order).ranks(RANKS),
        row!(nodes_move_elements_larger_than_a_stack).ranks(&[2]),
        row!(nodes_through_tiny_staging).ranks(FEWER).staging(64),
        row!(nodes_that_call_different_things).ranks(FEWER),
        row!(nodes_with_wrong_arguments).ranks(RANKS),
        row!(nodes_whose_maps_do_not_fit).ranks(FEWER),
        row!(nodes_that_a_rank_leaves).ranks(FEWER),
    ]
}

/// From how many bytes on reductions go from node to node, and in chunks of how many: always, never, as usual.
const FORMS: [Option<(usize, usize)>; 3] = [Some((0, 40)), Some((usize::MAX, 64)), None];

/// Maps of one to four nodes, even and random.
fn maps(ranks: usize) -> Vec<NodeMap> {
    let mut random = Rng::with_seed(seed() ^ ranks as u64);
    let even = (1..=ranks.min(4)).filter_map(|nodes| NodeMap::even(ranks, nodes).ok());
    let mut maps: Vec<NodeMap> = even.collect();
    if ranks > 2 {
        let nodes = random.usize(1..=ranks.min(4));
        let mut counts = vec![1; nodes];
        (nodes..ranks).for_each(|_| counts[random.usize(..nodes)] += 1);
        maps.extend(NodeMap::new(&counts));
    }
    maps
}

/// Runs a check on each map and in each form, with the communicator of the same ranks beside it.
pub(crate) fn over(comm: &Communicator, check: impl Fn(&Communicator, &Hierarchical) -> Outcome) -> Outcome {
    for map in maps(comm.size()) {
        let mut nodes = Hierarchical::simulated(comm.split_local()?, &map)?;
        for form in FORMS {
            if let Some((from, chunk)) = form {
                nodes = nodes.chain(from, chunk);
            } else {
                nodes = Hierarchical::simulated(comm.split_local()?, &map)?;
            }
            check(comm, &nodes).with_context(|| format!("{:?}, form {form:?}", map.counts()))?;
        }
    }
    Ok(())
}

/// Runs a check on each map in the usual form: in tiny chunks long data is slow.
pub(crate) fn over_maps(
    comm: &Communicator,
    check: impl Fn(&Communicator, &Hierarchical) -> Outcome,
) -> Outcome {
    for map in maps(comm.size()) {
        let nodes = Hierarchical::simulated(comm.split_local()?, &map)?;
        check(comm, &nodes).with_context(|| format!("{:?}", map.counts()))?;
    }
    Ok(())
}

fn nodes_number_ranks_one_after_the_other(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        ensure!((nodes.rank(), nodes.size()) == (comm.rank(), comm.size()));
        ensure!(nodes.map().ranks_of(nodes.node()).contains(&nodes.rank()));
        ensure!(nodes.map().leader_of(nodes.node()) + nodes.local().rank() == nodes.rank());
        nodes.barrier()?;
        Ok(nodes.barrier()?)
    })
}

/// One reduction, flat and over nodes.
fn same_sum<T: Value>(comm: &Communicator, nodes: &Hierarchical, op: ReduceOp, len: usize) -> Outcome {
    let own = values::<T>(seed() ^ len as u64, comm.rank(), len);
    let (mut flat, mut recv, mut in_place) = (own.clone(), values(0, 77, len), own.clone());
    comm.allreduce_in_place(&mut flat, op)?;
    nodes.allreduce(&own, &mut recv, op)?;
    nodes.allreduce_in_place(&mut in_place, op)?;
    let what = || format!("{op} of {len} × {}", std::any::type_name::<T>());
    ensure_same(&recv, &flat).with_context(what)?;
    ensure_same(&in_place, &flat).with_context(what)?;
    compared::same::<T>("allreduce", nodes, op, len);
    compared::same::<T>("allreduce_in_place", nodes, op, len);
    Ok(())
}

/// What is compared of each type that can be reduced.
pub(crate) trait OfEveryType {
    fn of<T: Value>(&self, lens: &[usize]) -> Outcome;

    fn of_every_type(&self) -> Outcome {
        self.of::<u8>(&[1, 100])?;
        self.of::<u16>(&[7])?;
        self.of::<u32>(&[33])?;
        self.of::<u64>(&[3])?;
        self.of::<usize>(&[12])?;
        self.of::<i8>(&[65])?;
        self.of::<i16>(&[1])?;
        self.of::<i32>(&[20])?;
        self.of::<i64>(&[2, 40])?;
        self.of::<isize>(&[5])?;
        self.of::<f32>(&[1, 50])?;
        self.of::<f64>(&[0, 1, 4, 30])
    }
}

struct SameSums<'a>(&'a Communicator, &'a Hierarchical);

impl OfEveryType for SameSums<'_> {
    fn of<T: Value>(&self, lens: &[usize]) -> Outcome {
        T::REDUCTIONS
            .iter()
            .try_for_each(|op| lens.iter().try_for_each(|len| same_sum::<T>(self.0, self.1, *op, *len)))
    }
}

fn nodes_allreduce_every_type_and_operation(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| SameSums(comm, nodes).of_every_type())
}

fn nodes_allreduce_around_every_threshold(comm: Communicator) -> Outcome {
    let both = [ReduceOp::Sum, ReduceOp::Prod];
    // What comes along has 96 bytes a node, and 72 a rank; a chunk 40 or 256 Ki, the chain begins at 64 Ki of all ranks.
    over(&comm, |comm, nodes| {
        let lens: &[usize] = if nodes.map().nodes() > 1 { &[1023, 1024, 1025] } else { &[] };
        let lens = [&[4, 5, 8, 9, 10, 11, 12, 13], lens].concat();
        both.iter().try_for_each(|op| lens.iter().try_for_each(|len| same_sum::<f64>(comm, nodes, *op, *len)))
    })?;
    over_maps(&comm, |comm, nodes| {
        [8192, 8193, 40_000].into_iter().try_for_each(|len| same_sum::<f64>(comm, nodes, ReduceOp::Sum, len))
    })
}

fn same_located<T: Reducible + PartialEq + Debug>(
    comm: &Communicator,
    nodes: &Hierarchical,
    ops: &[ReduceOp],
    own: &[T],
) -> Outcome {
    for op in ops {
        let (mut flat, mut over) = (own.to_vec(), own.to_vec());
        comm.allreduce_in_place(&mut flat, *op)?;
        nodes.allreduce_in_place(&mut over, *op)?;
        ensure!(flat == over, "{op} of {}: {over:?} instead of {flat:?}", own.len());
        compared::same::<T>("allreduce_in_place", nodes, op, own.len());
    }
    Ok(())
}

pub(crate) const LOGICAL: [ReduceOp; 3] = [ReduceOp::LogicalAnd, ReduceOp::LogicalOr, ReduceOp::LogicalXor];
pub(crate) const LOCATED: [ReduceOp; 2] = [ReduceOp::MinLoc, ReduceOp::MaxLoc];

/// What these operations combine, from numbers: pairs are of few different values.
pub(crate) fn bools_and_pairs(numbers: &[i32], rank: usize) -> (Vec<bool>, Vec<(f64, usize)>) {
    numbers.iter().map(|number| (number % 3 == 0, (f64::from(number % 3), rank))).unzip()
}

fn nodes_allreduce_of_bool_and_pairs(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        for len in [1, 4, 100] {
            let numbers = values::<i32>(seed(), comm.rank(), len);
            let (bools, pairs) = bools_and_pairs(&numbers, comm.rank());
            same_located(comm, nodes, &LOGICAL, &bools)?;
            same_located(comm, nodes, &LOCATED, &pairs)?;
            let small: Vec<(i8, usize)> = numbers.iter().map(|number| (*number as i8, comm.rank())).collect();
            same_located(comm, nodes, &LOCATED, &small)?;
        }
        Ok(())
    })
}

fn same_moves<T: Value>(comm: &Communicator, nodes: &Hierarchical, len: usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let own = values::<T>(seed(), rank, len);
    let mut all: Vec<T> = values(0, 99, len * size);
    nodes.allgather(&own, &mut all)?;
    let expected: Vec<T> = (0..size).flat_map(|rank| values(seed(), rank, len)).collect();
    ensure_same(&all, &expected).with_context(|| format!("allgather of {len}"))?;
    compared::same::<T>("allgather", nodes, "", len);
    for root in 0..size {
        let mut buffer = values::<T>(seed(), rank, len);
        nodes.broadcast(&mut buffer, root)?;
        ensure_same(&buffer, &values(seed(), root, len))
            .with_context(|| format!("broadcast of {len} from {root}"))?;
        compared::same::<T>("broadcast", nodes, "", len);
    }
    Ok(())
}

fn nodes_gather_and_broadcast_every_length(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        [0, 1, 3, 12, 13, 24, 25, 72, 73, 96, 97, 5000]
            .iter()
            .try_for_each(|len| same_moves::<u8>(comm, nodes, *len))?;
        [1, 9, 10, 1000].iter().try_for_each(|len| same_moves::<f64>(comm, nodes, *len))
    })
}

/// Blocks of random lengths, with gaps, in a random order.
fn same_blocks<T: Pod + Debug>(
    comm: &Communicator,
    nodes: &Hierarchical,
    most: usize,
    value: impl Fn(usize, usize) -> T,
) -> Outcome {
    let size = comm.size();
    let mut random = Rng::with_seed(seed() ^ most as u64);
    for packed in [true, false] {
        let counts: Vec<usize> = (0..size).map(|_| random.usize(..=most)).collect();
        let mut order: Vec<usize> = (0..size).collect();
        if !packed {
            random.shuffle(&mut order);
        }
        let (mut displs, mut end) = (vec![0; size], 0);
        for rank in order {
            displs[rank] = end + if packed { 0 } else { random.usize(..3) };
            end = displs[rank] + counts[rank];
        }
        let own: Vec<T> = (0..counts[comm.rank()]).map(|index| value(comm.rank(), index)).collect();
        let before: Vec<T> = (0..end + 2).map(|index| value(size, index)).collect();
        let (mut flat, mut over) = (before.clone(), before);
        comm.allgatherv(&own, &mut flat, &counts, &displs)?;
        nodes.allgatherv(&own, &mut over, &counts, &displs)?;
        ensure_same(&over, &flat).with_context(|| format!("counts {counts:?}, displs {displs:?}"))?;
        compared::same::<T>("allgatherv", nodes, "", most);
    }
    Ok(())
}

fn nodes_allgatherv_with_gaps_in_any_order(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        for most in [0, 1, 7, 2000] {
            same_blocks(comm, nodes, most, |rank, index| (rank * 1_000_000 + index) as f64)?;
            same_blocks(comm, nodes, most, |rank, index| [rank as u8, index as u8, (index >> 8) as u8])?;
        }
        Ok(())
    })
}

fn nodes_move_elements_larger_than_a_stack(comm: Communicator) -> Outcome {
    // 8 MiB.
    type Element = [[[u8; 4096]; 1024]; 2];
    let own = bytemuck::allocation::zeroed_vec::<Element>(2);
    over(&comm, |comm, nodes| {
        // The last rank's first.
        let (counts, displs, is_root) = ([1, 1], [1, 0], comm.rank() == 0);
        let mut recv = bytemuck::allocation::zeroed_vec::<Element>(2);
        recv[1][1][1023][4095] = 1;
        nodes.allgatherv(&own[..1], &mut recv, &counts, &displs)?;
        recv[1][1][1023][4095] += 1;
        nodes.gatherv(&own[..1], is_root.then_some(&mut recv[..]), &counts, &displs, 0)?;
        if is_root {
            recv[1][1][1023][4095] += 1;
        }
        nodes.alltoallv(&own, &counts, &displs, &mut recv, &counts, &displs)?;
        ensure!(recv[1][1][1023][4095] == 0);
        Ok(())
    })
}

fn nodes_through_tiny_staging(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        same_sum::<f64>(comm, nodes, ReduceOp::Sum, 333)?;
        same_moves::<u8>(comm, nodes, 500)?;
        same_blocks(comm, nodes, 100, |rank, index| [rank, index])
    })
}

/// What a rank calls.
type Called = fn(&Hierarchical, usize) -> Result<(), Error>;

const CALLS: [Called; 6] = [
    |nodes, _| nodes.barrier(),
    |nodes, len| nodes.allreduce_in_place(&mut vec![1.0; len], ReduceOp::Sum),
    |nodes, len| nodes.allreduce_in_place(&mut vec![1.0; len], ReduceOp::Max),
    |nodes, len| nodes.allreduce_in_place(&mut vec![1u32; len], ReduceOp::Sum),
    |nodes, len| nodes.broadcast(&mut vec![1.0; len], 0),
    |nodes, len| nodes.allgather(&vec![1.0; len], &mut vec![0.0; len * nodes.size()]),
];

/// The same on a communicator of the same ranks.
type CalledFlat = fn(&Communicator, usize) -> Result<(), Error>;

const FLAT: [CalledFlat; 6] = [
    |comm, _| comm.barrier(),
    |comm, len| comm.allreduce_in_place(&mut vec![1.0; len], ReduceOp::Sum),
    |comm, len| comm.allreduce_in_place(&mut vec![1.0; len], ReduceOp::Max),
    |comm, len| comm.allreduce_in_place(&mut vec![1u32; len], ReduceOp::Sum),
    |comm, len| comm.broadcast(&mut vec![1.0; len], 0),
    |comm, len| comm.allgather(&vec![1.0; len], &mut vec![0.0; len * comm.size()]),
];

/// The calls in the errors of both are the same.
pub(crate) fn same_mismatch(flat: Result<(), Error>, over: Result<(), Error>) -> Outcome {
    let calls = |result: Result<(), Error>| -> anyhow::Result<(Operation, Box<[CallSummary]>)> {
        match result {
            Err(Error::Mismatch { operation, calls, .. }) => Ok((operation, calls)),
            other => anyhow::bail!("{other:?}"),
        }
    };
    let (flat, over) = (calls(flat)?, calls(over)?);
    ensure!(flat == over, "{over:?} instead of {flat:?}");
    Ok(())
}

/// One rank makes another call than the others, of pairs of calls by their numbers, of which one is `more`; or the same with another
/// length.
pub(crate) fn same_mismatches(
    is_odd: bool,
    more: (usize, usize),
    same: impl Fn(usize, usize) -> Outcome,
) -> Outcome {
    for (one, other) in [(0, 1), (1, 2), (1, 3), (4, 1), more] {
        let call = if is_odd { other } else { one };
        [1, 2000].into_iter().try_for_each(|len| same(call, len))?;
    }
    same(1, 5 + usize::from(is_odd))
}

fn nodes_that_call_different_things(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        // The first rank, the last, and one in the middle.
        for odd in [0, comm.size() - 1, comm.size() / 2] {
            let is_odd = comm.rank() == odd;
            same_mismatches(is_odd, (5, 0), |call, len| {
                same_mismatch(FLAT[call](comm, len), CALLS[call](nodes, len))
            })?;
            // Another root.
            let root = usize::from(is_odd);
            same_mismatch(comm.broadcast(&mut [0; 3], root), nodes.broadcast(&mut [0; 3], root))?;
            // Other counts with the same sum.
            let mut counts = vec![1; comm.size()];
            counts[comm.rank()] = if is_odd { 2 } else { 1 };
            let others = (comm.rank() + 1) % comm.size();
            counts[others] = if is_odd { 0 } else { 1 };
            let displs: Vec<usize> = (0..comm.size()).map(|rank| 2 * rank).collect();
            let own = vec![0u16; counts[comm.rank()]];
            let mut recv = vec![0u16; 2 * comm.size()];
            let flat = comm.allgatherv(&own, &mut recv, &counts, &displs);
            same_mismatch(flat, nodes.allgatherv(&own, &mut recv, &counts, &displs))?;
        }
        Ok(nodes.barrier()?)
    })
}

fn nodes_with_wrong_arguments(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        for wrong in [0, size - 1] {
            let is_wrong = rank == wrong;
            let results = [
                nodes.allreduce(&[1.0; 3], &mut vec![0.0; 3 + usize::from(is_wrong)], ReduceOp::Sum),
                nodes.broadcast(&mut [0u8; 2], if is_wrong { size } else { 0 }),
                nodes.allgather(&[1u8], &mut vec![0; size + usize::from(is_wrong)]),
                nodes.allgatherv(
                    &[1u8],
                    &mut vec![0; size],
                    &vec![1; size],
                    &vec![0; size + usize::from(is_wrong)],
                ),
            ];
            // All have 0 as a place, so only one rank's table is right.
            for (index, result) in results.into_iter().enumerate() {
                match (is_wrong, index) {
                    (true, 1) => ensure_matches!(result, Err(Error::InvalidRoot { root, .. }) if *root == size),
                    (true, _) => ensure_matches!(result, Err(Error::InvalidBufferSize { .. })),
                    (false, 3) if size > 2 || nodes.size() > 1 => {
                        ensure_matches!(result, Err(Error::OverlappingBlocks { .. } | Error::Refused { .. }));
                    }
                    (false, _) => ensure_matches!(result, Err(Error::Refused { rank, .. }) if *rank == wrong),
                }
            }
        }
        let refused = nodes.allreduce_in_place(&mut [1.0], ReduceOp::BitAnd);
        ensure_matches!(refused, Err(Error::InvalidReduction { .. }));
        Ok(nodes.barrier()?)
    })
}

fn nodes_whose_maps_do_not_fit(comm: Communicator) -> Outcome {
    let size = comm.size();
    let other = NodeMap::new(&[size, 1])?;
    ensure_matches!(Hierarchical::simulated(comm.split_local()?, &other), Err(Error::InvalidConfiguration(_)));
    let on_one_only = NodeMap::even(size, if comm.rank() == 0 { 1 } else { 2 })?;
    let refused = Hierarchical::simulated(comm.split_local()?, &on_one_only);
    ensure_matches!(refused, Err(Error::InvalidConfiguration(_)));
    Ok(comm.barrier()?)
}

fn nodes_that_a_rank_leaves(comm: Communicator) -> Outcome {
    for map in maps(comm.size()) {
        for leaving in [0, comm.size() - 1] {
            let nodes = Hierarchical::simulated(comm.split_local()?, &map)?;
            nodes.barrier()?;
            if comm.rank() == leaving {
                nodes.leave()?;
            } else {
                let error = nodes.barrier();
                ensure_matches!(error, Err(Error::RankLeft { rank, .. }) if *rank == leaving);
                // So is every further call.
                let again = nodes.allreduce_in_place(&mut [1], ReduceOp::Sum);
                ensure_matches!(again, Err(Error::RankLeft { rank, .. }) if *rank == leaving);
            }
            comm.barrier()?;
        }
    }
    Ok(())
}
