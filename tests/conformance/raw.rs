//! Collectives over buffers that other threads may write.

use anyhow::Context;
use intranode::{Communicator, Error, RawSource, RawTarget, ReduceOp};

use crate::model::{Value, ensure_same, reduced, values};
use crate::scenario::{Outcome, Scenario, row, seed, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(raw_and_other_buffers_in_one_call).ranks(&[1, 2, 3, 4, 6]),
        row!(raw_and_other_buffers_through_tiny_staging).staging(64),
        row!(raw_and_regions_in_one_call).ranks(&[2, 3, 6]),
        row!(raw_buffers_need_no_alignment),
        row!(raw_buffers_of_different_lengths_are_an_error),
        row!(raw_reduce_and_other_buffers_in_one_call).ranks(&[1, 2, 3, 6]),
        row!(raw_broadcast_and_other_buffers_in_one_call).ranks(&[1, 2, 3, 6]),
        row!(raw_gathers_and_other_buffers_in_one_call).ranks(&[1, 2, 3, 6]),
        row!(raw_transfers_through_tiny_staging).staging(64),
        row!(raw_transfers_and_regions_in_one_call).ranks(&[2, 3, 6]),
        row!(raw_buffers_of_wrong_ranks_are_an_error).ranks(&[2, 3]),
    ]
}

/// Each rank in another of the four ways, which change from call to call.
fn mixed<T: intranode::Number + Value>(comm: &Communicator, turn: usize, op: ReduceOp, len: usize) -> Outcome {
    let own = values::<T>(seed(), comm.rank(), len);
    let mut recv = own.clone();
    match (comm.rank() + turn) % 4 {
        0 => comm.allreduce_raw(Some(RawSource::from(&own[..])), RawTarget::from(&mut recv[..]), op)?,
        1 => comm.allreduce_raw(None, RawTarget::from(&mut recv[..]), op)?,
        2 => comm.allreduce(&own, &mut recv, op)?,
        _ => comm.allreduce_in_place(&mut recv, op)?,
    }
    let way = || format!("{op} of {len} × {}, turn {turn}", std::any::type_name::<T>());
    ensure_same(&recv, &reduced(op, seed(), comm.size(), len)).with_context(way)
}

fn raw_and_other_buffers_in_one_call(comm: Communicator) -> Outcome {
    // Around what a header takes, a piece, and what is folded in slices.
    for len in [0, 1, 12, 13, 1000, 1024, 1025, 5000, 65_535, 65_537, 200_003] {
        for turn in 0..4 {
            mixed::<f64>(&comm, turn, ReduceOp::Sum, len)?;
        }
        mixed::<i8>(&comm, len, ReduceOp::Prod, len)?;
        mixed::<isize>(&comm, len, ReduceOp::Sum, len)?;
        mixed::<i16>(&comm, len, ReduceOp::Min, len)?;
        mixed::<u32>(&comm, len, ReduceOp::Max, len)?;
    }
    still_works(&comm)
}

fn raw_and_other_buffers_through_tiny_staging(comm: Communicator) -> Outcome {
    for len in [1, 12, 13, 100, 1100] {
        for turn in 0..4 {
            mixed::<f64>(&comm, turn, ReduceOp::Sum, len)?;
        }
    }
    still_works(&comm)
}

/// What others send from a region is read there.
fn raw_and_regions_in_one_call(comm: Communicator) -> Outcome {
    for len in [70_000, 150_007] {
        let mut region = comm.region::<f64>(len * comm.size())?;
        region.distribute()?;
        let own = values::<f64>(seed(), comm.rank(), len);
        let part = region.as_mut_slice();
        for turn in 0..comm.size() {
            let mut recv = vec![0.0; len];
            if comm.rank() == turn {
                let send = Some(RawSource::from(&own[..]));
                comm.allreduce_raw(send, RawTarget::from(&mut recv[..]), ReduceOp::Sum)?;
            } else {
                part[..len].copy_from_slice(&own);
                comm.allreduce(&part[..len], &mut recv, ReduceOp::Sum)?;
            }
            ensure_same(&recv, &reduced(ReduceOp::Sum, seed(), comm.size(), len))?;
        }
    }
    still_works(&comm)
}

fn raw_buffers_need_no_alignment(comm: Communicator) -> Outcome {
    let len = 70_001;
    let own = values::<f64>(seed(), comm.rank(), len);
    let (mut send, mut recv) = (vec![0u8; 8 * len + 1], vec![0u8; 8 * len + 3]);
    send[1..].copy_from_slice(bytemuck::cast_slice(&own));
    // SAFETY: the vector has as many bytes behind the offset, and is not touched while the view exists.
    let source = unsafe { RawSource::new(send.as_ptr().wrapping_add(1).cast(), len) };
    // SAFETY: as above.
    let target = unsafe { RawTarget::new(recv.as_mut_ptr().wrapping_add(3).cast(), len) };
    comm.allreduce_raw::<f64>(Some(source), target, ReduceOp::Sum)?;
    let expected = reduced::<f64>(ReduceOp::Sum, seed(), comm.size(), len);
    ensure_same(&recv[3..], bytemuck::cast_slice(&expected))
}

