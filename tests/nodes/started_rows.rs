//! Rows of calls that are started, and tested or waited for later: the same bits as those of a communicator of the same ranks, and as
//! those of the calls that wait; the same order.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fastrand::Rng;
use intranode::bytemuck::Pod;
use intranode::{Communicator, Hierarchical, Leaders, NodeMap, Pending, ReduceOp, Reducible};

use crate::compared;
use crate::model::{Value, ensure_same, values};
use crate::rows::{FEWER, LOCATED, LOGICAL, OfEveryType, RANKS, bools_and_pairs, over, over_maps};
use crate::scenario::{Outcome, Scenario, row, seed};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(nodes_start_calls_of_every_length).ranks(RANKS),
        row!(nodes_start_reductions_of_every_type).ranks(FEWER),
        row!(nodes_start_reductions_of_bool_and_pairs).ranks(FEWER),
        row!(nodes_start_calls_through_tiny_staging).ranks(FEWER).staging(64),
        row!(nodes_start_several_calls).ranks(RANKS),
        row!(nodes_only_test_what_they_start).ranks(FEWER),
        row!(nodes_complete_what_was_started_in_the_next_call).ranks(RANKS),
        row!(nodes_drop_and_forget_what_they_start).ranks(RANKS),
        row!(nodes_start_behind_a_pointer).ranks(&[2, 3]),
    ]
}

/// How a rank completes a call: not all in the same way.
fn complete<R>(rank: usize, turn: usize, mut pending: Pending<'_, R>) -> anyhow::Result<R> {
    match (rank + turn) % 3 {
        0 => {}
        1 => {
            pending.test();
        }
        _ => only_test(&mut pending)?,
    }
    Ok(pending.wait()?)
}

/// Tests it until it is complete, with something else between.
pub(crate) fn only_test<R>(pending: &mut Pending<'_, R>) -> Outcome {
    let start = Instant::now();
    let mut random = Rng::with_seed(seed());
    while !pending.test() {
        ensure!(start.elapsed() < Duration::from_secs(100), "no progress");
        let work = (0..random.u64(..2000)).fold(1u64, |sum, x| sum.rotate_left(7) ^ x);
        std::hint::black_box(work);
    }
    ensure!(pending.test(), "it stays complete");
    Ok(())
}

fn same_sum<T: Value>(
    comm: &Communicator,
    nodes: &Hierarchical,
    turn: usize,
    op: ReduceOp,
    len: usize,
) -> Outcome {
    let own = values::<T>(seed() ^ len as u64, comm.rank(), len);
    let started = nodes.start_allreduce(own.clone(), op)?;
    let (mut flat, mut blocking) = (own.clone(), own);
    comm.allreduce_in_place(&mut flat, op)?;
    let started = complete(comm.rank(), turn, started)?;
    nodes.allreduce_in_place(&mut blocking, op)?;
    let what = || format!("{op} of {len} × {}", std::any::type_name::<T>());
    ensure_same(&started, &flat).with_context(what)?;
    ensure_same(&started, &blocking).with_context(what)?;
    compared::same::<T>("start_allreduce", nodes, op, len);
    Ok(())
}

fn same_broadcasts<T: Value>(comm: &Communicator, nodes: &Hierarchical, turn: usize, len: usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    for root in [0, size / 2, size - 1] {
        let pending = nodes.start_broadcast(values::<T>(seed(), rank, len), root)?;
        let buffer = complete(rank, turn + root, pending)?;
        ensure_same(&buffer, &values(seed(), root, len))
            .with_context(|| format!("start_broadcast of {len} from {root}"))?;
        compared::same::<T>("start_broadcast", nodes, "", len);
    }
    Ok(())
}

