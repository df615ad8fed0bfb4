//! Ranks that make different calls: all get the same error, soon, and can use the communicator further.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use intranode::{CallSummary, Communicator, Error, Operation, ReduceOp};

use crate::scenario::{Outcome, Scenario, row, still_works};

const RANKS: &[usize] = &[2, 3, 4, 8];

/// Where there are many calls, or long ones.
const FEWER: &[usize] = &[2, 4, 8];

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(mismatch_of_every_pair_of_collectives_at_1_b).ranks(RANKS),
        row!(mismatch_of_every_pair_of_collectives_at_8_kb).ranks(FEWER),
        row!(mismatch_of_every_pair_of_collectives_at_8_mb).ranks(FEWER),
        row!(mismatch_of_every_pair_of_collectives_through_tiny_staging).ranks(FEWER).staging(64),
        row!(mismatch_of_element_types).ranks(RANKS),
        row!(mismatch_of_lengths).ranks(RANKS),
        row!(mismatch_of_reductions).ranks(RANKS),
        row!(mismatch_of_roots).ranks(RANKS),
        row!(mismatch_of_counts).ranks(RANKS),
        row!(mismatch_of_a_refused_and_another_call).ranks(RANKS),
    ]
}

const SIZES: [usize; 3] = [1, 8 << 10, 8 << 20];

const ALL: [Operation; 32] = [
    Operation::Barrier,
    Operation::Allreduce,
    Operation::Allgatherv,
    Operation::Allgather,
    Operation::Broadcast,
    Operation::Reduce,
    Operation::Gather,
    Operation::Gatherv,
    Operation::Scatter,
    Operation::Scatterv,
    Operation::Alltoall,
    Operation::Alltoallv,
    Operation::Scan,
    Operation::Exscan,
    Operation::ReduceScatter,
    Operation::ReduceScatterBlock,
    Operation::StartBarrier,
    Operation::StartAllreduce,
    Operation::StartBroadcast,
    Operation::StartAllgatherv,
    Operation::StartReduce,
    Operation::StartScan,
    Operation::StartExscan,
    Operation::StartReduceScatter,
    Operation::StartReduceScatterBlock,
    Operation::StartAllgather,
    Operation::StartGather,
    Operation::StartGatherv,
    Operation::StartScatter,
    Operation::StartScatterv,
    Operation::StartAlltoall,
    Operation::StartAlltoallv,
];

/// Calls an operation on `bytes` bytes.
fn call(comm: &Communicator, operation: Operation, bytes: usize) -> Result<(), Error> {
    call_at(comm, operation, bytes, 0)
}

