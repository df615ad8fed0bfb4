//! Collectives of what lies in regions, which is read in place where it is long enough and every rank still has the region.

use anyhow::{Context, ensure};
use intranode::{Blocks, Communicator, ReduceOp};

use crate::model::ensure_same;
use crate::scenario::{Outcome, Scenario, row, seed, still_works};
use crate::symmetric::collectives::{bring_blocks, ensure_gathered, mix_reductions, value};

pub(crate) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(collectives_of_blocks_of_regions),
        row!(scatterv_of_regions_with_gaps),
        row!(collectives_of_published_regions),
        row!(reductions_mix_regions_and_private_buffers),
        row!(regions_that_some_ranks_have_dropped),
        row!(regions_dropped_by_another_thread_during_the_call),
        row!(regions_of_another_communicator),
    ];
    rows.into_iter().map(|row| row.ranks(&[2, 3, 4])).collect()
}

/// Around what is read in place by an allgatherv (1 MiB, of regions on any processor), and above what is by a broadcast (4 MiB), in elements of 8
/// bytes.
const LENGTHS: [usize; 3] = [(128 << 10) - 1, 128 << 10, (512 << 10) + 1];

fn fill(data: &mut [u64], rank: usize) {
    data.iter_mut().enumerate().for_each(|(index, slot)| *slot = value(rank, index));
}

/// Each rank's own part, which it changes right after each call.
fn collectives_of_blocks_of_regions(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    for len in LENGTHS {
        let mut region = comm.region::<u64>(len * size)?;
        region.distribute()?;
        let (own, blocks) = (region.as_mut_slice(), Blocks::new(len * size, size));
        let mut recv = vec![0; len * size];
        for turn in 0..2 {
            fill(own, rank + turn);
            comm.allgather(own, &mut recv)?;
            own.fill(u64::MAX);
            ensure_gathered(&recv, &blocks, turn)?;
        }
        for root in [0, size - 1] {
            fill(own, rank + root);
            comm.broadcast(own, root)?;
            let right = own.iter().enumerate().all(|(index, found)| *found == value(2 * root, index));
            ensure!(right, "broadcast of {len} from {root}");
        }
    }
    // Above what is read in place by a scatter, of all ranks together: 4 MiB.
    let len = (512 << 10) / size + 1;
    let mut region = comm.region::<u64>(len * size * size)?;
    region.distribute()?;
    let mut private = vec![0; len * size];
    for turn in 0..2 {
        bring_blocks(&comm, region.as_mut_slice(), len, turn).context("all from a region")?;
        let send = if rank % 2 == turn % 2 { region.as_mut_slice() } else { &mut private[..] };
        bring_blocks(&comm, send, len, turn).context("some from a region")?;
    }
    still_works(&comm)
}

/// Only the root knows where the blocks lie that the others read in place.
fn scatterv_of_regions_with_gaps(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let counts: Vec<usize> = (0..size).map(|rank| (512 << 10) / size + 1 + rank).collect();
    // In descending order.
    let (mut displs, mut end) = (vec![0; size], 0);
    for rank in (0..size).rev() {
        displs[rank] = end + 7;
        end = displs[rank] + counts[rank];
    }
    let mut region = comm.region::<u64>(end * size)?;
    region.distribute()?;
    for (turn, root) in [0, 0, size - 1].into_iter().enumerate() {
        let (own, is_root) = (region.as_mut_slice(), rank == root);
        fill(own, rank + turn);
        let mut recv = vec![0; counts[rank]];
        let given = if is_root { &displs[..] } else { &[] };
        comm.scatterv(is_root.then_some(&*own), &counts, given, &mut recv, root)?;
        own.fill(u64::MAX);
        let is_right = |(index, found): (usize, &u64)| *found == value(root + turn, displs[rank] + index);
        ensure!(recv.iter().enumerate().all(is_right), "scatterv from {root}");
    }
    still_works(&comm)
}

/// What every rank reads, any rank may send: also the same by all.
fn collectives_of_published_regions(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    for len in [1000, 140_000] {
        let mut region = comm.region::<u64>(len * size)?;
        region.distribute()?;
        fill(region.as_mut_slice(), rank);
        let shared = region.publish()?;
        let blocks = Blocks::new(len * size, size);
        let mut recv = vec![0; len * size];
        comm.allgather(&shared[blocks.range(size - 1 - rank)], &mut recv)?;
        for from in 0..size {
            ensure_same(&recv[blocks.range(from)], &shared[blocks.range(size - 1 - from)])?;
        }
        // All of it, by all ranks, into the region that comes next.
        let mut sums = comm.region::<u64>(shared.len() * size)?;
        sums.distribute()?;
        comm.allreduce(&shared, sums.as_mut_slice(), ReduceOp::Sum)?;
        let right = |(sum, one): (&u64, &u64)| *sum == one * size as u64;
        ensure!(sums.as_mut_slice().iter().zip(shared.iter()).all(right), "allreduce of {len}");
        // What was read there may be written again.
        let mut region = shared.reclaim()?;
        region.as_mut_slice().fill(u64::MAX);
    }
    still_works(&comm)
}

