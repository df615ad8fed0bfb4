//! Collectives of what lies in buffers: the same results as of private memory, read in place once all ranks have mapped it.

use std::thread::available_parallelism;

use anyhow::{Context, ensure};
use intranode::{Blocks, Buffer, Communicator, Error, Operation, ReduceOp};
use libtest_mimic::Trial;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::holdings::{Holdings, with_named_memory};
use crate::model::ensure_same;
use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};
use crate::symmetric::collectives::{bring_blocks, ensure_gathered, mix_reductions, repeat_reductions, value};

pub(crate) fn rows() -> Vec<Scenario> {
    let anywhere = [
        row!(collectives_of_buffers),
        row!(reductions_mix_buffers_and_private_memory),
        row!(reductions_of_buffers_through_small_staging).staging(12 << 10),
        row!(offers_beside_a_result_in_place).staging(4 << 10),
        row!(blocks_of_buffers),
        row!(buffers_beside_regions_and_objects),
        row!(buffers_of_some_ranks),
        row!(buffers_are_zeros_and_apart),
        row!(buffers_of_another_communicator),
        row!(buffers_that_are_too_long),
        row!(buffers_made_by_another_thread_during_a_call),
        row!(buffers_dropped_while_a_started_call_goes_on),
    ];
    let processes = [
        row!(buffers_are_mapped_once),
        row!(short_buffers_are_mapped_once_they_stay_as_they_are),
        row!(short_parts_are_mapped_once_they_stay_as_they_are),
        row!(reductions_of_buffers_that_stay_as_they_are),
        row!(buffers_made_and_dropped_200_times),
        row!(buffers_that_a_rank_cannot_map),
        row!(buffer_in_a_forked_child),
    ];
    let processes = processes.map(Scenario::processes_only);
    let different = [
        row!(collectives_of_buffers),
        row!(reductions_mix_buffers_and_private_memory),
        row!(blocks_of_buffers),
        row!(buffers_of_some_ranks),
    ];
    let different = different.map(Scenario::where_ranks_differ);
    anywhere.into_iter().chain(processes).chain(different).map(|row| row.ranks(&[2, 3, 4])).collect()
}

/// In elements: below and above what is read in place by an allgatherv (1 MiB; on Intel's processors 64 KiB, or 64 KiB for each rank), and by a
/// broadcast (4 MiB; 1 MiB).
const LENGTHS: [usize; 7] = [1000, (8 << 10) - 1, 8 << 10, 33_000, (128 << 10) - 1, 128 << 10, (512 << 10) + 1];

/// Read in place by all collectives.
const LONG: usize = (4 << 20) / 8 + 3;

fn fill(data: &mut [u64], rank: usize) {
    data.iter_mut().enumerate().for_each(|(index, slot)| *slot = value(rank, index));
}

fn collectives_of_buffers(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    for len in LENGTHS {
        // From the middle of a buffer, at another place on each rank.
        let mut whole = comm.buffer::<u64>(len + 2 * rank + 1)?;
        let own = &mut whole[rank + 1..][..len];
        let blocks = Blocks::new(len * size, size);
        let mut recv = vec![0; len * size];
        for turn in 0..4 {
            fill(own, rank + turn);
            comm.allgather(own, &mut recv)?;
            // What others would read too late.
            own.fill(u64::MAX);
            ensure_gathered(&recv, &blocks, turn)?;
        }
        for root in (0..size).chain(0..size) {
            fill(own, rank + root);
            comm.broadcast(own, root)?;
            let right = own.iter().enumerate().all(|(index, found)| *found == value(2 * root, index));
            ensure!(right, "broadcast of {len} from {root}");
        }
        // The own block lies where the result goes.
        let mut all = comm.buffer::<u64>(len * size)?;
        for turn in 0..2 {
            fill(&mut all[blocks.range(rank)], rank + turn);
            comm.allgather_in_place(&mut all)?;
            ensure_gathered(&all, &blocks, turn)?;
        }
    }
    still_works(&comm)
}

fn reductions_mix_buffers_and_private_memory(comm: Communicator) -> Outcome {
    for len in [1000, 65_536, 150_007] {
        let mut buffer = comm.buffer::<f64>(len)?;
        mix_reductions(&comm, &mut buffer)?;
    }
    still_works(&comm)
}

