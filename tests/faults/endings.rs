//! Rows 28 and 29: frequent signals, and ranks that leave at once after the last collective.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use intranode::{Communicator, Config, ReduceOp};
use libtest_mimic::Completion;
use nix::libc;
use nix::sys::signal::{SaFlags, SigAction, SigEvent, SigHandler, SigSet, SigevNotify, Signal, sigaction};
use nix::sys::timer::{Expiration, Timer, TimerSetTimeFlags};
use nix::time::ClockId;

use super::job::Job;
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_28_signals_while_allocating_joining_and_waiting", signals_all_the_time),
    // 10,000 jobs, and 100,000 with FAULTS_REPEAT=10.
    ("row_29_leaves_after_the_last_collective_of_2", || leave_at_once(2, 6000)),
    ("row_29_leaves_after_the_last_collective_of_4", || leave_at_once(4, 3000)),
    ("row_29_leaves_after_the_last_collective_of_8", || leave_at_once(8, 1000)),
];

pub(crate) const PROGRAMS: &[Program] = &[("under signals", under_signals), ("leaves at once", leaves_at_once)];

fn signals_all_the_time() -> Result<Completion> {
    let mut job = Job::joined(3, "under signals")?;
    for rank in 0..3 {
        job.await_line(rank, "works")?;
    }
    job.finish(&[])?;
    Ok(Completion::Completed)
}

static SIGNALS: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: libc::c_int) {
    SIGNALS.fetch_add(1, Ordering::Relaxed);
}

fn under_signals() -> Result<()> {
    // Without SA_RESTART: interrupted system calls fail with EINTR.
    let action = SigAction::new(SigHandler::Handler(count), SaFlags::empty(), SigSet::empty());
    let mut timers = Vec::new();
    for signal in [Signal::SIGALRM, Signal::SIGCHLD] {
        // SAFETY: the handler only increments an atomic.
        unsafe { sigaction(signal, &action) }?;
        let notify = SigevNotify::SigevSignal { signal, si_value: 0 };
        let mut timer = Timer::new(ClockId::CLOCK_MONOTONIC, SigEvent::new(notify))?;
        let period = Expiration::Interval(Duration::from_micros(100).into());
        timer.set(period, TimerSetTimeFlags::empty())?;
        timers.push(timer);
    }
    // Allocating this takes several times the period of the signals, on every rank.
    let comm = Config::from_env()?.chunk_bytes(16 << 20).join()?;
    rank::send("joined")?;
    rank::ensure_works(&comm, 300)?;
    for _ in 0..3 {
        let mut region = comm.region::<u8>(16 << 20)?;
        region.as_mut_slice().fill(7);
        ensure!(region.publish()?.iter().all(|byte| *byte == 7));
    }
    // One rank computes while the others sleep.
    for round in 0..6 {
        if comm.rank() == round % comm.size() {
            let until = super::report::now() + Duration::from_millis(50);
            while super::report::now() < until {}
        }
        comm.barrier()?;
    }
    ensure!(SIGNALS.load(Ordering::Relaxed) > 100, "the signals did not come");
    drop(timers);
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

const JOBS: &str = "FAULTS_JOBS";

/// The number of jobs after which a rank sends a line.
const BATCH: usize = 25;

/// The size of a chunk: the largest allreduce takes several rounds.
const STAGING: usize = 64 << 10;

fn leave_at_once(size: usize, times: usize) -> Result<Completion> {
    let times = repeat(times).next_multiple_of(BATCH);
    let mut job = Job::new(size);
    for rank in 0..size {
        job.start(rank, "leaves at once", |command| {
            command.env(JOBS, times.to_string());
        })?;
    }
    for _ in 0..times / BATCH {
        (0..size).try_for_each(|rank| job.await_line(rank, "all is well"))?;
    }
    job.finish(&[])?;
    Ok(Completion::Completed)
}

/// Many jobs, one after the other, of one collective each.
fn leaves_at_once() -> Result<()> {
    let name = std::env::var("INTRANODE_NAME")?;
    let rank = std::env::var("INTRANODE_RANK")?.parse()?;
    let size = std::env::var("INTRANODE_SIZE")?.parse()?;
    for number in 0..std::env::var(JOBS)?.parse::<usize>()? {
        // Small chunks, since allocating them takes most of the time.
        let comm = Config::new(format!("{name}-{number}"), rank, size).chunk_bytes(STAGING).join()?;
        last_collective(&comm, number)?;
        comm.leave()?;
        if number % BATCH == BATCH - 1 {
            rank::send("all is well")?;
        }
    }
    rank::receive()?;
    Ok(())
}

fn last_collective(comm: &Communicator, number: usize) -> Result<()> {
    let len = [1, 1000, 100_000][number % 3];
    let mut sum = vec![0u64; len];
    comm.allreduce(&vec![comm.rank() as u64 + 1; len], &mut sum, ReduceOp::Sum)?;
    let expected = (1..=comm.size() as u64).sum::<u64>();
    ensure!(sum.iter().all(|value| *value == expected), "wrong data");
    Ok(())
}
