//! The kinds of calls that programs start less often: reduce, scan, exscan, reduce_scatter, allgather, gather, scatter and alltoall. What
//! all started calls have in common is in `started`.

use anyhow::{Context, ensure};
use intranode::protocol::Staging;
use intranode::protocol::call::INLINE;
use intranode::{Communicator, Error, Operation, Pending, ReduceOp};

use crate::errors::{wrong_on_one_or_all, wrong_size};
use crate::model::{OPERATIONS, Value, ensure_same, reduced, values};
use crate::scenario::{Outcome, Scenario, ensure_matches, row, seed, staging, still_works};
use crate::started::complete;

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(started_kinds_of_every_length),
        row!(started_kinds_around_the_inline_and_the_chunk_size).ranks(&[2, 4]),
        row!(started_kinds_through_tiny_staging).staging(64),
        row!(started_kinds_of_every_operation).ranks(&[1, 2, 3]),
        row!(started_kinds_of_other_types).ranks(&[1, 3]),
        row!(started_kinds_of_no_bytes).ranks(&[1, 2, 3]),
        row!(started_kinds_at_once),
        row!(started_alltoallv_whose_counts_disagree).ranks(&[1, 2, 3, 4]),
        row!(started_kinds_with_wrong_blocks).ranks(&[2, 3]),
        row!(started_kinds_of_other_roots_or_counts).ranks(&[2, 3]),
        row!(wrong_arguments_of_started_kinds),
    ]
}

/// Blocks of different lengths, of which some are empty, in the order of the ranks' opposite, with gaps: counts, displacements, and the
/// length of what they lie in.
fn places(size: usize, len: usize) -> (Vec<usize>, Vec<usize>, usize) {
    let counts: Vec<usize> = (0..size).map(|rank| (len + rank) * usize::from(rank % 3 != 1)).collect();
    let stride = len + size + 1;
    (counts, (0..size).map(|rank| (size - 1 - rank) * stride).collect(), size * stride)
}

fn reductions<T: Value>(comm: &Communicator, turn: usize, len: usize, op: ReduceOp) -> Outcome {
    let (rank, size, root) = (comm.rank(), comm.size(), turn % comm.size());
    let own: Vec<T> = values(seed(), rank, len);
    let upto = |ranks| reduced::<T>(op, seed(), ranks, len);

    let result = complete(comm, turn, comm.start_reduce(own.clone(), op, root)?)?;
    ensure!(result.is_some() == (rank == root), "the root has a result");
    ensure_same(&result.unwrap_or_default(), &if rank == root { upto(size) } else { Vec::new() })?;

    let result = complete(comm, turn + 1, comm.start_scan(own.clone(), op)?)?;
    ensure_same(&result, &upto(rank + 1))?;
    let result = complete(comm, turn, comm.start_exscan(own.clone(), op)?)?;
    ensure_same(&result, &if rank == 0 { own.clone() } else { upto(rank) })?;

    let (counts, ..) = places(size, len / size);
    let total = counts.iter().sum();
    let data: Vec<T> = values(!seed(), rank, total);
    let start: usize = counts[..rank].iter().sum();
    let result = complete(comm, turn + 1, comm.start_reduce_scatter(data, &counts, op)?)?;
    let all = reduced::<T>(op, !seed(), size, total);
    ensure_same(&result, &all[start..start + counts[rank]])?;

    let block = len / size;
    let data: Vec<T> = values(!seed(), rank, block * size);
    let result = complete(comm, turn, comm.start_reduce_scatter_block(data, op)?)?;
    let all = reduced::<T>(op, !seed(), size, block * size);
    ensure_same(&result, &all[rank * block..(rank + 1) * block])
}

