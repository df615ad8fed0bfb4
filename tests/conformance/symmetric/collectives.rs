//! Collectives over symmetric objects, which are read in place where they are long enough.

use anyhow::ensure;
use intranode::{Blocks, Communicator, ReduceOp};

use crate::scenario::{Outcome, Scenario, row, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(collectives_take_objects),
        row!(collectives_mix_objects_and_private_buffers),
        row!(collectives_repeat_on_changed_objects),
        row!(reductions_mix_objects_and_private_buffers),
        row!(blocks_of_objects_reach_their_ranks),
        row!(blocks_of_objects_and_of_private_buffers),
        row!(blocks_of_objects_that_change_after_each_call),
        row!(short_objects_that_stay_as_they_are),
        row!(reductions_of_objects_that_stay_as_they_are),
    ]
}

/// More ranks than are folded at once.
pub(crate) fn rows_of_many_ranks() -> Vec<Scenario> {
    vec![
        row!(reductions_mix_objects_and_private_buffers).ranks(&[6]),
        row!(reductions_of_objects_that_stay_as_they_are).ranks(&[6]),
        // Chunks are too short for slices: ranks fold whole contributions.
        row!(whole_reductions_of_objects_that_stay_as_they_are).staging(4 << 10).ranks(&[6]),
        row!(parts_of_objects_whose_counts_fit_into_no_header).ranks(&[17]),
    ]
}

/// Around what fits into a header, what is read in place by an allgatherv (1 MiB; on Intel's processors 64 KiB, or 64 KiB for each rank) and by a
/// broadcast (4 MiB; 1 MiB), and a chunk of staging. In elements of 8 bytes.
const LENGTHS: [usize; 11] =
    [0, 1, 12, 13, 1000, 8 << 10, 33_000, (128 << 10) - 1, 128 << 10, 200_001, (512 << 10) + 1];

pub(crate) fn value(rank: usize, index: usize) -> u64 {
    (rank * 10_000_019 + index) as u64
}

/// Whether the block of each rank has arrived.
pub(crate) fn ensure_gathered(recv: &[u64], blocks: &Blocks, seed: usize) -> Outcome {
    for rank in 0..blocks.counts().len() {
        let block = &recv[blocks.range(rank)];
        let right = |(index, found): (usize, &u64)| *found == value(rank + seed, index);
        ensure!(block.iter().enumerate().all(right), "the block of rank {rank}");
    }
    Ok(())
}

fn collectives_take_objects(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    for len in LENGTHS {
        let mut own = comm.symmetric::<u64>(len)?.into_own()?;
        own.iter_mut().enumerate().for_each(|(index, slot)| *slot = value(rank, index));
        let blocks = Blocks::new(len * size, size);
        let mut recv = comm.symmetric::<u64>(len * size)?.into_own()?;
        comm.allgatherv(&own, &mut recv, &blocks.counts(), &blocks.displs())?;
        ensure_gathered(&recv, &blocks, 0)?;
        recv.fill(0);
        comm.allgather(&own, &mut recv)?;
        ensure_gathered(&recv, &blocks, 0)?;
        let mut sums = comm.symmetric::<u64>(len)?.into_own()?;
        comm.allreduce(&own, &mut sums, ReduceOp::Sum)?;
        let sum = |index| (0..size).map(|rank| value(rank, index)).sum::<u64>();
        ensure!(sums.iter().enumerate().all(|(index, found)| *found == sum(index)), "allreduce of {len}");
        for root in 0..size {
            own.iter_mut().enumerate().for_each(|(index, slot)| *slot = value(rank + root, index));
            comm.broadcast(&mut own, root)?;
            let right = |(index, found): (usize, &u64)| *found == value(2 * root, index);
            ensure!(own.iter().enumerate().all(right), "broadcast of {len} from {root}");
        }
        // Everybody's instance of an object that is only read.
        let all = own.open()?.into_read()?;
        recv.fill(1);
        comm.allgather(all.of((rank + 1) % size), &mut recv)?;
        let last = 2 * (size - 1);
        let same = |(index, found): (usize, &u64)| *found == value(last, index % len);
        ensure!(recv.iter().enumerate().all(same), "allgather of instances of others");
    }
    still_works(&comm)
}

