//! Rows 1, 4, 8, 14 and 30 for the ring of watchers: those of a rank die, leave or are stopped too, or share no split
//! communicator with its survivors.

use std::ops::Range;
use std::process::Command;

use anyhow::{Result, ensure};
use intranode::segment::layout::WATCHERS;
use libtest_mimic::Completion;
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};

use super::job::{BOUND, Job};
use super::report::now;
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_01_killed_among_130", killed_among_many),
    ("row_04_a_rank_and_all_its_watchers_are_killed", || killed_together(12, 3..12)),
    ("row_04_neighbours_are_killed_together", || killed_together(10, 4..7)),
    ("row_08_a_death_after_all_watchers_have_left", a_death_after_all_watchers_have_left),
    ("row_14_frozen_watchers", frozen_watchers),
    ("row_30_a_death_after_a_rank_has_left_the_parent", a_death_after_a_rank_has_left_the_parent),
];

pub(crate) const PROGRAMS: &[Program] = &[("stays away", stays_away), ("is in a group", is_in_a_group)];

fn stays_away() -> Result<()> {
    let _comm = rank::join()?;
    while rank::receive()?.is_some() {}
    Ok(())
}

/// All but the victim sleep in a barrier.
fn killed_among_many() -> Result<Completion> {
    let size = 130;
    for _ in 0..repeat(1) {
        let victim = fastrand::usize(0..size);
        let program = |rank| if rank == victim { "stays away" } else { "barriers" };
        let mut job = Job::joined_with(size, program, |_| ())?;
        let since = job.kill(victim)?;
        let others: Vec<usize> = (0..size).filter(|rank| *rank != victim).collect();
        job.all_report_death(&others, &[victim], since)?;
        job.finish(&[victim])?;
    }
    Ok(Completion::Completed)
}

fn killed_together(size: usize, victims: Range<usize>) -> Result<Completion> {
    let victims: Vec<usize> = victims.collect();
    let survivors: Vec<usize> = (0..size).filter(|rank| !victims.contains(rank)).collect();
    for _ in 0..repeat(3) {
        let mut job = Job::joined(size, "barriers")?;
        let mut order = victims.clone();
        fastrand::shuffle(&mut order);
        let mut since = now();
        for victim in &order {
            since = job.kill(*victim)?;
        }
        job.all_report_death(&survivors, &victims, since)?;
        job.finish(&victims)?;
    }
    Ok(Completion::Completed)
}

/// All watchers of the victim are stopped but one.
fn frozen_watchers() -> Result<Completion> {
    let size = WATCHERS + 2;
    let victim = size - 1;
    for _ in 0..repeat(3) {
        let mut job = Job::joined(size, "barriers")?;
        for rank in 2..victim {
            job.signal(rank, SIGSTOP)?;
        }
        let since = job.kill(victim)?;
        // One of them watches the victim, the other does not.
        job.all_report_death(&[0, 1], &[victim], since)?;
        let since = now();
        for rank in 2..victim {
            job.signal(rank, SIGCONT)?;
        }
        job.all_report_death(&(2..victim).collect::<Vec<_>>(), &[victim], since)?;
        job.finish(&[victim])?;
    }
    Ok(Completion::Completed)
}

/// The ranks that go on in a split communicator.
const GROUP: &str = "FAULTS_GROUP";

/// The ranks of the group call barriers; the others leave on request.
fn is_in_a_group() -> Result<()> {
    let comm = rank::join()?;
    let group = std::env::var(GROUP)?;
    let inside = group.split(',').any(|rank| rank == comm.rank().to_string());
    let part = comm.split(usize::from(inside), comm.rank())?;
    rank::send("split")?;
    if inside { rank::repeat(&part, |part| part.barrier()) } else { rank::receive().map(drop) }
}

fn with_a_group(size: usize, group: &[usize]) -> Result<Job> {
    let group = group.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let set = |command: &mut Command| {
        command.env(GROUP, &group);
    };
    let mut job = Job::joined_with(size, |_| "is in a group", set)?;
    (0..size).try_for_each(|rank| job.await_line(rank, "split"))?;
    Ok(job)
}

/// Kills a rank of the group, which is rank `as_rank` there.
fn group_reports_death(job: &mut Job, survivors: &[usize], victim: usize, as_rank: usize) -> Result<()> {
    let (pid, since) = (job.pid(victim)?, job.kill(victim)?);
    for rank in survivors {
        let report = job.report(*rank)?;
        ensure!((report.kind.as_str(), &*report.ranks) == ("died", &[as_rank]), "{report:?}");
        ensure!(report.pid == Some(pid) && report.at.saturating_sub(since) < BOUND, "{report:?}");
    }
    Ok(())
}

/// The victim's watchers leave, the nearest first: others take over.
fn a_death_after_all_watchers_have_left() -> Result<Completion> {
    let size = WATCHERS + 4;
    let victim = size - 1;
    for _ in 0..repeat(2) {
        let mut job = with_a_group(size, &[0, 1, 2, victim])?;
        for rank in (3..victim).rev() {
            job.send(rank, "leave")?;
            ensure!(job.status(rank)? == 0, "rank {rank} leaves in order");
        }
        group_reports_death(&mut job, &[0, 1, 2], victim, 3)?;
        job.finish(&[victim])?;
    }
    Ok(Completion::Completed)
}

/// The parent communicator has ended. Of the two ranks that share a split communicator, neither watches the other.
fn a_death_after_a_rank_has_left_the_parent() -> Result<Completion> {
    let (size, victim) = (2 * WATCHERS + 4, WATCHERS + 2);
    for _ in 0..repeat(2) {
        let mut job = with_a_group(size, &[0, victim])?;
        job.send(size - 1, "leave")?;
        ensure!(job.status(size - 1)? == 0, "it leaves in order");
        group_reports_death(&mut job, &[0], victim, 1)?;
        job.finish(&[victim])?;
    }
    Ok(Completion::Completed)
}
