//! Rows 2, 25 and 30 for regions and split communicators.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use intranode::{Communicator, Error};
use libtest_mimic::Completion;
use nix::sched::{CloneFlags, unshare};
use nix::sys::ptrace;
use nix::unistd::Pid;

use super::job::{BOUND, Job, PROGRAM};
use super::report::Report;
use super::stepping::{self, run_until};
use super::{Program, Test, buffers, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_02_killed_while_regions_are_made_and_published", || killed_in("makes regions", 10)),
    ("row_02_killed_while_regions_with_names_are_made", regions_with_names),
    ("row_02_killed_in_the_epochs_of_a_region", || killed_in("alternates epochs", 10)),
    ("row_25_regions_and_buffers_across_pid_namespaces", regions_in_another_pid_namespace),
    ("row_30_killed_while_communicators_are_split", || killed_in("splits", 10)),
    ("row_30_killed_at_a_step_of_splitting", killed_at_each_step_of_splitting),
    ("row_30_a_survivor_that_leaves_does_not_hide_a_death", || {
        a_survivor_leaves("leaves when a rank has died")
    }),
    ("row_30_a_survivor_that_leaves_does_not_hide_an_abort", a_survivor_leaves_an_abort),
    ("row_34_dropped_messages_do_not_hide_a_death", || {
        a_survivor_leaves("drops messages when a rank has died")
    }),
    ("row_30_a_child_inherits_the_death_when_its_parent_is_gone", || killed_in("has a child only", 5)),
    ("row_30_only_communicators_of_the_dead_rank_end", only_its_communicators_end),
    ("row_30_only_communicators_of_who_aborts_end", only_the_communicators_of_who_aborts_end),
    ("row_30_a_region_outlives_the_rank_that_made_it", a_region_outlives_its_creator),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("makes regions", || rank::repeat(&rank::join()?, make_a_region)),
    ("alternates epochs", alternates_epochs),
    ("splits", || rank::repeat(&rank::join()?, |comm| comm.split_local()?.barrier())),
    ("splits in reverse", || rank::repeat(&rank::join()?, |comm| split_in_reverse(comm).map(drop))),
    ("stops before it splits in reverse", stops_before_it_splits),
    ("leaves when a rank has died", leaves_when_a_rank_has_died),
    ("drops messages when a rank has died", drops_messages_when_a_rank_has_died),
    ("leaves when a rank has aborted", leaves_when_a_rank_has_aborted),
    ("has a child only", has_a_child_only),
    ("is in another PID namespace", is_in_another_pid_namespace),
    ("has regions and a child", has_regions_and_a_child),
    ("is in a half", || is_in_a_half(|_| Ok(()))),
    ("is in a half, or aborts", || is_in_a_half(|comm| rank::receive().map(|_| comm.abort(7)))),
    ("reads what the dead have written", reads_what_the_dead_have_written),
];

fn killed_in(program: &str, times: usize) -> Result<Completion> {
    for _ in 0..repeat(times) {
        let mut job = Job::joined(3, program)?;
        thread::sleep(Duration::from_micros(fastrand::u64(0..3000)));
        let victim = fastrand::usize(0..3);
        let since = job.kill(victim)?;
        let others: Vec<_> = (0..3).filter(|rank| *rank != victim).collect();
        job.all_report_death(&others, &[victim], since)?;
        job.finish(&[victim])?;
    }
    Ok(Completion::Completed)
}

/// Kills a rank of two at a system call of a split in which both get other numbers, a later one each time, until it completes. The
/// survivor does not know the numbers of the communicator that was being made.
fn killed_at_each_step_of_splitting() -> Result<Completion> {
    // Every call with FAULTS_REPEAT=2.
    let stride = 2usize.div_ceil(repeat(1));
    for victim in [0, 1] {
        for calls in (0..).map(|step| fastrand::usize(0..stride) + step * stride) {
            let mut job = Job::new(2);
            job.start(victim, "stops before it splits in reverse", |_| ())?;
            job.start(1 - victim, "splits in reverse", |_| ())?;
            job.await_joined([0, 1])?;
            let Some(through) = run_until(Pid::from_raw(job.pid(victim)?.try_into()?), calls)? else {
                return Ok(Completion::ignored_with(stepping::NOT_TRACED));
            };
            if through {
                job.kill(victim)?;
            }
            let report = job.report(1 - victim)?;
            ensure!(
                (report.kind.as_str(), &*report.ranks) == ("died", &[victim]),
                "rank {victim}, killed at call {calls}: {report:?}"
            );
            job.finish(&[victim])?;
            if through {
                break;
            }
        }
    }
    Ok(Completion::Completed)
}

