//! Row 45: the program of a rank that waits does not want to wait any longer.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::{Result, ensure};
use intranode::{Communicator, Config, Error, Until};
use libtest_mimic::Completion;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};

use super::job::{BOUND, Job};
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_45_interrupted_in_a_barrier", || interrupted("is interrupted in a barrier", "futex")),
    ("row_45_interrupted_in_a_barrier_with_the_pthread_wait", || {
        interrupted("is interrupted in a barrier", "pthread")
    }),
    ("row_45_interrupted_in_a_wait", || interrupted("is interrupted in a wait", "futex")),
    ("row_45_interrupted_in_a_receive", || interrupted("is interrupted in a receive", "futex")),
    ("row_45_interrupted_in_a_receive_without_the_communicator", in_a_receive_after_leaving),
    ("row_45_interrupted_while_joining", interrupted_while_joining),
    ("row_45_interrupted_before_rank_0_has_joined", before_rank_0_has_joined),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("is interrupted in a barrier", in_a_barrier),
    ("is interrupted in a wait", in_a_wait),
    ("is interrupted in a receive", in_a_receive),
    ("is interrupted in a receive without the communicator", in_a_receive_without_the_communicator),
    ("is interrupted while joining", while_joining),
];

/// What a rank may take longer than the tenth of a second that it may take to learn of a signal, and to tell the others.
const SOON: Duration = Duration::from_millis(100).saturating_add(BOUND);

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

extern "C" fn interrupt(_: libc::c_int) {
    INTERRUPTED.store(true, Relaxed);
}

fn interruptible() -> Result<Config> {
    // With SA_RESTART, as most handlers are.
    let action = SigAction::new(SigHandler::Handler(interrupt), SaFlags::SA_RESTART, SigSet::empty());
    // SAFETY: the handler only stores to an atomic.
    unsafe { sigaction(Signal::SIGINT, &action) }?;
    rank::send("can be interrupted")?;
    Ok(Config::from_env()?.interrupt(|| INTERRUPTED.load(Relaxed)))
}

/// Rank 0 waits for rank 1, which calls nothing until rank 0 has been told. Both get the same error.
fn interrupted(program: &'static str, wait: &str) -> Result<Completion> {
    told(program, wait, ["interrupted", "interrupted"])
}

/// The communicator has ended before, because a rank has left. So rank 0 leaves its messages too, and that is what rank 1 is told.
fn in_a_receive_after_leaving() -> Result<Completion> {
    told("is interrupted in a receive without the communicator", "futex", ["interrupted", "left"])
}

fn told(program: &'static str, wait: &str, kinds: [&str; 2]) -> Result<Completion> {
    for _ in 0..repeat(3) {
        let mut job = Job::new(2);
        for rank in 0..2 {
            job.start(rank, program, |command| {
                command.env("INTRANODE_WAIT", wait);
            })?;
        }
        for rank in 0..2 {
            job.await_line(rank, "can be interrupted")?;
            job.await_line(rank, "joined")?;
        }
        job.await_line(0, "waits")?;
        let since = job.signal(0, Signal::SIGINT)?;
        for (rank, kind) in kinds.into_iter().enumerate() {
            let report = job.report(rank)?;
            ensure!(report.kind == kind && report.ranks == [0], "{report:?}");
            let after = report.at.saturating_sub(since);
            ensure!(rank == 1 || after < SOON, "rank 0 was told after {after:?}");
            if rank == 0 {
                job.send(1, "go on")?;
            }
        }
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

/// Rank 1 waits until the test sends a line, and makes a call of the communicator.
fn told_later(comm: &Communicator) -> Result<()> {
    rank::receive()?;
    ended(comm.barrier())
}

fn ended<R: std::fmt::Debug>(result: Result<R, Error>) -> Result<()> {
    match result {
        Err(error) => rank::report(&error),
        Ok(done) => anyhow::bail!("a call succeeded of which the rank was interrupted: {done:?}"),
    }
}

fn in_a_barrier() -> Result<()> {
    let comm = interruptible()?.join()?;
    rank::send("joined")?;
    if comm.rank() == 1 {
        return told_later(&comm);
    }
    rank::send("waits")?;
    ended(comm.barrier())
}

fn in_a_wait() -> Result<()> {
    let comm = interruptible()?.join()?;
    let flag = comm.symmetric::<u64>(1)?;
    rank::send("joined")?;
    if comm.rank() == 1 {
        return told_later(&comm);
    }
    rank::send("waits")?;
    ended(flag.wait_until(0, Until::Eq(1)))
}

fn in_a_receive() -> Result<()> {
    let comm = interruptible()?.join()?;
    let mut messages = comm.messages()?;
    rank::send("joined")?;
    if comm.rank() == 1 {
        return told_later(&comm);
    }
    rank::send("waits")?;
    let mut buffer = [0u8; 8];
    ended(messages.recv(&mut buffer, 1, 0))
}

/// Rank 0 leaves the communicator, and has its messages still. Rank 1 learns of it from a message that does not come any more.
fn in_a_receive_without_the_communicator() -> Result<()> {
    let comm = interruptible()?.timeout(None).join()?;
    let mut messages = comm.messages()?;
    rank::send("joined")?;
    let (rank, mut buffer) = (comm.rank(), [0u8; 8]);
    drop(comm);
    if rank == 1 {
        rank::receive()?;
        return ended(messages.recv(&mut buffer, 0, 0));
    }
    rank::send("waits")?;
    let received = messages.recv(&mut buffer, 1, 0);
    drop(messages);
    ended(received)
}

fn while_joining() -> Result<()> {
    ended(interruptible()?.join())
}

/// All but one rank have joined.
fn interrupted_while_joining() -> Result<Completion> {
    let mut job = Job::new(2);
    job.start(0, "is interrupted while joining", |_| ())?;
    job.await_line(0, "can be interrupted")?;
    job.await_name()?;
    joining_fails(&mut job, 0)
}

fn before_rank_0_has_joined() -> Result<Completion> {
    let mut job = Job::new(2);
    job.start(1, "is interrupted while joining", |_| ())?;
    job.await_line(1, "can be interrupted")?;
    joining_fails(&mut job, 1)
}

fn joining_fails(job: &mut Job, rank: usize) -> Result<Completion> {
    let since = job.signal(rank, Signal::SIGINT)?;
    let report = job.report(rank)?;
    ensure!(report.kind == "not-joined" && report.text.contains("interrupted"), "{report:?}");
    let after = report.at.saturating_sub(since);
    ensure!(after < SOON, "it was told after {after:?}");
    job.finish(&[])?;
    Ok(Completion::Completed)
}
