//! Rows 19 to 21: a full /dev/shm, truncated segments, limits of control groups.

use std::fs::{self, File};

use anyhow::{Context, Result, bail, ensure};
use intranode::{Config, Error};
use libtest_mimic::Completion;
use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{SigHandler, Signal, signal};

use super::control_group::{self, Group};
use super::job::Job;
use super::{Program, Test, rank, states};

pub(crate) const TESTS: &[Test] = &[
    ("row_19_dev_shm_has_64_kib", || in_dev_shm_of("64k")),
    ("row_19_dev_shm_is_full", || in_dev_shm_of("8m")),
    ("row_19_dev_shm_has_64_mib", || in_dev_shm_of("64m")),
    ("row_20_truncated_while_joining", truncated_while_joining),
    ("row_20_truncated_after_all_have_joined", truncated_after_all_have_joined),
    ("row_21_a_segment_beyond_the_limit_of_the_control_group", a_segment_beyond_the_limit),
    ("row_21_a_region_beyond_the_limit_of_the_control_group", || {
        beyond_the_limit("has a region within a limit", LIMIT / 2)
    }),
    ("row_21_a_symmetric_object_beyond_the_limit_of_the_control_group", || {
        beyond_the_limit("has symmetric objects within a limit", LIMIT / 2)
    }),
    ("row_21_symmetric_objects_without_room_to_spare", || beyond_the_limit("has no room to spare", LIMIT)),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("has a small dev shm", has_a_small_dev_shm),
    ("joins, with the handler", joins_with_handler),
    ("joins within a limit", joins_within_a_limit),
    ("has a region within a limit", has_a_region_within_a_limit),
    ("has symmetric objects within a limit", has_symmetric_objects_within_a_limit),
    ("has no room to spare", has_no_room_to_spare),
];

const SIZE: &str = "FAULTS_DEV_SHM";

fn in_dev_shm_of(size: &str) -> Result<Completion> {
    // A process with a mount namespace of its own, in which it runs a job.
    let mut job = Job::new(1);
    job.start(0, "has a small dev shm", |command| {
        command.env(SIZE, size);
    })?;
    let outcome = job.line(0)?;
    job.finish(&[])?;
    match outcome.strip_prefix("not allowed: ") {
        Some(reason) => Ok(Completion::ignored_with(reason)),
        None => Ok(Completion::Completed),
    }
}

