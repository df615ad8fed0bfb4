//! reduce, scan, exscan, reduce_scatter and reduce_scatter_block.

use anyhow::Context;
use intranode::protocol::Staging;
use intranode::protocol::call::INLINE;
use intranode::{Communicator, ReduceOp};

use crate::model::{OPERATIONS, Value, ensure_same, reduced, values};
use crate::scenario::{Outcome, Scenario, row, seed, staging};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(reduce_at_every_root),
        row!(reduce_every_operation),
        row!(reduce_1_million_elements).ranks(&[1, 2, 4, 8]),
        row!(reduce_around_the_inline_and_the_chunk_size),
        row!(reduce_through_tiny_staging).staging(64),
        row!(scan_and_exscan_of_every_length),
        row!(scan_and_exscan_every_operation),
        row!(scan_1_million_elements).ranks(&[1, 2, 4, 8]),
        row!(scan_around_the_inline_and_the_chunk_size),
        row!(scan_through_tiny_staging).staging(64),
        row!(reduce_scatter_of_every_length),
        row!(reduce_scatter_of_uneven_blocks),
        row!(reduce_scatter_every_operation),
        row!(reduce_scatter_1_million_elements).ranks(&[1, 2, 4, 8]),
        row!(reduce_scatter_around_the_inline_and_the_chunk_size),
        row!(reduce_scatter_through_tiny_staging).staging(64),
        row!(reductions_mixed_many_times),
    ]
}

/// Lengths from nothing to several chunks with slices.
const LENGTHS: [usize; 8] = [0, 1, 12, 13, 100, 2048, 5000, 70_000];

fn reduce<T: Value>(comm: &Communicator, len: usize, op: ReduceOp, root: usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let own: Vec<T> = values(seed(), rank, len);
    let before: Vec<T> = values(!seed(), rank, len);
    let mut recv = before.clone();
    comm.reduce(&own, (rank == root).then_some(&mut recv[..]), op, root)?;
    let result = reduced(op, seed(), size, len);
    let context = || format!("{op} of {len} at root {root}");
    ensure_same(&recv, if rank == root { &result } else { &before }).with_context(context)?;
    let mut data = own.clone();
    comm.reduce_in_place(&mut data, op, root)?;
    ensure_same(&data, if rank == root { &result } else { &own }).with_context(context)
}

fn reduce_at_every_root(comm: Communicator) -> Outcome {
    for root in 0..comm.size() {
        for len in LENGTHS {
            reduce::<f64>(&comm, len, ReduceOp::Sum, root)?;
        }
    }
    Ok(())
}

fn reduce_every_operation(comm: Communicator) -> Outcome {
    for op in OPERATIONS {
        for len in [1, 97, 20_001] {
            reduce::<u8>(&comm, len, op, comm.size() - 1)?;
            reduce::<i64>(&comm, len, op, 0)?;
        }
    }
    Ok(())
}

fn reduce_1_million_elements(comm: Communicator) -> Outcome {
    reduce::<f64>(&comm, 1_000_000, ReduceOp::Sum, 0)
}

/// Lengths around those at which the way changes.
fn around(comm: &Communicator) -> impl Iterator<Item = usize> + use<> {
    let Staging { short, folded, .. } = staging(comm);
    [INLINE, short, 16 << 10, folded, 3 * folded].into_iter().flat_map(|size| size / 8 - 1..=size / 8 + 1)
}

fn reduce_around_the_inline_and_the_chunk_size(comm: Communicator) -> Outcome {
    around(&comm).try_for_each(|len| reduce::<f64>(&comm, len, ReduceOp::Sum, 0))
}

fn reduce_through_tiny_staging(comm: Communicator) -> Outcome {
    for root in 0..comm.size() {
        for len in [1, 8, 65, 333] {
            reduce::<f64>(&comm, len, ReduceOp::Sum, root)?;
            reduce::<u16>(&comm, len, ReduceOp::Prod, root)?;
        }
    }
    Ok(())
}

fn scan<T: Value>(comm: &Communicator, len: usize, op: ReduceOp) -> Outcome {
    let (rank, context) = (comm.rank(), || format!("{op} of {len}"));
    let own: Vec<T> = values(seed(), rank, len);
    let before: Vec<T> = values(!seed(), rank, len);
    let inclusive = reduced(op, seed(), rank + 1, len);
    let mut recv = before.clone();
    comm.scan(&own, &mut recv, op)?;
    ensure_same(&recv, &inclusive).with_context(context)?;
    let mut data = own.clone();
    comm.scan_in_place(&mut data, op)?;
    ensure_same(&data, &inclusive).with_context(context)?;

    // Rank 0 has none before it: nothing is written there.
    let exclusive = |unchanged: &[T]| match rank {
        0 => unchanged.to_vec(),
        _ => reduced(op, seed(), rank, len),
    };
    let mut recv = before.clone();
    comm.exscan(&own, &mut recv, op)?;
    ensure_same(&recv, &exclusive(&before)).with_context(context)?;
    let mut data = own.clone();
    comm.exscan_in_place(&mut data, op)?;
    ensure_same(&data, &exclusive(&own)).with_context(context)
}