fn transfers<T: Value>(comm: &Communicator, turn: usize, len: usize) -> Outcome {
    let (rank, size, root) = (comm.rank(), comm.size(), turn % comm.size());
    let is_root = rank == root;
    let own: Vec<T> = values(seed(), rank, len);
    let all: Vec<T> = (0..size).flat_map(|rank| values(seed(), rank, len)).collect();
    let room = |rank| values::<T>(!seed(), rank, size * len);

    let result = complete(comm, turn, comm.start_allgather(&own, room(rank))?)?;
    ensure_same(&result, &all)?;
    let result = complete(comm, turn + 1, comm.start_gather(&own, is_root.then(|| room(rank)), root)?)?;
    ensure_same(&result.unwrap_or_default(), if is_root { &all } else { &[] })?;
    let result = complete(
        comm,
        turn,
        comm.start_scatter(is_root.then(|| all.clone()), room(rank)[..len].to_vec(), root)?,
    )?;
    ensure_same(&result, &own)?;

    // Block `to` of `rank` is what `rank + size * to` would contribute.
    let blocks = |rank: usize, to: usize| values::<T>(seed(), rank + size * to, len);
    let send = (0..size).flat_map(|to| blocks(rank, to)).collect();
    let result = complete(comm, turn + 1, comm.start_alltoall(send, room(rank))?)?;
    ensure_same(&result, &(0..size).flat_map(|from| blocks(from, rank)).collect::<Vec<_>>())?;

    let (counts, displs, total) = places(size, len);
    let before: Vec<T> = values(!seed(), rank, total);
    let mut expected = before.clone();
    for from in 0..size {
        let block = values(seed(), from, counts[from]);
        expected[displs[from]..displs[from] + counts[from]].copy_from_slice(&block);
    }
    let send: Vec<T> = values(seed(), rank, counts[rank]);
    let recv = is_root.then(|| before.clone());
    // Only the root's displacements matter.
    let own_displs = if is_root { &displs[..] } else { &[] };
    let result = complete(comm, turn, comm.start_gatherv(&send, recv, &counts, own_displs, root)?)?;
    ensure_same(&result.unwrap_or_default(), if is_root { &expected } else { &[] })?;

    let recv = vec![before[0]; counts[rank]];
    let pending = comm.start_scatterv(is_root.then_some(expected), &counts, own_displs, recv, root)?;
    ensure_same(&complete(comm, turn + 1, pending)?, &send)
}

/// Block `to` of `rank` has `lengths(rank, to)` elements; displacements have gaps, and the order of the ranks' opposite.
fn exchange<T: Value>(comm: &Communicator, turn: usize, len: usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let length = |from: usize, to: usize| (len + from + 2 * to) * usize::from((from + to) % 3 != 1);
    let block = |from: usize, to: usize| values::<T>(seed(), from + size * to, length(from, to));
    let stride = len + 3 * size;
    let displs: Vec<usize> = (0..size).map(|rank| (size - 1 - rank) * stride).collect();
    let [sent, expected] =
        [|rank, other| (rank, other), |rank, other| (other, rank)].map(|pair: fn(_, _) -> _| {
            (0..size).map(|other| pair(rank, other)).map(|(from, to)| length(from, to)).collect::<Vec<_>>()
        });
    let before: Vec<T> = values(!seed(), rank, size * stride);
    let (mut send, mut result) = (before.clone(), before.clone());
    for other in 0..size {
        send[displs[other]..displs[other] + sent[other]].copy_from_slice(&block(rank, other));
        result[displs[other]..displs[other] + expected[other]].copy_from_slice(&block(other, rank));
    }
    let pending = comm.start_alltoallv(send, &sent, &displs, before, &expected, &displs)?;
    ensure_same(&complete(comm, turn, pending)?, &result)
}

fn every(comm: &Communicator, lengths: impl IntoIterator<Item = usize>) -> Outcome {
    for (turn, len) in lengths.into_iter().enumerate() {
        let context = || format!("{len} elements");
        reductions::<f64>(comm, turn, len, ReduceOp::Sum).with_context(context)?;
        transfers::<f64>(comm, turn, len).with_context(context)?;
        exchange::<f64>(comm, turn, len).with_context(context)?;
    }
    Ok(())
}

fn started_kinds_of_every_length(comm: Communicator) -> Outcome {
    every(&comm, [0, 1, 2, 12, 13, 100, 2048, 5000, 70_000])?;
    // A root of every rank.
    every(&comm, vec![3; comm.size()])
}

