//! Rows 2 and 26 for single copy (CMA), and security policies that forbid it.

use std::fs;
use std::io::IoSliceMut;
use std::process::Command;
use std::thread::available_parallelism;

use anyhow::{Context, Result, ensure};
use intranode::{Communicator, RawSource, RawTarget};
use libtest_mimic::Completion;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::deaths::killed_in_collectives_with;
use super::job::Job;
use super::liveness::refuse;
use super::{Program, Test, rank};

pub(crate) const TESTS: &[Test] = &[
    ("row_26_single_copy_is_allowed", || uses_single_copy("uses single copy", with_single_copy)),
    ("row_26_single_copy_on_one_processor", || {
        uses_single_copy("uses single copy on one processor", with_single_copy)
    }),
    ("row_26_single_copy_by_default", || uses_single_copy("uses single copy by default", |_| ())),
    ("row_26_single_copy_of_messages", single_copy_of_messages),
    ("row_26_single_copy_is_forbidden", || uses_single_copy("single copy is forbidden", with_single_copy)),
    ("row_26_single_copy_becomes_forbidden", || {
        uses_single_copy("single copy becomes forbidden", with_single_copy)
    }),
    ("row_02_killed_in_single_copy", || killed_in_collectives_with(3, &[1 << 20, 4 << 20], with_single_copy)),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("uses single copy", allowed),
    ("uses single copy on one processor", allowed_on_one_processor),
    ("splits its communicator", splits),
    ("uses single copy by default", by_default_on_one_processor),
    ("single copy is forbidden", never_allowed),
    ("single copy becomes forbidden", allowed_at_first),
];

const RANKS: usize = 3;

fn with_single_copy(command: &mut Command) {
    command.env("INTRANODE_SINGLE_COPY", "1");
}

fn uses_single_copy(program: &str, change: fn(&mut Command)) -> Result<Completion> {
    let mut job = Job::joined_with(RANKS, |_| program, change)?;
    let lines = (0..RANKS).map(|rank| job.line(rank)).collect::<Result<Vec<_>>>()?;
    job.finish(&[])?;
    ensure!(lines.iter().all(|line| *line == lines[0]), "not the same: {lines:?}");
    match lines[0].strip_prefix("not allowed: ") {
        Some(reason) => Ok(Completion::ignored_with(reason.to_owned())),
        None => Ok(Completion::Completed),
    }
}

/// Long messages go as the job is told, also in a communicator that was split.
fn single_copy_of_messages() -> Result<Completion> {
    for (value, way) in [("1", "by single copy"), ("0", "through buffers")] {
        let set = |command: &mut Command| {
            command.env("INTRANODE_SINGLE_COPY", value).env("INTRANODE_DEBUG", "1");
        };
        let mut job = Job::joined_with(2, |_| "splits its communicator", set)?;
        job.finish(&[])?;
        for rank in 0..2 {
            let stderr = job.stderr(rank)?;
            ensure!(stderr.matches(&format!("long messages {way};")).count() == 2, "{value}: {stderr}");
        }
    }
    Ok(Completion::Completed)
}

fn splits() -> Result<()> {
    let comm = rank::join()?;
    comm.split(0, comm.size() - comm.rank())?;
    Ok(())
}

/// The number of rounds of an allgatherv with blocks of these lengths, with a check of its result.
fn rounds(comm: &Communicator, counts: &[usize; RANKS]) -> Result<u32> {
    let before = round(comm)?;
    let value = |rank: usize, index: usize| (index * 7 + index / 251 + 100 * rank + before as usize) as u8;
    let mut send: Vec<u8> = (0..counts[comm.rank()]).map(|index| value(comm.rank(), index)).collect();
    // With gaps between the blocks, and not in rank order.
    let displs = [counts[1] + 1, 0, counts[0] + counts[1] + 2];
    let mut recv = vec![0xEE; counts.iter().sum::<usize>() + 2];
    comm.allgatherv(&send, &mut recv, counts, &displs)?;
    // A rank that has returned may overwrite its send buffer.
    send.fill(0xDD);
    for of in 0..RANKS {
        let block = &recv[displs[of]..displs[of] + counts[of]];
        let wrong = block.iter().enumerate().position(|(index, got)| *got != value(of, index));
        ensure!(wrong.is_none(), "byte {wrong:?} of rank {of} is wrong");
    }
    ensure!(recv[counts[1]] == 0xEE && recv[displs[2] - 1] == 0xEE, "bytes between the blocks were written");
    Ok(round(comm)?.wrapping_sub(before))
}