fn collectives_mix_objects_and_private_buffers(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    // Blocks of very different lengths, of which every other one is private.
    for (least, step) in [(200_000, 0), (1024, 150_000), (0, 300_000), (130_000, 1500)] {
        let counts: Vec<usize> = (0..size).map(|rank| least + rank * step).collect();
        let displs: Vec<usize> = (0..size).map(|rank| counts[..rank].iter().sum()).collect();
        let total = counts.iter().sum();
        let mut object = comm.symmetric::<u64>(counts[size - 1])?.into_own()?;
        let mut root = comm.symmetric::<u64>(550_000)?.into_own()?;
        for private in 0..size {
            let mut send = vec![0; counts[rank]];
            send.iter_mut().enumerate().for_each(|(index, slot)| *slot = value(rank + private, index));
            object[..counts[rank]].copy_from_slice(&send);
            let send = if rank % size == private { &send[..] } else { &object[..counts[rank]] };
            let mut recv = vec![0; total];
            comm.allgatherv(send, &mut recv, &counts, &displs)?;
            for from in 0..size {
                let block = &recv[displs[from]..][..counts[from]];
                let right = |(index, found): (usize, &u64)| *found == value(from + private, index);
                ensure!(block.iter().enumerate().all(right), "block {from}, {private} private, step {step}");
            }
            // The root's buffer is an object, the others' are private, or the other way round.
            let mut buffer = vec![0; root.len()];
            let from_object = (rank == private) == (step <= 200_000);
            let buffer = if from_object { &mut root[..] } else { &mut buffer[..] };
            buffer.iter_mut().enumerate().for_each(|(index, slot)| *slot = value(rank, index));
            comm.broadcast(buffer, private)?;
            let right = |(index, found): (usize, &u64)| *found == value(private, index);
            ensure!(buffer.iter().enumerate().all(right), "broadcast from {private}");
        }
    }
    still_works(&comm)
}

/// No rank returns while another reads its block: what it writes next is seen by nobody.
fn collectives_repeat_on_changed_objects(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let len = 140_000;
    let mut own = comm.symmetric::<u64>(len)?.into_own()?;
    let mut recv = vec![0; len * size];
    let blocks = Blocks::new(len * size, size);
    for turn in 0..10 {
        own.iter_mut().enumerate().for_each(|(index, slot)| *slot = value(rank + turn, index));
        comm.allgather(&own, &mut recv)?;
        own.fill(u64::MAX);
        ensure_gathered(&recv, &blocks, turn)?;
    }
    still_works(&comm)
}

/// A number whose sums depend on their order.
fn fraction(rank: usize, index: usize) -> f64 {
    1.0 / (3 + 7 * rank + index % 1009) as f64
}

/// What a rank contributes.
fn fill(data: &mut [f64], rank: usize) {
    data.iter_mut().enumerate().for_each(|(index, slot)| *slot = fraction(rank, index));
}

/// Every result is the fold in the order of the ranks, bit for bit, whichever contribution is an object.
fn reductions_mix_objects_and_private_buffers(comm: Communicator) -> Outcome {
    // Around what is folded in slices, and several chunks of staging.
    for len in [1000, 1024, 10_001, 65_535, 65_536, 300_007] {
        let mut object = comm.symmetric::<f64>(len)?.into_own()?;
        mix_reductions(&comm, &mut object)?;
    }
    still_works(&comm)
}

