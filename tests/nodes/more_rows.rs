//! Rows of the calls with a root, of prefix reductions, and of what is one copy a node.

use anyhow::{Context, ensure};
use fastrand::Rng;
use intranode::{Communicator, Error, Hierarchical, Leaders, LocalLeaders, NodeMap, Operation, ReduceOp};

use crate::compared;
use crate::model::{Value, ensure_same, values};
use crate::rows::over;
use crate::scenario::{Outcome, Scenario, ensure_matches, row, seed};

const RANKS: &[usize] = &[2, 3, 6];

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(nodes_reduce_scan_and_exscan).ranks(RANKS),
        row!(nodes_gather_and_scatter).ranks(RANKS),
        row!(nodes_with_wrong_roots_and_buffers).ranks(RANKS),
        row!(nodes_with_one_copy_each).ranks(RANKS),
        row!(nodes_with_a_region_each).ranks(RANKS),
        row!(nodes_of_which_a_rank_refuses).ranks(RANKS),
        row!(nodes_behind_a_pointer).ranks(RANKS),
        row!(nodes_exchange_blocks).ranks(&[2, 3, 6, 8]),
        row!(nodes_with_counts_that_are_too_large).ranks(RANKS),
        row!(nodes_with_a_map_that_differs_in_a_node).ranks(&[4]),
    ]
}

fn same_folds<T: Value>(comm: &Communicator, nodes: &Hierarchical, op: ReduceOp, len: usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let own = values::<T>(seed() ^ len as u64, rank, len);
    let before = values::<T>(7, size, len);
    let what = |call: &str| format!("{call} {op} of {len} × {}", std::any::type_name::<T>());
    let roots = [0, size / 2, size - 1];
    for root in roots {
        let (mut flat, mut over, mut in_place) = (before.clone(), before.clone(), own.clone());
        comm.reduce(&own, (rank == root).then_some(&mut flat[..]), op, root)?;
        nodes.reduce(&own, (rank == root).then_some(&mut over[..]), op, root)?;
        ensure_same(&over, &flat).with_context(|| what("reduce"))?;
        nodes.reduce_in_place(&mut in_place, op, root)?;
        ensure_same(&in_place, if rank == root { &flat } else { &own })
            .with_context(|| what("reduce_in_place"))?;
    }
    let (mut flat, mut over, mut in_place) = (before.clone(), before.clone(), own.clone());
    comm.scan(&own, &mut flat, op)?;
    nodes.scan(&own, &mut over, op)?;
    nodes.scan_in_place(&mut in_place, op)?;
    ensure_same(&over, &flat).with_context(|| what("scan"))?;
    ensure_same(&in_place, &flat).with_context(|| what("scan_in_place"))?;
    let (mut flat, mut over, mut in_place) = (before.clone(), before.clone(), own.clone());
    comm.exscan(&own, &mut flat, op)?;
    nodes.exscan(&own, &mut over, op)?;
    nodes.exscan_in_place(&mut in_place, op)?;
    ensure_same(&over, &flat).with_context(|| what("exscan"))?;
    ensure_same(&in_place, if rank == 0 { &own } else { &flat }).with_context(|| what("exscan_in_place"))?;

    let all = values::<T>(seed() ^ len as u64, rank, len * size);
    let (mut flat, mut over) = (before.clone(), before.clone());
    comm.reduce_scatter_block(&all, &mut flat, op)?;
    nodes.reduce_scatter_block(&all, &mut over, op)?;
    ensure_same(&over, &flat).with_context(|| what("reduce_scatter_block"))?;
    let mut counts = vec![len; size];
    counts[0] = 0;
    counts[size - 1] = 2 * len;
    let (mut flat, mut over) = (vec![before[0]; counts[rank]], vec![before[0]; counts[rank]]);
    comm.reduce_scatter(&all, &mut flat, &counts, op)?;
    nodes.reduce_scatter(&all, &mut over, &counts, op)?;
    ensure_same(&over, &flat).with_context(|| what("reduce_scatter"))?;
    let calls = ["reduce", "reduce_in_place", "scan", "scan_in_place", "exscan", "exscan_in_place"];
    let scatters = ["reduce_scatter_block", "reduce_scatter"];
    calls.iter().chain(&scatters).for_each(|call| compared::same::<T>(call, nodes, op, len));
    Ok(())
}

fn nodes_reduce_scan_and_exscan(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        for len in [1, 9, 150] {
            for op in f64::REDUCTIONS {
                same_folds::<f64>(comm, nodes, *op, len)?;
            }
            same_folds::<u8>(comm, nodes, ReduceOp::LogicalXor, len)?;
            same_folds::<i32>(comm, nodes, ReduceOp::Prod, len)?;
        }
        Ok(())
    })
}