fn started_kinds_around_the_inline_and_the_chunk_size(comm: Communicator) -> Outcome {
    let Staging { chunk, folded, .. } = staging(&comm);
    let around = [INLINE, 16 << 10, chunk, folded, 3 * folded];
    every(&comm, around.into_iter().flat_map(|bytes| bytes / 8 - 1..=bytes / 8 + 1))
}

fn started_kinds_through_tiny_staging(comm: Communicator) -> Outcome {
    every(&comm, [1, 8, 13, 65, 333])
}

fn started_kinds_of_every_operation(comm: Communicator) -> Outcome {
    for (turn, op) in OPERATIONS.into_iter().enumerate() {
        for len in [5, 3000] {
            reductions::<i32>(&comm, turn, len, op).with_context(|| format!("{op} of {len}"))?;
        }
    }
    Ok(())
}

fn started_kinds_of_other_types(comm: Communicator) -> Outcome {
    for len in [1, 97, 20_001] {
        reductions::<u8>(&comm, len, len, ReduceOp::Prod)?;
        transfers::<u8>(&comm, len, len)?;
        transfers::<u32>(&comm, len, len)?;
        exchange::<u8>(&comm, len, len)?;
        // What is sent for these is not what they are.
        let (rank, size) = (comm.rank(), comm.size());
        let pairs = (0..len).map(|index| ((index + rank) as f64, rank)).collect();
        let least = comm.start_scan(pairs, ReduceOp::MinLoc)?.wait()?;
        ensure!(least == (0..len).map(|index| (index as f64, 0)).collect::<Vec<_>>());
        let flags = (0..len * size).map(|index| index % size == rank).collect();
        let any: Vec<bool> = comm.start_reduce_scatter_block(flags, ReduceOp::LogicalOr)?.wait()?;
        ensure!(any == vec![true; len]);
    }
    Ok(())
}

fn started_kinds_of_no_bytes(comm: Communicator) -> Outcome {
    let (size, counts) = (comm.size(), vec![3; comm.size()]);
    let displs: Vec<usize> = (0..size).map(|rank| 3 * rank).collect();
    let is_root = comm.rank() == 0;
    let units = |len: usize| vec![(); len];
    ensure!(comm.start_allgather(&units(3), units(3 * size))?.wait()?.len() == 3 * size);
    // As many as there can be.
    let most = units(usize::MAX.div_ceil(size));
    ensure!(comm.start_allgather(&most, units(usize::MAX))?.wait()?.len() == usize::MAX);
    let gathered = comm.start_gather(&units(3), is_root.then(|| units(3 * size)), 0)?.wait()?;
    ensure!(gathered.map(|all| all.len()) == is_root.then_some(3 * size));
    let recv = is_root.then(|| units(3 * size));
    ensure!(comm.start_gatherv(&units(3), recv, &counts, &displs, 0)?.wait()?.is_some() == is_root);
    let send = is_root.then(|| units(3 * size));
    ensure!(comm.start_scatter(send, units(3), 0)?.wait()?.len() == 3);
    ensure!(comm.start_alltoall(units(3 * size), units(3 * size))?.wait()?.len() == 3 * size);
    let (send, recv) = (units(3 * size), units(3 * size));
    ensure!(comm.start_alltoallv(send, &counts, &displs, recv, &counts, &displs)?.wait()?.len() == 3 * size);
    Ok(())
}

/// Several are under way, and the last is waited for first.
fn started_kinds_at_once(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    for len in [1, 100, 20_000] {
        let scan = comm.start_scan(vec![rank; len], ReduceOp::Sum)?;
        let gather = comm.start_gather(&vec![rank; len], (rank == 0).then(|| vec![size; len * size]), 0)?;
        let blocks = comm.start_reduce_scatter_block(vec![rank; len * size], ReduceOp::Max)?;
        let alltoall = comm.start_alltoall(vec![rank; len * size], vec![size; len * size])?;
        let reduce = comm.start_reduce(vec![rank; len], ReduceOp::Min, size - 1)?;
        let all: Vec<usize> = (0..len * size).map(|index| index / len).collect();
        ensure!(reduce.wait()? == (rank == size - 1).then(|| vec![0; len]));
        ensure!(alltoall.wait()? == all);
        ensure!(blocks.wait()? == vec![size - 1; len]);
        ensure!(gather.wait()? == (rank == 0).then_some(all));
        ensure!(scan.wait()? == vec![rank * (rank + 1) / 2; len]);
    }
    Ok(())
}