/// The same at any root.
fn call_at(comm: &Communicator, operation: Operation, bytes: usize, root: usize) -> Result<(), Error> {
    let (size, send) = (comm.size(), vec![1u8; bytes]);
    let mut recv = vec![0; bytes * size];
    let (counts, is_root) = (vec![bytes; size], comm.rank() == root);
    let displs: Vec<usize> = (0..size).map(|rank| rank * bytes).collect();
    let all = vec![0u8; bytes * size];
    match operation {
        Operation::Barrier => comm.barrier(),
        Operation::Allreduce => comm.allreduce(&send, &mut recv[..bytes], ReduceOp::Sum),
        Operation::Allgatherv => comm.allgatherv(&send, &mut recv, &counts, &displs),
        Operation::Allgather => comm.allgather(&send, &mut recv),
        Operation::Broadcast => comm.broadcast(&mut recv[..bytes], root),
        Operation::Reduce => comm.reduce(&send, is_root.then_some(&mut recv[..bytes]), ReduceOp::Sum, root),
        Operation::Gather => comm.gather(&send, is_root.then_some(&mut recv), root),
        Operation::Gatherv => comm.gatherv(&send, is_root.then_some(&mut recv), &counts, &displs, root),
        Operation::Scatter => comm.scatter(is_root.then_some(&all), &mut recv[..bytes], root),
        Operation::Scatterv => {
            comm.scatterv(is_root.then_some(&all), &counts, &displs, &mut recv[..bytes], root)
        }
        Operation::Alltoall => comm.alltoall(&all, &mut recv),
        Operation::Alltoallv => comm.alltoallv(&all, &counts, &displs, &mut recv, &counts, &displs),
        Operation::Scan => comm.scan(&send, &mut recv[..bytes], ReduceOp::Sum),
        Operation::Exscan => comm.exscan(&send, &mut recv[..bytes], ReduceOp::Sum),
        Operation::ReduceScatter => comm.reduce_scatter(&all, &mut recv[..bytes], &counts, ReduceOp::Sum),
        Operation::ReduceScatterBlock => comm.reduce_scatter_block(&all, &mut recv[..bytes], ReduceOp::Sum),
        Operation::StartBarrier => comm.start_barrier()?.wait(),
        Operation::StartAllreduce => comm.start_allreduce(send, ReduceOp::Sum)?.wait().map(drop),
        Operation::StartBroadcast => comm.start_broadcast(send, root)?.wait().map(drop),
        Operation::StartAllgatherv => comm.start_allgatherv(&send, recv, &counts, &displs)?.wait().map(drop),
        Operation::StartReduce => comm.start_reduce(send, ReduceOp::Sum, root)?.wait().map(drop),
        Operation::StartScan => comm.start_scan(send, ReduceOp::Sum)?.wait().map(drop),
        Operation::StartExscan => comm.start_exscan(send, ReduceOp::Sum)?.wait().map(drop),
        Operation::StartReduceScatter => {
            comm.start_reduce_scatter(all, &counts, ReduceOp::Sum)?.wait().map(drop)
        }
        Operation::StartReduceScatterBlock => {
            comm.start_reduce_scatter_block(all, ReduceOp::Sum)?.wait().map(drop)
        }
        Operation::StartAllgather => comm.start_allgather(&send, recv)?.wait().map(drop),
        Operation::StartGather => comm.start_gather(&send, is_root.then_some(recv), root)?.wait().map(drop),
        Operation::StartGatherv => {
            comm.start_gatherv(&send, is_root.then_some(recv), &counts, &displs, root)?.wait().map(drop)
        }
        Operation::StartScatter => comm.start_scatter(is_root.then_some(all), send, root)?.wait().map(drop),
        Operation::StartScatterv => {
            comm.start_scatterv(is_root.then_some(all), &counts, &displs, send, root)?.wait().map(drop)
        }
        Operation::StartAlltoall => comm.start_alltoall(all, recv)?.wait().map(drop),
        Operation::StartAlltoallv => {
            comm.start_alltoallv(all, &counts, &displs, recv, &counts, &displs)?.wait().map(drop)
        }
        other => unreachable!("{other} is not called here"),
    }
}

/// Each rank has made its own call; `check` gets the error's summary of rank `rank`'s call.
fn ensure_mismatch(
    comm: &Communicator,
    took: Duration,
    result: Result<(), Error>,
    check: impl Fn(usize, &CallSummary) -> Outcome,
) -> Outcome {
    let error = result.err().context("no error")?;
    ensure!(took < Duration::from_secs(1), "it took {took:?}");
    ensure!(!error.is_fatal());
    let text = error.to_string();
    let Error::Mismatch { operation, calls, .. } = error else {
        anyhow::bail!("expected a mismatch, got {error:?}")
    };
    ensure!(calls.len() == comm.size(), "{text}");
    ensure!(calls[comm.rank()].operation == Some(operation), "{text}");
    for (rank, called) in calls.iter().enumerate() {
        ensure!(called.rank == rank, "{text}");
        check(rank, called).with_context(|| text.clone())?;
        // The message names the call of each rank.
        ensure!(
            text.contains(&called.to_string()) && called.to_string().contains(&format!("rank {rank}")),
            "{text}"
        );
    }

    // The error is the same on every rank, except for its own operation. The communicator is used to compare.
    still_works(comm)?;
    let (_, common) = text.split_once(": ").context("the operation comes first")?;
    let mut own = common.as_bytes().to_vec();
    own.resize(4096, 0);
    let mut all = vec![0; own.len() * comm.size()];
    comm.allgather(&own, &mut all)?;
    for (rank, other) in all.chunks(own.len()).enumerate() {
        ensure!(other == own, "rank {rank} got {}", String::from_utf8_lossy(other));
    }
    Ok(())
}