fn nodes_gather_and_scatter(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        let mut random = Rng::with_seed(seed());
        for len in [0, 1, 700] {
            for root in 0..size {
                let is_root = rank == root;
                let own = values::<u32>(seed(), rank, len);
                let all: Vec<u32> = values(seed(), 50 + rank, len * size);
                let (mut flat, mut over) = (vec![1; len * size], vec![1; len * size]);
                comm.gather(&own, is_root.then_some(&mut flat[..]), root)?;
                nodes.gather(&own, is_root.then_some(&mut over[..]), root)?;
                ensure_same(&over, &flat).with_context(|| format!("gather of {len} to {root}"))?;
                let (mut flat, mut over) = (vec![1; len], vec![1; len]);
                comm.scatter(is_root.then_some(&all[..]), &mut flat, root)?;
                nodes.scatter(is_root.then_some(&all[..]), &mut over, root)?;
                ensure_same(&over, &flat).with_context(|| format!("scatter of {len} from {root}"))?;

                let counts: Vec<usize> = (0..size).map(|_| random.usize(..=len)).collect();
                let displs: Vec<usize> = (0..size).rev().map(|place| place * (len + 1)).collect();
                let own = values::<u32>(seed(), rank, counts[rank]);
                let all: Vec<u32> = values(seed(), 50 + rank, size * (len + 1));
                let (mut flat, mut over) = (vec![1; size * (len + 1)], vec![1; size * (len + 1)]);
                comm.gatherv(&own, is_root.then_some(&mut flat[..]), &counts, &displs, root)?;
                nodes.gatherv(&own, is_root.then_some(&mut over[..]), &counts, &displs, root)?;
                ensure_same(&over, &flat).with_context(|| format!("gatherv of {counts:?} to {root}"))?;
                let (mut flat, mut over) = (vec![1; counts[rank]], vec![1; counts[rank]]);
                comm.scatterv(is_root.then_some(&all[..]), &counts, &displs, &mut flat, root)?;
                nodes.scatterv(is_root.then_some(&all[..]), &counts, &displs, &mut over, root)?;
                ensure_same(&over, &flat).with_context(|| format!("scatterv of {counts:?} from {root}"))?;
                for call in ["gather", "gatherv", "scatter", "scatterv"] {
                    compared::same::<u32>(call, nodes, "", len);
                }
            }
        }
        Ok(())
    })
}

fn nodes_with_wrong_roots_and_buffers(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        let mut all = vec![0; size];
        // The last rank does not exist as a root; elsewhere the call is right.
        let root = if rank + 1 == size { size } else { 0 };
        let recv = (rank == 0).then_some(&mut all[..]);
        let result = nodes.gather(&[1], recv, root);
        if rank + 1 == size {
            ensure_matches!(result, Err(Error::InvalidRoot { .. }));
        } else {
            ensure_matches!(result, Err(Error::Refused { rank, .. }) if *rank + 1 == size);
        }
        // Nobody passes a buffer.
        let result = nodes.reduce(&[1], None, ReduceOp::Sum, 0);
        if rank == 0 {
            ensure_matches!(result, Err(Error::RootBuffer { root: 0, given: false, .. }));
        } else {
            ensure_matches!(result, Err(Error::Refused { rank: 0, .. }));
        }
        // Other roots, and other counts.
        let flat = comm.scatter(
            (rank == usize::from(rank == 1)).then_some(&all[..]),
            &mut [0],
            usize::from(rank == 1),
        );
        let over = nodes.scatter(
            (rank == usize::from(rank == 1)).then_some(&all[..]),
            &mut [0],
            usize::from(rank == 1),
        );
        let calls = |result| match result {
            Err(Error::Mismatch { calls, .. }) => Ok(calls),
            other => Err(anyhow::anyhow!("{other:?}")),
        };
        ensure!(calls(flat)? == calls(over)?);
        Ok(nodes.barrier()?)
    })
}

fn nodes_with_one_copy_each(comm: Communicator) -> Outcome {
    over(&comm, |_, nodes| {
        for len in [0, 1, 100_000] {
            let table = nodes.replicate(len, |values| {
                values.iter_mut().enumerate().for_each(|(index, value)| *value = index as f64);
            })?;
            ensure!(
                table.len() == len && table.iter().enumerate().all(|(index, value)| *value == index as f64)
            );
            // The ranks of a node have the same memory, those of two nodes do not.
            let mut own = table.reclaim()?;
            own.as_mut_slice().fill(nodes.node() as f64);
            ensure!(own.publish()?.iter().all(|value| *value == nodes.node() as f64));
        }
        // So long that no node has room.
        let mut too_long = nodes.replicate::<u8>(1 << 62, |_| ());
        ensure_matches!(too_long, Err(Error::AllocationFailed { .. }));
        too_long = nodes.replicate(3, |values| values.fill(7));
        ensure!(too_long?.as_slice() == [7; 3]);
        Ok(())
    })
}