/// The number of rounds of an alltoall with blocks of this length, and of a scatter, with checks of their results. One rank has buffers
/// that other threads may write, and one sends and receives in place.
fn rounds_of_parts(comm: &Communicator, len: usize) -> Result<[u32; 2]> {
    let (rank, before) = (comm.rank(), round(comm)?);
    let value = |from: usize, to: usize, index: usize| {
        (index * 7 + index / 251 + 100 * from + 30 * to + before as usize) as u8
    };
    let blocks = |of: fn(usize, usize) -> (usize, usize)| -> Vec<u8> {
        let block = |other| {
            let (from, to) = of(rank, other);
            (0..len).map(move |index| value(from, to, index))
        };
        (0..RANKS).flat_map(block).collect()
    };
    let (send, expected) = (blocks(|rank, other| (rank, other)), blocks(|rank, other| (other, rank)));
    let mut recv = send.clone();
    match rank {
        0 => comm.alltoall(&send, &mut recv)?,
        1 => comm.alltoall_raw(RawSource::from(&send[..]), RawTarget::from(&mut recv[..]))?,
        _ => comm.alltoall_in_place(&mut recv)?,
    }
    ensure!(recv == expected, "the alltoall is wrong");
    let between = round(comm)?;
    let (root, mut own) = (1, vec![0xEE; len]);
    match rank {
        0 => comm.scatter_raw(None, Some(RawTarget::from(&mut own[..])), root)?,
        1 => comm.scatter(Some(&send[..]), &mut own, root)?,
        _ => comm.scatter(None, &mut own, root)?,
    }
    ensure!(
        own.iter().enumerate().all(|(index, got)| *got == value(root, rank, index)),
        "the scatter is wrong"
    );
    Ok([between.wrapping_sub(before), round(comm)?.wrapping_sub(between)])
}

/// The same of a scatterv from a root that sends its blocks in rank order without gaps, or otherwise.
fn rounds_of_scatterv(comm: &Communicator, counts: &[usize; RANKS], in_order: bool) -> Result<u32> {
    let (rank, root, before) = (comm.rank(), 2, round(comm)?);
    let displs = match in_order {
        true => [3, counts[0] + 3, counts[0] + counts[1] + 3],
        false => [counts[2] + 3, counts[0] + counts[2] + 4, 1],
    };
    // No part is like another.
    let value = |index: usize| ((index as u32).wrapping_mul(2_654_435_761) >> 24) as u8;
    let mut data: Vec<u8> = (0..counts.iter().sum::<usize>() + 4).map(value).collect();
    let mut own = vec![0; counts[rank]];
    comm.scatterv((rank == root).then_some(&data[..]), counts, &displs, &mut own, root)?;
    // A root that has returned may overwrite its blocks.
    data.fill(0xDD);
    let is_right = own.iter().enumerate().all(|(index, got)| *got == value(displs[rank] + index));
    ensure!(is_right, "the scatterv is wrong");
    Ok(round(comm)?.wrapping_sub(before))
}