/// Reductions of which some ranks contribute `shared`, and the others private memory.
pub(crate) fn mix_reductions(comm: &Communicator, shared: &mut [f64]) -> Outcome {
    let (rank, size, len) = (comm.rank(), comm.size(), shared.len());
    let expected: Vec<u64> = (0..len)
        .map(|index| (1..size).fold(fraction(0, index), |sum, rank| sum + fraction(rank, index)).to_bits())
        .collect();
    let right = |found: &[f64]| found.iter().zip(&expected).all(|(found, bits)| found.to_bits() == *bits);
    // All, or all but one, or one alone.
    for mask in [usize::MAX, !1, !(1 << (size - 1)), 1, 1 << (size - 1)] {
        let mut private = vec![0.0; len];
        let data = if mask >> rank & 1 == 1 { &mut *shared } else { &mut private[..] };
        fill(data, rank);
        let mut recv = vec![0.0; len];
        comm.allreduce(data, &mut recv, ReduceOp::Sum)?;
        ensure!(right(&recv), "allreduce of {len}, shared {mask:b}");
        let root = len % size;
        comm.reduce(data, (rank == root).then_some(&mut recv[..]), ReduceOp::Sum, root)?;
        ensure!(right(&recv), "reduce of {len}, shared {mask:b}");
        comm.allreduce_in_place(data, ReduceOp::Sum)?;
        ensure!(right(data), "allreduce_in_place of {len}, shared {mask:b}");
        fill(data, rank);
        comm.reduce_in_place(data, ReduceOp::Sum, root)?;
        ensure!(rank != root || right(data), "reduce_in_place of {len}, shared {mask:b}");
        // What is written after a call is seen by nobody.
        fill(data, rank);
        comm.allreduce_with(data, &mut recv, "sum", |sum, next| *sum += next)?;
        data.fill(f64::NAN);
        ensure!(right(&recv), "allreduce_with of {len}, shared {mask:b}");
    }
    Ok(())
}

fn reductions_of_objects_that_stay_as_they_are(comm: Communicator) -> Outcome {
    // By two ranks folded whole, and the last in slices; by more in slices.
    for len in [1100, 9001, 40_000, 70_001] {
        let mut object = comm.symmetric::<f64>(len)?.into_own()?;
        repeat_reductions(&comm, &mut object)?;
    }
    still_works(&comm)
}

fn whole_reductions_of_objects_that_stay_as_they_are(comm: Communicator) -> Outcome {
    // The roots are ranks 4 and 5: each folds what the first four have contributed before it comes to its own.
    for len in [9004, 9005] {
        let mut object = comm.symmetric::<f64>(len)?.into_own()?;
        repeat_reductions(&comm, &mut object)?;
    }
    still_works(&comm)
}

/// Reductions of contributions of which a single value changes: they are read in place from the third call on, and no rank returns
/// while another reads. Some ranks contribute `shared`, and the others private memory.
pub(crate) fn repeat_reductions(comm: &Communicator, shared: &mut [f64]) -> Outcome {
    let (rank, size, len) = (comm.rank(), comm.size(), shared.len());
    let changing = |rank: usize, turn: usize| fraction(rank + turn, 3);
    let fold = |ranks: usize, value: &dyn Fn(usize) -> f64| {
        (0..ranks).map(value).reduce(|sum, next| sum + next).unwrap_or(f64::MAX).to_bits()
    };
    let right = |found: &[f64], ranks: usize, turn: usize| {
        found.iter().enumerate().all(|(index, found)| {
            let value = |rank| if index == 1 { changing(rank, turn) } else { fraction(rank, index) };
            found.to_bits() == fold(ranks, &value)
        })
    };
    let root = len % size;
    for mask in [usize::MAX, !1, 1, 1 << (size - 1)] {
        let mut private = vec![0.0; len];
        let data = if mask >> rank & 1 == 1 { &mut *shared } else { &mut private[..] };
        fill(data, rank);
        for turn in 0..8 {
            let mut recv = vec![f64::MAX; len];
            data[1] = changing(rank, 4 * turn);
            comm.allreduce(data, &mut recv, ReduceOp::Sum)?;
            data[1] = changing(rank, 4 * turn + 1);
            ensure!(right(&recv, size, 4 * turn), "allreduce {turn} of {len}, shared {mask:b}");
            comm.reduce(data, (rank == root).then_some(&mut recv[..]), ReduceOp::Sum, root)?;
            data[1] = changing(rank, 4 * turn + 2);
            ensure!(
                rank != root || right(&recv, size, 4 * turn + 1),
                "reduce {turn} of {len}, shared {mask:b}"
            );
            comm.scan(data, &mut recv, ReduceOp::Sum)?;
            data[1] = changing(rank, 4 * turn + 3);
            ensure!(right(&recv, rank + 1, 4 * turn + 2), "scan {turn} of {len}, shared {mask:b}");
            recv.fill(f64::MAX);
            comm.exscan(data, &mut recv, ReduceOp::Sum)?;
            data[1] = f64::NAN;
            ensure!(right(&recv, rank, 4 * turn + 3), "exscan {turn} of {len}, shared {mask:b}");
        }
        // On the root, and everywhere, the result takes the place of what has not changed.
        for turn in 0..3 {
            data[1] = changing(rank, turn);
            comm.reduce_in_place(data, ReduceOp::Sum, root)?;
            ensure!(
                rank != root || right(data, size, turn),
                "reduce_in_place {turn} of {len}, shared {mask:b}"
            );
            fill(data, rank);
        }
        // On the last rank alone.
        for turn in 0..3 {
            data[1] = changing(rank, turn);
            let mut recv = vec![f64::MAX; len];
            if rank + 1 == size {
                comm.scan_in_place(data, ReduceOp::Sum)?;
                recv.copy_from_slice(data);
            } else {
                comm.scan(data, &mut recv, ReduceOp::Sum)?;
            }
            ensure!(right(&recv, rank + 1, turn), "scan_in_place {turn} of {len}, shared {mask:b}");
            fill(data, rank);
        }
        for turn in 0..3 {
            data[1] = changing(rank, turn);
            comm.allreduce_in_place(data, ReduceOp::Sum)?;
            ensure!(right(data, size, turn), "allreduce_in_place {turn} of {len}, shared {mask:b}");
            fill(data, rank);
        }
    }
    Ok(())
}