fn nodes_with_a_region_each(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let mut region = nodes.region::<u64>(1000)?;
        ensure!(region.as_mut_slice().len() == if nodes.local().rank() == 0 { 1000 } else { 0 });
        region.as_mut_slice().fill(nodes.node() as u64 + 1);
        let seen = region.publish()?;
        ensure!(seen.iter().all(|value| *value == nodes.node() as u64 + 1));
        // Other lengths are the same error as on one machine.
        let own_len = if comm.rank() + 1 == comm.size() { 7 } else { 8 };
        let (flat, over) = (comm.region::<u8>(own_len), nodes.region::<u8>(own_len));
        let calls = |result| match result {
            Err(Error::Mismatch { calls, .. }) => Ok(calls),
            Err(other) => Err(anyhow::anyhow!("{other:?}")),
            Ok(_) => Err(anyhow::anyhow!("other lengths are no error")),
        };
        ensure!(calls(flat.map(drop))? == calls(over.map(drop))?);
        Ok(nodes.barrier()?)
    })
}

fn nodes_of_which_a_rank_refuses(comm: Communicator) -> Outcome {
    over(&comm, |_, nodes| {
        for refusing in [0, nodes.size() - 1] {
            if nodes.rank() == refusing {
                nodes.refuse_call(Operation::Allreduce)?;
            } else {
                // Its data would have come along.
                let result = nodes.allreduce_in_place(&mut [1.0], ReduceOp::Sum);
                ensure_matches!(result, Err(Error::Refused { rank, .. }) if *rank == refusing);
            }
            nodes.barrier()?;
        }
        Ok(())
    })
}

fn nodes_behind_a_pointer(comm: Communicator) -> Outcome {
    let own: Vec<f64> = values(seed(), comm.rank(), 5000);
    let mut expected = own.clone();
    comm.allreduce_in_place(&mut expected, ReduceOp::Sum)?;
    let one: Hierarchical<Box<dyn Leaders>> = Hierarchical::on_one_node(comm.split_local()?);
    let two = Hierarchical::simulated(comm.split_local()?, &NodeMap::even(comm.size(), 2)?)?.boxed();
    for nodes in [one, two] {
        ensure!((nodes.rank(), nodes.size()) == (comm.rank(), comm.size()));
        let mut sum = own.clone();
        nodes.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
        ensure_same(&sum, &expected)?;
    }
    Ok(())
}

fn nodes_exchange_blocks(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        for len in [0, 1, 3, 500] {
            let own = values::<u16>(seed(), comm.rank(), len * comm.size());
            let (mut flat, mut over) = (vec![1; own.len()], vec![2; own.len()]);
            comm.alltoall(&own, &mut flat)?;
            nodes.alltoall(&own, &mut over)?;
            ensure_same(&over, &flat).with_context(|| format!("alltoall of {len}"))?;
            compared::same::<u16>("alltoall", nodes, "", len);
        }
        // No multiple of the number of ranks.
        let own = vec![0u8; comm.size() + 1];
        let wrong = nodes.alltoall(&own, &mut own.clone());
        ensure_matches!(wrong, Err(Error::InvalidBufferSize { .. }));
        Ok(())
    })
}

/// Elements without a size: blocks of them fit, and may overlap, but all together there are too many.
fn nodes_with_counts_that_are_too_large(comm: Communicator) -> Outcome {
    let size = comm.size();
    over(&comm, |comm, nodes| {
        let (send, counts, none) = (vec![(); usize::MAX], vec![usize::MAX; size], vec![0; size]);
        let result = nodes.alltoallv(&send, &counts, &none, &mut [], &none, &none);
        let flat = comm.alltoallv(&send, &counts, &none, &mut [], &none, &none);
        ensure_matches!(flat, Err(Error::InvalidBufferSize { .. }));
        ensure!(format!("{result:?}") == format!("{flat:?}"), "{result:?}");
        Ok(())
    })
}

/// Rank 1 has another number of ranks of the other node.
fn nodes_with_a_map_that_differs_in_a_node(comm: Communicator) -> Outcome {
    let rank = comm.rank();
    let node = comm.split(rank / 2, rank)?;
    let meet = comm.split(usize::from(rank.is_multiple_of(2)), rank)?;
    let leaders = if node.rank() == 0 { Some(LocalLeaders::new(meet)?) } else { None };
    let map = NodeMap::new(&[2, if rank == 1 { 3 } else { 2 }])?;
    match Hierarchical::new(node, leaders, map) {
        Err(Error::InvalidConfiguration(_)) => ensure!(rank < 2),
        Err(error) => ensure!(rank >= 2 && error.is_fatal(), "{error}"),
        Ok(_) => ensure!(false, "rank {rank} has a communicator"),
    }
    Ok(comm.barrier()?)
}