/// The same of an alltoallv of blocks of these lengths, by sender, which lie in rank order without gaps, or otherwise. One rank
/// has buffers that other threads may write.
fn rounds_of_alltoallv(comm: &Communicator, counts: &[[usize; RANKS]; RANKS], in_order: bool) -> Result<u32> {
    let (rank, before) = (comm.rank(), round(comm)?);
    let value = |from: usize, to: usize, index: usize| {
        (index * 7 + index / 251 + 100 * from + 30 * to + before as usize) as u8
    };
    let (sent, received) = (counts[rank], std::array::from_fn::<_, RANKS, _>(|from| counts[from][rank]));
    let in_order_from =
        |first: usize, counts: [usize; RANKS]| [first, first + counts[0], first + counts[0] + counts[1]];
    let displs = match in_order {
        true => in_order_from(5, sent),
        false => [sent[1] + sent[2] + 2, sent[2] + 1, 0],
    };
    let mut send = vec![0xEE; sent.iter().sum::<usize>() + 5];
    for to in 0..RANKS {
        let block = &mut send[displs[to]..][..sent[to]];
        block.iter_mut().enumerate().for_each(|(index, slot)| *slot = value(rank, to, index));
    }
    let (mut recv, places) = (vec![0; received.iter().sum()], in_order_from(0, received));
    match rank {
        1 => {
            let (send, recv) = (RawSource::from(&send[..]), RawTarget::from(&mut recv[..]));
            comm.alltoallv_raw(send, &sent, &displs, recv, &received, &places)?;
        }
        _ => comm.alltoallv(&send, &sent, &displs, &mut recv, &received, &places)?,
    }
    // A rank that has returned may overwrite its send buffer.
    send.fill(0xDD);
    for from in 0..RANKS {
        let block = &recv[places[from]..][..received[from]];
        let is_right = |(index, got): (usize, &u8)| *got == value(from, rank, index);
        ensure!(block.iter().enumerate().all(is_right), "the block from {from} of the alltoallv is wrong");
    }
    Ok(round(comm)?.wrapping_sub(before))
}

/// The rounds of allgathers of blocks of this length, of which those of ranks 0 and 1 lie in a buffer, which others map, and do not
/// change: the most of a call, in which they are offered to the others, and those of the last.
fn rounds_beside_buffers(comm: &Communicator, len: usize) -> Result<[u32; 2]> {
    let value = |rank: usize, index: usize| (index * 5 + index / 249 + 100 * rank) as u8;
    let mut own: Vec<u8> = (0..len).map(|index| value(comm.rank(), index)).collect();
    let mut buffer = comm.buffer::<u8>(len)?;
    buffer.copy_from_slice(&own);
    let (mut most, mut last) = (0, 0);
    // A block counts as unchanged after some calls, whatever it costs to write.
    for _ in 0..6 {
        let (before, mut all) = (round(comm)?, vec![0; len * RANKS]);
        comm.allgather(if comm.rank() < 2 { &buffer[..] } else { &own[..] }, &mut all)?;
        last = round(comm)?.wrapping_sub(before);
        most = most.max(last);
        let is_right = |(index, got): (usize, &u8)| *got == value(index / len, index % len);
        ensure!(all.iter().enumerate().all(is_right), "the allgather is wrong");
    }
    own.fill(0);
    Ok([most, last])
}

/// The rounds of a broadcast, a scatter and an allgather of blocks of these lengths: of the last calls before the blocks change, and of the
/// first ones after that. Who receives may have buffers that other threads may write, and one rank's block of the allgather is at its
/// place already, which changes.
fn rounds_of_unchanged(comm: &Communicator, root: usize) -> Result<[[u32; 3]; 2]> {
    const LENGTHS: [usize; 3] = [2_000_003, 550_001, 250_001];
    let rank = comm.rank();
    let value = |of: usize, turn: usize, index: usize| (index * 3 + index / 247 + 90 * of + 50 * turn) as u8;
    let block = |call: usize, of, turn| (0..LENGTHS[call]).map(move |index| value(of, turn, index));
    let [of_root, to_all] = [LENGTHS[0], RANKS * LENGTHS[1]].map(|len| if rank == root { len } else { 0 });
    let (mut long, mut parts, mut own) = (vec![0; of_root], vec![0; to_all], vec![0; LENGTHS[2]]);
    let mut rounds = [[0; 3]; 2];
    for (turn, times) in [6, 1].into_iter().enumerate() {
        long.iter_mut().zip(block(0, root, turn)).for_each(|(to, value)| *to = value);
        parts.iter_mut().zip((0..RANKS).flat_map(|of| block(1, of, turn))).for_each(|(to, value)| *to = value);
        own.iter_mut().zip(block(2, rank, turn)).for_each(|(to, value)| *to = value);
        for time in 0..times {
            let (mut starts, is_raw) = ([round(comm)?; 4], time % 2 == 1);
            let mut copy = if rank == root { None } else { Some(vec![0; LENGTHS[0]]) };
            match &mut copy {
                Some(copy) if is_raw => comm.broadcast_raw(None, Some(RawTarget::from(&mut copy[..])), root)?,
                Some(copy) => comm.broadcast(copy, root)?,
                None => comm.broadcast(&mut long, root)?,
            }
            let is_right = copy.as_ref().unwrap_or(&long).iter().copied().eq(block(0, root, turn));
            ensure!(is_right, "the broadcast is wrong");
            starts[1] = round(comm)?;
            let mut part = vec![0; LENGTHS[1]];
            match rank == root {
                true => comm.scatter(Some(&parts[..]), &mut part, root)?,
                false if is_raw => comm.scatter_raw(None, Some(RawTarget::from(&mut part[..])), root)?,
                false => comm.scatter(None, &mut part, root)?,
            }
            ensure!(part.iter().copied().eq(block(1, rank, turn)), "the scatter is wrong");
            starts[2] = round(comm)?;
            let mut all = vec![0; RANKS * LENGTHS[2] + time];
            let all = &mut all[time..];
            match rank {
                0 => {
                    all[..LENGTHS[2]].copy_from_slice(&own);
                    comm.allgather_in_place(all)?;
                }
                _ => comm.allgather(&own, all)?,
            }
            let is_right = all.iter().copied().eq((0..RANKS).flat_map(|of| block(2, of, turn)));
            ensure!(is_right, "the allgather is wrong");
            starts[3] = round(comm)?;
            rounds[turn] = std::array::from_fn(|at| starts[at + 1].wrapping_sub(starts[at]));
        }
    }
    Ok(rounds)
}

