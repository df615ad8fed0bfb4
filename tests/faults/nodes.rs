//! Rows 46 to 48: ranks on several nodes, which are simulated.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use intranode::{Error, Hierarchical, Pending, ReduceOp};
use libtest_mimic::Completion;
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};

use super::job::{BOUND, Job};
use super::report::now;
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_46_a_follower_is_killed", || killed(BARRIERS, &[&[1], &[3]])),
    ("row_46_a_leader_is_killed", || killed(BARRIERS, &[&[0], &[2]])),
    ("row_46_killed_while_sums_go_from_node_to_node", || killed(SUMS, &[&[0], &[1], &[2], &[3]])),
    ("row_46_a_whole_node_is_killed", || killed(BARRIERS, &[&[0, 1], &[2, 3]])),
    ("row_46_killed_between_three_nodes", killed_between_three_nodes),
    ("row_46_killed_while_calls_are_tested", || killed(TESTED, &[&[0], &[1], &[2], &[3], &[2, 3]])),
    ("row_46_killed_while_several_calls_are_waited_for", || killed(WAITED, &[&[0], &[1], &[2], &[3], &[2, 3]])),
    ("row_47_a_node_is_late", || late(BARRIERS)),
    ("row_47_a_node_is_late_while_sums_go_from_node_to_node", || late(SUMS)),
    ("row_47_a_follower_is_late", || a_follower_is_late(BARRIERS)),
    ("row_47_a_node_is_late_while_calls_are_tested", || late(TESTED)),
    ("row_47_a_follower_is_late_while_calls_are_tested", || a_follower_is_late(TESTED)),
    ("row_48_a_rank_of_another_node_aborts", aborts),
];

pub(crate) const PROGRAMS: &[Program] = &[
    (BARRIERS, || repeat_over_nodes(|nodes, _| nodes.barrier())),
    (SUMS, || repeat_over_nodes(sum)),
    (TESTED, || repeat_over_nodes(|nodes, round| started(nodes, round, only_test))),
    (WAITED, || repeat_over_nodes(|nodes, round| started(nodes, round, |_| ()))),
    (ABORTS, || aborts_on_a_node(|nodes| nodes.abort(CODE))),
    (LOCAL_ABORTS, || aborts_on_a_node(|nodes| nodes.local().abort(CODE))),
];

const BARRIERS: &str = "barriers over nodes";
const SUMS: &str = "sums over nodes";

const TESTED: &str = "calls that are tested over nodes";
const WAITED: &str = "calls that are waited for over nodes";

const TIMEOUT: Duration = Duration::from_millis(800);

fn join() -> Result<Hierarchical> {
    let nodes = Hierarchical::from_env()?;
    rank::send("joined")?;
    Ok(nodes)
}

fn repeat_over_nodes(call: impl Fn(&Hierarchical, u64) -> Result<(), Error>) -> Result<()> {
    let nodes = join()?;
    for round in 0.. {
        if let Err(error) = call(&nodes, round) {
            return rank::report(&error);
        }
    }
    Ok(())
}

/// Long enough for the chain.
fn sum(nodes: &Hierarchical, round: u64) -> Result<(), Error> {
    let mut data = vec![nodes.rank() as u64 + round; 50_000];
    nodes.allreduce_in_place(&mut data, ReduceOp::Sum)?;
    let size = nodes.size() as u64;
    let expected = size * round + size * (size - 1) / 2;
    assert!(data.iter().all(|sum| *sum == expected), "{}", rank::WRONG_DATA);
    Ok(())
}