fn started_alltoallv_whose_counts_disagree(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let displs: Vec<usize> = (0..size).map(|rank| 3 * rank).collect();
    for wrong in 0..size {
        let sent = vec![2; size];
        let mut expected = vec![2; size];
        expected[0] += usize::from(rank == wrong);
        let mut pending =
            comm.start_alltoallv(vec![1; 3 * size], &sent, &displs, vec![9; 3 * size], &expected, &displs)?;
        if rank % 2 == 0 {
            while !pending.test() {}
        }
        let error = pending.wait().err().context("no error")?;
        let Error::CountsDisagree { operation: Operation::StartAlltoallv, pair } = &error else {
            anyhow::bail!("{error:?}")
        };
        ensure!((pair.from, pair.to, pair.sent, pair.expected) == (0, wrong, 2, 3), "{error}");
        ensure!(!error.is_fatal(), "{error}");
        still_works(&comm)?;
    }
    Ok(())
}

fn result_of<R>(pending: Result<Pending<'_, R>, Error>) -> Result<R, Error> {
    pending.and_then(Pending::wait)
}

fn started_kinds_with_wrong_blocks(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let is_root = rank == 0;
    let (counts, apart) = (vec![2; size], (0..size).map(|rank| 2 * rank).collect::<Vec<_>>());
    let call = |wrong| {
        let send = vec![1.0; 2 + usize::from(wrong)];
        (result_of(comm.start_allgatherv(&send, vec![0.0; 2 * size], &counts, &apart)).map(drop), Vec::new())
    };
    wrong_on_one_or_all(&comm, Operation::StartAllgatherv, call, wrong_size(Operation::StartAllgatherv, 2, 3))?;
    let call = |wrong| {
        let counts = vec![2; size + usize::from(wrong)];
        let data = vec![1.0; 2 * counts.len()];
        (result_of(comm.start_reduce_scatter(data, &counts, ReduceOp::Sum)).map(drop), Vec::new())
    };
    let own = wrong_size(Operation::StartReduceScatter, size, size + 1);
    wrong_on_one_or_all(&comm, Operation::StartReduceScatter, call, own)?;

    // Each block begins with the last element of the one before.
    let overlapping: Vec<usize> = (0..size).collect();
    let whole: Vec<f64> = (0..=size).map(|number| number as f64).collect();
    let recv = is_root.then(|| whole.clone());
    let error =
        result_of(comm.start_gatherv(&[1.0; 2], recv, &counts, &overlapping, 0)).err().context("no error")?;
    let expected = match is_root {
        true => matches!(error, Error::OverlappingBlocks { first: 0, second: 1, .. }),
        false => matches!(error, Error::Refused { rank: 0, .. }),
    };
    ensure!(expected, "{error:?}");
    let send = is_root.then(|| whole.clone());
    let own = result_of(comm.start_scatterv(send, &counts, &overlapping, vec![0.0; 2], 0))?;
    ensure!(own == whole[rank..rank + 2], "{own:?}");
    Ok(())
}

/// The last rank names another root than the others, and other counts with the same total.
fn started_kinds_of_other_roots_or_counts(comm: Communicator) -> Outcome {
    let size = comm.size();
    let is_odd = comm.rank() == size - 1;
    let error = result_of(comm.start_reduce(vec![1.0], ReduceOp::Sum, usize::from(is_odd))).map(drop);
    ensure!(matches!(error, Err(Error::Mismatch { .. })), "{error:?}");
    let mut counts = vec![2; size];
    if is_odd {
        (counts[0], counts[1]) = (1, 3);
    }
    let error = result_of(comm.start_reduce_scatter(vec![1.0; 2 * size], &counts, ReduceOp::Sum)).map(drop);
    ensure!(matches!(error, Err(Error::Mismatch { .. })), "{error:?}");
    still_works(&comm)
}