/// Whether these are the rounds through staging, which the longer blocks go through in several chunks.
fn are_staged([broadcast, scatter, allgather]: [u32; 3]) -> bool {
    broadcast > 2 && scatter > 2 && allgather == 1
}

/// From how many bytes on blocks of an alltoall and of a scatter go by single copy. A scatter of one byte less takes another number of
/// rounds than two.
fn from_bytes() -> Result<[usize; 2]> {
    let is_oversubscribed = available_parallelism()?.get() < RANKS;
    Ok(if is_oversubscribed { [128 << 10, 256 << 10] } else { [64 << 10, 768 << 10] })
}

/// The rounds of the last allgatherv of blocks of this length that do not change, far apart in a buffer that is longer than the caches.
fn rounds_far_apart(comm: &Communicator, len: usize) -> Result<u32> {
    let value = |rank: usize, index: usize| (index * 11 + index / 253 + 70 * rank) as u8;
    let block = |rank: usize| (0..len).map(move |index| value(rank, index));
    let (own, displs): (Vec<u8>, _) = (block(comm.rank()).collect(), [17 << 20, 0, 9 << 20]);
    let mut last = 0;
    for _ in 0..4 {
        let (before, mut all) = (round(comm)?, vec![0; (17 << 20) + len]);
        comm.allgatherv(&own, &mut all, &[len; RANKS], &displs)?;
        last = round(comm)?.wrapping_sub(before);
        for (rank, displ) in displs.into_iter().enumerate() {
            ensure!(all[displ..displ + len].iter().copied().eq(block(rank)), "block {rank} is wrong");
        }
    }
    Ok(last)
}

fn round(comm: &Communicator) -> Result<u32> {
    Ok(comm.state()?.ranks[comm.rank()].round)
}

/// Blocks that take one round through staging, and two by single copy.
const ENOUGH: [usize; RANKS] = [384 << 10, 400_001, (384 << 10) + 7];

/// Blocks of an alltoallv that take one round through staging behind that of the counts, and two by single copy. Those of rank 2 are too
/// short for that.
const PARTS: [[usize; RANKS]; RANKS] =
    [[7, 200_001, 0], [1 << 10, 500_000, 140_000], [30_000, 60_000, 1 << 20]];

/// Whether process_vm_readv works between all ranks.
fn is_allowed(comm: &Communicator) -> Result<bool> {
    let value = Box::new(0x1234_5678_9ABC_DEF0_u64);
    let address = std::ptr::from_ref(&*value).expose_provenance() as u64;
    let mut all = [[0; 3]; RANKS];
    comm.allgather(&[[*value, u64::from(std::process::id()), address]], &mut all)?;
    let reads = |[value, process, address]: [u64; 3]| {
        let mut found = [0; 8];
        let from = [RemoteIoVec { base: address as usize, len: found.len() }];
        let read = process_vm_readv(Pid::from_raw(process as i32), &mut [IoSliceMut::new(&mut found)], &from);
        read.is_ok() && u64::from_ne_bytes(found) == value
    };
    let mut each = [false as u8; RANKS];
    comm.allgather(&[u8::from(all.into_iter().all(reads))], &mut each)?;
    Ok(each == [1; RANKS])
}

