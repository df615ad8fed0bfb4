//! Blocks that are copied straight from the memory of the rank that sends them, and policies that do not allow it.

use std::io::IoSliceMut;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use intranode::Communicator;
use libtest_mimic::Completion;
use nix::errno::Errno;
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::Pid;

use super::deaths::killed_in_collectives_with;
use super::job::Job;
use super::liveness::refuse;
use super::{Program, Test, rank};

pub(crate) const TESTS: &[Test] = &[
    ("row_26_blocks_are_fetched_where_that_is_allowed", || fetches("fetches")),
    ("row_26_nobody_may_fetch", || fetches("fetches under a policy")),
    ("row_26_one_may_not_fetch_any_more", || fetches("fetches until a policy comes")),
    ("row_02_killed_while_others_fetch", || killed_in_collectives_with(3, &[1 << 20, 4 << 20], ask_for_it)),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("fetches", allowed),
    ("fetches under a policy", never_allowed),
    ("fetches until a policy comes", allowed_at_first),
];

const RANKS: usize = 3;

fn ask_for_it(command: &mut Command) {
    command.env("INTRANODE_SINGLE_COPY", "1");
}

fn fetches(program: &str) -> Result<Completion> {
    let mut job = Job::joined_with(RANKS, |_| program, ask_for_it)?;
    let said = (0..RANKS).map(|rank| job.line(rank)).collect::<Result<Vec<_>>>()?;
    job.finish(&[])?;
    ensure!(said.iter().all(|line| *line == said[0]), "not the same: {said:?}");
    match said[0].strip_prefix("not allowed: ") {
        Some(reason) => Ok(Completion::ignored_with(reason.to_owned())),
        None => Ok(Completion::Completed),
    }
}

/// How many rounds a call takes with blocks of these lengths. Checks what comes of it.
fn rounds(comm: &Communicator, counts: &[usize; RANKS]) -> Result<u32> {
    let before = round(comm)?;
    let value = |rank: usize, index: usize| (index * 7 + index / 251 + 100 * rank + before as usize) as u8;
    let mut send: Vec<u8> = (0..counts[comm.rank()]).map(|index| value(comm.rank(), index)).collect();
    // The blocks lie apart, and not in order.
    let displs = [counts[1] + 1, 0, counts[0] + counts[1] + 2];
    let mut recv = vec![0xEE; counts.iter().sum::<usize>() + 2];
    comm.allgatherv(&send, &mut recv, counts, &displs)?;
    // Whoever returns may do what it likes with its memory.
    send.fill(0xDD);
    for of in 0..RANKS {
        let block = &recv[displs[of]..displs[of] + counts[of]];
        let wrong = block.iter().enumerate().position(|(index, got)| *got != value(of, index));
        ensure!(wrong.is_none(), "byte {wrong:?} of rank {of} is wrong");
    }
    ensure!(recv[counts[1]] == 0xEE && recv[displs[2] - 1] == 0xEE, "bytes between the blocks were written");
    Ok(round(comm)?.wrapping_sub(before))
}

fn round(comm: &Communicator) -> Result<u32> {
    Ok(comm.state()?.ranks[comm.rank()].round)
}

/// Blocks that go through staging in one round each, and would take two if they were fetched.
const ENOUGH: [usize; RANKS] = [384 << 10, 400_001, (384 << 10) + 7];

/// Whether the system lets a process read in another's memory, as far as this one can tell.
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

/// Says so if it is not allowed here at all.
fn join() -> Result<Option<Communicator>> {
    let comm = rank::join()?;
    let allowed = is_allowed(&comm)?;
    if !allowed {
        rank::say("not allowed: the system does not let processes read in each other's memory")?;
    }
    Ok(Some(comm).filter(|_| allowed))
}

fn allowed() -> Result<()> {
    let Some(comm) = join()? else { return Ok(()) };
    for _ in 0..20 {
        ensure!(rounds(&comm, &ENOUGH)? == 2, "they are not fetched");
    }
    // Too short a block; too much in all.
    ensure!(rounds(&comm, &[384 << 10, 400_001, (384 << 10) - 1])? == 1);
    ensure!(rounds(&comm, &[8 << 20, 8 << 20, 400_000])? > 2);
    // A part of the ranks, with other numbers.
    let reversed = comm.split(0, RANKS - comm.rank())?;
    ensure!(rounds(&reversed, &ENOUGH)? == 2, "they are not fetched in a part of the job");
    // A rank that refuses, and then does not.
    if comm.rank() == 1 {
        let short = comm.allgatherv(&[0u8], &mut vec![0; 1_250_000], &ENOUGH, &[0, 400_000, 801_000]);
        ensure!(short.is_err_and(|error| !error.is_fatal()));
    } else {
        let send = vec![0u8; ENOUGH[comm.rank()]];
        let refused = comm.allgatherv(&send, &mut vec![0; 1_250_000], &ENOUGH, &[0, 400_000, 801_000]);
        ensure!(refused.is_err_and(|error| !error.is_fatal()));
    }
    ensure!(rounds(&comm, &ENOUGH)? == 2);
    rank::say("works")
}

fn never_allowed() -> Result<()> {
    forbid()?;
    let comm = rank::join()?;
    for _ in 0..3 {
        ensure!(rounds(&comm, &ENOUGH)? == 1, "who may not fetch tries it");
    }
    rank::say("works")
}

fn allowed_at_first() -> Result<()> {
    let Some(comm) = join()? else { return Ok(()) };
    let part = comm.split_local()?;
    ensure!(rounds(&comm, &ENOUGH)? == 2 && rounds(&part, &ENOUGH)? == 2, "they are not fetched");
    if comm.rank() == 1 {
        forbid().context("a filter")?;
    }
    // Tried in vain, and not again.
    for comm in [&comm, &part] {
        ensure!(rounds(comm, &ENOUGH)? == 3 && rounds(comm, &ENOUGH)? == 1);
    }
    ensure!(rounds(&comm.split_local()?, &ENOUGH)? == 1);
    rank::say("works")
}
