//! Rows of alltoallv, of operations of the program's own, and of communicators of a part of the ranks.

use std::panic::{self, AssertUnwindSafe};

use anyhow::{Context, bail, ensure};
use fastrand::Rng;
use intranode::{Communicator, CountPair, Error, Hierarchical, LocalLeaders, NodeMap, ReduceOp};

use crate::compared;
use crate::model::{ensure_same, values};
use crate::rows::over;
use crate::scenario::{Outcome, Scenario, ensure_matches, row, seed};

const RANKS: &[usize] = &[2, 3, 6];

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(nodes_exchange_blocks_of_any_length).ranks(RANKS),
        row!(nodes_with_own_operations).ranks(RANKS),
        row!(nodes_end_where_own_code_panics).ranks(RANKS),
        row!(nodes_name_a_rank_that_panics).ranks(RANKS),
        row!(nodes_scatter_elements_without_a_size).ranks(&[2, 3]),
        row!(nodes_whose_block_in_place_is_not_inside).ranks(&[2, 3]),
        row!(nodes_that_are_split).ranks(&[2, 3, 6, 8]),
        row!(nodes_that_nothing_connects).ranks(&[2]),
    ]
}

/// What each rank sends to each: `lens[from * size + to]` elements.
fn random_lens(size: usize, most: usize) -> Vec<usize> {
    let mut random = Rng::with_seed(seed() ^ most as u64);
    (0..size * size).map(|_| if random.bool() { random.usize(..=most) } else { 0 }).collect()
}

fn nodes_exchange_blocks_of_any_length(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        for most in [0, 1, 5, 900] {
            let lens = random_lens(size, most);
            // With gaps, and the last rank's first.
            let displs: Vec<usize> = (0..size).rev().map(|place| place * (most + 1)).collect();
            let sends: Vec<usize> = (0..size).map(|to| lens[rank * size + to]).collect();
            let receives: Vec<usize> = (0..size).map(|from| lens[from * size + rank]).collect();
            let own = values::<u32>(seed(), rank, size * (most + 1));
            let (mut flat, mut over) = (vec![1; own.len()], vec![1; own.len()]);
            comm.alltoallv(&own, &sends, &displs, &mut flat, &receives, &displs)?;
            nodes.alltoallv(&own, &sends, &displs, &mut over, &receives, &displs)?;
            ensure_same(&over, &flat).with_context(|| format!("alltoallv of up to {most}"))?;
            compared::same::<u32>("alltoallv", nodes, "", most);

            // The last rank expects one more of the first, than that sends.
            let mut wrong = receives.clone();
            wrong[0] += usize::from(rank + 1 == size);
            let mut room = vec![1; own.len() + 1];
            let pair = |result| match result {
                Err(Error::CountsDisagree { pair, .. }) => Ok(pair),
                other => Err(anyhow::anyhow!("{other:?}")),
            };
            let flat: Box<CountPair> = pair(comm.alltoallv(&own, &sends, &displs, &mut room, &wrong, &displs))?;
            let over = pair(nodes.alltoallv(&own, &sends, &displs, &mut room, &wrong, &displs))?;
            ensure!(flat == over && over.to + 1 == size, "{over:?} instead of {flat:?}");
        }
        let short = vec![0; size - 1];
        let wrong = nodes.alltoallv(&[1u8], &short, &short, &mut [0], &short, &short);
        ensure_matches!(wrong, Err(Error::InvalidBufferSize { .. }));
        Ok(nodes.barrier()?)
    })
}

/// Neither commutative nor associative.
fn mix(acc: &mut [f64; 2], next: &[f64; 2]) {
    *acc = [acc[0] / 3.0 + next[1], acc[1] - next[0] * 1.5];
}

