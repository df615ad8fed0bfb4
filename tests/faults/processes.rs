//! Rows 9, 10 and 30: threads that end, forked children, several jobs in one process.

use std::fs;
use std::os::unix::fs::FileExt;
use std::thread;

use anyhow::{Context, Result, ensure};
use intranode::segment::record::RecordLayout;
use intranode::{Communicator, Config, Error};
use libtest_mimic::Completion;
use nix::libc;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::job::Job;
use super::report::Report;
use super::{Program, Test, rank};

pub(crate) const TESTS: &[Test] = &[
    ("row_09_the_thread_that_joined_ends", || works_on("joins on a thread")),
    ("row_09_the_main_thread_ends", || works_on("main thread ends")),
    ("row_10_a_child_outlives_the_killed_rank", a_child_outlives_its_rank),
    ("row_10_a_child_ends", || works_on("has a child that ends")),
    ("row_10_a_child_calls_the_library", || works_on("has a child that calls")),
    ("row_10_a_child_of_a_rank_that_counts_uses_messages", a_child_of_a_rank_that_counts),
    ("row_30_two_jobs_in_one_process", two_jobs_in_one_process),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("works", || works(&rank::join()?)),
    ("joins on a thread", joins_on_a_thread),
    ("main thread ends", main_thread_ends),
    ("has a child that outlives it", has_a_child_that_outlives_it),
    ("has a child that ends", || has_a_child(|_| true)),
    ("has a child that calls", || has_a_child(|comm| matches!(comm.barrier(), Err(Error::Forked { .. })))),
    ("counts, and has a child that uses messages", counts_and_has_a_child),
    ("is in two jobs", is_in_two_jobs),
];

fn works_on(program: &str) -> Result<Completion> {
    let mut job = Job::joined_with(3, |rank| if rank == 1 { program } else { "works" }, |_| ())?;
    for rank in 0..3 {
        job.await_line(rank, "works")?;
    }
    job.finish(&[])?;
    Ok(Completion::Completed)
}

pub(crate) fn works(comm: &Communicator) -> Result<()> {
    rank::ensure_works(comm, 10_000)?;
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

fn joins_on_a_thread() -> Result<()> {
    let comm = thread::spawn(rank::join).join().ok().context("no panic")??;
    works(&comm)
}

fn main_thread_ends() -> Result<()> {
    let comm = rank::join()?;
    thread::spawn(move || {
        let worked = works(&comm);
        drop(comm);
        std::process::exit(i32::from(worked.is_err()));
    });
    // SAFETY: ends this thread only, as `pthread_exit` does, but without unwinding; its values are leaked.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!("the thread has ended")
}

/// The exit code of a forked child whose check holds: unlike that of any accidental end.
const AS_EXPECTED: i32 = 42;

/// Forks a child that checks something and ends.
fn has_a_child(check: fn(&Communicator) -> bool) -> Result<()> {
    let comm = rank::join()?;
    in_a_child(|| check(&comm))?;
    works(&comm)
}

/// Requires this of a child, which has one thread, and some seconds.
pub(crate) fn in_a_child(check: impl FnOnce() -> bool) -> Result<()> {
    // SAFETY: the child makes calls that return errors before they allocate or lock, and ends.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            // SAFETY: touches no memory: its signal ends the child.
            unsafe { libc::alarm(20) };
            let status = if check() { AS_EXPECTED } else { 1 };
            // SAFETY: ends the child without running the parent's exit handlers.
            unsafe { libc::_exit(status) }
        }
    };
    let status = waitpid(child, None)?;
    ensure!(matches!(status, WaitStatus::Exited(_, AS_EXPECTED)), "{status:?}");
    Ok(())
}

/// The memory in which a rank counts its calls is not its child's.
fn a_child_of_a_rank_that_counts() -> Result<Completion> {
    let mut job = Job::new(1);
    let layout = RecordLayout::new(1, 0);
    let record = tempfile::NamedTempFile::new()?;
    record.as_file().set_len(layout.len() as u64)?;
    record.as_file().write_all_at(&layout.header(job.name()), 0)?;
    job.start(0, "counts, and has a child that uses messages", |command| {
        command.env("INTRANODE_REPORT", record.path());
    })?;
    job.await_joined([0])?;
    job.await_line(0, "works")?;
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn counts_and_has_a_child() -> Result<()> {
    let comm = rank::join()?;
    ensure!(fs::read_to_string("/proc/self/smaps")?.contains(&std::env::var("INTRANODE_REPORT")?), "it counts");
    let mut messages = comm.messages()?;
    messages.send(&[7u8], 0, 1)?;
    let mut taken = Some(messages.take(0, 1)?.context("it has come")?);
    in_a_child(|| {
        let results = [
            messages.send(&[1u8], 0, 1),
            messages.recv(&mut [0u8], 0, 1).map(drop),
            messages.recv_taken(taken.take().expect("it was taken"), &mut [0u8]).map(drop),
        ];
        results.iter().all(|result| matches!(result, Err(Error::Forked { .. })))
    })?;
    let envelope = messages.recv_taken(taken.take().context("the child has another")?, &mut [0u8])?;
    ensure!(envelope.bytes == 1);
    works(&comm)
}

fn a_child_outlives_its_rank() -> Result<Completion> {
    let program = |rank| if rank == 1 { "has a child that outlives it" } else { "barriers" };
    let mut job = Job::joined_with(3, program, |_| ())?;
    job.await_line(1, "has a child")?;
    let since = job.kill(1)?;
    job.all_report_death(&[0, 2], &[1], since)?;
    // The child lives until the test closes its parent's input.
    job.finish(&[1])?;
    Ok(Completion::Completed)
}

fn has_a_child_that_outlives_it() -> Result<()> {
    let comm = rank::join()?;
    // SAFETY: the child only reads from an inherited descriptor, and ends.
    if let ForkResult::Child = unsafe { fork() }? {
        let mut byte = 0u8;
        // SAFETY: one byte into a live buffer of that size.
        unsafe { libc::read(0, (&raw mut byte).cast(), 1) };
        // SAFETY: ends the child without running the parent's exit handlers.
        unsafe { libc::_exit(0) }
    }
    rank::send("has a child")?;
    rank::repeat(&comm, |comm| comm.barrier())
}

/// One process is rank 0 of two jobs. Rank 1 of the first job dies.
fn two_jobs_in_one_process() -> Result<Completion> {
    let mut first = Job::new(2);
    let mut second = Job::new(2);
    let name = second.name().to_owned();
    first.start(0, "is in two jobs", |command| {
        command.env(OTHER, &name);
    })?;
    first.start(1, "barriers", |_| ())?;
    second.start(1, "works", |_| ())?;
    first.await_joined([0, 1])?;
    second.await_joined([1])?;
    let since = first.kill(1)?;
    first.all_report_death(&[0], &[1], since)?;
    // The other job works on.
    first.send(0, "go on")?;
    first.await_line(0, "works")?;
    second.await_line(1, "works")?;
    first.finish(&[1])?;
    second.finish(&[])?;
    Ok(Completion::Completed)
}

const OTHER: &str = "FAULTS_OTHER_NAME";

fn is_in_two_jobs() -> Result<()> {
    let first = Config::from_env()?.join()?;
    let second = Config::new(std::env::var(OTHER)?, 0, 2).join()?;
    rank::send("joined")?;
    let error = loop {
        if let Err(error) = first.barrier() {
            break error;
        }
    };
    rank::send(&Report::of(&error).line())?;
    rank::receive()?;
    rank::ensure_works(&second, 10_000)?;
    ensure!(first.barrier().is_err(), "the first job has ended");
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}