/// What rank `from` sends to rank `to`.
fn part(from: usize, to: usize, index: usize) -> u64 {
    value(from * 100 + to, index)
}

/// Whether `found` is what rank `from` sends to rank `to`, in the turn `turn`.
fn ensure_part(found: &[u64], from: usize, to: usize, turn: usize) -> Outcome {
    let right = |(index, value): (usize, &u64)| *value == part(from, to, index) + turn as u64;
    ensure!(found.iter().enumerate().all(right), "{} elements from {from} to {to}", found.len());
    Ok(())
}

/// gather, gatherv, scatter, scatterv, alltoall and alltoallv of blocks of `len` elements out of `send`, which has one for each rank.
pub(crate) fn bring_blocks(comm: &Communicator, send: &mut [u64], len: usize, turn: usize) -> Outcome {
    let (rank, size, root) = (comm.rank(), comm.size(), turn % comm.size());
    let fill = |send: &mut [u64]| {
        for (to, block) in send.chunks_mut(len.max(1)).enumerate() {
            block.iter_mut().enumerate().for_each(|(at, slot)| *slot = part(rank, to, at) + turn as u64);
        }
    };
    fill(send);
    let mut recv = vec![0; len * size];
    comm.alltoall(send, &mut recv)?;
    // What others would read too late.
    send.fill(u64::MAX);
    (0..size).try_for_each(|from| ensure_part(&recv[from * len..][..len], from, rank, turn))?;

    fill(send);
    comm.gather(&send[..len], (rank == root).then_some(&mut recv[..]), root)?;
    send.fill(u64::MAX);
    if rank == root {
        (0..size).try_for_each(|from| ensure_part(&recv[from * len..][..len], from, 0, turn))?;
    }

    fill(send);
    let counts: Vec<usize> = (0..size).map(|rank| len - rank.min(len)).collect();
    let displs: Vec<usize> = (0..size).map(|rank| (size - 1 - rank) * len).collect();
    let to = (rank == root).then_some(&mut recv[..]);
    comm.gatherv(&send[..counts[rank]], to, &counts, &displs, root)?;
    send.fill(u64::MAX);
    if rank == root {
        (0..size).try_for_each(|from| ensure_part(&recv[displs[from]..][..counts[from]], from, 0, turn))?;
    }

    fill(send);
    let own = &mut recv[..len];
    comm.scatter((rank == root).then_some(&send[..]), own, root)?;
    send.fill(u64::MAX);
    ensure_part(own, root, rank, turn)?;

    // Blocks of different lengths, each at the place that the sender alone chooses.
    fill(send);
    let count = |from: usize, to: usize| len - (from + 2 * to).min(len);
    let counts: Vec<usize> = (0..size).map(|to| count(root, to)).collect();
    let displs: Vec<usize> = (0..size).map(|to| to * len).collect();
    let own = &mut recv[..counts[rank]];
    comm.scatterv((rank == root).then_some(&send[..]), &counts, &displs, own, root)?;
    send.fill(u64::MAX);
    ensure_part(own, root, rank, turn)?;

    fill(send);
    let to: Vec<usize> = (0..size).map(|to| count(rank, to)).collect();
    let from: Vec<usize> = (0..size).map(|from| count(from, rank)).collect();
    let places: Vec<usize> = (0..size).map(|from| (size - 1 - from) * len).collect();
    comm.alltoallv(send, &to, &displs, &mut recv, &from, &places)?;
    send.fill(u64::MAX);
    (0..size).try_for_each(|other| ensure_part(&recv[places[other]..][..from[other]], other, rank, turn))?;

    // The same without gaps, so that the counts tell where they are: from all ranks, and then from some.
    let fill_packed = |send: &mut [u64]| {
        let mut end = (send.len() - to.iter().sum::<usize>()).min(1);
        let fill = |(to, count): (usize, &usize)| {
            let block = &mut send[end..end + count];
            block.iter_mut().enumerate().for_each(|(at, slot)| *slot = part(rank, to, at) + turn as u64);
            end += count;
            end - count
        };
        to.iter().enumerate().map(fill).collect::<Vec<usize>>()
    };
    let packed = fill_packed(send);
    let own = &mut recv[..counts[rank]];
    comm.scatterv((rank == root).then_some(&send[..]), &counts, &packed, own, root)?;
    send.fill(u64::MAX);
    ensure_part(own, root, rank, turn)?;
    // A root whose own block stays where it is.
    for by_counts in [false, true] {
        let (displs, len) = match by_counts {
            true => (fill_packed(send), counts[rank]),
            false => {
                fill(send);
                (displs.clone(), len)
            }
        };
        let own = if rank == root { &mut *send } else { &mut recv[..len] };
        match by_counts {
            true => comm.scatterv_in_place(own, &counts, &displs, root)?,
            false => comm.scatter_in_place(own, root)?,
        }
        let start = if rank == root { displs[rank] } else { 0 };
        ensure_part(&own[start..][..len], root, rank, turn)?;
        send.fill(u64::MAX);
    }
    for some in [false, true] {
        let with_gaps = some && (rank + turn).is_multiple_of(2);
        let places_in_send = if with_gaps { displs.clone() } else { fill_packed(send) };
        if with_gaps {
            fill(send);
        }
        recv.fill(0);
        comm.alltoallv(send, &to, &places_in_send, &mut recv, &from, &places)?;
        send.fill(u64::MAX);
        (0..size)
            .try_for_each(|other| ensure_part(&recv[places[other]..][..from[other]], other, rank, turn))?;
    }
    Ok(())
}

