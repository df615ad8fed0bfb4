//! scatter and alltoall(v) over buffers that other threads may write.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use anyhow::Context;
use intranode::{Communicator, Error, RawSource, RawTarget};

use crate::model::{ensure_same, values};
use crate::scenario::{Outcome, Scenario, row, seed, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(raw_scatter_and_other_buffers_in_one_call).ranks(&[1, 2, 3, 6]),
        row!(raw_alltoalls_and_other_buffers_in_one_call).ranks(&[1, 2, 3, 6]),
        row!(raw_parts_through_tiny_staging).staging(64),
        row!(raw_parts_and_regions_in_one_call).ranks(&[2, 3]),
        row!(raw_parts_need_no_alignment).ranks(&[2, 3]),
        row!(raw_parts_that_a_thread_writes_meanwhile).ranks(&[2, 3]),
        row!(raw_parts_of_wrong_ranks_or_lengths_are_an_error).ranks(&[2, 3]),
    ]
}

/// Lengths of a block, around what a header takes, and a chunk.
const LENGTHS: [usize; 8] = [0, 1, 12, 13, 1000, 5000, 65_537, 140_001];

/// The block of one rank for another.
fn block(from: usize, to: usize, len: usize) -> Vec<u32> {
    values(seed().wrapping_add(to as u64), from, len)
}

/// A scatter of blocks of `len`, each rank in one of the ways there are.
fn scatter(comm: &Communicator, len: usize, root: usize, turn: usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let is_root = rank == root;
    let all: Vec<u32> = (0..size).flat_map(|to| block(root, to, len)).collect();
    let (mut own, mut expected) = (vec![7; len], block(root, rank, len));
    match ((rank + turn) % 4, is_root) {
        (0, _) => comm.scatter(is_root.then_some(&all[..]), &mut own, root)?,
        (1, false) => comm.scatter_in_place(&mut own, root)?,
        (1, true) => {
            comm.scatter_in_place(&mut all.clone(), root)?;
            expected.fill(7);
        }
        (2, true) => {
            comm.scatter_raw(Some(RawSource::from(&all[..])), None, root)?;
            expected.fill(7);
        }
        _ => {
            let send = is_root.then(|| RawSource::from(&all[..]));
            comm.scatter_raw(send, Some(RawTarget::from(&mut own[..])), root)?;
        }
    }
    ensure_same(&own, &expected).with_context(|| format!("scatter of {len} by {root}, turn {turn}"))
}

fn raw_scatter_and_other_buffers_in_one_call(comm: Communicator) -> Outcome {
    for len in LENGTHS {
        for turn in 0..4 {
            scatter(&comm, len, (len + turn) % comm.size(), turn)?;
        }
    }
    still_works(&comm)
}

/// An alltoall of blocks of `len`, and an alltoallv with gaps, each rank in one of the ways there are.
fn alltoalls(comm: &Communicator, len: usize, turn: usize) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let send: Vec<u32> = (0..size).flat_map(|to| block(rank, to, len)).collect();
    let mut recv = vec![7; size * len];
    match (rank + turn) % 3 {
        0 => comm.alltoall(&send, &mut recv)?,
        1 => {
            recv.copy_from_slice(&send);
            comm.alltoall_in_place(&mut recv)?;
        }
        _ => comm.alltoall_raw(RawSource::from(&send[..]), RawTarget::from(&mut recv[..]))?,
    }
    let expected: Vec<u32> = (0..size).flat_map(|from| block(from, rank, len)).collect();
    ensure_same(&recv, &expected).with_context(|| format!("alltoall of {len}, turn {turn}"))?;

    // Rank r gets r elements less, in the order of the ranks backwards, with gaps.
    let sent: Vec<usize> = (0..size).map(|to| len.saturating_sub(to)).collect();
    let received = vec![len.saturating_sub(rank); size];
    let from: Vec<usize> = (0..size).map(|to| to * len).collect();
    let to: Vec<usize> = (0..size).map(|from| (size - 1 - from) * (len + 1)).collect();
    let (mut recv, mut expected) = (vec![7; size * (len + 1)], vec![7; size * (len + 1)]);
    for other in 0..size {
        let count = received[other];
        expected[to[other]..][..count].copy_from_slice(&block(other, rank, len)[..count]);
    }
    if (rank + turn).is_multiple_of(2) {
        comm.alltoallv(&send, &sent, &from, &mut recv, &received, &to)?;
    } else {
        let (source, target) = (RawSource::from(&send[..]), RawTarget::from(&mut recv[..]));
        comm.alltoallv_raw(source, &sent, &from, target, &received, &to)?;
    }
    ensure_same(&recv, &expected).with_context(|| format!("alltoallv of {len}, turn {turn}"))
}

