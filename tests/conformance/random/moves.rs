//! The calls of a random world that bring blocks to some ranks.

use intranode::Communicator;

use crate::model::{Value, ensure_same, values};
use crate::scenario::Outcome;

/// A gatherv to the root, and a scatterv from there of what it has gathered. The places are those of this rank.
pub(super) fn rooted<T: Value>(
    comm: &Communicator,
    (counts, displs, len): (&[usize], &[usize], usize),
    root: usize,
    seed: u64,
) -> Outcome {
    let (rank, is_root) = (comm.rank(), comm.rank() == root);
    let own = values::<T>(seed, rank, counts[rank]);
    let mut all = values::<T>(!seed, rank, len);
    let mut expected = all.clone();
    if is_root {
        for (from, (displ, count)) in displs.iter().zip(counts).enumerate() {
            expected[*displ..displ + count].copy_from_slice(&values(seed, from, *count));
        }
    }
    comm.gatherv(&own, is_root.then_some(&mut all), counts, displs, root)?;
    ensure_same(&all, &expected)?;
    let mut back = values::<T>(!seed, rank, counts[rank]);
    comm.scatterv(is_root.then_some(&all), counts, displs, &mut back, root)?;
    ensure_same(&back, &own)
}

/// What `from` sends to `to`.
pub(super) fn block<T: Value>(seed: u64, from: usize, to: usize, len: usize) -> Vec<T> {
    values(seed.wrapping_add(1000 * to as u64), from, len)
}

pub(super) fn alltoall<T: Value>(comm: &Communicator, len: usize, seed: u64) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let send: Vec<T> = (0..size).flat_map(|to| block(seed, rank, to, len)).collect();
    let mut recv = values::<T>(!seed, rank, len * size);
    comm.alltoall(&send, &mut recv)?;
    let expected: Vec<T> = (0..size).flat_map(|from| block(seed, from, rank, len)).collect();
    ensure_same(&recv, &expected)
}

/// `counts`: by sender and receiver. The displacements and the lengths of the buffers are those of this rank.
pub(super) fn alltoallv<T: Value>(
    comm: &Communicator,
    counts: &[Vec<usize>],
    (send_displs, send_len): (Vec<usize>, usize),
    (recv_displs, recv_len): (Vec<usize>, usize),
    seed: u64,
) -> Outcome {
    let rank = comm.rank();
    let mut send = values::<T>(!seed, rank, send_len);
    let mut recv = values::<T>(!seed, rank, recv_len);
    let mut expected = recv.clone();
    let recv_counts: Vec<usize> = counts.iter().map(|row| row[rank]).collect();
    for other in 0..comm.size() {
        let (to, from) = (counts[rank][other], recv_counts[other]);
        send[send_displs[other]..send_displs[other] + to].copy_from_slice(&block(seed, rank, other, to));
        expected[recv_displs[other]..recv_displs[other] + from]
            .copy_from_slice(&block(seed, other, rank, from));
    }
    comm.alltoallv(&send, &counts[rank], &send_displs, &mut recv, &recv_counts, &recv_displs)?;
    ensure_same(&recv, &expected)
}