fn nodes_with_own_operations(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        for len in [0, 1, 3, 40, 700] {
            let flat_values = values::<f64>(seed(), rank, 2 * len);
            let own: Vec<[f64; 2]> = flat_values.chunks(2).map(|pair| [pair[0], pair[1]]).collect();
            let before = vec![[7.0; 2]; len];
            let what = |call: &str| format!("{call} of {len}");
            let (mut flat, mut over) = (before.clone(), before.clone());
            comm.allreduce_with(&own, &mut flat, "mix", mix)?;
            nodes.allreduce_with(&own, &mut over, "mix", mix)?;
            ensure_same(&over, &flat).with_context(|| what("allreduce_with"))?;
            let (mut flat, mut over) = (before.clone(), before.clone());
            comm.scan_with(&own, &mut flat, "mix", mix)?;
            nodes.scan_with(&own, &mut over, "mix", mix)?;
            ensure_same(&over, &flat).with_context(|| what("scan_with"))?;
            for root in [0, size - 1] {
                let (mut flat, mut over) = (before.clone(), before.clone());
                comm.reduce_with(&own, (rank == root).then_some(&mut flat[..]), "mix", mix, root)?;
                nodes.reduce_with(&own, (rank == root).then_some(&mut over[..]), "mix", mix, root)?;
                ensure_same(&over, &flat).with_context(|| what("reduce_with"))?;
            }
            for call in ["allreduce_with", "reduce_with", "scan_with"] {
                compared::same::<[f64; 2]>(call, nodes, "own", len);
            }
        }
        // Other names are other operations.
        let name = if rank == 0 { "mix" } else { "blend" };
        let result = nodes.allreduce_with(&[[1.0; 2]], &mut [[0.0; 2]], name, mix);
        ensure_matches!(result, Err(Error::Mismatch { .. }));
        Ok(nodes.barrier()?)
    })
}

/// The rank whose code panics goes on, and calls nothing: no other waits for it.
fn nodes_end_where_own_code_panics(comm: Communicator) -> Outcome {
    let size = comm.size();
    for counts in [vec![1, size - 1], vec![size - 1, 1], vec![size]] {
        let map = NodeMap::new(&counts)?;
        let last = map.leader_of(map.nodes() - 1);
        for (rank, len) in [(0, 1), (size - 1, 1), (last, 40_000), (0, 0)] {
            let nodes = Hierarchical::simulated(comm.split_local()?, &map)?;
            let combine = |acc: &mut u64, x: &u64| {
                assert!(nodes.rank() != rank, "an operation that is not defined here");
                *acc += x;
            };
            let called = panic::catch_unwind(AssertUnwindSafe(|| match len {
                0 => nodes.replicate(9, |_: &mut [u64]| panic!("values that cannot be read")).map(drop),
                _ => nodes.allreduce_with(&vec![1; len], &mut vec![0; len], "sum", combine),
            }));
            ensure!(called.is_err() == (rank == nodes.rank()));
            if !matches!(called, Ok(Err(_))) {
                // It was complete here, or it has panicked.
                ensure!(nodes.barrier().is_err());
            }
            let error = match called {
                Ok(Err(error)) => error,
                _ => nodes.barrier().expect_err("it has ended"),
            };
            ensure!(names(&error, rank), "{counts:?}: {error:?} where rank {rank} has panicked");
            comm.barrier()?;
        }
    }
    Ok(())
}

/// It drops the communicator as it unwinds. Leaders have other numbers among themselves.
fn nodes_name_a_rank_that_panics(comm: Communicator) -> Outcome {
    let size = comm.size();
    for counts in [vec![1, size - 1], vec![size - 1, 1], vec![1; size]] {
        for rank in 0..size {
            let nodes = Hierarchical::simulated(comm.split_local()?, &NodeMap::new(&counts)?)?;
            nodes.barrier()?;
            if comm.rank() == rank {
                let dropped = panic::catch_unwind(AssertUnwindSafe(|| {
                    let _nodes = nodes;
                    panic!("a rank");
                }));
                ensure!(dropped.is_err());
            } else {
                let error = nodes.barrier().expect_err("a rank has panicked");
                ensure!(names(&error, rank), "{counts:?}: {error:?} where rank {rank} has panicked");
            }
            comm.barrier()?;
        }
    }
    Ok(())
}

/// Whether an error says that this rank has panicked.
fn names(error: &Error, rank: usize) -> bool {
    match error {
        Error::Poisoned { rank: named, .. } => *named == rank,
        Error::LeadersFailed { reason, .. } => {
            **reason == format!("rank {rank} has failed: its thread panicked")
        }
        _ => false,
    }
}