/// Every ordered pair of calls: rank `odd` makes one, the others make the other.
fn every_pair(comm: &Communicator, bytes: usize) -> Outcome {
    pairs(comm, bytes, ALL.len())
}

/// For each call only those after it in the list, of which there are few: large buffers take a while to make.
fn some_pairs(comm: &Communicator, bytes: usize) -> Outcome {
    pairs(comm, bytes, 4)
}

fn pairs(comm: &Communicator, bytes: usize, others: usize) -> Outcome {
    for (index, one) in ALL.into_iter().enumerate() {
        for other in (1..others.min(ALL.len())).map(|distance| ALL[(index + distance) % ALL.len()]) {
            // Each rank is the odd one in turn.
            let odd = index % comm.size();
            let mine = |rank| if rank == odd { one } else { other };
            let start = Instant::now();
            let result = call(comm, mine(comm.rank()), bytes);
            let check = |rank, called: &CallSummary| {
                ensure!(called.operation == Some(mine(rank)), "rank {rank} called {}", mine(rank));
                Ok(())
            };
            ensure_mismatch(comm, start.elapsed(), result, check)
                .with_context(|| format!("rank {odd} {one}, the others {other}"))?;
        }
    }
    Ok(())
}

fn mismatch_of_every_pair_of_collectives_at_1_b(comm: Communicator) -> Outcome {
    every_pair(&comm, 1)
}

fn mismatch_of_every_pair_of_collectives_at_8_kb(comm: Communicator) -> Outcome {
    every_pair(&comm, 8 << 10)
}

fn mismatch_of_every_pair_of_collectives_at_8_mb(comm: Communicator) -> Outcome {
    some_pairs(&comm, 8 << 20)
}

fn mismatch_of_every_pair_of_collectives_through_tiny_staging(comm: Communicator) -> Outcome {
    every_pair(&comm, 1000)
}

/// Two variants of a call, on the last rank and on the others.
fn variants(
    comm: &Communicator,
    call: impl Fn(bool) -> Result<(), Error>,
    check: impl Fn(bool, &CallSummary) -> bool,
) -> Outcome {
    let odd = |rank| rank == comm.size() - 1;
    let start = Instant::now();
    let result = call(odd(comm.rank()));
    ensure_mismatch(comm, start.elapsed(), result, |rank, called| {
        ensure!(check(odd(rank), called), "{called:?}");
        Ok(())
    })
}

fn mismatch_of_element_types(comm: Communicator) -> Outcome {
    for bytes in SIZES {
        let len = bytes.div_ceil(8);
        let reduce = |odd| match odd {
            true => comm.allreduce_in_place(&mut vec![1u64; len], ReduceOp::Sum),
            false => comm.allreduce_in_place(&mut vec![1f64; len], ReduceOp::Sum),
        };
        variants(&comm, reduce, |odd, called| called.element == if odd { "u64" } else { "f64" })?;
        // Types of the same size that differ in their alignment only.
        let send = |odd| match odd {
            true => comm.broadcast(&mut vec![[0u8; 8]; len], 0),
            false => comm.broadcast(&mut vec![[0u32; 2]; len], 0),
        };
        let words = |odd| if odd { "8 bytes aligned to 1" } else { "8 bytes aligned to 4" };
        variants(&comm, send, |odd, called| called.element == words(odd))?;
    }
    Ok(())
}

fn mismatch_of_lengths(comm: Communicator) -> Outcome {
    for bytes in SIZES {
        let len = |odd: bool| bytes + usize::from(odd);
        let whole_or_block = [
            Operation::Allreduce,
            Operation::Allgather,
            Operation::Broadcast,
            Operation::Reduce,
            Operation::Gather,
            Operation::Scatter,
            Operation::Scan,
            Operation::Exscan,
            Operation::ReduceScatterBlock,
        ];
        for operation in whole_or_block {
            let call = |odd| call(&comm, operation, len(odd));
            variants(&comm, call, |odd, called| called.length == len(odd) as u64)
                .with_context(|| operation.as_str())?;
        }
        for operation in [
            Operation::Allgatherv,
            Operation::Gatherv,
            Operation::Scatterv,
            Operation::Alltoall,
            Operation::ReduceScatter,
        ] {
            variants(&comm, |odd| call(&comm, operation, len(odd)), |_, called| called.length > 0)
                .with_context(|| operation.as_str())?;
        }
    }
    Ok(())
}