/// Slices rotate through as many places as there are, the last of which has no room for a chunk.
fn reductions_of_buffers_through_small_staging(comm: Communicator) -> Outcome {
    mix_reductions(&comm, &mut comm.buffer::<f64>(65_536)?)?;
    still_works(&comm)
}

/// A rank that does not lend its buffer, since the result takes the place of what is in it, has not offered it either: when another one's offer is
/// accepted, its own is still to be mapped.
fn offers_beside_a_result_in_place(comm: Communicator) -> Outcome {
    const LEN: usize = 70_000;
    let (rank, size) = (comm.rank(), comm.size());
    let mut buffer = comm.buffer::<f64>(LEN)?;
    let mut recv = vec![0.0; LEN];
    for turn in 1..4 {
        buffer.fill(turn as f64);
        let found = if rank == 0 {
            comm.allreduce_in_place(&mut buffer, ReduceOp::Sum)?;
            &buffer[..]
        } else {
            comm.allreduce(&buffer, &mut recv, ReduceOp::Sum)?;
            &recv[..]
        };
        ensure!(found.iter().all(|sum| *sum == (turn * size) as f64), "with a result in place, turn {turn}");
    }
    for turn in 1..4 {
        buffer.fill((turn + rank) as f64);
        comm.allreduce(&buffer, &mut recv, ReduceOp::Sum)?;
        let sum = (0..size).map(|rank| turn + rank).sum::<usize>() as f64;
        ensure!(recv.iter().all(|found| *found == sum), "without, turn {turn}");
    }
    still_works(&comm)
}

/// Each rank maps what another sends once that stays as it is.
fn reductions_of_buffers_that_stay_as_they_are(comm: Communicator) -> Outcome {
    let (size, linux) = (comm.size(), cfg!(target_os = "linux"));
    let len = shortest(&comm) + 1;
    let mut buffer = comm.buffer::<f64>(len)?;
    let data = vec![1.0; len];
    let mut recv = vec![0.0; len];
    comm.allreduce(&data, &mut recv, ReduceOp::Sum)?;
    ensure!(!linux || mappings()? == 1, "{} mappings before", mappings()?);
    buffer.copy_from_slice(&data);
    for _ in 0..5 {
        comm.allreduce(&buffer, &mut recv, ReduceOp::Sum)?;
    }
    ensure!(recv.iter().all(|sum| *sum == size as f64), "a sum is wrong");
    ensure!(!linux || mappings()? == size, "{} mappings", mappings()?);
    repeat_reductions(&comm, &mut buffer)?;
    still_works(&comm)
}

fn blocks_of_buffers(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    for len in [100, LONG / size + 1] {
        let mut buffer = comm.buffer::<u64>(len * size)?;
        let mut private = vec![0; len * size];
        for turn in 0..4 {
            bring_blocks(&comm, &mut buffer, len, turn).context("all from buffers")?;
            let send = if rank % 2 == turn % 2 { &mut buffer[..] } else { &mut private[..] };
            bring_blocks(&comm, send, len, turn).context("some from buffers")?;
        }
    }
    still_works(&comm)
}

/// In one call ranks send from a buffer, a region, a symmetric object and private memory.
fn buffers_beside_regions_and_objects(comm: Communicator) -> Outcome {
    let (rank, size, len) = (comm.rank(), comm.size(), 140_000);
    let mut buffer = comm.buffer::<u64>(len)?;
    let mut region = comm.region::<u64>(len * size)?;
    region.distribute()?;
    let mut object = comm.symmetric::<u64>(len)?.into_own()?;
    let mut private = vec![0; len];
    let mut recv = vec![0; len * size];
    for turn in 0..8 {
        let send = match (rank + turn) % 4 {
            0 => &mut buffer[..],
            1 => region.as_mut_slice(),
            2 => &mut object[..],
            _ => &mut private[..],
        };
        fill(send, rank + turn);
        comm.allgather(send, &mut recv)?;
        send.fill(u64::MAX);
        ensure_gathered(&recv, &Blocks::new(len * size, size), turn)?;
    }
    still_works(&comm)
}

