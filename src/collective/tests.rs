//! What ranks prefetch for write behind a round is what they write next, if the next call is like the last.

mod endless_offers;
#[cfg(not(miri))]
mod forked;

use std::ops::Range;

use crate::copy::cpu::TAKEN_FOR_INTEL;
use crate::segment::observed;
use crate::tuning::PREFETCH_FOR_WRITE_BYTES_ON_INTEL;
use crate::{Communicator, Error, ReduceOp};

/// Enough calls of an operation for staging to rotate.
const CALLS: usize = 12;

/// A call of an operation with blocks of this many bytes; the number of the call decides what is in them.
type Call = fn(&Communicator, usize, usize) -> Result<(), Error>;

/// How many of a number of ranks write to staging.
type Writers = fn(usize) -> usize;

const OPERATIONS: [(&str, Writers, Call); 11] = [
    ("broadcast", |_| 1, |comm, bytes, call| comm.broadcast(&mut block(comm, bytes, call), 0)),
    (
        "allgather",
        |size| size,
        |comm, bytes, call| comm.allgather(&block(comm, bytes, call), &mut vec![0; comm.size() * bytes]),
    ),
    (
        "gather",
        |size| size - 1,
        |comm, bytes, call| {
            let mut recv = vec![0; comm.size() * bytes];
            comm.gather(&block(comm, bytes, call), (comm.rank() == 0).then_some(&mut recv[..]), 0)
        },
    ),
    (
        "gatherv",
        |size| size - 1,
        |comm, bytes, call| {
            let (counts, mut recv) = (vec![bytes; comm.size()], vec![0; comm.size() * bytes]);
            let displs: Vec<usize> = (0..comm.size()).map(|rank| rank * bytes).collect();
            let recv = (comm.rank() == 0).then_some(&mut recv[..]);
            comm.gatherv(&block(comm, bytes, call), recv, &counts, &displs, 0)
        },
    ),
    (
        "scatter",
        |_| 1,
        |comm, bytes, call| {
            let send = block(comm, comm.size() * bytes, call);
            comm.scatter((comm.rank() == 0).then_some(&send[..]), &mut vec![0; bytes], 0)
        },
    ),
    (
        "alltoall",
        |size| size,
        |comm, bytes, call| {
            let send = block(comm, comm.size() * bytes, call);
            comm.alltoall(&send, &mut vec![0; send.len()])
        },
    ),
    (
        "alltoallv",
        |size| size,
        |comm, bytes, call| {
            let (send, counts) = (block(comm, comm.size() * bytes, call), vec![bytes; comm.size()]);
            let displs: Vec<usize> = (0..comm.size()).map(|rank| rank * bytes).collect();
            comm.alltoallv(&send, &counts, &displs, &mut vec![0; send.len()], &counts, &displs)
        },
    ),
    (
        "allreduce",
        |size| size,
        |comm, bytes, call| {
            let send = numbers(comm, bytes, call);
            comm.allreduce(&send, &mut vec![0.0; send.len()], ReduceOp::Sum)
        },
    ),
    (
        "reduce",
        |size| size - 1,
        |comm, bytes, call| {
            let send = numbers(comm, bytes, call);
            let mut recv = vec![0.0; send.len()];
            comm.reduce(&send, (comm.rank() == 0).then_some(&mut recv[..]), ReduceOp::Sum, 0)
        },
    ),
    (
        "scan",
        |size| size - 1,
        |comm, bytes, call| {
            let send = numbers(comm, bytes, call);
            comm.scan(&send, &mut vec![0.0; send.len()], ReduceOp::Sum)
        },
    ),
    (
        "exscan",
        |size| size - 1,
        |comm, bytes, call| {
            let send = numbers(comm, bytes, call);
            comm.exscan(&send, &mut vec![0.0; send.len()], ReduceOp::Sum)
        },
    ),
];

/// Other bytes in each call.
fn block(comm: &Communicator, bytes: usize, call: usize) -> Vec<u8> {
    (0..bytes).map(|at| (1 + 7 * call + 31 * comm.rank() + at) as u8).collect()
}

fn numbers(comm: &Communicator, bytes: usize, call: usize) -> Vec<f64> {
    (0..bytes / 8).map(|at| 1.37 * (1 + call) as f64 + comm.rank() as f64 + at as f64 / 1024.0).collect()
}