fn has_a_small_dev_shm() -> Result<()> {
    let size = std::env::var(SIZE)?;
    let nothing = None::<&str>;
    let mounted = unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing))
        .and_then(|()| {
            let options = format!("size={size}");
            mount(Some("none"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
        });
    if let Err(error) = mounted {
        return rank::send(&format!("not allowed: a /dev/shm of its own: {error}"));
    }
    if size == "8m" {
        // Another program uses nearly all of it.
        fs::write("/dev/shm/other", vec![1; 8 << 20])?;
    }
    if size == "64m" {
        let mut job = Job::joined(3, "works")?;
        for rank in 0..3 {
            job.await_line(rank, "works")?;
        }
        job.finish(&[])?;
    } else {
        let mut job = Job::new(2);
        let with_short_timeout = |command: &mut std::process::Command| {
            command.env("INTRANODE_JOIN_TIMEOUT", "0.5");
        };
        job.start(1, "joins", with_short_timeout)?;
        job.start(0, "joins", with_short_timeout)?;
        let report = job.report(0)?;
        ensure!(report.kind == "no-memory", "{report:?}");
        let bytes: usize = report.text.split(' ').nth(1).unwrap_or_default().parse()?;
        ensure!(bytes > 1 << 20 && report.text.contains("/dev/shm"), "{report:?}");
        let report = job.report(1)?;
        ensure!(report.kind == "not-joined" && report.ranks == [0], "{report:?}");
        job.finish(&[])?;
    }
    rank::send("done")
}

fn announced(command: &mut std::process::Command) {
    states::reporting(command);
    command.env("INTRANODE_JOIN_TIMEOUT", "1");
}

/// As by a program that opens a file of the same name with O_TRUNC.
fn truncated_while_joining() -> Result<Completion> {
    let mut job = Job::new(3);
    job.start(0, "joins, with the handler", announced)?;
    job.await_name()?;
    job.start(1, "joins, with the handler", announced)?;
    for rank in 0..2 {
        job.await_line(rank, "joining")?;
    }
    let waits = [0, 1].map(|rank| Ok(format!("rank {rank} (process {}) waits in init", job.pid(rank)?)));
    let [first, second]: [Result<String>; 2] = waits;
    states::await_state(&mut job, 1, &[&first?, &second?])?;
    File::options().write(true).truncate(true).open(job.path())?;
    for rank in 0..2 {
        let line = job.line(rank)?;
        // One of them may time out because the other has ended.
        let reasons = ["another program has cut the file", "never joined"];
        ensure!(reasons.iter().any(|reason| line.contains(reason)), "{line}");
    }
    // Both ended by an error, not by a signal.
    job.release(|_| 0)?;
    job.ensure_nothing_left()?;
    Ok(Completion::Completed)
}

fn truncated_after_all_have_joined() -> Result<Completion> {
    let mut job = Job::new(2);
    job.start(0, "joins, with the handler", |_| ())?;
    job.await_name()?;
    // A descriptor that was opened earlier still works when the name is gone.
    let file = File::options().write(true).open(job.path())?;
    job.start(1, "joins, with the handler", |_| ())?;
    for rank in 0..2 {
        job.await_line(rank, "joining")?;
        job.await_line(rank, "joined")?;
    }
    ensure!(!job.path().exists(), "the name was not removed");
    file.set_len(4096)?;
    let mut noticed = 0;
    for rank in 0..2 {
        let line = job.line(rank)?;
        // One of them may get an error because the other has ended.
        let reasons = ["another program has cut the file", "has left", "has died"];
        ensure!(reasons.iter().any(|reason| line.contains(reason)), "{line}");
        noticed += usize::from(line.contains(reasons[0]));
    }
    ensure!(noticed > 0, "no rank has noticed");
    job.finish(&[])?;
    Ok(Completion::Completed)
}

/// The program has a handler of its own, which is not called: that the segment is truncated is an error, and no signal.
fn joins_with_handler() -> Result<()> {
    extern "C" fn ends(_: i32) {
        // SAFETY: ends the process.
        unsafe { libc::_exit(77) }
    }
    // SAFETY: the handler touches no memory.
    unsafe { signal(Signal::SIGBUS, SigHandler::Handler(ends)) }?;
    rank::send("joining")?;
    let error = match Config::from_env()?.fatal_signals(true).join() {
        Err(error) => error,
        Ok(comm) => {
            rank::send("joined")?;
            let mut data = vec![1u64; 100_000];
            loop {
                if let Err(error) = comm.allreduce_in_place(&mut data, intranode::ReduceOp::Max) {
                    break error;
                }
                // The zeros of a truncated segment must not be a result.
                ensure!(data.iter().all(|value| *value == 1), "wrong data");
            }
        }
    };
    rank::send(&error.to_string())
}

/// The limit of the control group, and the size of a chunk with which a segment exceeds it.
const LIMIT: usize = 96 << 20;
const STAGING: usize = 64 << 20;

fn a_segment_beyond_the_limit() -> Result<Completion> {
    let group = match Group::new(LIMIT) {
        Ok(group) => group,
        Err(error) => return Ok(Completion::ignored_with(format!("no control group of one's own: {error:#}"))),
    };
    let mut job = Job::new(2);
    for rank in 0..2 {
        job.start(rank, "joins within a limit", |command| {
            group.name_to(command).env("INTRANODE_JOIN_TIMEOUT", "1");
        })?;
    }
    let report = job.report(0)?;
    ensure!(report.kind == "no-memory" && report.text.contains("memory limit"), "{report:?}");
    let bytes: usize =
        report.text.split(' ').find_map(|word| word.parse().ok()).context("no number of bytes")?;
    ensure!(bytes > 4 * STAGING, "{report:?}");
    let report = job.report(1)?;
    ensure!(report.kind == "not-joined" && report.ranks == [0], "{report:?}");
    let peak = group.peak()?;
    ensure!(peak < LIMIT as u64 / 2, "{peak} bytes were allocated");
    job.finish(&[])?;
    Ok(Completion::Completed)
}

/// Two ranks run a program in a control group, which uses less than `most` bytes.
fn beyond_the_limit(program: &str, most: usize) -> Result<Completion> {
    let group = match Group::new(LIMIT) {
        Ok(group) => group,
        Err(error) => return Ok(Completion::ignored_with(format!("no control group of one's own: {error:#}"))),
    };
    let mut job = Job::new(2);
    for rank in 0..2 {
        job.start(rank, program, |command| {
            group.name_to(command);
        })?;
    }
    (0..2).try_for_each(|rank| job.await_line(rank, "works"))?;
    let peak = group.peak()?;
    ensure!(peak < most as u64, "{peak} bytes were allocated");
    job.finish(&[])?;
    Ok(Completion::Completed)
}

/// Both ranks get an error, although only one would allocate, and go on.
fn has_a_region_within_a_limit() -> Result<()> {
    control_group::enter()?;
    let comm = Config::from_env()?.join()?;
    for _ in 0..2 {
        match comm.region::<u8>(2 * LIMIT) {
            Err(Error::AllocationFailed { requested_bytes, reason, .. }) => {
                ensure!(
                    requested_bytes == 2 * LIMIT && reason.contains("limit"),
                    "{requested_bytes}: {reason}"
                );
            }
            other => bail!("{other:?}"),
        }
    }
    comm.region::<u8>(1 << 20)?.publish()?;
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

/// The same for symmetric objects.
fn has_symmetric_objects_within_a_limit() -> Result<()> {
    control_group::enter()?;
    let comm = Config::from_env()?.join()?;
    let ranks = comm.size();
    for _ in 0..2 {
        match comm.symmetric::<u8>(LIMIT) {
            Err(Error::AllocationFailed { requested_bytes, reason, .. }) => {
                ensure!(
                    requested_bytes == ranks * LIMIT && reason.contains("limit"),
                    "{requested_bytes}: {reason}"
                );
            }
            other => bail!("{:?}", other.map(drop)),
        }
    }
    comm.symmetric::<u8>(1 << 20)?.free()?;
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

/// Where there is no room for twice the last segment, there still is for what is requested.
fn has_no_room_to_spare() -> Result<()> {
    control_group::enter()?;
    let comm = Config::from_env()?.join()?;
    let first = comm.symmetric::<u8>(LIMIT / 2 / comm.size())?;
    let mut own = comm.symmetric::<u8>(LIMIT / 4 / comm.size())?.into_own()?;
    own.fill(1);
    ensure!((first.len(), own.len()) == (LIMIT / 2 / comm.size(), LIMIT / 4 / comm.size()));
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

fn joins_within_a_limit() -> Result<()> {
    control_group::enter()?;
    match Config::from_env()?.chunk_bytes(STAGING).join() {
        Ok(_) => bail!("it has joined"),
        Err(error @ (Error::AllocationFailed { .. } | Error::InitializationFailed(_))) => rank::report(&error),
        Err(error) => Err(error.into()),
    }
}