fn raw_alltoalls_and_other_buffers_in_one_call(comm: Communicator) -> Outcome {
    for len in LENGTHS {
        for turn in 0..3 {
            alltoalls(&comm, len, turn)?;
        }
    }
    still_works(&comm)
}

fn raw_parts_through_tiny_staging(comm: Communicator) -> Outcome {
    for len in [1, 3, 24, 25, 100, 1100] {
        for turn in 0..4 {
            scatter(&comm, len, turn % comm.size(), turn)?;
            alltoalls(&comm, len, turn)?;
        }
    }
    still_works(&comm)
}

/// What others send from a region is read there.
fn raw_parts_and_regions_in_one_call(comm: Communicator) -> Outcome {
    let (rank, size, len) = (comm.rank(), comm.size(), 1 << 20);
    let mut region = comm.region::<u32>(len * size * size)?;
    region.distribute()?;
    let send: Vec<u32> = (0..size).flat_map(|to| block(rank, to, len)).collect();
    let part = region.as_mut_slice();
    part[..send.len()].copy_from_slice(&send);
    let (counts, displs) = (vec![len; size], (0..size).map(|rank| rank * len).collect::<Vec<_>>());
    let expected: Vec<u32> = (0..size).flat_map(|from| block(from, rank, len)).collect();
    for turn in 0..size {
        let (mut recv, mut again) = (vec![0; len * size], vec![0; len * size]);
        if rank == turn {
            comm.alltoall_raw(RawSource::from(&send[..]), RawTarget::from(&mut recv[..]))?;
            let (source, target) = (RawSource::from(&send[..]), RawTarget::from(&mut again[..]));
            comm.alltoallv_raw(source, &counts, &displs, target, &counts, &displs)?;
        } else {
            comm.alltoall(&part[..len * size], &mut recv)?;
            comm.alltoallv(&part[..len * size], &counts, &displs, &mut again, &counts, &displs)?;
        }
        ensure_same(&recv, &expected)?;
        ensure_same(&again, &expected)?;
        recv.truncate(len);
        if rank == turn {
            comm.scatter(Some(&part[..len * size]), &mut recv, turn)?;
        } else {
            comm.scatter_raw(None, Some(RawTarget::from(&mut recv[..])), turn)?;
        }
        ensure_same(&recv, &block(turn, rank, len))?;
    }
    still_works(&comm)
}

fn raw_parts_need_no_alignment(comm: Communicator) -> Outcome {
    let (rank, size, len) = (comm.rank(), comm.size(), 7001);
    let blocks: Vec<u32> = (0..size).flat_map(|to| block(rank, to, len)).collect();
    let (mut send, mut recv) = (vec![0u8; 4 * size * len + 1], vec![0u8; 4 * size * len + 3]);
    send[1..].copy_from_slice(bytemuck::cast_slice(&blocks));
    // SAFETY: the vector has as many bytes behind the offset, and is not touched while the view exists.
    let source = unsafe { RawSource::<u32>::new(send.as_ptr().wrapping_add(1).cast(), size * len) };
    // SAFETY: as above.
    let target = unsafe { RawTarget::<u32>::new(recv.as_mut_ptr().wrapping_add(3).cast(), size * len) };
    comm.alltoall_raw(source, target)?;
    let expected: Vec<u32> = (0..size).flat_map(|from| block(from, rank, len)).collect();
    ensure_same(&recv[3..], bytemuck::cast_slice(&expected))
}

