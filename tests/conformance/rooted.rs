//! gather, gatherv, scatter and scatterv.

use anyhow::Context;
use intranode::Communicator;
use intranode::protocol::Staging;
use intranode::protocol::call::INLINE;

use crate::model::{element, elements, ensure_same};
use crate::scenario::{Outcome, Scenario, row, staging};

/// The value of elements that a call must not write.
const UNTOUCHED: f64 = -7.25;

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(gather_at_every_root),
        row!(gather_100_000_f64_each),
        row!(gather_around_the_inline_and_the_chunk_size),
        row!(gather_through_tiny_staging).staging(64),
        row!(gather_of_structures),
        row!(gatherv_at_every_root_with_gaps),
        row!(gatherv_in_descending_order),
        row!(gatherv_one_rank_sends_nothing),
        row!(gatherv_through_tiny_staging).staging(64),
        row!(scatter_from_every_root),
        row!(scatter_100_000_f64_each),
        row!(scatter_around_the_inline_and_the_chunk_size),
        row!(scatter_through_tiny_staging).staging(64),
        row!(scatterv_from_every_root_with_gaps),
        row!(scatterv_of_blocks_that_overlap),
        row!(scatterv_through_tiny_staging).staging(64),
        row!(scatter_is_the_inverse_of_gather),
        row!(gather_many_times_with_changing_roots),
    ]
}

/// Lengths from nothing to several pieces.
const LENGTHS: [usize; 7] = [0, 1, 3, 12, 13, 1000, 5000];

/// Gathers `len` elements of each rank at `root`, and checks every element.
fn gather(comm: &Communicator, len: usize, root: usize) -> Outcome {
    let mut recv = vec![UNTOUCHED; len * comm.size()];
    let is_root = comm.rank() == root;
    comm.gather(&elements(comm.rank(), len), is_root.then_some(&mut recv[..]), root)?;
    let expected: Vec<f64> = match is_root {
        true => (0..comm.size()).flat_map(|rank| elements(rank, len)).collect(),
        false => vec![UNTOUCHED; recv.len()],
    };
    ensure_same(&recv, &expected).with_context(|| format!("{len} elements at root {root}"))
}

fn for_every_root(comm: &Communicator, lengths: &[usize], call: impl Fn(usize, usize) -> Outcome) -> Outcome {
    for root in 0..comm.size() {
        for len in lengths {
            call(*len, root)?;
        }
    }
    Ok(())
}

fn gather_at_every_root(comm: Communicator) -> Outcome {
    for_every_root(&comm, &LENGTHS, |len, root| gather(&comm, len, root))
}

fn gather_100_000_f64_each(comm: Communicator) -> Outcome {
    gather(&comm, 100_000, comm.size() - 1)
}

/// Bytes of which each shows its rank and place.
fn bytes(rank: usize, len: usize) -> Vec<u8> {
    (0..len).map(|index| (rank * 31 + index * 7 + index / 256) as u8).collect()
}

fn gather_around_the_inline_and_the_chunk_size(comm: Communicator) -> Outcome {
    let Staging { short, chunk, .. } = staging(&comm);
    for size in [INLINE, short, chunk, 512 << 10] {
        for len in size - 1..=size + 1 {
            let mut recv = vec![0; len * comm.size()];
            comm.gather(&bytes(comm.rank(), len), (comm.rank() == 0).then_some(&mut recv[..]), 0)?;
            if comm.rank() == 0 {
                let expected: Vec<u8> = (0..comm.size()).flat_map(|rank| bytes(rank, len)).collect();
                ensure_same(&recv, &expected)?;
            }
        }
    }
    Ok(())
}

fn gather_through_tiny_staging(comm: Communicator) -> Outcome {
    for_every_root(&comm, &[1, 8, 9, 333], |len, root| gather(&comm, len, root))
}

fn gather_of_structures(comm: Communicator) -> Outcome {
    let own = [[comm.rank() as u16, 7, 9]; 40];
    let mut recv = vec![[0; 3]; 40 * comm.size()];
    comm.gather(&own, (comm.rank() == 0).then_some(&mut recv[..]), 0)?;
    if comm.rank() == 0 {
        let expected: Vec<[u16; 3]> = (0..comm.size()).flat_map(|rank| [[rank as u16, 7, 9]; 40]).collect();
        ensure_same(&recv, &expected)?;
    }
    Ok(())
}

/// Counts that differ, places with gaps, and the length of the buffer.
fn with_gaps(size: usize, len: usize) -> (Vec<usize>, Vec<usize>, usize) {
    let counts: Vec<usize> = (0..size).map(|rank| if rank % 3 == 2 { 0 } else { len + rank }).collect();
    let displs = (0..size).map(|rank| 2 + rank * (len + size + 3)).collect();
    (counts, displs, 2 + size * (len + size + 3))
}

fn gatherv(comm: &Communicator, counts: &[usize], displs: &[usize], len: usize, root: usize) -> Outcome {
    let mut recv = vec![UNTOUCHED; len];
    let is_root = comm.rank() == root;
    // The displacements of other ranks do not matter.
    let given = if is_root { displs } else { &[] };
    let send = elements(comm.rank(), counts[comm.rank()]);
    comm.gatherv(&send, is_root.then_some(&mut recv[..]), counts, given, root)?;
    let mut expected = vec![UNTOUCHED; len];
    if is_root {
        for (rank, (count, displ)) in counts.iter().zip(displs).enumerate() {
            expected[*displ..displ + count].copy_from_slice(&elements(rank, *count));
        }
    }
    ensure_same(&recv, &expected).with_context(|| format!("counts {counts:?} at root {root}"))
}