/// Three calls under way, one of them long enough for the chain.
fn started(nodes: &Hierarchical, round: u64, until: fn(&mut Pending<'_, ()>)) -> Result<(), Error> {
    let size = nodes.size() as u64;
    let sum = nodes.start_allreduce(vec![nodes.rank() as u64 + round; 50_000], ReduceOp::Sum)?;
    let root = nodes.start_broadcast(vec![nodes.rank(); 3], nodes.size() - 1)?;
    let mut last = nodes.start_barrier()?;
    until(&mut last);
    last.wait()?;
    let expected = size * round + size * (size - 1) / 2;
    assert!(sum.wait()?.iter().all(|sum| *sum == expected), "{}", rank::WRONG_DATA);
    assert!(root.wait()? == [nodes.size() - 1; 3], "{}", rank::WRONG_DATA);
    Ok(())
}

fn only_test(pending: &mut Pending<'_, ()>) {
    while !pending.test() {}
}

fn job_of(size: usize, counts: &str, program: &str, timeout: Option<Duration>) -> Result<Job> {
    Job::joined_with(
        size,
        |_| program,
        |command| {
            command.env("INTRANODE_NODES", counts);
            if let Some(timeout) = timeout {
                command.env("INTRANODE_TIMEOUT", timeout.as_secs_f64().to_string());
            }
        },
    )
}

/// Every survivor names one of the victims, soon.
fn named(job: &mut Job, size: usize, victims: &[usize], since: Duration) -> Result<()> {
    let survivors: Vec<usize> = (0..size).filter(|rank| !victims.contains(rank)).collect();
    let mut last = Duration::ZERO;
    for rank in &survivors {
        let report = job.report(*rank)?;
        let died = report.kind == "died" && report.ranks.iter().all(|rank| victims.contains(rank));
        ensure!(died, "rank {rank} reports {report:?} after {victims:?} were killed");
        last = last.max(report.at.saturating_sub(since));
    }
    job.ensure_soon(&survivors, last)
}

fn killed(program: &str, victims: &[&[usize]]) -> Result<Completion> {
    for victims in victims.iter().cycle().take(repeat(2) * victims.len()) {
        let mut job = job_of(4, "2", program, None)?;
        thread::sleep(Duration::from_micros(fastrand::u64(0..3000)));
        let since = now();
        victims.iter().try_for_each(|victim| job.kill(*victim).map(drop))?;
        named(&mut job, 4, victims, since)?;
        job.finish(victims)?;
    }
    Ok(Completion::Completed)
}

fn killed_between_three_nodes() -> Result<Completion> {
    for victim in 0..repeat(6) {
        let mut job = job_of(6, "1,3,2", SUMS, None)?;
        thread::sleep(Duration::from_micros(fastrand::u64(0..3000)));
        let since = job.kill(victim % 6)?;
        named(&mut job, 6, &[victim % 6], since)?;
        job.finish(&[victim % 6])?;
    }
    Ok(Completion::Completed)
}

/// All ranks of node 1 stop. Those of node 0, also the one that only waits for its leader, name the node.
fn late(program: &str) -> Result<Completion> {
    for _ in 0..repeat(2) {
        let mut job = job_of(4, "2", program, Some(TIMEOUT))?;
        let since = now();
        job.signal(2, SIGSTOP)?;
        job.signal(3, SIGSTOP)?;
        for rank in [0, 1] {
            let report = job.report(rank)?;
            ensure!(report.kind == "node-late" && report.ranks == [2, 3], "rank {rank} reports {report:?}");
            let after = report.at.saturating_sub(since);
            ensure!(after > TIMEOUT / 2 && after < TIMEOUT + BOUND, "after {after:?}");
        }
        job.signal(2, SIGCONT)?;
        job.signal(3, SIGCONT)?;
        for rank in [2, 3] {
            // They have lost time too, and may blame each other.
            let report = job.report(rank)?;
            ensure!(report.kind == "node-late" || report.kind == "timed-out", "rank {rank} reports {report:?}");
        }
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

/// One rank of node 1 stops: there it is named, elsewhere it or its node.
fn a_follower_is_late(program: &str) -> Result<Completion> {
    for _ in 0..repeat(3) {
        let mut job = job_of(4, "2", program, Some(TIMEOUT))?;
        let since = job.signal(3, SIGSTOP)?;
        for rank in [0, 1, 2] {
            let report = job.report(rank)?;
            let is_rank = report.kind == "timed-out" && report.ranks == [3];
            let is_node = report.kind == "node-late" && report.ranks == [2, 3] && rank < 2;
            ensure!(is_rank || is_node, "rank {rank} reports {report:?}");
            let after = report.at.saturating_sub(since);
            ensure!(after > TIMEOUT / 2 && after < TIMEOUT + BOUND, "after {after:?}");
        }
        job.signal(3, SIGCONT)?;
        let report = job.report(3)?;
        ensure!(report.kind == "timed-out" && report.ranks == [3], "the frozen rank: {report:?}");
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

const CODE: i32 = 3;

const ABORTS: &str = "aborts on a node";
const LOCAL_ABORTS: &str = "aborts by the communicator of its node";

fn aborts_on_a_node(abort: fn(&Hierarchical)) -> Result<()> {
    let nodes = join()?;
    while rank::receive()?.is_none() {}
    abort(&nodes);
    Ok(())
}

/// A leader and a follower abort, in turn.
fn aborts() -> Result<Completion> {
    for (victim, program) in [(2, ABORTS), (3, ABORTS), (2, LOCAL_ABORTS), (3, LOCAL_ABORTS)] {
        let mut job = Job::joined_with(
            4,
            |rank| if rank == victim { program } else { BARRIERS },
            |command| {
                command.env("INTRANODE_NODES", "2");
            },
        )?;
        let since = now();
        job.send(victim, "now")?;
        let mut last = Duration::ZERO;
        let others: Vec<usize> = (0..4).filter(|rank| *rank != victim).collect();
        for rank in &others {
            let report = job.report(*rank)?;
            ensure!(report.kind == "aborted" && report.ranks == [victim], "rank {rank} reports {report:?}");
            last = last.max(report.at.saturating_sub(since));
        }
        job.ensure_soon(&others, last)?;
        job.finish_with(|rank| if rank == victim { CODE } else { 0 })?;
    }
    Ok(Completion::Completed)
}
