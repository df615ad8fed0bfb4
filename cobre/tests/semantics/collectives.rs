//! The collectives' results.

use anyhow::ensure;
use cobre_comm::{Communicator, ReduceOp, TopologyProvider, per_rank_counts, prefix_displs};
use intranode_cobre::ShmBackend;

use crate::{Outcome, Row, USUAL, rows};

pub(crate) fn rows() -> Vec<Row> {
    rows![USUAL;
        allgatherv_counts_one_to_r,
        allgatherv_one_rank_sends_nothing,
        allgatherv_all_ranks_send_nothing,
        allgatherv_100_000_f64_each,
        allgatherv_gaps_in_descending_order,
        allreduce_sum_min_max,
        allreduce_a_million_elements,
        allreduce_folds_in_the_order_of_the_ranks,
        broadcast_from_the_first_and_the_last_rank,
        broadcast_of_nothing,
        barriers_in_a_row,
        rank_size_and_topology,
        mixed_collectives_500_rounds,
    ]
    .to_vec()
}

/// Rank r sends `counts[r]` values that tell who sent them; the gathered result is checked.
fn gather(comm: &ShmBackend, counts: &[usize]) -> Outcome {
    let value = |rank: usize, index: usize| (rank * 1_000_000 + index) as f64 + 0.5;
    let mine: Vec<f64> = (0..counts[comm.rank()]).map(|index| value(comm.rank(), index)).collect();
    let mut all = vec![f64::NAN; counts.iter().sum()];
    comm.allgatherv(&mine, &mut all, counts, &prefix_displs(counts))?;
    let expected: Vec<f64> = counts
        .iter()
        .enumerate()
        .flat_map(|(rank, count)| (0..*count).map(move |index| value(rank, index)))
        .collect();
    ensure!(all == expected, "{counts:?}: the blocks are not in rank order");
    Ok(())
}

fn allgatherv_counts_one_to_r(comm: &ShmBackend) -> Outcome {
    gather(comm, &(1..=comm.size()).collect::<Vec<_>>())
}

fn allgatherv_one_rank_sends_nothing(comm: &ShmBackend) -> Outcome {
    for silent in [0, comm.size() / 2, comm.size() - 1] {
        let counts: Vec<usize> = (0..comm.size()).map(|rank| usize::from(rank != silent) * 3).collect();
        gather(comm, &counts)?;
    }
    Ok(())
}

fn allgatherv_all_ranks_send_nothing(comm: &ShmBackend) -> Outcome {
    let mut untouched = [7.5];
    let nothing = vec![0; comm.size()];
    comm.allgatherv(&[], &mut untouched, &nothing, &nothing)?;
    ensure!(untouched == [7.5]);
    Ok(())
}

fn allgatherv_100_000_f64_each(comm: &ShmBackend) -> Outcome {
    gather(comm, &vec![100_000; comm.size()])
}

fn allgatherv_gaps_in_descending_order(comm: &ShmBackend) -> Outcome {
    let size = comm.size();
    let displs: Vec<usize> = (0..size).map(|rank| (size - 1 - rank) * 3).collect();
    let mut all = vec![-1_i32; size * 3];
    let rank = comm.rank() as i32;
    comm.allgatherv(&[rank, rank], &mut all, &vec![2; size], &displs)?;
    let expected: Vec<i32> = (0..size as i32).rev().flat_map(|rank| [rank, rank, -1]).collect();
    ensure!(all == expected, "{all:?}");
    Ok(())
}

fn allreduce_sum_min_max(comm: &ShmBackend) -> Outcome {
    let (rank, size) = (comm.rank() as f64, comm.size() as f64);
    let mut sum = [0.0; 4];
    comm.allreduce(&[1.0, 2.0, 3.0, 4.0], &mut sum, ReduceOp::Sum)?;
    ensure!(sum == [size, 2.0 * size, 3.0 * size, 4.0 * size], "{sum:?}");
    let mut ends = [0.0; 2];
    comm.allreduce(&[rank, size - rank], &mut ends, ReduceOp::Min)?;
    ensure!(ends == [0.0, 1.0], "{ends:?}");
    comm.allreduce(&[rank, size - rank], &mut ends, ReduceOp::Max)?;
    ensure!(ends == [size - 1.0, size], "{ends:?}");
    let mut bits = [0_u64];
    comm.allreduce(&[1_u64 << comm.rank()], &mut bits, ReduceOp::BitwiseOr)?;
    ensure!(bits == [(1 << comm.size()) - 1], "{bits:?}");
    Ok(())
}