/// Only one rank makes any, and each time another number of them.
fn buffers_of_some_ranks(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let mut kept: Vec<Buffer<u64>> = Vec::new();
    let mut private = vec![0; LONG];
    for turn in 0..6 {
        let root = turn % 2 * (size - 1);
        if rank == root {
            for len in [100, LONG, 5000] {
                kept.push(comm.buffer(len)?);
            }
        }
        let longest = kept.iter_mut().rfind(|buffer| buffer.len() == LONG);
        let data = longest.map_or(&mut private[..], |buffer| &mut buffer[..]);
        fill(data, rank + turn);
        comm.broadcast(data, root)?;
        let right = data.iter().enumerate().all(|(index, found)| *found == value(root + turn, index));
        ensure!(right, "broadcast {turn}");
        if turn % 3 == 2 {
            kept.drain(..kept.len() / 2);
        }
    }
    still_works(&comm)
}

fn buffers_are_zeros_and_apart(comm: Communicator) -> Outcome {
    let mut random = fastrand::Rng::with_seed(comm.rank() as u64);
    let mut kept: Vec<(Buffer<u64>, u64)> = Vec::new();
    for turn in 0..300 {
        let bits = random.u32(..18);
        let len = random.usize(..1 << bits);
        let mut buffer = comm.buffer::<u64>(len)?;
        ensure!(buffer.len() == len && buffer.iter().all(|value| *value == 0), "no zeros in turn {turn}");
        buffer.fill(turn + 1);
        kept.push((buffer, turn + 1));
        if kept.len() > 20 {
            let (buffer, number) = kept.swap_remove(random.usize(..kept.len()));
            ensure!(buffer.iter().all(|value| *value == number), "another buffer has written buffer {number}");
        }
    }
    #[derive(Clone, Copy)]
    #[repr(C, align(1024))]
    struct Aligned([u8; 1024]);
    // SAFETY: bytes without padding.
    unsafe impl intranode::bytemuck::Zeroable for Aligned {}
    // SAFETY: as above.
    unsafe impl intranode::bytemuck::Pod for Aligned {}
    let aligned = comm.buffer::<Aligned>(3)?;
    ensure!(aligned.as_ptr().is_aligned() && aligned[2].0 == [0; 1024]);
    ensure!(comm.buffer::<()>(1 << 40)?.len() == 1 << 40);
    still_works(&comm)
}

fn buffers_of_another_communicator(comm: Communicator) -> Outcome {
    let (rank, size, len) = (comm.rank(), comm.size(), 140_000);
    let part = comm.split(rank % 2, 0)?;
    let (mut outer, mut inner) = (comm.buffer::<u64>(len)?, part.buffer::<u64>(len)?);
    for turn in 0..3 {
        fill(&mut outer, rank + turn);
        inner.fill(9 + turn as u64);
        let mut recv = vec![0; len * part.size()];
        part.allgather(&outer, &mut recv)?;
        for (from, block) in recv.chunks(len).enumerate() {
            let from = rank % 2 + 2 * from + turn;
            ensure!(block.iter().enumerate().all(|(index, found)| *found == value(from, index)), "from {from}");
        }
        part.allgather(&inner, &mut recv)?;
        let mut all = vec![0; len * size];
        comm.allgather(&inner, &mut all)?;
        ensure!(recv.iter().chain(&all).all(|value| *value == 9 + turn as u64));
    }
    drop(part);
    inner.fill(1);
    ensure!(inner.iter().all(|value| *value == 1), "a buffer outlives its communicator");
    still_works(&comm)
}

fn buffers_that_are_too_long(comm: Communicator) -> Outcome {
    for len in [usize::MAX, isize::MAX as usize / 8, isize::MAX as usize / 8 + 1] {
        let error = comm.buffer::<u64>(len).map(drop).unwrap_err();
        ensure_matches!(error, Error::AllocationFailed { operation: Operation::Buffer, .. });
    }
    let mut buffer = comm.buffer::<u64>(10)?;
    fill(&mut buffer, comm.rank());
    still_works(&comm)
}

