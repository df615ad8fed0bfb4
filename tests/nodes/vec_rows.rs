//! Rows of blocks whose lengths only their senders know, of values of any type, and of the in-place forms.

use anyhow::{Context, ensure};
use fastrand::Rng;
use intranode::{Blocks, Communicator, Error, ReduceOp};

use crate::compared;
use crate::model::{ensure_same, values};
use crate::rows::over;
use crate::scenario::{Outcome, Scenario, ensure_matches, row, seed};

const RANKS: &[usize] = &[2, 3, 6];

pub(crate) fn rows() -> Vec<Scenario> {
    let mut rows = vec![
        row!(nodes_with_lengths_that_senders_know).ranks(RANKS),
        row!(nodes_in_place).ranks(RANKS),
        row!(nodes_refuse_wrong_blocks_in_place).ranks(&[2, 3]),
    ];
    if cfg!(feature = "serde") {
        rows.extend([
            row!(nodes_with_values).ranks(RANKS),
            row!(nodes_refuse_wrong_values).ranks(&[2, 3]),
            row!(nodes_with_values_that_make_calls_when_they_are_dropped).ranks(&[2, 3]),
        ]);
    }
    rows
}

fn nodes_with_lengths_that_senders_know(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        for most in [0, 1, 5, 3000] {
            let mut random = Rng::with_seed(seed() ^ most as u64);
            let lens: Vec<usize> =
                (0..size).map(|_| if random.bool() { random.usize(..=most) } else { 0 }).collect();
            let own = values::<u32>(seed(), rank, lens[rank]);
            let (flat, over) = (comm.allgather_vec(&own)?, nodes.allgather_vec(&own)?);
            ensure!(over.1 == lens && over == flat, "allgather_vec: {:?} of {:?}", over.1, flat.1);
            compared::same::<u32>("allgather_vec", nodes, "", most);
            for (root, len) in lens.iter().enumerate() {
                let (flat, over) = (comm.gather_vec(&own, root)?, nodes.gather_vec(&own, root)?);
                ensure!(over.is_some() == (rank == root) && over == flat, "gather_vec on {root}");
                compared::same::<u32>("gather_vec", nodes, "", most);
                let (mut flat, mut over) = (own.clone(), own.clone());
                comm.broadcast_vec(&mut flat, root)?;
                nodes.broadcast_vec(&mut over, root)?;
                ensure!(over.len() == *len, "broadcast_vec from {root}: {} elements", over.len());
                ensure_same(&over, &flat).with_context(|| format!("broadcast_vec from {root}"))?;
                compared::same::<u32>("broadcast_vec", nodes, "", most);
            }
        }
        // As many elements of no bytes as a vector has, and more.
        let mut most = vec![(); if rank == 0 { usize::MAX } else { 0 }];
        nodes.broadcast_vec(&mut most, 0)?;
        ensure!(most.len() == usize::MAX, "broadcast_vec: {} elements", most.len());
        ensure_matches!(nodes.allgather_vec(&[(); usize::MAX - 1]), Err(Error::AllocationFailed { .. }));
        ensure_matches!(nodes.broadcast_vec(&mut vec![0u8], size), Err(Error::InvalidRoot { .. }));
        ensure_matches!(nodes.gather_vec(&[0u8], size), Err(Error::InvalidRoot { .. }));
        // One rank gathers what the others broadcast.
        let differs = if rank == 0 {
            nodes.allgather_vec(&[1u8]).map(drop)
        } else {
            nodes.broadcast_vec(&mut vec![1u8], 0)
        };
        ensure_matches!(differs, Err(Error::Mismatch { .. }));
        Ok(nodes.barrier()?)
    })
}

