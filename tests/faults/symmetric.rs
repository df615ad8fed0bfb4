//! Row 33: faults in symmetric memory. What has been written is there and stays there; who waits for more is told what has happened.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use intranode::{Error, Signal, Until};
use libtest_mimic::Completion;
use nix::sys::signal::Signal::SIGKILL;

use super::job::{Job, LIMIT};
use super::one_sided::{KINDS, OneSided};
use super::report::now;
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_33_killed_in_one_sided_operations_of_2", || killed_in_one_sided_operations(2)),
    ("row_33_killed_in_one_sided_operations_of_4", || killed_in_one_sided_operations(4)),
    ("row_33_killed_while_waited_for", killed_while_waited_for),
    ("row_33_killed_inside_a_put_of_64_mib", killed_inside_a_put),
    ("row_33_a_satisfied_wait_beats_a_death", a_satisfied_wait_beats_a_death),
    ("row_33_put_get_and_atomics_after_a_death", after_a_death),
    ("row_33_a_rank_leaves", a_rank_leaves),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("one-sided operations", one_sided_operations),
    ("waits in all ways", waits_in_all_ways),
    ("puts 64 MiB", puts_64_mib),
    ("receives 64 MiB", receives_64_mib),
    ("stores and dies", stores_and_dies),
    ("waits for what the dead have stored", waits_for_the_dead),
    ("goes on without the dead", goes_on_without_the_dead),
    ("waits for one that leaves", waits_for_one_that_leaves),
];

pub(crate) fn others(size: usize, victim: usize) -> Vec<usize> {
    (0..size).filter(|rank| *rank != victim).collect()
}