/// The other thread takes, writes and drops buffers in the memory that others read from.
fn buffers_made_by_another_thread_during_a_call(comm: Communicator) -> Outcome {
    let (rank, size, len) = (comm.rank(), comm.size(), 140_000);
    let mut own = comm.buffer::<u64>(len)?;
    let mut recv = vec![0; len * size];
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let maker = scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                for len in [100, 30_000, 500_000] {
                    comm.buffer::<u64>(len)?.fill(u64::MAX);
                }
            }
            Ok::<(), Error>(())
        });
        let mut turns = || {
            for turn in 0..20 {
                fill(&mut own, rank + turn);
                comm.allgather(&own, &mut recv)?;
                ensure_gathered(&recv, &Blocks::new(len * size, size), turn)?;
            }
            Ok(())
        };
        let result: Outcome = turns();
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        maker.join().expect("it does not panic")?;
        result
    })?;
    still_works(&comm)
}

/// A started call has copied what it sends.
fn buffers_dropped_while_a_started_call_goes_on(comm: Communicator) -> Outcome {
    let (rank, size, len) = (comm.rank(), comm.size(), 140_000);
    let blocks = Blocks::new(len * size, size);
    let mut kept = comm.buffer::<u64>(len)?;
    for turn in 0..6 {
        let mut own = comm.buffer::<u64>(len)?;
        fill(&mut own, rank + turn);
        let recv = vec![0; len * size];
        let pending = comm.start_allgatherv(&own, recv, &blocks.counts(), &blocks.displs())?;
        own.fill(u64::MAX);
        drop(own);
        comm.buffer::<u64>(len)?.fill(u64::MAX);
        ensure_gathered(&pending.wait()?, &blocks, turn)?;
        // In place, behind a call that was started and not completed.
        let pending = comm.start_allreduce(vec![1u64; len], ReduceOp::Sum)?;
        fill(&mut kept, rank + turn);
        let mut recv = vec![0; len * size];
        comm.allgather(&kept, &mut recv)?;
        kept.fill(u64::MAX);
        ensure_gathered(&recv, &blocks, turn)?;
        ensure!(pending.wait()?.iter().all(|sum| *sum == size as u64), "a sum is wrong");
    }
    still_works(&comm)
}

/// How many mappings of buffers this process has.
fn mappings() -> anyhow::Result<usize> {
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    Ok(maps.lines().filter(|line| line.contains("/memfd:intranode_")).count())
}

/// In the first call that others read from it; other buffers of the rank lie there too.
fn buffers_are_mapped_once(comm: Communicator) -> Outcome {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    const LEN: usize = 140_000;
    let (rank, size) = (comm.rank(), comm.size());
    ensure!(mappings()? == 0, "there are mappings at first");
    let mut large = comm.buffer::<u64>(3 * LEN)?;
    let mut small = comm.buffer::<u64>(LEN)?;
    let mut recv = vec![0; LEN * size];
    // By the length of the first one there are two segments, which the others map when they are first read from.
    for (turn, expected) in [2, 1 + size, 1 + size, 2 * size, 2 * size].into_iter().enumerate() {
        ensure!(mappings()? == expected, "{} mappings in turn {turn}, not {expected}", mappings()?);
        let own = if turn < 2 { &mut large[LEN * turn..][..LEN] } else { &mut small[..] };
        fill(own, rank + turn);
        comm.allgather(own, &mut recv)?;
        own.fill(u64::MAX);
        ensure_gathered(&recv, &Blocks::new(LEN * size, size), turn)?;
        comm.barrier()?;
    }
    still_works(&comm)
}

/// The elements of the shortest block that is read in place while it does not change: 8 KiB, or as much for each rank where ranks share
/// processors. If it changes it is not, on any processor.
fn shortest(comm: &Communicator) -> usize {
    let processors = available_parallelism().map_or(1, usize::from);
    1024 * if comm.size() > processors { comm.size() } else { 1 }
}