#[cfg(feature = "serde")]
fn nodes_with_values(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        let own = (rank, format!("{rank}").repeat(rank * 40), vec![Some(1.5), None]);
        ensure!(nodes.allgather_values(&own)? == comm.allgather_values(&own)?);
        for root in 0..size {
            ensure!(nodes.gather_values(&own, root)? == comm.gather_values(&own, root)?);
            let (mut flat, mut over) = (own.clone(), own.clone());
            comm.broadcast_value(&mut flat, root)?;
            nodes.broadcast_value(&mut over, root)?;
            ensure!(over == flat && over.0 == root, "{over:?} instead of {flat:?}");
        }
        Ok(())
    })
}

#[cfg(feature = "serde")]
fn nodes_refuse_wrong_values(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, last) = (comm.rank(), comm.size() - 1);
        // The last rank expects another type than the first sends.
        let result = if rank == last {
            let mut number = 7u8;
            let result = nodes.broadcast_value(&mut number, 0);
            ensure!(number == 7, "the value has changed to {number}");
            ensure_matches!(&result, Err(Error::InvalidValue { from: 0, .. }));
            result
        } else {
            nodes.broadcast_value(&mut "a longer text".to_owned(), 0)
        };
        if rank != last {
            ensure_matches!(result, Err(Error::Refused { rank, .. }) if *rank == last);
        }
        Ok(nodes.barrier()?)
    })
}

/// Makes a call when it is dropped, unless it was received. A panic there would be one of the test.
#[cfg(feature = "serde")]
struct Caller<'c>(Option<&'c intranode::Hierarchical>);

#[cfg(feature = "serde")]
impl Drop for Caller<'_> {
    fn drop(&mut self) {
        if let Some(nodes) = self.0 {
            nodes.barrier().expect("no call is under way");
        }
    }
}

#[cfg(feature = "serde")]
impl serde::Serialize for Caller<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_unit()
    }
}

#[cfg(feature = "serde")]
impl<'d> serde::Deserialize<'d> for Caller<'_> {
    fn deserialize<D: serde::Deserializer<'d>>(deserializer: D) -> Result<Self, D::Error> {
        <()>::deserialize(deserializer).map(|()| Caller(None))
    }
}

#[cfg(feature = "serde")]
fn nodes_with_values_that_make_calls_when_they_are_dropped(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let mut value = Caller(Some(nodes));
        nodes.broadcast_value(&mut value, 0)?;
        ensure!(value.0.is_some() == (comm.rank() == 0));
        drop(value);
        Ok(nodes.barrier()?)
    })
}

#[cfg(not(feature = "serde"))]
fn nodes_with_values_that_make_calls_when_they_are_dropped(_: Communicator) -> Outcome {
    unreachable!("the row is not listed")
}

#[cfg(not(feature = "serde"))]
fn nodes_with_values(_: Communicator) -> Outcome {
    unreachable!("the row is not listed")
}

#[cfg(not(feature = "serde"))]
fn nodes_refuse_wrong_values(_: Communicator) -> Outcome {
    unreachable!("the row is not listed")
}

