//! What memory buffers have: all of it when they are made, none when they could not be made or were dropped; and what limits leave.

use std::fs;
use std::os::unix::fs::MetadataExt;

use anyhow::{Context, Result, bail, ensure};
use intranode::{Buffer, Error};
use libtest_mimic::Completion;
use nix::libc;
use nix::sys::resource::{Resource, setrlimit};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use super::job::Job;
use super::{Program, Test, rank, resources};

pub(crate) const TESTS: &[Test] = &[
    ("buffers_that_could_not_be_made_have_no_memory", || alone("has half of a buffer", "memfd")),
    ("buffers_that_were_dropped_have_no_memory", || alone("drops a buffer", "memfd")),
    ("buffers_by_no_name_that_were_dropped_have_no_memory", || alone("drops a buffer", "named")),
    ("buffers_dropped_after_their_descriptors_were_closed", || alone("drops a closed buffer", "memfd")),
    ("buffers_read_by_a_rank_that_locks_its_memory", locked),
    ("limits_on_buffers", || alone("has buffers under limits", "memfd")),
    ("limits_on_buffers_by_no_name", || alone("has buffers under limits", "named")),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("has half of a buffer", has_half_of_a_buffer),
    ("drops a buffer", || drops_a_buffer(|| Ok(()))),
    ("drops a closed buffer", || drops_a_buffer(close_all)),
    ("reads buffers, and locks its memory", || reads_locked(true)),
    ("lends a buffer", || reads_locked(false)),
    ("has buffers under limits", has_buffers_under_limits),
];

const MIB: usize = 1 << 20;

/// A job of one rank, with this kind of memory.
fn alone(program: &str, memory: &str) -> Result<Completion> {
    let mut job = Job::new(1);
    job.start(0, program, |command| {
        command.env("INTRANODE_MEMORY", memory);
    })?;
    job.await_line(0, "joined")?;
    job.await_line(0, "works")?;
    job.finish(&[])?;
    Ok(Completion::Completed)
}

/// Whether nobody finds the buffers of this process.
fn is_named() -> Result<bool> {
    Ok(std::env::var("INTRANODE_MEMORY")? == "named")
}

/// The bytes that this process's segments of buffers have.
fn allocated() -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir("/proc/self/fd")? {
        let path = entry?.path();
        if fs::read_link(&path).is_ok_and(|link| link.to_string_lossy().starts_with("/memfd:intranode_")) {
            bytes += fs::metadata(&path)?.blocks() * 512;
        }
    }
    Ok(bytes)
}

/// From here on, the system has no memory for what lies behind this offset in a file.
fn refuse_behind(offset: usize) -> Result<()> {
    let allocates = SeccompCondition::new(1, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, 0)?;
    let behind = SeccompCondition::new(2, SeccompCmpArgLen::Qword, SeccompCmpOp::Ge, offset as u64)?;
    let rules = [(libc::SYS_fallocate, vec![SeccompRule::new(vec![allocates, behind])?])];
    let refused = SeccompAction::Errno(libc::ENOSPC as u32);
    let target = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules.into(), SeccompAction::Allow, refused, target)?;
    Ok(apply_filter(&BpfProgram::try_from(filter)?)?)
}

fn has_half_of_a_buffer() -> Result<()> {
    let comm = rank::join()?;
    let mut first = comm.buffer::<u8>(4 * MIB)?;
    first.fill(1);
    let before = allocated()?;
    refuse_behind(32 * MIB)?;
    for _ in 0..3 {
        match comm.buffer::<u8>(64 * MIB) {
            Err(Error::AllocationFailed { requested_bytes, .. }) => ensure!(requested_bytes == 64 * MIB),
            other => bail!("{other:?}"),
        }
        ensure!(allocated()? == before, "{before} bytes, then {}", allocated()?);
    }
    ensure!(first.iter().all(|byte| *byte == 1));
    ensure!(comm.buffer::<u8>(8 * MIB)?.iter().all(|byte| *byte == 0));
    rank::send("works")
}

/// How many pages have memory.
fn resident(start: *const u8, len: usize) -> Result<usize> {
    // SAFETY: touches no memory.
    let page = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) })?;
    let mut pages = vec![0u8; len / page];
    // SAFETY: it writes a byte for each page of a range of addresses, which is not accessed.
    let result = unsafe { libc::mincore(start.cast_mut().cast(), len, pages.as_mut_ptr().cast()) };
    ensure!(result == 0, "mincore: {}", std::io::Error::last_os_error());
    Ok(pages.iter().filter(|page| **page & 1 != 0).count())
}