fn wrong_arguments_of_started_kinds(comm: Communicator) -> Outcome {
    let (size, is_root) = (comm.size(), comm.rank() == 0);
    let none = |result: Result<(), Error>| (result, Vec::new());
    let is_length = |error: &Error| matches!(error, Error::InvalidBufferSize { .. });
    let is_root_error = |error: &Error| matches!(error, Error::InvalidRoot { .. });
    let is_reduction = |error: &Error| matches!(error, Error::InvalidReduction { .. });
    let (op, root) = (
        |wrong| if wrong { ReduceOp::BitOr } else { ReduceOp::Sum },
        |wrong: bool| if wrong { usize::MAX } else { 0 },
    );
    fn waited<R>(pending: Result<Pending<'_, R>, Error>) -> Result<(), Error> {
        pending.and_then(Pending::wait).map(drop)
    }

    let call = |wrong| none(waited(comm.start_reduce(vec![1.0], ReduceOp::Sum, root(wrong))));
    wrong_on_one_or_all(&comm, Operation::StartReduce, call, is_root_error)?;
    let call = |wrong| none(waited(comm.start_scan(vec![1.0], op(wrong))));
    wrong_on_one_or_all(&comm, Operation::StartScan, call, is_reduction)?;
    let call = |wrong| none(waited(comm.start_exscan(vec![1.0], op(wrong))));
    wrong_on_one_or_all(&comm, Operation::StartExscan, call, is_reduction)?;
    let counts = vec![2; size];
    let longer = |wrong| vec![1.0; 2 * size + usize::from(wrong)];
    let call = |wrong| none(waited(comm.start_reduce_scatter(longer(wrong), &counts, ReduceOp::Sum)));
    wrong_on_one_or_all(&comm, Operation::StartReduceScatter, call, is_length)?;
    let call = |wrong| none(waited(comm.start_reduce_scatter_block(vec![1.0; size], op(wrong))));
    wrong_on_one_or_all(&comm, Operation::StartReduceScatterBlock, call, is_reduction)?;

    let call = |wrong| none(waited(comm.start_allgather(&[1.0, 2.0], longer(wrong))));
    wrong_on_one_or_all(&comm, Operation::StartAllgather, call, is_length)?;
    let call =
        |wrong| none(waited(comm.start_gather(&[1.0, 2.0], is_root.then(|| longer(false)), root(wrong))));
    wrong_on_one_or_all(&comm, Operation::StartGather, call, is_root_error)?;
    let displs: Vec<usize> = (0..size).map(|rank| 2 * rank).collect();
    let call = |wrong| {
        let send = vec![1.0; 2 + usize::from(wrong)];
        none(waited(comm.start_gatherv(&send, is_root.then(|| longer(false)), &counts, &displs, 0)))
    };
    wrong_on_one_or_all(&comm, Operation::StartGatherv, call, is_length)?;
    let call = |wrong: bool| {
        let send = (is_root != wrong).then(|| longer(false));
        none(waited(comm.start_scatter(send, vec![0.0; 2], 0)))
    };
    let is_of_root = |error: &Error| matches!(error, Error::RootBuffer { .. });
    wrong_on_one_or_all(&comm, Operation::StartScatter, call, is_of_root)?;
    let call = |wrong| {
        let recv = vec![0.0; 2 + usize::from(wrong)];
        none(waited(comm.start_scatterv(is_root.then(|| longer(false)), &counts, &displs, recv, 0)))
    };
    wrong_on_one_or_all(&comm, Operation::StartScatterv, call, is_length)?;
    let call = |wrong| none(waited(comm.start_alltoall(longer(false), longer(wrong))));
    wrong_on_one_or_all(&comm, Operation::StartAlltoall, call, is_length)?;

    let call = |wrong| {
        let recv = vec![0.0; 2 * size - usize::from(wrong)];
        none(waited(comm.start_alltoallv(longer(false), &counts, &displs, recv, &counts, &displs)))
    };
    wrong_on_one_or_all(&comm, Operation::StartAlltoallv, call, is_length)?;

    if size > 1 {
        let uneven = comm.start_reduce_scatter_block(vec![1.0; size + 1], ReduceOp::Sum);
        ensure_matches!(uneven.map(drop), Err(Error::InvalidBufferSize { .. }));
    }
    still_works(&comm)
}