fn forbid() -> Result<()> {
    refuse(&[nix::libc::SYS_process_vm_readv], Errno::EPERM)
}

/// Joins. If CMA is not possible here, sends that to the test.
fn join() -> Result<Option<Communicator>> {
    let comm = rank::join()?;
    let allowed = is_allowed(&comm)?;
    if !allowed {
        rank::send("not allowed: processes cannot read each other's memory")?;
    }
    Ok(Some(comm).filter(|_| allowed))
}

fn allowed() -> Result<()> {
    let Some(comm) = join()? else { return Ok(()) };
    for _ in 0..20 {
        ensure!(rounds(&comm, &ENOUGH)? == 2, "no single copy");
    }
    // One block is too short; the total is too large.
    ensure!(rounds(&comm, &[384 << 10, 400_001, (384 << 10) - 1])? == 1);
    ensure!(rounds(&comm, &[8 << 20, 8 << 20, 400_000])? > 2);
    let [alltoall, scatter] = from_bytes()?;
    ensure!(rounds_of_parts(&comm, alltoall)?[0] == 2, "no single copy in an alltoall");
    ensure!(rounds_of_parts(&comm, alltoall - 1)?[0] == 1);
    ensure!(rounds_of_parts(&comm, scatter)? == [2, 2], "no single copy in a scatter");
    ensure!(rounds_of_parts(&comm, 3_000_001)? == [2, 2]);
    ensure!(rounds_of_parts(&comm, scatter - 1)?[1] != 2);
    ensure!(rounds_beside_buffers(&comm, 400_000)? == [4, 2], "no single copy beside buffers");
    let [unchanged, changed] = rounds_of_unchanged(&comm, 1)?;
    let is_right = match changed {
        // So long a block goes by single copy whether it changes or not.
        [broadcast, 2, allgather] => scatter < 550_001 && are_staged([broadcast, 3, allgather]),
        staged => scatter > 550_001 && are_staged(staged),
    };
    ensure!(unchanged == [2; 3] && is_right, "{unchanged:?}, then {changed:?}");
    ensure!([200_000, 400_000].iter().all(|len| matches!(rounds_far_apart(&comm, *len), Ok(2))));
    for counts in [[1 << 20, 900_001, 1 << 20], [1 << 20, 0, 3]] {
        ensure!(rounds_of_scatterv(&comm, &counts, true)? == 2, "no single copy in a scatterv");
    }
    // With a round for the displacements; of shorter blocks in another order no other rank knows them.
    for in_order in [true, false] {
        let rounds = rounds_of_scatterv(&comm, &[2 << 20, (2 << 20) + 7, 2 << 20], in_order)?;
        ensure!(rounds == 3, "no single copy in a long scatterv");
    }
    ensure!(rounds_of_scatterv(&comm, &[1 << 20; RANKS], false)? > 2);
    ensure!(rounds_of_scatterv(&comm, &[1 << 20, scatter - 1, 0], true)? > 2);
    ensure!(rounds_of_alltoallv(&comm, &PARTS, true)? == 3, "no single copy in an alltoallv");
    ensure!(rounds_of_alltoallv(&comm, &PARTS, false)? == 2);
    ensure!(rounds_of_alltoallv(&comm, &[[60_000; RANKS]; RANKS], true)? == 2);
    // A split communicator, with other ranks.
    let reversed = comm.split(0, RANKS - comm.rank())?;
    ensure!(rounds(&reversed, &ENOUGH)? == 2, "no single copy in a split communicator");
    // A call that one rank refuses, and then one that succeeds.
    if comm.rank() == 1 {
        let short = comm.allgatherv(&[0u8], &mut vec![0; 1_250_000], &ENOUGH, &[0, 400_000, 801_000]);
        ensure!(short.is_err_and(|error| !error.is_fatal()));
    } else {
        let send = vec![0u8; ENOUGH[comm.rank()]];
        let refused = comm.allgatherv(&send, &mut vec![0; 1_250_000], &ENOUGH, &[0, 400_000, 801_000]);
        ensure!(refused.is_err_and(|error| !error.is_fatal()));
    }
    ensure!(rounds(&comm, &ENOUGH)? == 2);
    rank::send("works")
}