fn drops_a_buffer(before_it_is_dropped: fn() -> Result<()>) -> Result<()> {
    const LEN: usize = 16 * MIB;
    let named = is_named()?;
    let comm = rank::join()?;
    for _ in 0..2 {
        let mut buffer: Buffer<u8> = comm.buffer(LEN)?;
        let start = buffer.as_ptr();
        if named {
            let pages = [LEN / 2, LEN].map(|len| resident(start, len).unwrap_or(0));
            ensure!(pages[0] > 0 && pages[1] == 2 * pages[0], "{pages:?} pages");
        } else {
            ensure!(allocated()? >= LEN as u64, "{} bytes", allocated()?);
        }
        ensure!(buffer.iter().all(|byte| *byte == 0));
        buffer.fill(1);
        let pages = resident(start, LEN)?;
        ensure!(pages > 0);
        before_it_is_dropped()?;
        drop(buffer);
        let left = resident(start, LEN)?;
        ensure!(left == 0, "{left} pages of {pages}");
    }
    rank::send("works")
}

fn locked() -> Result<Completion> {
    let programs = ["lends a buffer", "reads buffers, and locks its memory"];
    let mut job = Job::new(2);
    (0..2).try_for_each(|rank| job.start(rank, programs[rank], super::buffers::in_place))?;
    for rank in 0..2 {
        job.await_line(rank, "joined")?;
    }
    let lines = [job.line(0)?, job.line(1)?];
    job.finish(&[])?;
    if let Some(reason) = lines[1].strip_prefix("not allowed: ") {
        return Ok(Completion::ignored_with(reason.to_owned()));
    }
    ensure!(lines == ["works"; 2], "{lines:?}");
    Ok(Completion::Completed)
}

/// Segments are longer than what lies in them, also where a rank locks all that it maps.
fn reads_locked(locks: bool) -> Result<()> {
    let comm = rank::join()?;
    let large = comm.buffer::<u8>(32 * MIB)?;
    drop(large);
    // SAFETY: touches no memory of the program.
    let refused = locks && unsafe { libc::mlockall(libc::MCL_FUTURE) } != 0;
    let error = std::io::Error::last_os_error();
    // A segment of 64 MiB.
    let mut own = comm.buffer::<u64>(33 * MIB / 8)?;
    own.fill(comm.rank() as u64 + 1);
    let before = allocated()?;
    ensure!(before < 40 * MIB as u64, "{before} bytes");
    let part = &own[..MIB];
    let mut all = vec![0u64; 2 * MIB];
    comm.allgather(part, &mut all)?;
    ensure!(all[..MIB].iter().all(|value| *value == 1) && all[MIB..].iter().all(|value| *value == 2));
    comm.barrier()?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    ensure!(maps.lines().any(|line| line.contains("memfd:intranode_") && line.contains(" r--s ")), "{maps}");
    ensure!(allocated()? == before, "{before} bytes, then {}", allocated()?);
    rank::send(&if refused { format!("not allowed: to lock memory: {error}") } else { "works".to_owned() })
}

fn close_all() -> Result<()> {
    // SAFETY: the library does not use what it has not opened.
    ensure!(unsafe { libc::close_range(3, 1000, 0) } == 0);
    Ok(())
}

/// A limit leaves room for a thread and what a call needs, or the buffer is refused. Where there is no room for twice the last segment,
/// there still is for what is requested.
fn has_buffers_under_limits() -> Result<()> {
    let named = is_named()?;
    let comm = rank::join()?;
    let first = comm.buffer::<u8>(8 * MIB)?;
    // Longer than what was dropped before, and less than twice as long as the longest.
    for (resource, limit, len) in
        [(Resource::RLIMIT_AS, "AS", 8 * MIB), (Resource::RLIMIT_DATA, "DATA", 10 * MIB)]
    {
        let leave = |bytes: usize| {
            let soft = resources::used(limit)? + bytes as u64;
            anyhow::Ok(setrlimit(resource, soft, libc::RLIM_INFINITY)?)
        };
        leave(64 * MIB + MIB / 2)?;
        let large = comm.buffer::<u8>(64 * MIB);
        let worked = std::thread::Builder::new().stack_size(64 << 10).spawn(|| vec![1u8; 100_000].len());
        ensure!(worked.context("a thread")?.join().is_ok_and(|len| len == 100_000));
        if named || limit == "AS" {
            match large {
                Err(Error::AllocationFailed { reason, .. }) => {
                    ensure!(reason.contains(&format!("RLIMIT_{limit}")), "{reason}");
                }
                other => bail!("{limit}: {other:?}"),
            }
            leave(12 * MIB)?;
            ensure!(comm.buffer::<u8>(len)?.len() >= first.len());
        } else {
            // Shared memory does not count.
            ensure!(large?.len() == 64 * MIB);
        }
        setrlimit(resource, libc::RLIM_INFINITY, libc::RLIM_INFINITY)?;
        comm.barrier()?;
    }
    rank::send("works")
}