/// Short blocks are read in place from the third call on in which they are the same; also where they change unseen.
fn short_buffers_are_mapped_once_they_stay_as_they_are(comm: Communicator) -> Outcome {
    let len = shortest(&comm);
    let (rank, size, linux) = (comm.rank(), comm.size(), cfg!(target_os = "linux"));
    let blocks = Blocks::new(len * size, size);
    let mut own = comm.buffer::<u64>(len)?;
    let mut recv = vec![0; len * size];
    for turn in 0..8 {
        fill(&mut own, rank + turn);
        comm.allgather(&own, &mut recv)?;
        ensure_gathered(&recv, &blocks, turn)?;
    }
    ensure!(!linux || mappings()? == 1, "{} mappings while they change", mappings()?);
    for _ in 0..4 {
        recv.fill(0);
        comm.allgather(&own, &mut recv)?;
        ensure_gathered(&recv, &blocks, 7)?;
    }
    ensure!(!linux || mappings()? == size, "{} mappings", mappings()?);
    for turn in 0..20 {
        own[1] = turn;
        comm.allgather(&own, &mut recv)?;
        own[1] = u64::MAX;
        ensure!(recv.chunks(len).all(|block| block[1] == turn), "a value is old in turn {turn}");
    }
    for turn in 0..4 * size {
        let root = turn / 4;
        fill(&mut own, rank + if turn % 4 == 3 { turn } else { root });
        comm.broadcast(&mut own, root)?;
        let sent = root + if turn % 4 == 3 { turn } else { root };
        let right = own.iter().enumerate().all(|(index, found)| *found == value(sent, index));
        ensure!(right, "broadcast {turn} from {root}");
    }
    still_works(&comm)
}

/// The same of the blocks of an alltoall, a gather and a scatter, in a communicator for each.
fn short_parts_are_mapped_once_they_stay_as_they_are(comm: Communicator) -> Outcome {
    let len = shortest(&comm);
    let (rank, size, is_root) = (comm.rank(), comm.size(), comm.rank() == 0);
    for call in ["alltoall", "gather", "scatter"] {
        let part = comm.split(0, rank)?;
        let mut own = part.buffer::<u64>(len * size)?;
        let mut recv = vec![0; len * size];
        // With the second value of each block instead of what was there before.
        let mut bring = |own: &mut [u64], turn: usize, second: Option<u64>| -> Outcome {
            for block in own.chunks_mut(len) {
                block[1] = second.unwrap_or(block[1]);
            }
            recv.fill(0);
            // By block: the rank that it is from, and where it begins there.
            let expected: Vec<(usize, usize)> = match call {
                "alltoall" => {
                    part.alltoall(own, &mut recv)?;
                    (0..size).map(|from| (from, rank * len)).collect()
                }
                "gather" => {
                    part.gather(&own[..len], is_root.then_some(&mut recv[..]), 0)?;
                    (0..if is_root { size } else { 0 }).map(|from| (from, 0)).collect()
                }
                _ => {
                    part.scatter(is_root.then_some(&*own), &mut recv[..len], 0)?;
                    vec![(0, rank * len)]
                }
            };
            for block in own.chunks_mut(len).filter(|_| second.is_some()) {
                block[1] = u64::MAX;
            }
            for (block, (from, start)) in recv.chunks(len).zip(expected) {
                let value = |index| match (index, second) {
                    (1, Some(second)) => second,
                    _ => value(from + turn, start + index),
                };
                let right = block.iter().enumerate().all(|(index, found)| *found == value(index));
                ensure!(right, "{call}: the block from {from} in turn {turn}");
            }
            Ok(())
        };
        let before = mappings()?;
        for turn in 0..8 {
            fill(&mut own, rank + turn);
            bring(&mut own, turn, None)?;
        }
        ensure!(mappings()? == before, "{call}: {} mappings while they change, not {before}", mappings()?);
        for _ in 0..4 {
            bring(&mut own, 7, None)?;
        }
        let reads = match call {
            "alltoall" => true,
            "gather" => is_root,
            _ => !is_root,
        };
        let linux = cfg!(target_os = "linux");
        ensure!(!linux || !reads || mappings()? > before, "{call}: no mapping");
        for turn in 0..20 {
            bring(&mut own, 7, Some(turn))?;
        }
    }
    still_works(&comm)
}

fn buffers_made_and_dropped_200_times(comm: Communicator) -> Outcome {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let (rank, size) = (comm.rank(), comm.size());
    let mut recv = vec![0; 140_000 * size];
    let mut turn = |turn: usize| {
        let mut own = comm.buffer::<u64>(140_000)?;
        fill(&mut own, rank + turn);
        let _more = [comm.buffer::<u8>(turn)?, comm.buffer::<u8>(100 * turn)?];
        comm.allgather(&own, &mut recv)?;
        ensure_gathered(&recv, &Blocks::new(140_000 * size, size), turn)
    };
    (0..50).try_for_each(&mut turn)?;
    comm.barrier()?;
    let before = Holdings::now()?;
    (50..250).try_for_each(&mut turn)?;
    comm.barrier()?;
    before.ensure_no_more()
}