/// A thread of each rank writes what is sent, and what is received, all the time: what arrives is what was there at some moment,
/// byte by byte, and the next call works.
fn raw_parts_that_a_thread_writes_meanwhile(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    for len in [1, 12, 1000, 40_000] {
        let zeros = || (0..size * len).map(|_| AtomicU64::new(0)).collect::<Vec<_>>();
        let (send, recv, ends) = (zeros(), zeros(), AtomicBool::new(false));
        let (counts, displs) = (vec![len; size], (0..size).map(|rank| rank * len).collect::<Vec<_>>());
        // SAFETY: both vectors live longer, and are of atomics, through which alone the thread accesses them.
        let source = || unsafe { RawSource::<u64>::new(send.as_ptr().cast(), size * len) };
        // SAFETY: as above; they are atomics, so that they may be written behind a shared reference.
        let target = |len| unsafe { RawTarget::<u64>::new(recv.as_ptr().cast_mut().cast(), len) };
        let written = AtomicBool::new(false);
        let result = std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut value = u64::MAX;
                while !ends.load(Relaxed) {
                    send.iter().chain(&recv).for_each(|word| word.store(value, Relaxed));
                    value = !value;
                    written.store(true, Relaxed);
                }
            });
            let calls = || {
                while !written.load(Relaxed) {
                    std::thread::yield_now();
                }
                for root in 0..size {
                    comm.alltoall_raw(source(), target(size * len))?;
                    comm.scatter_raw((rank == root).then(source), Some(target(len)), root)?;
                    comm.alltoallv_raw(source(), &counts, &displs, target(size * len), &counts, &displs)?;
                }
                Ok::<_, Error>(())
            };
            let result = calls();
            ends.store(true, Relaxed);
            result
        });
        result?;
        let bytes = recv.iter().flat_map(|word| word.load(Relaxed).to_ne_bytes());
        anyhow::ensure!(
            bytes.into_iter().all(|byte| [0, 0xFF].contains(&byte)),
            "a byte that nobody has written"
        );
    }
    alltoalls(&comm, 1000, 0)
}

fn raw_parts_of_wrong_ranks_or_lengths_are_an_error(comm: Communicator) -> Outcome {
    let (size, mut data) = (comm.size(), [0u32; 12]);
    // The root has nothing to send, and the others have.
    let wrong = match comm.rank() {
        0 => comm.scatter_raw(None, Some(RawTarget::from(&mut data[..])), 0),
        _ => comm.scatter_raw(Some(RawSource::from(&[0u32; 12][..])), Some(RawTarget::from(&mut data[..])), 0),
    };
    anyhow::ensure!(matches!(wrong, Err(Error::RootBuffer { root: 0, .. })), "{wrong:?}");
    // Only the root's own block can stay where it is.
    let send = vec![0u32; size];
    let wrong = comm.scatter_raw((comm.rank() == 0).then(|| RawSource::from(&send[..])), None, 0);
    match comm.rank() {
        0 => anyhow::ensure!(matches!(wrong, Err(Error::Refused { .. })), "{wrong:?}"),
        _ => anyhow::ensure!(matches!(wrong, Err(Error::RootBuffer { root: 0, .. })), "{wrong:?}"),
    }
    let wrong = comm.scatter_raw(None, Some(RawTarget::from(&mut data[..])), size);
    anyhow::ensure!(matches!(wrong, Err(Error::InvalidRoot { .. })), "{wrong:?}");
    let wrong = comm.alltoall_raw(RawSource::from(&[0u32; 12][..]), RawTarget::from(&mut data[..6]));
    anyhow::ensure!(matches!(wrong, Err(Error::InvalidBufferSize { actual: 6, .. })), "{wrong:?}");
    // Each expects one element more than is sent.
    let displs: Vec<usize> = (0..size).map(|rank| 2 * rank).collect();
    let (ones, twos) = (vec![1; size], vec![2; size]);
    let (source, target) = (RawSource::from(&[0u32; 12][..]), RawTarget::from(&mut data[..]));
    let wrong = comm.alltoallv_raw(source, &ones, &displs, target, &twos, &displs);
    anyhow::ensure!(matches!(wrong, Err(Error::CountsDisagree { .. })), "{wrong:?}");
    still_works(&comm)
}
