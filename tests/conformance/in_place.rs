//! The in-place forms of the collectives that bring blocks: the same results as the forms with two buffers, also where only
//! some ranks call in place.

use anyhow::{Context, ensure};
use intranode::protocol::Staging;
use intranode::protocol::call::INLINE;
use intranode::{Communicator, Error, Operation, ReduceOp};

use crate::errors::{BEFORE, wrong_on_one_or_all, wrong_size};
use crate::model::{ensure_same, reduced, values};
use crate::scenario::{Outcome, Scenario, row, seed, staging, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(in_place_of_every_length),
        row!(in_place_around_the_inline_and_the_chunk_size).ranks(&[2, 4]),
        row!(in_place_through_tiny_staging).staging(64),
        row!(in_place_of_blocks_that_are_not_read_through_the_cache).ranks(&[2, 4]),
        row!(in_place_of_symmetric_objects).ranks(&[1, 2, 4]),
        row!(in_place_with_wrong_arguments),
        row!(in_place_with_wrong_blocks_on_the_root).ranks(&[2, 3, 4]),
        row!(in_place_with_blocks_that_overlap).ranks(&[2, 3, 4]),
    ]
}

/// What rank `from` sends to rank `to`, or to all.
fn block(from: usize, to: usize, len: usize) -> Vec<f64> {
    values(seed() ^ (to as u64) << 40, from, len)
}

fn all_blocks(comm: &Communicator, of: impl Fn(usize) -> Vec<f64>) -> Vec<f64> {
    (0..comm.size()).flat_map(of).collect()
}

/// Zeros but for one rank's block.
fn only(whole: &[f64], rank: usize, len: usize) -> Vec<f64> {
    let mut data = vec![0.0; whole.len()];
    data[rank * len..(rank + 1) * len].copy_from_slice(&whole[rank * len..(rank + 1) * len]);
    data
}

/// Calls that bring blocks of `len` elements, on all ranks in place, or on some.
fn equal(comm: &Communicator, len: usize, root: usize, mixed: bool) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let in_place = !mixed || rank % 2 == 0;
    let whole = all_blocks(comm, |from| block(from, 0, len));
    let own = &whole[rank * len..(rank + 1) * len];

    let mut data = only(&whole, rank, len);
    match in_place {
        true => comm.allgather_in_place(&mut data)?,
        false => comm.allgather(own, &mut data)?,
    }
    ensure_same(&data, &whole).context("allgather")?;

    let mut data = if rank == root { only(&whole, rank, len) } else { own.to_vec() };
    match in_place {
        true => comm.gather_in_place(&mut data, root)?,
        false => comm.gather(own, (rank == root).then_some(&mut data[..]), root)?,
    }
    ensure_same(&data, if rank == root { &whole } else { own }).context("gather")?;

    let mut data = if rank == root { whole.clone() } else { vec![0.0; len] };
    match in_place {
        true => comm.scatter_in_place(&mut data, root)?,
        false => {
            let mut recv = vec![0.0; len];
            comm.scatter((rank == root).then_some(&data[..]), &mut recv, root)?;
            ensure_same(&recv, own).context("scatter")?;
            if rank != root {
                data = recv;
            }
        }
    }
    ensure_same(&data, if rank == root { &whole } else { own }).context("scatter")?;

    let send = all_blocks(comm, |to| block(rank, to, len));
    let mut data = send.clone();
    match in_place {
        true => comm.alltoall_in_place(&mut data)?,
        false => comm.alltoall(&send, &mut data)?,
    }
    ensure_same(&data, &all_blocks(comm, |from| block(from, rank, len))).context("alltoall")?;

    let send: Vec<f64> = values(seed(), rank, len * size);
    let result = reduced(ReduceOp::Sum, seed(), size, len * size);
    let mut expected = send.clone();
    expected[..len].copy_from_slice(&result[rank * len..(rank + 1) * len]);
    let mut data = send.clone();
    match in_place {
        true => comm.reduce_scatter_block_in_place(&mut data, ReduceOp::Sum)?,
        false => comm.reduce_scatter_block(&send, &mut data[..len], ReduceOp::Sum)?,
    }
    ensure_same(&data, &expected).context("reduce_scatter_block")
}