/// Runs calls of an operation, and returns the ranges of staging that any rank has prefetched, each with what the rank has written next.
fn predictions(call: Call, size: usize, bytes: usize, intel: bool) -> Vec<[Range<usize>; 2]> {
    let observed = crate::threads(size, |comm| {
        TAKEN_FOR_INTEL.set(Some(intel));
        let (result, events) =
            observed::during(|| (0..CALLS).try_for_each(|number| call(&comm, bytes, number)));
        result.map(|()| events)
    });
    let events = observed.expect("threads").into_iter().map(|events| events.expect("calls"));
    events.flat_map(observed::predictions).collect()
}

/// In bytes: of blocks that are prefetched as a whole, also if a rank writes one for each of two others.
const SHORT: [usize; 2] = [128, 256];
const SHORT_ON_INTEL: [usize; 4] = [128, 256, 2 << 10, 4 << 10];

#[test]
fn what_is_prefetched_is_written_next() {
    for (name, writers, call) in OPERATIONS {
        for size in [2, 3] {
            for (intel, short) in [(false, &SHORT[..]), (true, &SHORT_ON_INTEL)] {
                for bytes in short {
                    let found = predictions(call, size, *bytes, intel);
                    let expected = writers(size) * (CALLS - 1);
                    assert_eq!(found.len(), expected, "{name}, {size} ranks, {bytes} bytes: {found:?}");
                    for [prefetched, written] in found {
                        assert_eq!(prefetched, written, "{name}, {size} ranks, {bytes} bytes");
                    }
                }
            }
        }
    }
}

#[test]
fn what_a_waiting_rank_prefetches_is_how_its_next_chunk_begins() {
    // The last has a chunk that is shorter than the others, and than what is prefetched of these.
    const LONG: [usize; 3] = [64 << 10, 256 << 10, 200_000];
    for (name, _, call) in OPERATIONS {
        for (size, bytes) in [2, 3].into_iter().flat_map(|size| LONG.map(|bytes| (size, bytes))) {
            let found = predictions(call, size, bytes, true);
            let waits = match name {
                "gather" | "gatherv" | "exscan" => true,
                // In slices otherwise, which are not predicted.
                "reduce" => size == 2,
                _ => false,
            };
            let most = found.iter().map(|[prefetched, _]| prefetched.len()).max().unwrap_or(0);
            assert_eq!(
                64 * most > PREFETCH_FOR_WRITE_BYTES_ON_INTEL,
                waits,
                "{name}, {size} ranks, {bytes} bytes: {found:?}"
            );
            for [prefetched, written] in found {
                // Of the last chunk of a reduce as much is prefetched as the others have.
                let is_longer = prefetched.end > written.end && name != "reduce";
                assert!(
                    prefetched.start == written.start && !is_longer,
                    "{name}, {size} ranks, {bytes} bytes: {prefetched:?} and {written:?}"
                );
            }
        }
    }
}

#[test]
fn a_rank_that_has_not_written_prefetches_what_it_writes_as_the_next_root() {
    for size in [2, 3] {
        for (intel, bytes) in [false, true].into_iter().flat_map(|intel| SHORT.map(|bytes| (intel, bytes))) {
            let in_turn: Call =
                |comm, bytes, call| comm.broadcast(&mut block(comm, bytes, call), call % comm.size());
            let found = predictions(in_turn, size, bytes, intel);
            assert_eq!(found.len(), CALLS - 1);
            assert!(
                found.iter().all(|[prefetched, written]| prefetched == written),
                "{bytes} bytes: {found:?}"
            );
        }
    }
}

#[test]
fn a_reduce_scatter_prefetches_the_blocks_of_all_ranks() {
    let reduce_scatter: Call = |comm, bytes, call| {
        let send = numbers(comm, comm.size() * bytes, call);
        let (counts, mut recv) =
            (vec![bytes / size_of::<f64>(); comm.size()], vec![0.0; bytes / size_of::<f64>()]);
        comm.reduce_scatter(&send, &mut recv, &counts, ReduceOp::Sum)
    };
    for size in [2, 3] {
        for bytes in SHORT_ON_INTEL {
            let found = predictions(reduce_scatter, size, bytes, true);
            assert_eq!(found.len(), size * (CALLS - 1));
            for [prefetched, written] in found {
                // Nobody reads its own block, which is not written.
                let covers = prefetched.start <= written.start && written.end <= prefetched.end;
                assert!(
                    covers && prefetched.len() <= size * bytes / 64,
                    "{bytes} bytes: {prefetched:?} and {written:?}"
                );
            }
        }
    }
}
