//! Reports of the job's state, at a time-out and on SIGUSR2.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use intranode::{Communicator, Config};
use libtest_mimic::Completion;
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP, SIGUSR2};

use super::job::{Job, LIMIT};
use super::{Program, Test, rank};

pub(crate) const TESTS: &[Test] = &[
    ("state_is_written_at_a_time_out_by_one_rank", at_a_time_out),
    ("state_of_a_split_communicator_is_written_at_its_time_out", of_a_split_communicator),
    ("state_is_written_at_sigusr2", at_a_signal),
    ("state_at_sigusr2_chains_to_the_program_s_handler", with_a_handler),
    ("state_of_the_joined_ranks_at_sigusr2_while_joining", while_joining),
    ("state_of_a_single_rank_at_sigusr2", of_a_single_rank),
    ("state_of_a_single_rank_whose_segment_is_truncated", a_single_rank_s_segment_is_truncated),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("collectives, then a barrier", collectives_then_a_barrier),
    ("collectives, then stays away", collectives_then_stays_away),
    ("barriers in a split communicator", barriers_in_a_split_communicator),
    ("stays away from a split communicator", stays_away_from_a_split_communicator),
    ("has a handler", has_a_handler),
    ("is alone", is_alone),
    ("barriers alone, with the handler", barriers_alone_with_handler),
];

pub(crate) fn reporting(command: &mut std::process::Command) {
    command.env("INTRANODE_STATE", "1");
}

fn waits_in_a_barrier(comm: &Communicator) -> Result<()> {
    rank::ensure_works(comm, 4)?;
    rank::send("waits")?;
    rank::repeat(comm, |comm| comm.barrier())
}

/// Its last call is a broadcast, and the others call a barrier after that.
fn stays_away(comm: &Communicator) -> Result<()> {
    rank::ensure_works(comm, 4)?;
    rank::send("stays away")?;
    while rank::receive()?.is_some() {}
    Ok(())
}

fn collectives_then_a_barrier() -> Result<()> {
    waits_in_a_barrier(&rank::join()?)
}

fn collectives_then_stays_away() -> Result<()> {
    stays_away(&rank::join()?)
}

fn barriers_in_a_split_communicator() -> Result<()> {
    let comm = rank::join()?;
    waits_in_a_barrier(&comm.split(comm.rank() / 2, 0)?)
}

fn stays_away_from_a_split_communicator() -> Result<()> {
    let comm = rank::join()?;
    stays_away(&comm.split(comm.rank() / 2, 0)?)
}