fn blocks_of_objects_reach_their_ranks(comm: Communicator) -> Outcome {
    for len in LENGTHS {
        let mut object = comm.symmetric::<u64>(len * comm.size())?.into_own()?;
        (0..comm.size().min(3)).try_for_each(|turn| bring_blocks(&comm, &mut object, len, turn))?;
    }
    still_works(&comm)
}

fn blocks_of_objects_and_of_private_buffers(comm: Communicator) -> Outcome {
    for len in [40_000, 140_000, 600_000] {
        let mut object = comm.symmetric::<u64>(len * comm.size())?.into_own()?;
        let mut private = vec![0; len * comm.size()];
        for turn in 0..comm.size() {
            let send = if comm.rank() % 2 == turn % 2 { &mut object[..] } else { &mut private[..] };
            bring_blocks(&comm, send, len, turn)?;
        }
    }
    still_works(&comm)
}

fn blocks_of_objects_that_change_after_each_call(comm: Communicator) -> Outcome {
    let len = (4 << 20) / 8 / comm.size() + 1;
    let mut object = comm.symmetric::<u64>(len * comm.size())?.into_own()?;
    (0..10).try_for_each(|turn| bring_blocks(&comm, &mut object, len, turn))?;
    still_works(&comm)
}

/// Short blocks are read in place from the third call on in which they are the same; also where they change unseen.
fn short_objects_that_stay_as_they_are(comm: Communicator) -> Outcome {
    const LEN: usize = 3000;
    let (rank, size, is_root) = (comm.rank(), comm.size(), comm.rank() == 0);
    let counts: Vec<usize> = (0..size).map(|rank| LEN - 1 - rank).collect();
    let displs: Vec<usize> = (0..size).map(|rank| 2 + counts[..rank].iter().sum::<usize>()).collect();
    let places: Vec<usize> = (0..size).map(|rank| rank * LEN).collect();
    for call in ["alltoall", "alltoallv", "gather", "scatter", "scatterv", "allgather", "broadcast"] {
        let mut own = comm.symmetric::<u64>(LEN * size)?.into_own()?;
        own.iter_mut().enumerate().for_each(|(index, slot)| *slot = value(rank, index));
        let mut recv = vec![0; LEN * size];
        for turn in 0..20 {
            recv.fill(0);
            own.chunks_mut(LEN).for_each(|block| block[1] = turn);
            // By block: the rank that it is from, and where it begins there.
            let expected: Vec<(usize, usize)> = match call {
                "alltoall" => {
                    comm.alltoall(&own, &mut recv)?;
                    (0..size).map(|from| (from, rank * LEN)).collect()
                }
                "alltoallv" => {
                    let from = vec![counts[rank]; size];
                    comm.alltoallv(&own, &counts, &displs, &mut recv, &from, &places)?;
                    (0..size).map(|from| (from, displs[rank])).collect()
                }
                "gather" => {
                    comm.gather(&own[..LEN], is_root.then_some(&mut recv[..]), 0)?;
                    (0..if is_root { size } else { 0 }).map(|from| (from, 0)).collect()
                }
                "scatter" => {
                    comm.scatter(is_root.then_some(&own[..]), &mut recv[..LEN], 0)?;
                    vec![(0, rank * LEN)]
                }
                "scatterv" => {
                    let (send, recv) = (is_root.then_some(&own[..]), &mut recv[..counts[rank]]);
                    comm.scatterv(send, &counts, &displs, recv, 0)?;
                    vec![(0, displs[rank])]
                }
                "allgather" => {
                    comm.allgather(&own[..LEN], &mut recv)?;
                    (0..size).map(|from| (from, 0)).collect()
                }
                _ if is_root => {
                    comm.broadcast(&mut own[..LEN], 0)?;
                    vec![]
                }
                _ => {
                    comm.broadcast(&mut recv[..LEN], 0)?;
                    vec![(0, 0)]
                }
            };
            own.chunks_mut(LEN).for_each(|block| block[1] = u64::MAX);
            let len = if call.ends_with('v') { counts[rank] } else { LEN };
            for (block, (from, start)) in recv.chunks(LEN).zip(expected) {
                let value = |index: usize| match start + index {
                    at if at % LEN == 1 => turn,
                    at => value(from, at),
                };
                let right = block[..len].iter().enumerate().all(|(index, found)| *found == value(index));
                ensure!(right, "{call}: the block from {from} in turn {turn}");
            }
        }
    }
    still_works(&comm)
}