fn split_in_reverse(comm: &Communicator) -> Result<Communicator, Error> {
    comm.split(0, comm.size() - comm.rank())
}

fn stops_before_it_splits() -> Result<()> {
    let comm = rank::join()?;
    stepping::begin()?;
    let part = split_in_reverse(&comm);
    stepping::stop()?;
    drop(part);
    Ok(())
}

/// The named files of a killed creator are removed by the next job of the name.
fn regions_with_names() -> Result<Completion> {
    for _ in 0..repeat(10) {
        let named = |command: &mut Command| {
            command.env("INTRANODE_MEMORY", "named");
        };
        let mut job = Job::joined_with(2, |_| "makes regions", named)?;
        thread::sleep(Duration::from_micros(fastrand::u64(0..3000)));
        let since = job.kill(0)?;
        job.all_report_death(&[1], &[0], since)?;
        job.release(|rank| if rank == 0 { -9 } else { 0 })?;
        let mut next = job.namesake();
        next.start(0, "works", named)?;
        next.start(1, "works", named)?;
        next.await_joined([0, 1])?;
        next.await_line(0, "works")?;
        next.finish(&[])?;
    }
    Ok(Completion::Completed)
}

fn make_a_region(comm: &Communicator) -> Result<(), Error> {
    let mut region = comm.region::<u64>(10_000)?;
    region.distribute()?;
    let own = comm.rank() as u64 + 1;
    region.as_mut_slice().fill(own);
    let shared = region.publish()?;
    assert!(shared.iter().is_sorted() && shared[0] == 1, "{}", rank::WRONG_DATA);
    Ok(())
}

fn alternates_epochs() -> Result<()> {
    let (mut kept, mut turn) = (None, 0);
    rank::repeat(&rank::join()?, |comm| {
        let mut region = match kept.take() {
            Some(region) => region,
            None => {
                let mut region = comm.region::<u64>(1_000_000)?;
                region.distribute()?;
                region
            }
        };
        let size = comm.size() as u64;
        region.as_mut_slice().fill(turn * size + comm.rank() as u64);
        let shared = region.publish()?;
        let ends = [shared[0], shared[shared.len() - 1]];
        assert!(ends == [turn * size, turn * size + size - 1], "{}: {ends:?}", rank::WRONG_DATA);
        kept = Some(shared.reclaim()?);
        turn += 1;
        Ok(())
    })
}

fn has_a_child_only() -> Result<()> {
    let comm = Communicator::from_env()?;
    let child = comm.split_local()?;
    drop(comm);
    rank::send("joined")?;
    rank::repeat(&child, Communicator::barrier)
}