/// Calls with counts: blocks of different lengths, with gaps, the last rank's first. Those with a root are in place or not: on the root, and
/// elsewhere.
fn with_counts(comm: &Communicator, len: usize, root: usize, [on_root, elsewhere]: [bool; 2]) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let in_place = if rank == root { on_root } else { elsewhere };
    let counts: Vec<usize> = (0..size).map(|rank| (len + rank) * usize::from(rank % 3 != 1)).collect();
    let displs: Vec<usize> = (0..size).map(|rank| (size - 1 - rank) * (len + size + 1)).collect();
    let own = block(rank, 0, counts[rank]);
    let with = |ranks: &[usize]| {
        let mut data = vec![-1.5; size * (len + size + 1)];
        for from in ranks {
            data[displs[*from]..displs[*from] + counts[*from]].copy_from_slice(&block(*from, 0, counts[*from]));
        }
        data
    };
    let all = with(&(0..size).collect::<Vec<_>>());

    let mut data = with(&[rank]);
    comm.allgatherv_in_place(&mut data, &counts, &displs)?;
    ensure_same(&data, &all).context("allgatherv")?;

    let mut data = if rank == root { with(&[rank]) } else { own.clone() };
    match in_place {
        true => comm.gatherv_in_place(&mut data, &counts, &displs, root)?,
        false => comm.gatherv(&own, (rank == root).then_some(&mut data[..]), &counts, &displs, root)?,
    }
    ensure_same(&data, if rank == root { &all } else { &own }).context("gatherv")?;

    let mut data = if rank == root { all.clone() } else { vec![0.0; counts[rank]] };
    match in_place {
        true => comm.scatterv_in_place(&mut data, &counts, &displs, root)?,
        false => {
            let mut recv = vec![0.0; counts[rank]];
            comm.scatterv((rank == root).then_some(&data[..]), &counts, &displs, &mut recv, root)?;
            ensure_same(&recv, &own).context("scatterv")?;
            if rank != root {
                data = recv;
            }
        }
    }
    ensure_same(&data, if rank == root { &all } else { &own }).context("scatterv")?;

    let (total, start) = (counts.iter().sum(), counts[..rank].iter().sum::<usize>());
    let mut data: Vec<f64> = values(seed(), rank, total);
    let mut expected = data.clone();
    expected[..counts[rank]]
        .copy_from_slice(&reduced(ReduceOp::Sum, seed(), size, total)[start..start + counts[rank]]);
    comm.reduce_scatter_in_place(&mut data, &counts, ReduceOp::Sum)?;
    ensure_same(&data, &expected).context("reduce_scatter")
}

fn every(comm: &Communicator, lengths: impl IntoIterator<Item = usize>) -> Outcome {
    for (turn, len) in lengths.into_iter().enumerate() {
        let root = turn % comm.size();
        equal(comm, len, root, false).with_context(|| format!("{len} elements"))?;
        equal(comm, len, root, true).with_context(|| format!("{len} elements, some in place"))?;
        for in_place in [[true; 2], [true, false], [false, true], [false; 2]] {
            with_counts(comm, len, root, in_place)
                .with_context(|| format!("{len} elements, with counts, in place {in_place:?}"))?;
        }
    }
    Ok(())
}

fn in_place_of_every_length(comm: Communicator) -> Outcome {
    every(&comm, [0, 1, 3, 12, 13, 100, 500, 2048, 5000, 70_000])
}

fn in_place_around_the_inline_and_the_chunk_size(comm: Communicator) -> Outcome {
    let Staging { short, chunk, .. } = staging(&comm);
    every(&comm, [INLINE, short, chunk].into_iter().flat_map(|bytes| bytes / 8 - 1..=bytes / 8 + 1))
}

fn in_place_through_tiny_staging(comm: Communicator) -> Outcome {
    every(&comm, [1, 8, 13, 65])
}