/// Waits until a rank has written these lines to standard error. Returns all of it.
fn await_written(job: &mut Job, writer: usize, lines: &[&str]) -> Result<String> {
    let started = Instant::now();
    loop {
        let text = job.stderr(writer)?;
        if lines.iter().all(|line| text.contains(line)) {
            return Ok(text);
        }
        ensure!(started.elapsed() < LIMIT, "rank {writer} did not write {lines:?}, but {text:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The lines of a report in which some ranks wait and one is away, without the time.
fn expected_lines(job: &mut Job, waiting: &[usize], away: usize) -> Result<Vec<String>> {
    let mut lines = Vec::new();
    for rank in waiting {
        lines.push(format!("rank {rank} (process {}) waits in barrier, round ", job.pid(*rank)?));
    }
    lines.push(format!("rank {away} (process {}) has done broadcast, round ", job.pid(away)?));
    Ok(lines)
}

fn at_a_time_out() -> Result<Completion> {
    let program = |rank| if rank == 0 { "collectives, then stays away" } else { "collectives, then a barrier" };
    let mut job = Job::joined_with(3, program, |command| {
        reporting(command);
        command.env("INTRANODE_TIMEOUT", "0.5");
    })?;
    for rank in [1, 2] {
        job.await_line(rank, "waits")?;
        let report = job.report(rank)?;
        ensure!(report.kind == "timed-out" && report.ranks == [0], "{report:?}");
    }
    let expected = expected_lines(&mut job, &[1, 2], 0)?;
    let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
    let text = await_written(&mut job, 1, &expected)?;
    ensure!(
        text.contains(&format!("the state of {}, which has ended, as rank 1 sees it", job.name())),
        "{text}"
    );
    ensure!(text.contains(", for 0."), "not since when: {text}");
    // Only one rank writes the report.
    ensure!(job.stderr(2)?.is_empty() && job.stderr(0)?.is_empty());
    job.release(|_| 0)?;
    job.ensure_nothing_left()?;
    Ok(Completion::Completed)
}

fn of_a_split_communicator() -> Result<Completion> {
    let program = |rank| {
        if rank == 2 { "barriers in a split communicator" } else { "stays away from a split communicator" }
    };
    let mut job = Job::joined_with(4, program, |command| {
        reporting(command);
        command.env("INTRANODE_TIMEOUT", "0.5");
    })?;
    job.await_line(2, "waits")?;
    let report = job.report(2)?;
    ensure!(report.kind == "timed-out" && report.ranks == [1], "{report:?}");
    let (waiting, away) = (job.pid(2)?, job.pid(3)?);
    let name = format!("the state of ranks 2, 3 of {}, which has ended, as rank 0 sees it", job.name());
    let waits = format!("rank 0 (process {waiting}) waits in barrier, round ");
    let done = format!("rank 1 (process {away}) has done broadcast, round ");
    let text = await_written(&mut job, 2, &[&name, &waits, &done])?;
    ensure!(text.contains(", for 0."), "not since when: {text}");
    job.release(|_| 0)?;
    job.ensure_nothing_left()?;
    Ok(Completion::Completed)
}

fn at_a_signal() -> Result<Completion> {
    for scan in [false, true] {
        let program =
            |rank| if rank == 2 { "collectives, then stays away" } else { "collectives, then a barrier" };
        let mut job = Job::joined_with(3, program, |command| {
            reporting(command);
            if scan {
                command.env("INTRANODE_LIVENESS", "scan");
            }
        })?;
        job.await_line(0, "waits")?;
        job.await_line(1, "waits")?;
        job.await_line(2, "stays away")?;
        let expected = expected_lines(&mut job, &[0, 1], 2)?;
        let expected: Vec<&str> = expected.iter().map(String::as_str).collect();
        await_state(&mut job, 0, &expected)?;
        ensure!(job.stderr(0)?.contains("as rank 0 sees it"));
        // The report needs no help of a stopped rank.
        job.signal(1, SIGSTOP)?;
        await_state(&mut job, 2, &expected)?;
        ensure!(job.stderr(2)?.contains("as rank 2 sees it"));
        job.signal(1, SIGCONT)?;
        // The ranks work on as before.
        let since = job.kill(2)?;
        job.all_report_death(&[0, 1], &[2], since)?;
        job.finish(&[2])?;
    }
    Ok(Completion::Completed)
}

fn with_a_handler() -> Result<Completion> {
    let mut job = Job::joined_with(2, |rank| if rank == 0 { "has a handler" } else { "barriers" }, reporting)?;
    job.signal(0, SIGUSR2)?;
    job.await_line(0, "handled")?;
    await_written(&mut job, 0, &["as rank 0 sees it"])?;
    job.send(0, "go")?;
    let report = job.report(1)?;
    ensure!(report.kind == "left", "{report:?}");
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn has_a_handler() -> Result<()> {
    use std::sync::atomic::{AtomicBool, Ordering};
    static HANDLED: AtomicBool = AtomicBool::new(false);
    extern "C" fn handle(_: nix::libc::c_int) {
        HANDLED.store(true, Ordering::Relaxed);
    }
    let handler = nix::sys::signal::SigHandler::Handler(handle);
    // SAFETY: the handler only stores to an atomic.
    unsafe { nix::sys::signal::signal(SIGUSR2, handler) }?;
    let comm = rank::join()?;
    while !HANDLED.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
    rank::send("handled")?;
    rank::receive()?;
    Ok(comm.leave()?)
}

fn while_joining() -> Result<Completion> {
    let mut job = Job::new(3);
    job.start(0, "barriers", reporting)?;
    job.start(1, "barriers", reporting)?;
    let expected = ["rank 2 has not joined", "rank 0 (process", "waits in init, round 1, for"];
    await_state(&mut job, 0, &expected)?;
    job.start(2, "leaves", reporting)?;
    job.await_joined(0..3)?;
    job.send(2, "leave")?;
    for rank in [0, 1] {
        let report = job.report(rank)?;
        ensure!(report.kind == "left", "{report:?}");
    }
    job.finish(&[])?;
    Ok(Completion::Completed)
}

/// A single rank watches no other, but reports its state.
fn of_a_single_rank() -> Result<Completion> {
    for scan in [false, true] {
        let mut job = Job::joined_with(
            1,
            |_| "is alone",
            |command| {
                reporting(command);
                if scan {
                    command.env("INTRANODE_LIVENESS", "scan");
                }
            },
        )?;
        let expected = format!("rank 0 (process {}) has done broadcast, round ", job.pid(0)?);
        await_state(&mut job, 0, &["as rank 0 sees it", &expected])?;
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

fn is_alone() -> Result<()> {
    stays_away(&rank::join()?)
}

/// With the handler of fatal signals it is an error, also in a job of one rank.
fn a_single_rank_s_segment_is_truncated() -> Result<Completion> {
    let mut job = Job::joined(1, "barriers alone, with the handler")?;
    let files = format!("/proc/{}/map_files", job.pid(0)?);
    let segment = |entry: &std::fs::DirEntry| {
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        let target = target.to_string_lossy();
        target.contains(&format!("/dev/shm{}", job.name())) || target.contains("/dev/shm/#")
    };
    let Ok(mut entries) = std::fs::read_dir(&files) else {
        return Ok(Completion::ignored_with("/proc/<pid>/map_files cannot be read"));
    };
    let entry = entries.find_map(|entry| entry.ok().filter(segment)).context("its segment is mapped")?;
    match std::fs::File::options().write(true).open(entry.path()) {
        Ok(file) => file.set_len(0)?,
        Err(error) => {
            return Ok(Completion::ignored_with(format!("{files} cannot be opened: {error}")));
        }
    }
    let line = job.line(0)?;
    ensure!(line.contains("another program has cut the file"), "{line}");
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn barriers_alone_with_handler() -> Result<()> {
    let comm = Config::from_env()?.fatal_signals(true).join()?;
    rank::send("joined")?;
    let error = loop {
        if let Err(error) = comm.barrier() {
            break error;
        }
    };
    rank::send(&error.to_string())
}

/// Sends SIGUSR2 to a rank until its reports contain all these lines.
pub(crate) fn await_state(job: &mut Job, rank: usize, expected: &[&str]) -> Result<()> {
    let started = Instant::now();
    // Without the handler, the signal would end the rank.
    while !handles_usr2(job.pid(rank)?)? {
        ensure!(started.elapsed() < LIMIT, "no handler");
        std::thread::sleep(Duration::from_millis(1));
    }
    while !expected.iter().all(|line| job.stderr(rank).is_ok_and(|text| text.contains(line))) {
        if started.elapsed() > LIMIT {
            let text = job.stderr(rank)?;
            let last = text.rfind("intranode:").map_or(text.as_str(), |at| &text[at..]);
            bail!("rank {rank} has written last {last:?}, and not {expected:?}");
        }
        job.signal(rank, SIGUSR2)?;
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Whether a process has a handler for SIGUSR2.
fn handles_usr2(pid: u32) -> Result<bool> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap_or("0").trim();
    Ok(u64::from_str_radix(caught, 16)? >> (SIGUSR2 as i32 - 1) & 1 == 1)
}