fn allreduce_a_million_elements(comm: &ShmBackend) -> Outcome {
    let mine: Vec<u64> = (0..1_000_000).map(|index| index * (comm.rank() as u64 + 1)).collect();
    let mut sum = vec![0; mine.len()];
    comm.allreduce(&mine, &mut sum, ReduceOp::Sum)?;
    let ranks: u64 = (1..=comm.size() as u64).sum();
    ensure!((0..).zip(&sum).all(|(index, sum): (u64, &u64)| *sum == index * ranks));
    Ok(())
}

fn allreduce_folds_in_the_order_of_the_ranks(comm: &ShmBackend) -> Outcome {
    let value = |rank: usize| [1e16, 1.0, -1e16, 1.0][rank % 4];
    let expected: f64 = (1..comm.size()).fold(value(0), |sum, rank| sum + value(rank));
    for _ in 0..1_000 {
        let mut sum = [0.0];
        comm.allreduce(&[value(comm.rank())], &mut sum, ReduceOp::Sum)?;
        ensure!(sum[0].to_bits() == expected.to_bits(), "{sum:?} is not {expected}");
    }
    Ok(())
}

fn broadcast_from_the_first_and_the_last_rank(comm: &ShmBackend) -> Outcome {
    for root in [0, comm.size() - 1] {
        let wanted: Vec<f64> = (0..10_000).map(|index| (index + root) as f64).collect();
        let mut buffer = if comm.rank() == root { wanted.clone() } else { vec![f64::NAN; wanted.len()] };
        comm.broadcast(&mut buffer, root)?;
        ensure!(buffer == wanted, "root {root}");
    }
    Ok(())
}

fn broadcast_of_nothing(comm: &ShmBackend) -> Outcome {
    comm.broadcast::<u8>(&mut [], comm.size() - 1)?;
    Ok(())
}

fn barriers_in_a_row(comm: &ShmBackend) -> Outcome {
    for _ in 0..1_000 {
        comm.barrier()?;
    }
    Ok(())
}

fn rank_size_and_topology(comm: &ShmBackend) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    ensure!(rank < size);
    let mut ranks = vec![usize::MAX; size];
    comm.allgatherv(&[rank], &mut ranks, &vec![1; size], &(0..size).collect::<Vec<_>>())?;
    ensure!(ranks.iter().copied().eq(0..size), "{ranks:?}");

    let topology = comm.topology();
    let map = comm.nodes().map();
    ensure!(topology.world_size == size && topology.num_hosts() == map.nodes());
    for (node, host) in topology.hosts.iter().enumerate() {
        ensure!(host.ranks.iter().copied().eq(map.ranks_of(node)) && !host.hostname.is_empty());
    }
    ensure!(topology.mpi.is_none() && topology.slurm.is_none());
    ensure!(map.leader_of(comm.nodes().node()) + comm.communicator().rank() == rank);
    Ok(())
}

/// Each round is checked, and another rank falls behind in each.
fn mixed_collectives_500_rounds(comm: &ShmBackend) -> Outcome {
    let size = comm.size();
    for round in 0..500 {
        if round % size == comm.rank() {
            std::thread::yield_now();
        }
        gather(comm, &per_rank_counts(round, size))?;
        let mut sum = [0];
        comm.allreduce(&[round * comm.rank()], &mut sum, ReduceOp::Sum)?;
        ensure!(sum == [round * (size * (size - 1) / 2)], "round {round}");
        comm.barrier()?;
        gather(comm, &vec![round % 3; size])?;
        let root = round % size;
        let mut word = [if comm.rank() == root { round } else { usize::MAX }];
        comm.broadcast(&mut word, root)?;
        ensure!(word == [round], "round {round}");
    }
    Ok(())
}