/// The counts of an alltoallv take rounds of their own here.
fn parts_of_objects_whose_counts_fit_into_no_header(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let count = |from: usize, to: usize| 70_000 - 100 * from - to;
    let counts: Vec<usize> = (0..size).map(|to| count(rank, to)).collect();
    let from: Vec<usize> = (0..size).map(|from| count(from, rank)).collect();
    let starts = |counts: &[usize], gap: usize| {
        (0..size).map(|rank| 3 + gap * rank + counts[..rank].iter().sum::<usize>()).collect::<Vec<usize>>()
    };
    let byte = |from: usize, to: usize, at: usize| (31 * from + 57 * to + 7 * at + at / 256) as u8;
    let mut object = comm.symmetric::<u8>(70_000 * size + 3)?.into_own()?;
    let places = starts(&from, 0);
    // Without gaps, and then some ranks with gaps.
    for gap in [0, usize::from(rank % 3 == 1)] {
        let displs = starts(&counts, gap);
        for to in 0..size {
            let block = &mut object[displs[to]..][..counts[to]];
            block.iter_mut().enumerate().for_each(|(at, slot)| *slot = byte(rank, to, at));
        }
        let mut recv = vec![0; 3 + from.iter().sum::<usize>()];
        comm.alltoallv(&object, &counts, &displs, &mut recv, &from, &places)?;
        object.fill(0xEE);
        for (other, start) in places.iter().enumerate() {
            let block = &recv[*start..][..from[other]];
            let is_right = |(at, found): (usize, &u8)| *found == byte(other, rank, at);
            ensure!(block.iter().enumerate().all(is_right), "from {other}, with gaps of {gap}");
        }
    }
    still_works(&comm)
}