fn scan_and_exscan_of_every_length(comm: Communicator) -> Outcome {
    LENGTHS.into_iter().try_for_each(|len| scan::<f64>(&comm, len, ReduceOp::Sum))
}

fn scan_and_exscan_every_operation(comm: Communicator) -> Outcome {
    for op in OPERATIONS {
        for len in [1, 97, 20_001] {
            scan::<u8>(&comm, len, op)?;
            scan::<i64>(&comm, len, op)?;
        }
    }
    Ok(())
}

fn scan_1_million_elements(comm: Communicator) -> Outcome {
    scan::<f64>(&comm, 1_000_000, ReduceOp::Sum)
}

fn scan_around_the_inline_and_the_chunk_size(comm: Communicator) -> Outcome {
    around(&comm).try_for_each(|len| scan::<f64>(&comm, len, ReduceOp::Sum))
}

fn scan_through_tiny_staging(comm: Communicator) -> Outcome {
    for len in [1, 8, 65, 333] {
        scan::<f64>(&comm, len, ReduceOp::Sum)?;
        scan::<u16>(&comm, len, ReduceOp::Prod)?;
    }
    Ok(())
}

fn reduce_scatter<T: Value>(comm: &Communicator, counts: &[usize], op: ReduceOp) -> Outcome {
    let (rank, total) = (comm.rank(), counts.iter().sum());
    let start: usize = counts[..rank].iter().sum();
    let own: Vec<T> = values(seed(), rank, total);
    let mut recv: Vec<T> = values(!seed(), rank, counts[rank]);
    comm.reduce_scatter(&own, &mut recv, counts, op)?;
    let all = reduced(op, seed(), comm.size(), total);
    let expected = &all[start..start + counts[rank]];
    ensure_same(&recv, expected).with_context(|| format!("{op} of {counts:?}"))?;
    if counts.iter().all(|count| *count == counts[0]) {
        recv = values(!seed(), rank, counts[rank]);
        comm.reduce_scatter_block(&own, &mut recv, op)?;
        ensure_same(&recv, expected).with_context(|| format!("{op} of blocks of {}", counts[0]))?;
    }
    Ok(())
}

fn reduce_scatter_of_every_length(comm: Communicator) -> Outcome {
    LENGTHS.into_iter().try_for_each(|len| reduce_scatter::<f64>(&comm, &vec![len; comm.size()], ReduceOp::Sum))
}

fn reduce_scatter_of_uneven_blocks(comm: Communicator) -> Outcome {
    for len in [1, 12, 1000, 60_000] {
        for only in 0..comm.size() {
            let counts: Vec<usize> = (0..comm.size()).map(|rank| if rank == only { len } else { 0 }).collect();
            reduce_scatter::<f64>(&comm, &counts, ReduceOp::Sum)?;
            let counts: Vec<usize> = (0..comm.size()).map(|rank| (rank + only) % 3 * len / 2).collect();
            reduce_scatter::<f64>(&comm, &counts, ReduceOp::Sum)?;
        }
    }
    Ok(())
}

fn reduce_scatter_every_operation(comm: Communicator) -> Outcome {
    for op in OPERATIONS {
        for len in [1, 97, 3001] {
            reduce_scatter::<u8>(&comm, &vec![len; comm.size()], op)?;
            reduce_scatter::<i64>(&comm, &vec![len; comm.size()], op)?;
        }
    }
    Ok(())
}

fn reduce_scatter_1_million_elements(comm: Communicator) -> Outcome {
    reduce_scatter::<f64>(&comm, &vec![1_000_000 / comm.size(); comm.size()], ReduceOp::Sum)
}

fn reduce_scatter_around_the_inline_and_the_chunk_size(comm: Communicator) -> Outcome {
    let blocks = |len: usize| (0..comm.size()).map(|rank| (len + rank) / comm.size()).collect::<Vec<_>>();
    around(&comm).try_for_each(|len| reduce_scatter::<f64>(&comm, &blocks(len), ReduceOp::Sum))
}

/// A window has an element of some blocks only, where there are many ranks.
fn reduce_scatter_through_tiny_staging(comm: Communicator) -> Outcome {
    for len in [1, 2, 3, 8, 65, 100] {
        reduce_scatter::<f64>(&comm, &vec![len; comm.size()], ReduceOp::Sum)?;
        let counts: Vec<usize> = (0..comm.size()).map(|rank| (rank % 3) * len).collect();
        reduce_scatter::<u16>(&comm, &counts, ReduceOp::Prod)?;
    }
    Ok(())
}

/// Calls right after one another, so that buffers are used again at once.
fn reductions_mixed_many_times(comm: Communicator) -> Outcome {
    for turn in 0..100 {
        let len = [1, 40, 13, 3000][turn % 4];
        reduce::<f64>(&comm, len, ReduceOp::Sum, turn % comm.size())?;
        scan::<f64>(&comm, len, ReduceOp::Sum)?;
        reduce_scatter::<f64>(&comm, &vec![len; comm.size()], ReduceOp::Sum)?;
    }
    Ok(())
}
