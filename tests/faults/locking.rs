//! Row 33: the lock of symmetric memory, whose holder or whose queue is killed or stopped.

use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Completion;
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};

use super::job::Job;
use super::report::now;
use super::symmetric::{await_asleep, others};
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_33_killed_with_the_lock", killed_with_the_lock),
    ("row_33_killed_in_the_queue_of_the_lock", killed_in_the_queue),
    ("row_33_frozen_with_the_lock", frozen_with_the_lock),
    ("row_33_frozen_in_the_queue_of_the_lock", frozen_in_the_queue),
];

pub(crate) const PROGRAMS: &[Program] = &[("asks for the lock", asks_for_the_lock)];

fn killed_with_the_lock() -> Result<Completion> {
    const SIZE: usize = 4;
    for _ in 0..repeat(5) {
        let victim = fastrand::usize(0..SIZE);
        let mut job = Job::joined(SIZE, "asks for the lock")?;
        ask(&mut job, victim)?;
        job.await_line(victim, "has it")?;
        for rank in others(SIZE, victim) {
            ask(&mut job, rank)?;
            await_asleep(&mut job, rank)?;
        }
        let since = job.kill(victim)?;
        job.all_report_death(&others(SIZE, victim), &[victim], since)?;
        job.finish(&[victim])?;
    }
    Ok(Completion::Completed)
}

/// Rank 0 has the lock, then rank 1 has asked for it, and then rank 2. Rank 1 dies.
fn killed_in_the_queue() -> Result<Completion> {
    for _ in 0..repeat(5) {
        let mut job = queued(|_| ())?;
        let since = job.kill(1)?;
        job.all_report_death(&[2], &[1], since)?;
        // The holder learns of it when it asks again.
        let since = now();
        job.send(0, "release")?;
        job.all_report_death(&[0], &[1], since)?;
        job.finish(&[1])?;
    }
    Ok(Completion::Completed)
}

/// Three ranks: the first has the lock, the others sleep in its queue.
fn queued(change: impl Fn(&mut Command)) -> Result<Job> {
    let mut job = Job::joined_with(3, |_| "asks for the lock", change)?;
    ask(&mut job, 0)?;
    job.await_line(0, "has it")?;
    for rank in [1, 2] {
        ask(&mut job, rank)?;
        await_asleep(&mut job, rank)?;
    }
    Ok(job)
}

fn ask(job: &mut Job, rank: usize) -> Result<()> {
    job.send(rank, "ask")?;
    job.await_line(rank, "asks")
}

/// Asks for the lock when it is told, and again after it was told to release it.
fn asks_for_the_lock() -> Result<()> {
    let comm = rank::join()?;
    let lock = comm.lock()?;
    while rank::receive()?.is_some() {
        rank::send("asks")?;
        let guard = match lock.lock() {
            Ok(guard) => guard,
            Err(error) => return rank::report(&error),
        };
        rank::send("has it")?;
        rank::receive()?;
        drop(guard);
        if let Err(error) = lock.lock() {
            return rank::report(&error);
        }
        if let Err(error) = comm.quiet() {
            return rank::report(&error);
        }
    }
    Ok(())
}

const TIMEOUT: Duration = Duration::from_millis(500);

fn soon(command: &mut Command) {
    command.env("INTRANODE_TIMEOUT", TIMEOUT.as_secs_f64().to_string());
}

fn ensure_time_out(job: &mut Job, rank: usize, victim: usize) -> Result<()> {
    let report = job.report(rank)?;
    ensure!(report.kind == "timed-out" && report.ranks == [victim], "rank {rank}: {report:?}");
    ensure!(report.pid == Some(job.pid(victim)?), "rank {rank}: another process: {report:?}");
    Ok(())
}

/// The holder is stopped: all that wait name it, and so does it itself later.
fn frozen_with_the_lock() -> Result<Completion> {
    for _ in 0..repeat(2) {
        let mut job = queued(soon)?;
        job.signal(0, SIGSTOP)?;
        for rank in [1, 2] {
            ensure_time_out(&mut job, rank, 0)?;
        }
        job.signal(0, SIGCONT)?;
        job.send(0, "release")?;
        ensure_time_out(&mut job, 0, 0)?;
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

/// A rank is stopped in the queue, and then the lock is handed to it.
fn frozen_in_the_queue() -> Result<Completion> {
    for _ in 0..repeat(2) {
        let mut job = queued(soon)?;
        job.signal(1, SIGSTOP)?;
        job.send(0, "release")?;
        for rank in [2, 0] {
            ensure_time_out(&mut job, rank, 1)?;
        }
        job.signal(1, SIGCONT)?;
        job.await_line(1, "has it")?;
        job.send(1, "release")?;
        ensure_time_out(&mut job, 1, 1)?;
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}