/// Waits until the main thread of a rank sleeps.
pub(crate) fn await_asleep(job: &mut Job, rank: usize) -> Result<()> {
    let path = format!("/proc/{}/stat", job.pid(rank)?);
    let start = Instant::now();
    while !std::fs::read_to_string(&path)?.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S')) {
        ensure!(start.elapsed() < LIMIT, "rank {rank} does not sleep");
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn killed_in_one_sided_operations(size: usize) -> Result<Completion> {
    for _ in 0..repeat(20) {
        let mut job = Job::joined(size, "one-sided operations")?;
        (0..size).try_for_each(|rank| job.await_line(rank, "ready"))?;
        thread::sleep(Duration::from_micros(fastrand::u64(0..5000)));
        let victim = fastrand::usize(0..size);
        let since = job.kill(victim)?;
        job.all_report_death_in_any_call(&others(size, victim), &[victim], since)?;
        job.finish(&[victim])?;
    }
    Ok(Completion::Completed)
}

fn one_sided_operations() -> Result<()> {
    const MOST: usize = 100_000;
    let comm = rank::join()?;
    let mut objects = OneSided::new(&comm, MOST)?;
    rank::send("ready")?;
    let mut number = 0;
    rank::repeat(&comm, |comm| {
        number += 1;
        objects.operation(comm, KINDS[number % KINDS.len()], [1, 1000, MOST][number / KINDS.len() % 3])
    })
}

/// The others spin, or sleep, each in another kind of wait.
fn killed_while_waited_for() -> Result<Completion> {
    const SIZE: usize = 4;
    for turn in 0..repeat(10) {
        let victim = turn % SIZE;
        let program = |rank| if rank == victim { "stores and dies" } else { "waits in all ways" };
        let mut job = Job::joined_with(SIZE, program, |_| ())?;
        for rank in others(SIZE, victim) {
            job.await_line(rank, "waits")?;
            if turn % 2 == 0 {
                await_asleep(&mut job, rank)?;
            }
        }
        let since = job.kill(victim)?;
        job.all_report_death(&others(SIZE, victim), &[victim], since)?;
        job.finish(&[victim])?;
    }
    Ok(Completion::Completed)
}

fn waits_in_all_ways() -> Result<()> {
    let comm = rank::join()?;
    let object = comm.symmetric::<u64>(2)?;
    rank::send("waits")?;
    let error = match comm.rank() {
        0 => object.wait_until(0, Until::Ne(0)).map(drop),
        1 => object.wait_any(&[(0, Until::Ne(0)), (1, Until::Ne(0))]).map(drop),
        2 => object.wait_all(&[(0, Until::Eq(0)), (1, Until::Ne(0))]),
        _ => object.wait_timeout(0, Until::Ne(0), LIMIT).map(drop),
    };
    rank::report(&error.expect_err("nobody has written"))
}

fn killed_inside_a_put() -> Result<Completion> {
    for _ in 0..repeat(5) {
        let program = |rank| if rank == 1 { "puts 64 MiB" } else { "receives 64 MiB" };
        let mut job = Job::joined_with(2, program, |_| ())?;
        job.await_line(0, "received")?;
        thread::sleep(Duration::from_micros(fastrand::u64(0..40_000)));
        let since = job.kill(1)?;
        job.all_report_death(&[0], &[1], since)?;
        job.send(0, "check")?;
        job.await_line(0, "right")?;
        job.finish(&[1])?;
    }
    Ok(Completion::Completed)
}

const LEN: usize = (64 << 20) / size_of::<u64>();

fn puts_64_mib() -> Result<()> {
    let comm = rank::join()?;
    let (data, signals) = (comm.symmetric::<u64>(LEN)?, comm.symmetric::<u64>(1)?);
    let mut values = vec![0; LEN];
    for turn in 1.. {
        values.fill(turn);
        data.put_signal(0, 0, &values, &signals, 0, Signal::Set(turn))?;
    }
    Ok(())
}

fn receives_64_mib() -> Result<()> {
    let comm = rank::join()?;
    let (data, signals) = (comm.symmetric::<u64>(LEN)?, comm.symmetric::<u64>(1)?);
    let (here, mut values) = (data.at(0)?, vec![0; LEN]);
    let mut turn = 1;
    let error = loop {
        let is_first = turn == 1;
        match signals.wait_until(0, Until::Ge(turn)) {
            Ok(signalled) => turn = signalled + 1,
            Err(error) => break error,
        }
        if is_first {
            rank::send("received")?;
        }
    };
    let last = signals.at(0)?.load(0);
    rank::send(&super::report::Report::of(&error).line())?;
    rank::receive()?;
    // What was signalled is complete. Of the next put any part may be there, and nothing of a later one.
    here.get(0, &mut values);
    let wrong = values.iter().find(|value| **value != last && **value != last + 1);
    ensure!(wrong.is_none() && last + 1 == turn, "{}: {wrong:?} after {last}", rank::WRONG_DATA);
    rank::send("right")?;
    while rank::receive()?.is_some() {}
    Ok(())
}

/// The writer kills itself at once after its store; the waiter sleeps, or spins.
fn a_satisfied_wait_beats_a_death() -> Result<Completion> {
    for turn in 0..repeat(20) {
        let program = |rank| if rank == 1 { "stores and dies" } else { "waits for what the dead have stored" };
        let mut job = Job::joined_with(2, program, |_| ())?;
        job.await_line(0, "waits")?;
        if turn % 2 == 0 {
            await_asleep(&mut job, 0)?;
        }
        let since = now();
        job.send(1, "store")?;
        job.await_line(0, "satisfied")?;
        job.all_report_death(&[0], &[1], since)?;
        job.finish(&[1])?;
    }
    Ok(Completion::Completed)
}

fn stores_and_dies() -> Result<()> {
    let comm = rank::join()?;
    let object = comm.symmetric::<u64>(2)?;
    rank::receive()?;
    object.at(0)?.store(0, 7);
    nix::sys::signal::raise(SIGKILL)?;
    Ok(())
}

fn waits_for_the_dead() -> Result<()> {
    let comm = rank::join()?;
    let object = comm.symmetric::<u64>(2)?;
    rank::send("waits")?;
    ensure!(object.wait_until(0, Until::Ne(0))? == 7, rank::WRONG_DATA);
    // Until the death is known.
    let error = object.wait_until(1, Until::Ne(0)).expect_err("the writer is dead");
    ensure!(
        object.wait_until(0, Until::Eq(7))? == 7 && object.wait_timeout(0, Until::Ge(7), LIMIT)? == Some(7)
    );
    ensure!(object.wait_any(&[(1, Until::Ne(0)), (0, Until::Ne(0))])? == Some((1, 7)));
    ensure!(object.wait_some(&[(1, Until::Ne(0)), (0, Until::Ne(0))])? == [1]);
    object.wait_all(&[(1, Until::Eq(0)), (0, Until::Ne(0))])?;
    ensure!(object.test(1, Until::Ne(0))?.is_none() && object.test_all(&[(0, Until::Eq(7))])?);
    ensure!(matches!(
        object.wait_all(&[(0, Until::Ne(0)), (1, Until::Ne(0))]),
        Err(Error::RankDied { rank: 1, .. })
    ));
    rank::send("satisfied")?;
    rank::report(&error)
}

fn after_a_death() -> Result<Completion> {
    for _ in 0..repeat(3) {
        let program = |rank| if rank == 1 { "stores and dies" } else { "goes on without the dead" };
        let mut job = Job::joined_with(3, program, |_| ())?;
        [0, 2].into_iter().try_for_each(|rank| job.await_line(rank, "ready"))?;
        let since = job.kill(1)?;
        [0, 2].into_iter().try_for_each(|rank| job.await_line(rank, "goes on"))?;
        job.all_report_death(&[0, 2], &[1], since)?;
        job.finish(&[1])?;
    }
    Ok(Completion::Completed)
}

/// Nothing one-sided fails, not even on the memory of the dead rank.
fn goes_on_without_the_dead() -> Result<()> {
    let comm = rank::join()?;
    let object = comm.symmetric::<u64>(2)?;
    rank::send("ready")?;
    let error = loop {
        if let Err(error) = comm.quiet() {
            break error;
        }
        thread::yield_now();
    };
    let own = comm.rank();
    for target in [1, own] {
        let remote = object.at(target)?;
        for turn in 1..=1000 {
            remote.store(0, turn);
            remote.put(0, &[turn, turn]);
            remote.get(0, &mut [0; 2]);
            remote.fetch_add(1, 1);
            remote.swap(1, remote.load(0));
            // The ranks' own turns differ, and all are numbers of turns.
            ensure!((1..=1001).contains(&remote.load(1)), "{}", rank::WRONG_DATA);
            comm.fence();
            object.put_signal(target, 0, &[turn], &object, 1, Signal::Set(turn))?;
            comm.notify(target)?;
        }
    }
    ensure!(object.wait_until(0, Until::Eq(1000))? == 1000);
    rank::send("goes on")?;
    rank::report(&error)
}

fn a_rank_leaves() -> Result<Completion> {
    rank_1_leaves(6, |_| "waits for one that leaves", ("satisfied", "wait"))
}

/// Rank 1 leaves, whether the others are asleep or not. They say `line`, as what it did before counts, and then their calls
/// named `operation` fail.
pub(crate) fn rank_1_leaves(
    times: usize,
    program: fn(usize) -> &'static str,
    (line, operation): (&str, &str),
) -> Result<Completion> {
    for turn in 0..repeat(times) {
        let mut job = Job::joined_with(3, program, |_| ())?;
        for rank in [0, 2] {
            job.await_line(rank, "waits")?;
            if turn % 2 == 0 {
                await_asleep(&mut job, rank)?;
            }
        }
        job.send(1, "leave")?;
        for rank in [0, 2] {
            job.await_line(rank, line)?;
            let report = job.report(rank)?;
            let is_right = report.kind == "left" && report.ranks == [1] && report.text.starts_with(operation);
            ensure!(is_right, "{report:?}");
        }
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

/// Rank 1 writes to the others, and leaves at once.
fn waits_for_one_that_leaves() -> Result<()> {
    let comm = rank::join()?;
    let object = comm.symmetric::<u64>(2)?;
    if comm.rank() == 1 {
        rank::receive()?;
        for rank in [0, 2] {
            object.at(rank)?.put(0, &[3]);
        }
        return Ok(comm.leave()?);
    }
    rank::send("waits")?;
    ensure!(object.wait_until(0, Until::Eq(3))? == 3, rank::WRONG_DATA);
    rank::send("satisfied")?;
    rank::report(&object.wait_until(1, Until::Ne(0)).expect_err("nobody writes it"))
}