fn nodes_in_place(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        for len in [0, 1, 7, 2000] {
            let all = values::<i64>(seed(), rank, len * size);
            // Both calls get the same, and must leave the same.
            let both = |call: &'static str,
                        flat: &mut dyn FnMut(&mut [i64]) -> Result<(), Error>,
                        over: &mut dyn FnMut(&mut [i64]) -> Result<(), Error>,
                        own: &[i64]|
             -> Outcome {
                let (mut expected, mut got) = (own.to_vec(), own.to_vec());
                flat(&mut expected)?;
                over(&mut got)?;
                compared::same::<i64>(call, nodes, "", len);
                ensure_same(&got, &expected).with_context(|| format!("{call} of {len}"))
            };
            both(
                "allgather_in_place",
                &mut |data| comm.allgather_in_place(data),
                &mut |data| nodes.allgather_in_place(data),
                &all,
            )?;
            both(
                "alltoall_in_place",
                &mut |data| comm.alltoall_in_place(data),
                &mut |data| nodes.alltoall_in_place(data),
                &all,
            )?;
            let op = ReduceOp::Max;
            both(
                "reduce_scatter_block_in_place",
                &mut |data| comm.reduce_scatter_block_in_place(data, op),
                &mut |data| nodes.reduce_scatter_block_in_place(data, op),
                &all,
            )?;
            // Blocks of uneven lengths, the last rank's first.
            let uneven = Blocks::new(len * size + size / 2, size);
            let (counts, mut displs) = (uneven.counts(), vec![0; size]);
            for rank in (0..size - 1).rev() {
                displs[rank] = displs[rank + 1] + counts[rank + 1];
            }
            let all_uneven = values::<i64>(seed(), rank, counts.iter().sum());
            both(
                "reduce_scatter_in_place",
                &mut |data| comm.reduce_scatter_in_place(data, &counts, op),
                &mut |data| nodes.reduce_scatter_in_place(data, &counts, op),
                &all_uneven,
            )?;
            both(
                "allgatherv_in_place",
                &mut |data| comm.allgatherv_in_place(data, &counts, &displs),
                &mut |data| nodes.allgatherv_in_place(data, &counts, &displs),
                &all_uneven,
            )?;
            for root in 0..size {
                let (own, own_uneven) = match rank == root {
                    true => (&all[..], &all_uneven[..]),
                    false => (&all[..len], &all_uneven[..counts[rank]]),
                };
                both(
                    "gather_in_place",
                    &mut |data| comm.gather_in_place(data, root),
                    &mut |data| nodes.gather_in_place(data, root),
                    own,
                )?;
                both(
                    "scatter_in_place",
                    &mut |data| comm.scatter_in_place(data, root),
                    &mut |data| nodes.scatter_in_place(data, root),
                    own,
                )?;
                both(
                    "gatherv_in_place",
                    &mut |data| comm.gatherv_in_place(data, &counts, &displs, root),
                    &mut |data| nodes.gatherv_in_place(data, &counts, &displs, root),
                    own_uneven,
                )?;
                both(
                    "scatterv_in_place",
                    &mut |data| comm.scatterv_in_place(data, &counts, &displs, root),
                    &mut |data| nodes.scatterv_in_place(data, &counts, &displs, root),
                    own_uneven,
                )?;
            }
        }
        Ok(())
    })
}

fn nodes_refuse_wrong_blocks_in_place(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        // Rank 0's buffer is one too long, or too short for its block; the others are refused by it.
        let refused = |result: Result<(), Error>| -> Outcome {
            match rank {
                0 => ensure_matches!(result, Err(Error::InvalidBufferSize { .. })),
                _ => ensure_matches!(result, Err(Error::Refused { rank: 0, .. })),
            }
            Ok(())
        };
        let longer = size + usize::from(rank == 0);
        refused(nodes.allgather_in_place(&mut vec![1u8; longer]))?;
        refused(nodes.alltoall_in_place(&mut vec![1u8; longer]))?;
        let (counts, displs) = (vec![2; size], (0..size).map(|rank| 2 * rank).collect::<Vec<_>>());
        let shorter = 2 * size - usize::from(rank == 0);
        refused(nodes.allgatherv_in_place(&mut vec![1u8; shorter], &counts, &displs))?;
        let of_root = |root_len: usize, len: usize| vec![1u8; if rank == 0 { root_len } else { len }];
        refused(nodes.gather_in_place(&mut of_root(size + 1, 1), 0))?;
        refused(nodes.scatter_in_place(&mut of_root(size + 1, 1), 0))?;
        refused(nodes.gatherv_in_place(&mut of_root(2 * size - 1, 2), &counts, &displs, 0))?;
        refused(nodes.scatterv_in_place(&mut of_root(2 * size - 1, 2), &counts, &displs, 0))?;
        ensure_matches!(nodes.gather_in_place(&mut [1u8], size), Err(Error::InvalidRoot { .. }));
        Ok(nodes.barrier()?)
    })
}