fn raw_buffers_of_different_lengths_are_an_error(comm: Communicator) -> Outcome {
    let (send, mut recv) = ([1u32; 3], [0u32; 4]);
    let result =
        comm.allreduce_raw(Some(RawSource::from(&send[..])), RawTarget::from(&mut recv[..]), ReduceOp::Sum);
    anyhow::ensure!(
        matches!(result, Err(Error::InvalidBufferSize { expected: 3, actual: 4, .. })),
        "{result:?}"
    );
    still_works(&comm)
}

/// Lengths around what a header takes, and a chunk.
const LENGTHS: [usize; 9] = [0, 1, 12, 13, 1000, 5000, 65_537, 140_001, 200_003];

fn raw_reduce_and_other_buffers_in_one_call(comm: Communicator) -> Outcome {
    for len in LENGTHS {
        for root in [0, comm.size() - 1] {
            for turn in 0..3 {
                let own = values::<f64>(seed(), comm.rank(), len);
                let (mut recv, is_root, op) = (own.clone(), comm.rank() == root, ReduceOp::Sum);
                let send = Some(RawSource::from(&own[..]));
                match (comm.rank() + turn) % 3 {
                    0 => comm.reduce(&own, is_root.then_some(&mut recv[..]), op, root)?,
                    1 if is_root => comm.reduce_raw(None, Some(RawTarget::from(&mut recv[..])), op, root)?,
                    _ if is_root => comm.reduce_raw(send, Some(RawTarget::from(&mut recv[..])), op, root)?,
                    _ => comm.reduce_raw(send, None, op, root)?,
                }
                let expected = if is_root { reduced(op, seed(), comm.size(), len) } else { own };
                ensure_same(&recv, &expected).with_context(|| format!("{len} to {root}, turn {turn}"))?;
            }
        }
    }
    still_works(&comm)
}

/// Each rank in one of the two ways, which change from call to call.
fn broadcast(comm: &Communicator, len: usize, root: usize, turn: usize) -> Outcome {
    let sent = values::<u16>(seed(), root, len);
    let mut data = if comm.rank() == root { sent.clone() } else { vec![7; len] };
    match ((comm.rank() + turn).is_multiple_of(2), comm.rank() == root) {
        (true, _) => comm.broadcast(&mut data, root)?,
        (false, true) => comm.broadcast_raw(Some(RawSource::from(&data[..])), None, root)?,
        (false, false) => comm.broadcast_raw(None, Some(RawTarget::from(&mut data[..])), root)?,
    }
    ensure_same(&data, &sent).with_context(|| format!("{len} of {root}, turn {turn}"))
}

fn raw_broadcast_and_other_buffers_in_one_call(comm: Communicator) -> Outcome {
    for len in LENGTHS {
        for root in 0..comm.size() {
            broadcast(&comm, len, root, 0)?;
            broadcast(&comm, len, root, 1)?;
        }
    }
    still_works(&comm)
}