fn gatherv_at_every_root_with_gaps(comm: Communicator) -> Outcome {
    for_every_root(&comm, &LENGTHS, |len, root| {
        let (counts, displs, end) = with_gaps(comm.size(), len);
        gatherv(&comm, &counts, &displs, end, root)
    })
}

fn gatherv_in_descending_order(comm: Communicator) -> Outcome {
    let counts = vec![10; comm.size()];
    let displs: Vec<usize> = (0..comm.size()).rev().map(|place| 10 * place).collect();
    gatherv(&comm, &counts, &displs, 10 * comm.size(), 0)
}

fn gatherv_one_rank_sends_nothing(comm: Communicator) -> Outcome {
    for silent in 0..comm.size() {
        for len in [1, 20, 70_000] {
            let counts: Vec<usize> =
                (0..comm.size()).map(|rank| if rank == silent { 0 } else { len }).collect();
            let displs: Vec<usize> = (0..comm.size()).map(|rank| rank * len).collect();
            gatherv(&comm, &counts, &displs, comm.size() * len, comm.size() - 1)?;
        }
    }
    Ok(())
}

fn gatherv_through_tiny_staging(comm: Communicator) -> Outcome {
    for_every_root(&comm, &[1, 9, 200], |len, root| {
        let (counts, displs, end) = with_gaps(comm.size(), len);
        gatherv(&comm, &counts, &displs, end, root)
    })
}

fn scatter(comm: &Communicator, len: usize, root: usize) -> Outcome {
    let send: Vec<f64> = (0..comm.size() * len).map(|index| element(root, index)).collect();
    let mut recv = vec![UNTOUCHED; len];
    comm.scatter((comm.rank() == root).then_some(&send[..]), &mut recv, root)?;
    ensure_same(&recv, &send[comm.rank() * len..(comm.rank() + 1) * len])
        .with_context(|| format!("{len} elements from root {root}"))
}

fn scatter_from_every_root(comm: Communicator) -> Outcome {
    for_every_root(&comm, &LENGTHS, |len, root| scatter(&comm, len, root))
}

fn scatter_100_000_f64_each(comm: Communicator) -> Outcome {
    scatter(&comm, 100_000, comm.size() - 1)
}

fn scatter_around_the_inline_and_the_chunk_size(comm: Communicator) -> Outcome {
    let others = comm.size().max(2) - 1;
    let Staging { short, chunk_of_one, .. } = staging(&comm);
    for size in [INLINE, short, 64 << 10, chunk_of_one].map(|total| total / others) {
        for len in size - 1..=size + 1 {
            let send = bytes(3, len * comm.size());
            let mut recv = vec![0; len];
            comm.scatter((comm.rank() == 0).then_some(&send[..]), &mut recv, 0)?;
            ensure_same(&recv, &send[comm.rank() * len..(comm.rank() + 1) * len])?;
        }
    }
    Ok(())
}

fn scatter_through_tiny_staging(comm: Communicator) -> Outcome {
    for_every_root(&comm, &[1, 8, 9, 333], |len, root| scatter(&comm, len, root))
}

fn scatterv(comm: &Communicator, counts: &[usize], displs: &[usize], len: usize, root: usize) -> Outcome {
    let send: Vec<f64> = (0..len).map(|index| element(root, index)).collect();
    let is_root = comm.rank() == root;
    let mut recv = vec![UNTOUCHED; counts[comm.rank()]];
    let given = if is_root { displs } else { &[] };
    comm.scatterv(is_root.then_some(&send[..]), counts, given, &mut recv, root)?;
    let start = displs[comm.rank()];
    ensure_same(&recv, &send[start..start + counts[comm.rank()]])
        .with_context(|| format!("counts {counts:?} from root {root}"))
}

fn scatterv_from_every_root_with_gaps(comm: Communicator) -> Outcome {
    for_every_root(&comm, &LENGTHS, |len, root| {
        let (counts, displs, end) = with_gaps(comm.size(), len);
        scatterv(&comm, &counts, &displs, end, root)
    })
}

fn scatterv_of_blocks_that_overlap(comm: Communicator) -> Outcome {
    // Each rank gets its neighbours' elements too.
    for len in [2, 500] {
        let displs: Vec<usize> = (0..comm.size()).map(|rank| rank * len / 2).collect();
        scatterv(&comm, &vec![len; comm.size()], &displs, len * (comm.size() + 1), 0)?;
    }
    Ok(())
}

fn scatterv_through_tiny_staging(comm: Communicator) -> Outcome {
    for_every_root(&comm, &[1, 9, 200], |len, root| {
        let (counts, displs, end) = with_gaps(comm.size(), len);
        scatterv(&comm, &counts, &displs, end, root)
    })
}

fn scatter_is_the_inverse_of_gather(comm: Communicator) -> Outcome {
    for len in [1, 17, 3000] {
        let own = elements(comm.rank(), len);
        let (mut all, mut back) = (vec![0.0; len * comm.size()], vec![0.0; len]);
        let is_root = comm.rank() == 0;
        comm.gather(&own, is_root.then_some(&mut all[..]), 0)?;
        comm.scatter(is_root.then_some(&all[..]), &mut back, 0)?;
        ensure_same(&back, &own)?;
    }
    Ok(())
}

/// Calls of several lengths right after one another, so that buffers are used again at once.
fn gather_many_times_with_changing_roots(comm: Communicator) -> Outcome {
    for turn in 0..300 {
        gather(&comm, [1, 40, 13, 5000][turn % 4], turn % comm.size())?;
        scatter(&comm, [5000, 1, 2, 100][turn % 4], (turn + 1) % comm.size())?;
    }
    Ok(())
}