/// The creator's process id means another process in the others' PID namespace, or none: all ranks use named files, and
/// find no buffers of others.
fn regions_in_another_pid_namespace() -> Result<Completion> {
    for elsewhere in [0, 1] {
        let mut job = Job::new(3);
        for rank in 0..3 {
            let program =
                if rank == elsewhere { "is in another PID namespace" } else { "has regions and a child" };
            job.start(rank, program, buffers::in_place)?;
        }
        for rank in 0..3 {
            let line = job.line(rank)?;
            if let Some(reason) = line.strip_prefix("not allowed: ") {
                return Ok(Completion::ignored_with(reason));
            }
            ensure!(line == "works", "rank {rank} sent {line:?}");
        }
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

fn is_in_another_pid_namespace() -> Result<()> {
    if let Err(error) = unshare(CloneFlags::CLONE_NEWPID) {
        return rank::send(&format!("not allowed: unshare: {error}"));
    }
    let program = std::env::current_exe()?;
    let status = Command::new(program).env(PROGRAM, "has regions and a child").status()?;
    ensure!(status.success(), "{status}");
    Ok(())
}

fn has_regions_and_a_child() -> Result<()> {
    let comm = Communicator::from_env()?;
    for _ in 0..10 {
        make_a_region(&comm)?;
    }
    let mut recv = vec![0; comm.size() << 18];
    (0..3).try_for_each(|turn| buffers::send(&comm, turn, 1 << 18, &mut recv))?;
    rank::ensure_works(&comm.split_local()?, 100)?;
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

/// Ranks 0 and 2 have a communicator, and ranks 1 and 3. Rank 3 dies.
fn only_its_communicators_end() -> Result<Completion> {
    for _ in 0..repeat(3) {
        let mut job = Job::joined(4, "is in a half")?;
        (0..4).try_for_each(|rank| job.await_line(rank, "split"))?;
        let (victim, since) = (job.pid(3)?, job.kill(3)?);
        let report = job.report(1)?;
        ensure!((report.kind.as_str(), &*report.ranks) == ("died", &[1]), "{report:?}");
        ensure!(report.pid == Some(victim) && report.at.saturating_sub(since) < BOUND, "{report:?}");
        for report in the_other_half_works_on(&mut job, "died")? {
            ensure!(report.pid == Some(victim), "{report:?}");
        }
        job.finish(&[3])?;
    }
    Ok(Completion::Completed)
}

/// Rank 3 aborts in the place of dying.
fn only_the_communicators_of_who_aborts_end() -> Result<Completion> {
    let mut job = Job::joined(4, "is in a half, or aborts")?;
    (0..4).try_for_each(|rank| job.await_line(rank, "split"))?;
    job.send(3, "abort")?;
    let report = job.report(1)?;
    ensure!((report.kind.as_str(), &*report.ranks) == ("aborted", &[1]), "{report:?}");
    the_other_half_works_on(&mut job, "aborted")?;
    job.finish_with(|rank| if rank == 3 { 7 } else { 0 })?;
    Ok(Completion::Completed)
}

/// The communicator of ranks 0 and 2 works on, and then they call the parent, which rank 3 has ended in this way. Returns what they are told.
fn the_other_half_works_on(job: &mut Job, kind: &str) -> Result<Vec<Report>> {
    for rank in [0, 2] {
        job.send(rank, "go on")?;
    }
    for rank in [0, 2] {
        job.await_line(rank, "works")?;
    }
    let told = [0, 2].map(|rank| {
        job.send(rank, "call all")?;
        let report = job.report(rank)?;
        ensure!((report.kind.as_str(), &*report.ranks) == (kind, &[3]), "{report:?}");
        Ok(report)
    });
    told.into_iter().collect()
}

fn is_in_a_half(last: impl FnOnce(&Communicator) -> Result<()>) -> Result<()> {
    let comm = rank::join()?;
    let half = comm.split(comm.rank() % 2, comm.rank())?;
    comm.barrier()?;
    rank::send("split")?;
    if comm.rank() == 3 {
        last(&comm)?;
    }
    if comm.rank() % 2 == 1 {
        return rank::repeat(&half, Communicator::barrier);
    }
    rank::receive()?;
    rank::ensure_works(&half, 10_000)?;
    rank::send("works")?;
    rank::receive()?;
    rank::repeat(&comm, Communicator::barrier)
}

/// Ranks 0 to 2 have a communicator beside that of all. Rank 0 dies, of which only rank 3 has a watcher. Rank 1 learns it in the
/// communicator of all, and leaves; rank 2 waits in the other one.
fn a_survivor_leaves(program: &str) -> Result<Completion> {
    let mut job = Job::new(4);
    for rank in 0..4 {
        job.start(rank, program, |command| {
            if rank == 1 || rank == 2 {
                command.env("INTRANODE_LIVENESS", "none");
            }
        })?;
    }
    job.await_joined(0..4)?;
    (0..4).try_for_each(|rank| job.await_line(rank, "split"))?;
    let (victim, since) = (job.pid(0)?, job.kill(0)?);
    for rank in 1..4 {
        let report = job.report(rank)?;
        ensure!((report.kind.as_str(), &*report.ranks) == ("died", &[0]), "rank {rank}: {report:?}");
        ensure!(
            report.pid == Some(victim) && report.at.saturating_sub(since) < BOUND,
            "rank {rank}: {report:?}"
        );
    }
    job.finish(&[0])?;
    Ok(Completion::Completed)
}

/// Joins, and has the communicator of ranks 0 to 2 too.
fn with_a_part() -> Result<(Communicator, Communicator)> {
    let comm = rank::join()?;
    let part = comm.split(usize::from(comm.rank() == 3), 0)?;
    comm.barrier()?;
    Ok((comm, part))
}

fn leaves_when_a_rank_has_died() -> Result<()> {
    let (comm, part) = with_a_part()?;
    rank::send("split")?;
    match comm.rank() {
        0 => rank::receive().map(drop),
        2 => rank::repeat(&part, Communicator::barrier),
        _ => {
            let error = comm.barrier().expect_err("rank 0 is killed");
            drop((part, comm));
            rank::report(&error)
        }
    }
}

/// Rank 1 leaves the messages of the part alone, and rank 2 waits for one of rank 1.
fn drops_messages_when_a_rank_has_died() -> Result<()> {
    let (comm, part) = with_a_part()?;
    let mut messages = part.messages()?;
    comm.barrier()?;
    rank::send("split")?;
    match comm.rank() {
        0 => rank::receive().map(drop),
        2 => rank::report(&messages.recv(&mut [0u8], 1, 0).expect_err("rank 0 is killed")),
        _ => {
            let error = comm.barrier().expect_err("rank 0 is killed");
            drop(messages);
            rank::report(&error)
        }
    }
}

/// Rank 0 aborts, and is stopped when it has ended the communicator of all, and before it ends the other one. Rank 1 is told, and
/// leaves both; rank 2 waits in the other one.
fn a_survivor_leaves_an_abort() -> Result<Completion> {
    /// At its start and at its end: a wake-up for both words of each rank.
    const CALLS: usize = 3 * 2 * 2;
    let mut job = Job::joined(3, "leaves when a rank has aborted")?;
    (0..3).try_for_each(|rank| job.await_line(rank, "split"))?;
    let aborts = Pid::from_raw(job.pid(0)?.try_into()?);
    if !stepping::has_begun(aborts)? {
        return Ok(Completion::ignored_with(stepping::NOT_TRACED));
    }
    for _ in 0..CALLS {
        ptrace::syscall(aborts, None)?;
        ensure!(!stepping::is_at_stop(aborts)?, "it has aborted");
    }
    for rank in [1, 2] {
        let report = job.report(rank)?;
        ensure!((report.kind.as_str(), &*report.ranks) == ("aborted", &[0]), "rank {rank}: {report:?}");
    }
    ptrace::detach(aborts, None)?;
    job.finish_with(|rank| if rank == 0 { 7 } else { 0 })?;
    Ok(Completion::Completed)
}

fn leaves_when_a_rank_has_aborted() -> Result<()> {
    let (comm, part) = with_a_part()?;
    rank::send("split")?;
    match comm.rank() {
        0 => {
            stepping::begin()?;
            comm.abort(7)
        }
        1 => {
            let error = comm.barrier().expect_err("rank 0 aborts");
            drop((part, comm));
            rank::report(&error)
        }
        _ => rank::repeat(&part, Communicator::barrier),
    }
}

fn a_region_outlives_its_creator() -> Result<Completion> {
    let mut job = Job::joined(3, "reads what the dead have written")?;
    (0..3).try_for_each(|rank| job.await_line(rank, "published"))?;
    job.kill(0)?;
    job.status(0)?;
    for rank in [1, 2] {
        job.send(rank, "read")?;
        job.await_line(rank, "read it")?;
    }
    job.finish(&[0])?;
    Ok(Completion::Completed)
}

fn reads_what_the_dead_have_written() -> Result<()> {
    let comm = rank::join()?;
    let mut region = comm.region::<u32>(1 << 20)?;
    region.as_mut_slice().fill(77);
    let shared = region.publish()?;
    rank::send("published")?;
    rank::receive()?;
    ensure!(shared.iter().all(|value| *value == 77), rank::WRONG_DATA);
    ensure!(matches!(shared.reclaim(), Err(Error::RankDied { rank: 0, .. })), "it was reclaimed");
    rank::send("read it")?;
    rank::receive()?;
    Ok(())
}