/// The own block is not copied, and so not by non-temporal stores.
fn in_place_of_blocks_that_are_not_read_through_the_cache(comm: Communicator) -> Outcome {
    let len = (24 << 20) / 8 / comm.size();
    let whole = all_blocks(&comm, |from| block(from, 0, len));
    let mut data = only(&whole, comm.rank(), len);
    comm.allgather_in_place(&mut data)?;
    ensure_same(&data, &whole)
}

/// The own block may be read where it lies.
fn in_place_of_symmetric_objects(comm: Communicator) -> Outcome {
    let len = (3 << 20) / 8;
    let whole = all_blocks(&comm, |from| block(from, 0, len));
    let mut object = comm.symmetric::<f64>(whole.len())?.into_own()?;
    let own = comm.rank() * len..(comm.rank() + 1) * len;
    object[own.clone()].copy_from_slice(&whole[own]);
    comm.allgather_in_place(&mut object[..])?;
    ensure_same(&object, &whole)
}

fn in_place_with_wrong_arguments(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    // One more element than whole blocks have, where that is another length.
    if size > 1 {
        let call = |wrong| {
            let mut data = vec![BEFORE; 3 * size + usize::from(wrong)];
            (comm.allgather_in_place(&mut data), data)
        };
        let own = wrong_size(Operation::Allgather, 3 * size, 3 * size + 1);
        wrong_on_one_or_all(&comm, Operation::Allgather, call, own)?;
        let call = |wrong| {
            let mut data = vec![BEFORE; 3 * size + usize::from(wrong)];
            (comm.alltoall_in_place(&mut data), data)
        };
        let own = wrong_size(Operation::Alltoall, 3 * size, 3 * size + 1);
        wrong_on_one_or_all(&comm, Operation::Alltoall, call, own)?;
    }
    let root = |wrong: bool| if wrong { size } else { 0 };
    let no_root = |error: &Error| matches!(error, Error::InvalidRoot { .. });
    let buffer = || vec![BEFORE; if rank == 0 { size } else { 1 }];
    let call = |wrong| {
        let mut data = buffer();
        (comm.gather_in_place(&mut data, root(wrong)), data)
    };
    wrong_on_one_or_all(&comm, Operation::Gather, call, no_root)?;
    let call = |wrong| {
        let mut data = buffer();
        (comm.scatter_in_place(&mut data, root(wrong)), data)
    };
    wrong_on_one_or_all(&comm, Operation::Scatter, call, no_root)?;

    let (counts, displs) = (vec![2; size], (0..size).map(|rank| 2 * rank).collect::<Vec<_>>());
    let needed = if rank == 0 { 2 * size } else { 2 };
    let buffer = |wrong| vec![BEFORE; needed - usize::from(wrong)];
    let call = |wrong| {
        let mut data = buffer(wrong);
        (comm.gatherv_in_place(&mut data, &counts, &displs, 0), data)
    };
    let own = wrong_size(Operation::Gatherv, needed, needed - 1);
    wrong_on_one_or_all(&comm, Operation::Gatherv, call, own)?;
    let call = |wrong| {
        let mut data = buffer(wrong);
        (comm.scatterv_in_place(&mut data, &counts, &displs, 0), data)
    };
    let own = wrong_size(Operation::Scatterv, needed, needed - 1);
    wrong_on_one_or_all(&comm, Operation::Scatterv, call, own)?;
    let call = |wrong| {
        let mut data = vec![BEFORE; 2 * size - usize::from(wrong)];
        (comm.allgatherv_in_place(&mut data, &counts, &displs), data)
    };
    let own = wrong_size(Operation::Allgatherv, 2 * size, 2 * size - 1);
    wrong_on_one_or_all(&comm, Operation::Allgatherv, call, own)?;
    let call = |wrong| {
        let mut data = vec![BEFORE; 2 * size - usize::from(wrong)];
        (comm.reduce_scatter_in_place(&mut data, &counts, ReduceOp::Sum), data)
    };
    let own = wrong_size(Operation::ReduceScatter, 2 * size, 2 * size - 1);
    wrong_on_one_or_all(&comm, Operation::ReduceScatter, call, own)
}