/// Blocks of random lengths, with gaps, in a random order.
fn same_blocks<T: Pod + Send + Debug>(
    comm: &Communicator,
    nodes: &Hierarchical,
    turn: usize,
    most: usize,
    value: impl Fn(usize, usize) -> T,
) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let mut random = Rng::with_seed(seed() ^ most as u64);
    let counts: Vec<usize> = (0..size).map(|_| random.usize(..=most)).collect();
    let mut order: Vec<usize> = (0..size).collect();
    random.shuffle(&mut order);
    let (mut displs, mut end) = (vec![0; size], 0);
    for rank in order {
        displs[rank] = end + random.usize(..3);
        end = displs[rank] + counts[rank];
    }
    let own: Vec<T> = (0..counts[rank]).map(|index| value(rank, index)).collect();
    let before: Vec<T> = (0..end + 2).map(|index| value(size, index)).collect();
    let pending = nodes.start_allgatherv(&own, before.clone(), &counts, &displs)?;
    let (mut flat, mut blocking) = (before.clone(), before);
    comm.allgatherv(&own, &mut flat, &counts, &displs)?;
    let started = complete(rank, turn, pending)?;
    nodes.allgatherv(&own, &mut blocking, &counts, &displs)?;
    let what = || format!("start_allgatherv of counts {counts:?}, displs {displs:?}");
    ensure_same(&started, &flat).with_context(what)?;
    ensure_same(&started, &blocking).with_context(what)?;
    compared::same::<T>("start_allgatherv", nodes, "", most);
    Ok(())
}

fn each(comm: &Communicator, nodes: &Hierarchical, turn: usize, len: usize) -> Outcome {
    same_sum::<f64>(comm, nodes, turn, ReduceOp::Sum, len)?;
    same_broadcasts::<f64>(comm, nodes, turn + 1, len)?;
    same_blocks(comm, nodes, turn + 2, len, |rank, index| (rank * 1_000_000 + index) as f64)?;
    complete(comm.rank(), turn, nodes.start_barrier()?)
}

fn nodes_start_calls_of_every_length(comm: Communicator) -> Outcome {
    let all = |comm: &_, nodes: &_, lens: &[usize]| {
        let mut lens = lens.iter().enumerate();
        lens.try_for_each(|(turn, len)| {
            each(comm, nodes, turn, *len).with_context(|| format!("{len} elements"))
        })
    };
    over(&comm, |comm, nodes| {
        all(comm, nodes, &[0, 1, 3, 9, 13, 1001])?;
        same_blocks(comm, nodes, 1, 700, |rank, index| [rank as u8, index as u8, (index >> 8) as u8])
    })?;
    over_maps(&comm, |comm, nodes| all(comm, nodes, &[8193, 40_001]))
}

struct SameStarted<'a>(&'a Communicator, &'a Hierarchical);

impl OfEveryType for SameStarted<'_> {
    fn of<T: Value>(&self, lens: &[usize]) -> Outcome {
        T::REDUCTIONS.iter().enumerate().try_for_each(|(turn, op)| {
            lens.iter().try_for_each(|len| same_sum::<T>(self.0, self.1, turn, *op, *len))
        })
    }
}

fn nodes_start_reductions_of_every_type(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| SameStarted(comm, nodes).of_every_type())
}

fn same_located<T: Reducible + PartialEq + Debug>(
    comm: &Communicator,
    nodes: &Hierarchical,
    ops: &[ReduceOp],
    own: &[T],
) -> Outcome {
    for (turn, op) in ops.iter().enumerate() {
        let started = nodes.start_allreduce(own.to_vec(), *op)?;
        let mut flat = own.to_vec();
        comm.allreduce_in_place(&mut flat, *op)?;
        let started = complete(comm.rank(), turn, started)?;
        ensure!(flat == started, "{op} of {}: {started:?} instead of {flat:?}", own.len());
        compared::same::<T>("start_allreduce", nodes, op, own.len());
    }
    Ok(())
}

fn nodes_start_reductions_of_bool_and_pairs(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        for len in [1, 4, 100] {
            let numbers = values::<i32>(seed(), comm.rank(), len);
            let (bools, pairs) = bools_and_pairs(&numbers, comm.rank());
            same_located(comm, nodes, &LOGICAL, &bools)?;
            same_located(comm, nodes, &LOCATED, &pairs)?;
        }
        Ok(())
    })
}