fn mismatch_of_reductions(comm: Communicator) -> Outcome {
    for bytes in SIZES {
        let op = |odd| if odd { ReduceOp::Max } else { ReduceOp::Sum };
        let call = |odd| comm.allreduce_in_place(&mut vec![1u8; bytes], op(odd));
        variants(&comm, call, |odd, called| called.reduction == Some(op(odd)))?;
    }
    Ok(())
}

fn mismatch_of_roots(comm: Communicator) -> Outcome {
    for bytes in SIZES {
        let rooted = [
            Operation::Broadcast,
            Operation::Reduce,
            Operation::Gather,
            Operation::Gatherv,
            Operation::Scatter,
            Operation::Scatterv,
        ];
        for operation in rooted {
            let call = |odd| call_at(&comm, operation, bytes, usize::from(odd));
            variants(&comm, call, |odd, called| called.root == Some(usize::from(odd)))
                .with_context(|| operation.as_str())?;
        }
    }
    Ok(())
}

fn mismatch_of_counts(comm: Communicator) -> Outcome {
    // The total and this rank's count are equal: only the other ranks' counts differ.
    let size = comm.size();
    for bytes in SIZES {
        let call = |odd: bool| {
            let mut counts = vec![bytes; size];
            let (from, to) = if odd { (0, size - 1) } else { (0, 0) };
            counts[from] -= 1;
            counts[to] += 1;
            let displs: Vec<usize> = (0..size).map(|rank| counts[..rank].iter().sum()).collect();
            comm.allgatherv(&vec![1u8; counts[comm.rank()]], &mut vec![0; bytes * size], &counts, &displs)
        };
        variants(&comm, call, |_, called| called.length == (bytes * size) as u64)?;
        let last = size - 1;
        for operation in [Operation::Gatherv, Operation::Scatterv, Operation::ReduceScatter] {
            let call = |odd: bool| call_with_counts(&comm, operation, bytes, odd);
            variants(&comm, call, |odd, called| called.counts == Some(if odd { last } else { 0 }))
                .with_context(|| operation.as_str())?;
        }
    }
    Ok(())
}

/// A call in which rank 0 has an element more, or, if `odd`, one less, which the last rank has then.
fn call_with_counts(comm: &Communicator, operation: Operation, bytes: usize, odd: bool) -> Result<(), Error> {
    let (size, rank) = (comm.size(), comm.rank());
    let mut counts = vec![bytes; size];
    let (from, to) = if odd { (0, size - 1) } else { (0, 0) };
    counts[from] -= 1;
    counts[to] += 1;
    let displs: Vec<usize> = (0..size).map(|rank| counts[..rank].iter().sum()).collect();
    let (mut all, mut own) = (vec![0u8; bytes * size], vec![0u8; counts[rank]]);
    match operation {
        Operation::Gatherv => comm.gatherv(&own, (rank == 0).then_some(&mut all), &counts, &displs, 0),
        Operation::Scatterv => comm.scatterv((rank == 0).then_some(&all), &counts, &displs, &mut own, 0),
        _ => comm.reduce_scatter(&all, &mut own, &counts, ReduceOp::Sum),
    }
}

fn mismatch_of_a_refused_and_another_call(comm: Communicator) -> Outcome {
    // The error names a rank that refuses, for any calls of the others.
    let last = comm.size() - 1;
    let error = if comm.rank() == last {
        comm.broadcast(&mut [0u8], usize::MAX)
    } else if comm.rank() == 0 {
        comm.barrier()
    } else {
        call(&comm, Operation::Allgather, 1000)
    };
    let error = error.expect_err("the ranks made different calls");
    match error {
        Error::InvalidRoot { .. } => ensure!(comm.rank() == last),
        Error::Refused { rank, .. } => ensure!(rank == last),
        other => anyhow::bail!("{other:?}"),
    }
    still_works(&comm)
}