/// There may be more of them in all than a number can say.
fn nodes_scatter_elements_without_a_size(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let size = comm.size();
        let (counts, displs) = (vec![usize::MAX; size], vec![0; size]);
        let (send, mut recv) = (vec![(); usize::MAX], vec![(); usize::MAX]);
        let send = (comm.rank() == 0).then_some(&send[..]);
        comm.scatterv(send, &counts, &displs, &mut recv, 0)?;
        nodes.scatterv(send, &counts, &displs, &mut recv, 0)?;
        Ok(nodes.barrier()?)
    })
}

/// The buffer of a call in place is shorter than this rank's block, or ends before it does: the error is that of one node.
fn nodes_whose_block_in_place_is_not_inside(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        let (counts, displs) = (vec![4; size], (0..size).map(|rank| 4 * rank + 2).collect::<Vec<_>>());
        for wrong in 0..size {
            for len in [0, 3, 4 * wrong + 3] {
                let room = |whole: bool| if rank == wrong { len } else { if whole { 4 * size + 2 } else { 4 } };
                let same = |flat: Result<(), Error>, over: Result<(), Error>| {
                    let of_one = |error: Error| match error {
                        Error::Refused { rank, .. } => format!("refused by {rank}"),
                        other => format!("{other:?}"),
                    };
                    let (flat, over) = (flat.map_err(of_one), over.map_err(of_one));
                    ensure!(flat.is_err() && over == flat, "{over:?} and not {flat:?}");
                    Ok(())
                };
                let mut data = vec![0u16; room(true)];
                let flat = comm.allgatherv_in_place(&mut data, &counts, &displs);
                same(flat, nodes.allgatherv_in_place(&mut data, &counts, &displs)).context("allgatherv")?;
                let mut data = vec![0u16; room(false)];
                let flat = comm.gatherv_in_place(&mut data, &counts, &displs, wrong);
                same(flat, nodes.gatherv_in_place(&mut data, &counts, &displs, wrong)).context("gatherv")?;
                let flat = comm.scatterv_in_place(&mut data, &counts, &displs, wrong);
                same(flat, nodes.scatterv_in_place(&mut data, &counts, &displs, wrong)).context("scatterv")?;
            }
        }
        Ok(nodes.barrier()?)
    })
}

fn nodes_that_are_split(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        // By turns, so that parts span nodes and other ranks lead them; in two halves; each node's last ranks; each rank alone.
        let last_of_node = nodes.map().ranks_of(nodes.node()).end - 1;
        for color in [rank % 2, 2 * rank / size, usize::from(rank == last_of_node), rank] {
            let (flat, part) = (comm.split(color, rank)?, nodes.split(color, rank)?);
            ensure!((part.rank(), part.size()) == (flat.rank(), flat.size()));
            let own = values::<f64>(seed(), rank, 300);
            let (mut expected, mut sum) = (own.clone(), own);
            flat.allreduce_in_place(&mut expected, ReduceOp::Sum)?;
            part.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
            ensure_same(&sum, &expected).with_context(|| format!("{:?}", part.map().counts()))?;
            compared::same::<f64>("split, and allreduce_in_place", nodes, ReduceOp::Sum, 300);
            // A part of a part, in descending order inside each node.
            let again = part.split(0, size - rank)?;
            ensure!(again.size() == part.size());
            let mut ranks = vec![0; again.size()];
            again.allgather(&[rank], &mut ranks)?;
            for node in 0..again.map().nodes() {
                let of_node = &ranks[again.map().ranks_of(node)];
                ensure!(of_node.is_sorted_by(|one, other| one > other), "{ranks:?}");
            }
            part.barrier()?;
        }
        Ok(nodes.barrier()?)
    })
}

fn nodes_that_nothing_connects(comm: Communicator) -> Outcome {
    let map = NodeMap::new(&[1, 1])?;
    let node = comm.split(comm.rank(), 0)?;
    let nodes = Hierarchical::new(node, Some(LocalLeaders::new(comm)?), map)?;
    match nodes.split(0, 0) {
        Err(Error::LeadersFailed { reason, .. }) => ensure!(reason.contains("with_connector"), "{reason}"),
        other => bail!("{other:?}"),
    }
    Ok(nodes.barrier()?)
}
