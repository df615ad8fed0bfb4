//! Rows 2, 13 and 25 for buffers, which others read in place: a rank is killed or stopped in the middle of that, or cannot map
//! the memory. Nobody gets what the owner writes there after its call has failed.

use std::io::{Read, Seek, Write};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use intranode::{Communicator, Error, ReduceOp};
use libtest_mimic::Completion;
use nix::libc;
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};

use super::job::Job;
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_02_killed_while_buffers_are_read", killed),
    ("row_13_frozen_while_it_reads_a_buffer", frozen),
    ("buffers_whose_descriptors_were_closed", closed),
];

pub(crate) const PROGRAMS: &[Program] =
    &[("sends buffers", sends_buffers), ("closes its buffers' descriptors", closes)];

const TIMEOUT: Duration = Duration::from_millis(500);

/// In elements of 8 bytes: it takes some milliseconds to read that from all others.
const LEN: usize = 1 << 20;

pub(crate) fn in_place(command: &mut Command) {
    command.env("INTRANODE_IN_PLACE", "1");
}

fn killed() -> Result<Completion> {
    for _ in 0..repeat(10) {
        let mut job = Job::joined_with(3, |_| "sends buffers", in_place)?;
        thread::sleep(Duration::from_micros(fastrand::u64(0..50_000)));
        let victim = fastrand::usize(0..3);
        let since = job.kill(victim)?;
        let others: Vec<_> = (0..3).filter(|rank| *rank != victim).collect();
        job.all_report_death(&others, &[victim], since)?;
        job.finish(&[victim])?;
    }
    Ok(Completion::Completed)
}

/// The others give up the rank that is stopped, return, and write what it may be reading.
fn frozen() -> Result<Completion> {
    for _ in 0..repeat(3) {
        let mut job = Job::joined_with(
            2,
            |_| "sends buffers",
            |command| {
                in_place(command);
                command.env("INTRANODE_TIMEOUT", TIMEOUT.as_secs_f64().to_string());
            },
        )?;
        thread::sleep(Duration::from_micros(fastrand::u64(0..50_000)));
        job.signal(1, SIGSTOP)?;
        let report = job.report(0)?;
        ensure!(report.kind == "timed-out" && report.ranks == [1], "{report:?}");
        job.signal(1, SIGCONT)?;
        let report = job.report(1)?;
        ensure!(report.kind == "timed-out" && report.ranks == [1], "the frozen rank: {report:?}");
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

fn sends_buffers() -> Result<()> {
    let comm = rank::join()?;
    let (mut turn, mut recv) = (0, vec![0; LEN * comm.size()]);
    rank::repeat(&comm, |comm| {
        turn += 1;
        send(comm, turn, LEN, &mut recv)
    })
}

/// What a program closes is not used again: the numbers are those of its own files then.
fn closed() -> Result<Completion> {
    let mut job = Job::joined_with(2, |_| "closes its buffers' descriptors", in_place)?;
    (0..2).try_for_each(|rank| job.await_line(rank, "works"))?;
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn closes() -> Result<()> {
    let comm = rank::join()?;
    let mut recv = vec![0; LEN * comm.size()];
    send(&comm, 1, LEN, &mut recv)?;
    let kept = comm.buffer::<u64>(LEN)?;
    // SAFETY: the library does not use what it has not opened.
    ensure!(unsafe { libc::close_range(3, 1000, 0) } == 0);
    let mut file = tempfile::tempfile()?;
    file.write_all(&[7; 100_000])?;
    let same: Vec<_> = (0..30).map(|_| file.try_clone()).collect::<Result<_, _>>()?;
    drop(kept);
    (2..5).try_for_each(|turn| send(&comm, turn, LEN, &mut recv))?;
    comm.leave()?;
    let mut content = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut content)?;
    ensure!(content == [7; 100_000], "a file of the program was changed: it has {} bytes", content.len());
    for file in &same {
        file.try_clone().context("the library has closed a descriptor of the program")?;
    }
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

/// Sends a buffer to all others, and to those behind it in a scan, which fold it where it lies. As soon as the calls return, its memory changes, and
/// becomes another buffer's.
pub(crate) fn send(comm: &Communicator, turn: u64, len: usize, recv: &mut [u64]) -> Result<(), Error> {
    let value = |rank: usize| turn << 32 | rank as u64;
    let mut own = comm.buffer::<u64>(len)?;
    own.fill(value(comm.rank()));
    let mut most = vec![0; len];
    let result = comm.allgather(&own, recv).and_then(|()| comm.scan(&own, &mut most, ReduceOp::Max));
    own.fill(u64::MAX);
    drop(own);
    comm.buffer::<u64>(len)?.fill(u64::MAX);
    result?;
    for (from, block) in recv.chunks(len).enumerate() {
        assert!(block.iter().all(|found| *found == value(from)), "{} of rank {from}", rank::WRONG_DATA);
    }
    assert!(most.iter().all(|found| *found == value(comm.rank())), "{} in a scan", rank::WRONG_DATA);
    Ok(())
}
