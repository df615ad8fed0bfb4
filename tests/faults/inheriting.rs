//! Row 10: a forked child drops what it has inherited.

use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use intranode::segment::record::RecordLayout;
use intranode::{Communicator, Config, Error, ReduceOp};
use libtest_mimic::Completion;

use super::job::Job;
use super::processes::in_a_child;
use super::{Program, Test, rank};

pub(crate) const TESTS: &[Test] = &[("row_10_a_child_drops_what_it_inherits", a_child_drops)];

pub(crate) const PROGRAMS: &[Program] = &[("has a child that drops all", has_a_child_that_drops)];

/// The ranks count their calls, too: they inherit the memory for that.
fn a_child_drops() -> Result<Completion> {
    let mut job = Job::new(2);
    let layout = RecordLayout::new(2, 0);
    let record = tempfile::NamedTempFile::new()?;
    record.as_file().set_len(layout.len() as u64)?;
    record.as_file().write_all_at(&layout.header(job.name()), 0)?;
    for rank in 0..2 {
        job.start(rank, "has a child that drops all", |command| {
            command.env("INTRANODE_REPORT", record.path());
        })?;
    }
    job.await_joined([0, 1])?;
    for rank in 0..2 {
        job.await_line(rank, "works")?;
    }
    job.finish(&[])?;
    Ok(Completion::Completed)
}

/// Of each kind of handle one. All of them are the parent's, which goes on with them.
fn has_a_child_that_drops() -> Result<()> {
    let comm = Config::from_env()?.fatal_signals(true).state_reports(true).join()?;
    rank::send("joined")?;
    ensure!(fs::read_to_string("/proc/self/smaps")?.contains(&std::env::var("INTRANODE_REPORT")?), "it counts");
    let mut part = Some(comm.split_local()?);
    drops_handles(&comm)?;
    let mut whole = Some(comm);
    in_a_child(|| {
        drop((part.take(), whole.take()));
        true
    })?;
    for comm in [part, whole].iter().flatten() {
        rank::ensure_works(comm, 100)?;
    }
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

fn drops_handles(comm: &Communicator) -> Result<()> {
    let (rank, other, len) = (comm.rank(), 1 - comm.rank(), 1000);
    // It is offered, and nobody has asked for it yet.
    let long = vec![rank as u64; 100_000];
    let mut region = Some(comm.region::<u64>(len)?);
    let mut shared = Some(comm.region::<u64>(len)?.publish()?);
    let mut exchange = Some(comm.exchange::<u64>(&[len; 2])?);
    let mut buffer = Some(comm.buffer::<u64>(len)?);
    buffer.iter_mut().for_each(|buffer| buffer.fill(7));
    let mut own = Some(comm.symmetric::<u64>(len)?.into_own()?);
    own.iter_mut().for_each(|own| own.fill(8));
    let lock = comm.lock()?;
    let mut guard = if rank == 0 { Some(lock.lock()?) } else { None };
    let mut messages = Some(comm.messages()?);
    let open = messages.as_mut().context("they are open")?;
    open.send(&[9u8], rank, 2)?;
    let mut taken = Some(open.take(rank, 2)?.context("it has come")?);
    let mut notifier = Some(open.notifier()?);
    let mut receiving = Some(open.start_recv_bytes(other, 1)?);
    let mut sending = Some(open.start_send(&long, other, 1)?);
    comm.barrier()?;
    let mut started = Some(comm.start_allreduce(vec![1u64; len], ReduceOp::Sum)?);
    in_a_child(|| works_alone().is_ok())?;
    in_a_child(|| {
        drop((started.take(), guard.take(), receiving.take(), sending.take(), taken.take(), notifier.take()));
        drop((messages.take(), own.take(), buffer.take(), exchange.take(), shared.take(), region.take()));
        true
    })?;

    let mut messages = messages.context("the child has other ones")?;
    let (mut receiving, mut sending) = (receiving.context("it")?, sending.context("it")?);
    messages.wait_all(&mut [&mut receiving, &mut sending])?;
    ensure!(
        receiving.into_bytes()
            == vec![other as u64; 100_000].iter().flat_map(|value| value.to_ne_bytes()).collect::<Vec<_>>()
    );
    ensure!(messages.recv_taken(taken.context("it")?, &mut [0u8])?.bytes == 1);
    ensure!(started.context("it")?.wait()? == vec![2; len]);
    ensure!(own.context("it")?.iter().all(|value| *value == 8));
    ensure!(buffer.context("it")?.iter().all(|value| *value == 7));
    if rank == 0 {
        ensure!(guard.is_some() && comm.barrier().is_ok());
        drop(guard);
        comm.barrier()?;
    } else {
        ensure!(lock.try_lock()?.is_none(), "the child has given the parent's lock back");
        comm.barrier()?;
        comm.barrier()?;
    }
    drop(lock.lock()?);
    comm.barrier()?;
    shared.context("it")?.reclaim()?;
    region.context("it")?.publish()?;
    exchange.context("it")?.share()?;
    Ok(())
}

/// A wait of this process does not go on with what its parent has started.
fn works_alone() -> Result<()> {
    let config = Config::new(format!("/child-{}", std::process::id()), 0, 1);
    let comm = config.timeout(Duration::from_millis(50)).join()?;
    let received = comm.messages()?.recv(&mut [0u8], 0, 1);
    ensure!(matches!(received, Err(Error::TimedOut { .. })), "{received:?}");
    Ok(())
}