/// One rank has no descriptors left when it would map the others' memory: all blocks go through staging, also later.
fn buffers_that_a_rank_cannot_map(comm: Communicator) -> Outcome {
    let (rank, size, len) = (comm.rank(), comm.size(), 140_000);
    let mut own = comm.buffer::<u64>(len)?;
    let mut recv = vec![0; len * size];
    let limit = getrlimit(Resource::RLIMIT_NOFILE)?;
    for turn in 0..4 {
        let without = rank == size - 1 && turn < 2;
        if without {
            setrlimit(Resource::RLIMIT_NOFILE, 0, limit.1)?;
        }
        fill(&mut own, rank + turn);
        let result = comm.allgather(&own, &mut recv);
        setrlimit(Resource::RLIMIT_NOFILE, limit.0, limit.1)?;
        result?;
        own.fill(u64::MAX);
        ensure_gathered(&recv, &Blocks::new(len * size, size), turn)?;
        if cfg!(target_os = "linux") && rank == size - 1 {
            ensure!(mappings()? == 1, "turn {turn}: it has mapped memory of others");
        }
    }
    still_works(&comm)
}

/// The exit status of a forked child after success.
const AS_EXPECTED: i32 = 42;

fn buffer_in_a_forked_child(comm: Communicator) -> Outcome {
    let len = 140_000;
    let mut own = comm.buffer::<u64>(len)?;
    fill(&mut own, comm.rank());
    let mut dropped = Some(comm.buffer::<u64>(len)?);
    dropped.iter_mut().for_each(|buffer| buffer.fill(7));
    // SAFETY: the child calls the library, which returns before it locks, allocates for a panic, which the C library allows after a
    // fork, and ends at once.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let panics = std::panic::catch_unwind(|| own[0]).is_err();
            // What it drops is the parent's: neither freed nor given back.
            drop(dropped.take());
            let refused = matches!(comm.buffer::<u8>(1).map(drop), Err(Error::Forked { .. }));
            // SAFETY: ends the child, without running the parent's exit handlers.
            unsafe { nix::libc::_exit(if refused && panics { AS_EXPECTED } else { 1 }) }
        }
    };
    ensure_matches!(waitpid(child, None)?, WaitStatus::Exited(_, AS_EXPECTED));
    ensure!(dropped.is_some_and(|buffer| buffer.iter().all(|value| *value == 7)), "the child has emptied it");
    let mut recv = vec![0; len * comm.size()];
    comm.allgather(&own, &mut recv)?;
    ensure_gathered(&recv, &Blocks::new(len * comm.size(), comm.size()), 0)?;
    still_works(&comm)
}

/// Trials that do not use a scenario.
pub(crate) fn trials() -> Vec<Trial> {
    let trial = |size: usize| {
        let run = move || with_named_memory(size, NAMED).map_err(|error| format!("{error:#}").into());
        Trial::test(format!("processes::{size}::{NAMED}"), run)
    };
    [2, 4].into_iter().map(trial).collect()
}

/// The role of ranks of which the last makes no memory that others find.
pub(crate) const ROLE: (&str, fn() -> Outcome) = (NAMED, use_beside_named);
const NAMED: &str = "buffers_where_one_rank_uses_named_memory";

fn use_beside_named() -> Outcome {
    let comm = Communicator::from_env()?;
    let (rank, size) = (comm.rank(), comm.size());
    let mut own = comm.buffer::<u64>(140_000)?;
    let mut recv = vec![0; 140_000 * size];
    let whole: Vec<u64> =
        (0..size).flat_map(|rank| (0..140_000).map(move |index| value(rank, index))).collect();
    for _ in 0..3 {
        fill(&mut own, rank);
        comm.allgather(&own, &mut recv)?;
        ensure_same(&recv, &whole)?;
        let mut sums = vec![0; 140_000];
        comm.allreduce(&own, &mut sums, ReduceOp::Max)?;
        ensure_same(&sums, &whole[140_000 * (size - 1)..])?;
    }
    if cfg!(target_os = "linux") {
        let own_segment = usize::from(rank < size - 1);
        let of_others = size - 1 - usize::from(rank < size - 1);
        ensure!(mappings()? == own_segment + of_others, "{} mappings", mappings()?);
    }
    still_works(&comm)
}