fn nodes_start_calls_through_tiny_staging(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| each(comm, nodes, 1, 333))
}

fn nodes_start_several_calls(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        for len in [1, 100, 9000] {
            let first = nodes.start_allreduce(vec![rank; len], ReduceOp::Sum)?;
            let second = nodes.start_broadcast(vec![rank; len], size - 1)?;
            let mut third = nodes.start_barrier()?;
            let counts = vec![1; size];
            let displs: Vec<usize> = (0..size).rev().collect();
            let fourth = nodes.start_allgatherv(&[rank], vec![0; size], &counts, &displs)?;
            let fifth = nodes.start_allreduce(vec![rank; len], ReduceOp::Max)?;
            // The last first, on some ranks.
            if rank % 2 == 0 {
                ensure!(fifth.wait()? == vec![size - 1; len]);
                ensure!(third.test(), "what was started before is complete");
                third.wait()?;
            } else {
                third.wait()?;
                ensure!(fifth.wait()? == vec![size - 1; len]);
            }
            ensure!(fourth.wait()? == (0..size).rev().collect::<Vec<_>>());
            ensure!(second.wait()? == vec![size - 1; len]);
            ensure!(first.wait()? == vec![size * (size - 1) / 2; len]);
        }
        Ok(())
    })
}

/// Nobody waits: each rank only tests, several calls in turn.
fn nodes_only_test_what_they_start(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        for len in [1, 50, 1000] {
            let mut sum = nodes.start_allreduce(vec![1u64; len], ReduceOp::Sum)?;
            let mut barrier = nodes.start_barrier()?;
            let mut root = nodes.start_broadcast(vec![comm.rank(); len], comm.size() - 1)?;
            only_test(&mut root)?;
            ensure!(barrier.test() && sum.test(), "they were started before");
            ensure!(root.wait()? == vec![comm.size() - 1; len]);
            barrier.wait()?;
            ensure!(sum.wait()? == vec![comm.size() as u64; len]);
        }
        Ok(())
    })
}

/// A call that waits, of all ranks.
pub(crate) fn still_works(nodes: &Hierarchical) -> Outcome {
    let mut sum = [1usize];
    nodes.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
    ensure!(sum == [nodes.size()], "{sum:?}");
    Ok(())
}

fn nodes_complete_what_was_started_in_the_next_call(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        for len in [1, 100, 9000] {
            let mut first = nodes.start_allreduce(vec![1u64; len], ReduceOp::Sum)?;
            let mut second = nodes.start_barrier()?;
            still_works(nodes)?;
            ensure!(first.test() && second.test(), "they are complete");
            second.wait()?;
            ensure!(first.wait()? == vec![comm.size() as u64; len]);
        }
        Ok(())
    })
}

fn nodes_drop_and_forget_what_they_start(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        for turn in 0..comm.size() {
            let pending = nodes.start_allreduce(vec![1u64; 9000], ReduceOp::Sum)?;
            if comm.rank() == turn {
                std::mem::forget(pending);
            } else if comm.rank() == (turn + 1) % comm.size() {
                drop(pending);
            } else {
                ensure!(pending.wait()? == vec![comm.size() as u64; 9000]);
            }
            still_works(nodes)?;
        }
        Ok(())
    })
}

fn nodes_start_behind_a_pointer(comm: Communicator) -> Outcome {
    let size = comm.size();
    let nodes = Hierarchical::simulated(comm, &NodeMap::even(size, 2)?)?;
    // What was started before it is behind one goes on there.
    std::mem::forget(nodes.start_allreduce(vec![1u64; 9000], ReduceOp::Sum)?);
    let nodes: Hierarchical<Box<dyn Leaders>> = nodes.boxed();
    let mut pending = nodes.start_allreduce(vec![1u64; 9000], ReduceOp::Sum)?;
    only_test(&mut pending)?;
    ensure!(pending.wait()? == vec![size as u64; 9000]);
    ensure!(nodes.start_broadcast(vec![nodes.rank()], size - 1)?.wait()? == [size - 1]);
    Ok(nodes.start_barrier()?.wait()?)
}