fn allowed_on_one_processor() -> Result<()> {
    on_one_processor()?;
    allowed()
}

/// Which of the blocks go by single copy in an oversubscribed job that is not told: of an alltoall and of a scatter, on Intel's processors.
fn by_default_on_one_processor() -> Result<()> {
    on_one_processor()?;
    let Some(comm) = join()? else { return Ok(()) };
    let [alltoall, scatter] = from_bytes()?;
    let is_intel = fs::read_to_string("/proc/cpuinfo")?.contains("GenuineIntel");
    ensure!(rounds(&comm, &ENOUGH)? == 1, "single copy in an allgatherv");
    ensure!((rounds_of_parts(&comm, alltoall)?[0] == 2) == is_intel, "an alltoall");
    ensure!((rounds_of_parts(&comm, scatter)?[1] == 2) == is_intel, "a scatter");
    ensure!(rounds_of_parts(&comm, alltoall - 1)?[0] == 1);
    let [unchanged, _] = rounds_of_unchanged(&comm, 1)?;
    ensure!(unchanged[0] > 2 && unchanged[2] == 1, "single copy of what does not change: {unchanged:?}");
    rank::send("works")
}

/// Binds this process, so that three ranks have too few processors everywhere.
fn on_one_processor() -> Result<()> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this)?;
    let first = (0..CpuSet::count()).find(|cpu| allowed.is_set(*cpu) == Ok(true)).context("no processor")?;
    let mut one = CpuSet::new();
    one.set(first)?;
    Ok(sched_setaffinity(this, &one)?)
}

fn never_allowed() -> Result<()> {
    forbid()?;
    let comm = rank::join()?;
    for _ in 0..3 {
        ensure!(rounds(&comm, &ENOUGH)? == 1, "it tries single copy");
        ensure!(rounds_of_parts(&comm, from_bytes()?[0])?[0] == 1, "an alltoall tries single copy");
        ensure!(rounds_of_alltoallv(&comm, &PARTS, true)? == 2, "an alltoallv tries single copy");
    }
    rank::send("works")
}

fn allowed_at_first() -> Result<()> {
    let Some(comm) = join()? else { return Ok(()) };
    let [split, of_alltoall, of_scatter] = [comm.split_local()?, comm.split_local()?, comm.split_local()?];
    let [of_allgather, of_broadcast, of_alltoallv] =
        [comm.split_local()?, comm.split_local()?, comm.split_local()?];
    ensure!(rounds(&comm, &ENOUGH)? == 2 && rounds(&split, &ENOUGH)? == 2, "no single copy");
    if comm.rank() == 1 {
        forbid().context("a filter")?;
    }
    // It fails once, and is not tried again.
    for comm in [&comm, &split] {
        ensure!(rounds(comm, &ENOUGH)? == 3 && rounds(comm, &ENOUGH)? == 1);
    }
    let [alltoall, _] = from_bytes()?;
    ensure!(
        rounds_of_parts(&of_alltoall, alltoall)?[0] == 3 && rounds_of_parts(&of_alltoall, alltoall)?[0] == 1
    );
    ensure!(
        rounds_of_alltoallv(&of_alltoallv, &PARTS, true)? == 4
            && rounds_of_alltoallv(&of_alltoallv, &PARTS, true)? == 2
    );
    let counts = [2 << 20; RANKS];
    let of_counts = || rounds_of_scatterv(&of_scatter, &counts, false);
    let [first, later] = [of_counts()?, of_counts()?];
    ensure!(first == later + 2, "a scatterv takes {first} rounds, and then {later}");
    // In an allgather after a root of rank 1, and in a broadcast from another.
    for (comm, root) in [(of_allgather, 1), (of_broadcast, 2)] {
        let [unchanged, changed] = rounds_of_unchanged(&comm, root)?;
        ensure!(
            are_staged(unchanged) && are_staged(changed),
            "it is tried again: {unchanged:?}, then {changed:?}"
        );
    }
    ensure!(rounds(&comm.split_local()?, &ENOUGH)? == 1);
    ensure!(rounds_beside_buffers(&of_scatter, 400_000)? == [4, 2], "buffers are not read in place");
    rank::send("works")
}
