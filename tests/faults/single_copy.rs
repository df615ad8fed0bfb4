//! Rows 2 and 26 for single copy (CMA), and security policies that forbid it.

use std::io::IoSliceMut;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use intranode::{Communicator, RawSource, RawTarget};
use libtest_mimic::Completion;
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::deaths::killed_in_collectives_with;
use super::job::Job;
use super::liveness::refuse;
use super::{Program, Test, rank};

pub(crate) const TESTS: &[Test] = &[
    ("row_26_single_copy_is_allowed", || uses_single_copy("uses single copy")),
    ("row_26_single_copy_is_forbidden", || uses_single_copy("single copy is forbidden")),
    ("row_26_single_copy_becomes_forbidden", || uses_single_copy("single copy becomes forbidden")),
    ("row_02_killed_in_single_copy", || killed_in_collectives_with(3, &[1 << 20, 4 << 20], with_single_copy)),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("uses single copy", allowed),
    ("single copy is forbidden", never_allowed),
    ("single copy becomes forbidden", allowed_at_first),
];

const RANKS: usize = 3;

fn with_single_copy(command: &mut Command) {
    command.env("INTRANODE_SINGLE_COPY", "1");
}

fn uses_single_copy(program: &str) -> Result<Completion> {
    let mut job = Job::joined_with(RANKS, |_| program, with_single_copy)?;
    let lines = (0..RANKS).map(|rank| job.line(rank)).collect::<Result<Vec<_>>>()?;
    job.finish(&[])?;
    ensure!(lines.iter().all(|line| *line == lines[0]), "not the same: {lines:?}");
    match lines[0].strip_prefix("not allowed: ") {
        Some(reason) => Ok(Completion::ignored_with(reason.to_owned())),
        None => Ok(Completion::Completed),
    }
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

/// The same of a scatterv from a root that sends its blocks out of order.
fn rounds_of_scatterv(comm: &Communicator, counts: &[usize; RANKS]) -> Result<u32> {
    let (rank, root, before) = (comm.rank(), 2, round(comm)?);
    let displs = [counts[2] + 3, counts[0] + counts[2] + 4, 1];
    let data: Vec<u8> =
        (0..counts.iter().sum::<usize>() + 4).map(|index| (index * 3 + index / 250) as u8).collect();
    let mut own = vec![0; counts[rank]];
    comm.scatterv((rank == root).then_some(&data[..]), counts, &displs, &mut own, root)?;
    ensure!(own == data[displs[rank]..displs[rank] + counts[rank]], "the scatterv is wrong");
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

fn round(comm: &Communicator) -> Result<u32> {
    Ok(comm.state()?.ranks[comm.rank()].round)
}

/// Blocks that take one round through staging, and two by single copy.
const ENOUGH: [usize; RANKS] = [384 << 10, 400_001, (384 << 10) + 7];

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
    ensure!(rounds_of_parts(&comm, 64 << 10)?[0] == 2, "no single copy in an alltoall");
    ensure!(rounds_of_parts(&comm, (64 << 10) - 1)?[0] == 1);
    ensure!(rounds_of_parts(&comm, 768 << 10)? == [2, 2], "no single copy in a scatter");
    ensure!(rounds_of_parts(&comm, 3_000_001)? == [2, 2]);
    ensure!(rounds_of_parts(&comm, (768 << 10) - 1)?[1] > 2);
    ensure!(rounds_beside_buffers(&comm, 400_000)? == [4, 2], "no single copy beside buffers");
    // With a round for the displacements; of shorter blocks no other rank knows them.
    ensure!(
        rounds_of_scatterv(&comm, &[2 << 20, (2 << 20) + 7, 2 << 20])? == 3,
        "no single copy in a scatterv"
    );
    ensure!(rounds_of_scatterv(&comm, &[1 << 20; RANKS])? > 2);
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

fn never_allowed() -> Result<()> {
    forbid()?;
    let comm = rank::join()?;
    for _ in 0..3 {
        ensure!(rounds(&comm, &ENOUGH)? == 1, "it tries single copy");
        ensure!(rounds_of_parts(&comm, 64 << 10)?[0] == 1, "an alltoall tries single copy");
    }
    rank::send("works")
}

fn allowed_at_first() -> Result<()> {
    let Some(comm) = join()? else { return Ok(()) };
    let [split, of_alltoall, of_scatter] = [comm.split_local()?, comm.split_local()?, comm.split_local()?];
    ensure!(rounds(&comm, &ENOUGH)? == 2 && rounds(&split, &ENOUGH)? == 2, "no single copy");
    if comm.rank() == 1 {
        forbid().context("a filter")?;
    }
    // It fails once, and is not tried again.
    for comm in [&comm, &split] {
        ensure!(rounds(comm, &ENOUGH)? == 3 && rounds(comm, &ENOUGH)? == 1);
    }
    ensure!(
        rounds_of_parts(&of_alltoall, 64 << 10)?[0] == 3 && rounds_of_parts(&of_alltoall, 64 << 10)?[0] == 1
    );
    let counts = [2 << 20; RANKS];
    let [first, later] = [rounds_of_scatterv(&of_scatter, &counts)?, rounds_of_scatterv(&of_scatter, &counts)?];
    ensure!(first == later + 2, "a scatterv takes {first} rounds, and then {later}");
    ensure!(rounds(&comm.split_local()?, &ENOUGH)? == 1);
    ensure!(rounds_beside_buffers(&of_scatter, 400_000)? == [4, 2], "buffers are not read in place");
    rank::send("works")
}