/// What rank 0 alone can see: it has its own error, and the others are told who has refused.
fn refused_by_the_root(
    comm: &Communicator,
    mut data: Vec<f64>,
    call: impl FnOnce(&mut [f64]) -> Result<(), Error>,
    own: impl Fn(&Error) -> bool,
) -> Outcome {
    let error = call(&mut data).err().context("no error")?;
    let expected = if comm.rank() == 0 { own(&error) } else { matches!(error, Error::Refused { rank: 0, .. }) };
    ensure!(expected && data.iter().all(|value| *value == BEFORE), "{error:?}");
    still_works(comm)
}

fn in_place_with_wrong_blocks_on_the_root(comm: Communicator) -> Outcome {
    let (is_root, size) = (comm.rank() == 0, comm.size());
    let buffer = |root: usize, other| vec![BEFORE; if is_root { root } else { other }];
    let len = 3 * size + 1;
    let own = wrong_size(Operation::Gather, 3 * size, len);
    refused_by_the_root(&comm, buffer(len, 3), |data| comm.gather_in_place(data, 0), own)?;
    let own = wrong_size(Operation::Scatter, 3 * size, len);
    refused_by_the_root(&comm, buffer(len, 3), |data| comm.scatter_in_place(data, 0), own)?;

    let (counts, displs) = (vec![1; size], (0..size - 1).collect::<Vec<_>>());
    let own = wrong_size(Operation::Gatherv, size, size - 1);
    let gatherv = |data: &mut [f64]| comm.gatherv_in_place(data, &counts, &displs, 0);
    refused_by_the_root(&comm, buffer(size, 1), gatherv, own)?;
    let own = wrong_size(Operation::Scatterv, size, size - 1);
    let scatterv = |data: &mut [f64]| comm.scatterv_in_place(data, &counts, &displs, 0);
    refused_by_the_root(&comm, buffer(size, 1), scatterv, own)?;

    let displs: Vec<usize> = (0..size).collect();
    let root = |wrong| if wrong { size } else { 0 };
    let no_root = |error: &Error| matches!(error, Error::InvalidRoot { .. });
    let call = |wrong| {
        let mut data = buffer(size, 1);
        (comm.gatherv_in_place(&mut data, &counts, &displs, root(wrong)), data)
    };
    wrong_on_one_or_all(&comm, Operation::Gatherv, call, no_root)?;
    let call = |wrong| {
        let mut data = buffer(size, 1);
        (comm.scatterv_in_place(&mut data, &counts, &displs, root(wrong)), data)
    };
    wrong_on_one_or_all(&comm, Operation::Scatterv, call, no_root)
}

/// Blocks of two elements of which each begins with the last one of the block before.
fn in_place_with_blocks_that_overlap(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let (counts, displs) = (vec![2; size], (0..size).collect::<Vec<_>>());
    let overlaps = |error: &Error| matches!(error, Error::OverlappingBlocks { first: 0, second: 1, .. });
    let data = vec![BEFORE; if rank == 0 { size + 1 } else { 2 }];
    refused_by_the_root(&comm, data, |data| comm.gatherv_in_place(data, &counts, &displs, 0), overlaps)?;
    let mut data = vec![BEFORE; size + 1];
    let error = comm.allgatherv_in_place(&mut data, &counts, &displs).err().context("no error")?;
    ensure!(overlaps(&error) && data.iter().all(|value| *value == BEFORE), "{error:?}");
    still_works(&comm)?;

    // They are only read.
    let whole: Vec<f64> = (0..=size).map(|number| number as f64).collect();
    let mut data = if rank == 0 { whole.clone() } else { vec![BEFORE; 2] };
    comm.scatterv_in_place(&mut data, &counts, &displs, 0)?;
    ensure_same(&data, if rank == 0 { &whole } else { &whole[rank..rank + 2] })
}