/// An allgather, an allgatherv with gaps, and a gather of blocks of `len`, each rank in one of the ways there are.
fn gathers(comm: &Communicator, len: usize, turn: usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let own = values::<u32>(seed(), rank, len);
    let send = Some(RawSource::from(&own[..]));
    let all: Vec<u32> = (0..size).flat_map(|rank| values::<u32>(seed(), rank, len)).collect();
    let placed = || {
        let mut recv = vec![7; size * len];
        recv[rank * len..][..len].copy_from_slice(&own);
        recv
    };

    let mut recv = placed();
    match (rank + turn) % 4 {
        0 => comm.allgather_raw(send, RawTarget::from(&mut recv[..]))?,
        1 => comm.allgather_raw(None, RawTarget::from(&mut recv[..]))?,
        2 => comm.allgather(&own, &mut recv)?,
        _ => comm.allgather_in_place(&mut recv)?,
    }
    ensure_same(&recv, &all).with_context(|| format!("allgather of {len}, turn {turn}"))?;

    // Rank r has r elements less, and blocks lie in the order of the ranks backwards, with gaps.
    let counts: Vec<usize> = (0..size).map(|rank| len.saturating_sub(rank)).collect();
    let displs: Vec<usize> = (0..size).map(|rank| (size - 1 - rank) * (len + 1)).collect();
    let (mut recv, mut expected) = (vec![7; size * (len + 1)], vec![7; size * (len + 1)]);
    for from in 0..size {
        expected[displs[from]..][..counts[from]].copy_from_slice(&all[from * len..][..counts[from]]);
    }
    let own_part = &own[..counts[rank]];
    recv[displs[rank]..][..counts[rank]].copy_from_slice(own_part);
    let target = RawTarget::from(&mut recv[..]);
    match (rank + turn) % 3 {
        0 => comm.allgatherv_raw(Some(RawSource::from(own_part)), target, &counts, &displs)?,
        1 => comm.allgatherv_raw(None, target, &counts, &displs)?,
        _ => comm.allgatherv(own_part, &mut recv, &counts, &displs)?,
    }
    ensure_same(&recv, &expected).with_context(|| format!("allgatherv of {len}, turn {turn}"))?;

    let root = turn % size;
    let (mut recv, is_root) = (placed(), rank == root);
    match ((rank + turn) % 3, is_root) {
        (0, _) => comm.gather(&own, is_root.then_some(&mut recv[..]), root)?,
        (1, true) => comm.gather_raw(None, Some(RawTarget::from(&mut recv[..])), root)?,
        (_, true) => comm.gather_raw(send, Some(RawTarget::from(&mut recv[..])), root)?,
        (_, false) => comm.gather_raw(send, None, root)?,
    }
    let expected = if is_root { all } else { placed() };
    ensure_same(&recv, &expected).with_context(|| format!("gather of {len}, turn {turn}"))
}

fn raw_gathers_and_other_buffers_in_one_call(comm: Communicator) -> Outcome {
    for len in LENGTHS {
        for turn in 0..4 {
            gathers(&comm, len, turn)?;
        }
    }
    still_works(&comm)
}

fn raw_transfers_through_tiny_staging(comm: Communicator) -> Outcome {
    for len in [1, 24, 25, 100, 1100] {
        for turn in 0..4 {
            gathers(&comm, len, turn)?;
            broadcast(&comm, len, turn % comm.size(), turn)?;
        }
    }
    still_works(&comm)
}

/// What others send from a region is read there.
fn raw_transfers_and_regions_in_one_call(comm: Communicator) -> Outcome {
    let (rank, size, len) = (comm.rank(), comm.size(), 1 << 20);
    let mut region = comm.region::<u64>(len * size)?;
    region.distribute()?;
    let own = values::<u64>(seed(), rank, len);
    let part = region.as_mut_slice();
    part[..len].copy_from_slice(&own);
    for turn in 0..size {
        let mut recv = vec![0; len * size];
        if rank == turn {
            comm.allgather_raw(Some(RawSource::from(&own[..])), RawTarget::from(&mut recv[..]))?;
        } else {
            comm.allgather(&part[..len], &mut recv)?;
        }
        for from in 0..size {
            ensure_same(&recv[from * len..][..len], &values::<u64>(seed(), from, len))?;
        }
        if rank == turn {
            comm.broadcast(&mut part[..len], turn)?;
        } else {
            recv.truncate(len);
            comm.broadcast_raw(None, Some(RawTarget::from(&mut recv[..])), turn)?;
            ensure_same(&recv, &values::<u64>(seed(), turn, len))?;
        }
    }
    still_works(&comm)
}

fn raw_buffers_of_wrong_ranks_are_an_error(comm: Communicator) -> Outcome {
    let mut data = [0u32; 4];
    // What the root has to send is where it receives, and the other way round.
    let wrong = match comm.rank() {
        0 => comm.broadcast_raw(None, Some(RawTarget::from(&mut data[..])), 0),
        _ => comm.broadcast_raw(Some(RawSource::from(&data[..])), None, 0),
    };
    anyhow::ensure!(matches!(wrong, Err(Error::RootBuffer { root: 0, .. })), "{wrong:?}");
    let wrong = comm.broadcast_raw::<u32>(None, None, 0);
    anyhow::ensure!(matches!(wrong, Err(Error::RootBuffer { .. } | Error::Refused { .. })), "{wrong:?}");
    let wrong = comm.gather_raw::<u32>(None, None, 0);
    anyhow::ensure!(matches!(wrong, Err(Error::RootBuffer { root: 0, .. })), "{wrong:?}");
    let wrong = comm.reduce_raw::<u32>(None, None, ReduceOp::Sum, 1);
    anyhow::ensure!(matches!(wrong, Err(Error::RootBuffer { root: 1, .. })), "{wrong:?}");
    let wrong = comm.allgather_raw(Some(RawSource::from(&[1u32; 2][..])), RawTarget::from(&mut data[..3]));
    anyhow::ensure!(matches!(wrong, Err(Error::InvalidBufferSize { actual: 3, .. })), "{wrong:?}");
    still_works(&comm)
}