fn reductions_mix_regions_and_private_buffers(comm: Communicator) -> Outcome {
    for len in [1000, 65_536, 150_007] {
        let mut region = comm.region::<f64>(len * comm.size())?;
        region.distribute()?;
        mix_reductions(&comm, region.as_mut_slice())?;
    }
    still_works(&comm)
}

/// A rank that has dropped a region gets what others send from it; and no later region is taken for it.
fn regions_that_some_ranks_have_dropped(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let len = (512 << 10) / size + 1;
    let mut later = Vec::new();
    for dropped in [0, size - 1] {
        let mut region = comm.region::<u64>(len * size)?;
        region.distribute()?;
        fill(region.as_mut_slice(), rank);
        let shared = region.publish()?;
        let whole = shared.to_vec();
        let mut shared = Some(shared);
        for turn in 0..2 {
            if turn == 1 && rank == dropped {
                // It is gone at once, whatever the others do with theirs.
                drop(shared.take());
            }
            let data = shared.as_deref().unwrap_or(&whole);
            let blocks = Blocks::new(len * size, size);
            let mut recv = vec![0; len * size];
            comm.allgather(&data[blocks.range(rank)], &mut recv)?;
            ensure_same(&recv, &whole).context("allgather")?;
            comm.allreduce(data, &mut recv, ReduceOp::Max)?;
            ensure_same(&recv, &whole).context("allreduce")?;
            let root = (dropped + 1) % size;
            let mut part = vec![0; len];
            comm.scatter((rank == root).then_some(data), &mut part, root)?;
            ensure_same(&part, &whole[blocks.range(rank)]).context("scatter")?;
            later.push(comm.region::<u64>(len * size)?.publish()?);
        }
    }
    still_works(&comm)
}

/// A rank that has said that it has a region keeps it until the call has ended.
fn regions_dropped_by_another_thread_during_the_call(comm: Communicator) -> Outcome {
    let (rank, size, len) = (comm.rank(), comm.size(), 140_000);
    let mut random = fastrand::Rng::with_seed(seed());
    let mut recv = vec![0; len * size];
    for turn in 0..10 {
        let mut region = comm.region::<u64>(len * size)?;
        region.distribute()?;
        fill(region.as_mut_slice(), rank + turn);
        let shared = region.publish()?;
        let own = Blocks::new(len * size, size).range(rank);
        // The same on all ranks.
        let yields = random.usize(..200);
        if rank != turn % size {
            comm.allgather(&shared[own], &mut recv)?;
        } else {
            let copy = shared[own].to_vec();
            std::thread::scope(|scope| {
                scope.spawn(move || {
                    (0..yields).for_each(|_| std::thread::yield_now());
                    drop(shared);
                });
                comm.allgather(&copy, &mut recv)
            })?;
        }
        ensure_gathered(&recv, &Blocks::new(len * size, size), turn)?;
    }
    still_works(&comm)
}

fn regions_of_another_communicator(comm: Communicator) -> Outcome {
    let (rank, size, len) = (comm.rank(), comm.size(), 140_000);
    let mut region = comm.region::<u64>(len * size)?;
    region.distribute()?;
    fill(region.as_mut_slice(), rank);
    // Ranks that have regions of their own, with the same numbers.
    let part = comm.split(rank % 2, 0)?;
    let mut own = part.region::<u64>(len)?;
    own.as_mut_slice().fill(9);
    let own = own.publish()?;
    let mut recv = vec![0; len * part.size()];
    part.allgather(region.as_mut_slice(), &mut recv)?;
    for (from, block) in recv.chunks(len).enumerate() {
        let from = rank % 2 + 2 * from;
        ensure!(block.iter().enumerate().all(|(index, found)| *found == value(from, index)), "from {from}");
    }
    let mut all = vec![0; len * size];
    comm.allgather(&own, &mut all)?;
    ensure!(all.iter().all(|value| *value == 9));
    still_works(&part)
}
