//! Joining, and its failures.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use intranode::{Communicator, Config, Error, ReduceOp};
use libtest_mimic::Trial;

use crate::job::{Job, WAITS, Wait, await_word};
use crate::scenario::{Outcome, still_works};

/// The program of a process that does not run a row.
type Role = fn() -> Outcome;

/// The programs of this file's processes.
pub(crate) const ROLES: &[(&str, Role)] = &[
    ("join", join),
    ("join_and_wait", join_and_wait),
    ("join_with_a_staging_of_its_own", join_with_a_staging_of_its_own),
    ("join_two_jobs", join_two_jobs),
    ("report", report),
    ("report_in_half_a_second", report_in_half_a_second),
];

/// A row that starts its own jobs.
pub(crate) type Test = fn(Wait) -> Outcome;

/// One trial for each way to wait.
pub(crate) fn over_every_wait(tests: &[(&str, Test)]) -> Vec<Trial> {
    let mut trials = Vec::new();
    for wait in WAITS.iter().copied() {
        for (name, test) in tests.iter().copied() {
            let name = format!("processes::{}::{name}", wait.name());
            trials.push(Trial::test(name, move || test(wait).map_err(|error| format!("{error:#}").into())));
        }
    }
    trials
}

pub(crate) fn trials() -> Vec<Trial> {
    let tests: &[(&str, Test)] = &[
        ("rank_0_starts_last", rank_0_starts_last),
        ("the_name_is_free_once_all_have_joined", the_name_is_free_once_all_have_joined),
        ("the_staging_of_rank_0_counts", the_staging_of_rank_0_counts),
        ("two_jobs_at_once", two_jobs_at_once),
        ("a_rank_that_never_joins_is_named", a_rank_that_never_joins_is_named),
        ("ranks_with_different_sizes", ranks_with_different_sizes),
        ("two_processes_with_rank_0", two_processes_with_rank_0),
        ("two_processes_with_rank_1", two_processes_with_rank_1),
        ("a_stale_segment_is_removed", a_stale_segment_is_removed),
        ("ranks_that_meet_a_stale_segment_wait_for_the_new_one", ranks_that_meet_a_stale_segment),
    ];
    over_every_wait(tests)
}

fn join() -> Outcome {
    println!("joining");
    still_works(&Communicator::from_env()?)
}

fn join_and_wait() -> Outcome {
    let comm = Communicator::from_env()?;
    still_works(&comm)?;
    println!("joined");
    await_word()?;
    still_works(&comm)
}

fn join_with_a_staging_of_its_own() -> Outcome {
    let rank: usize = std::env::var("INTRANODE_RANK")?.parse()?;
    let comm = Config::from_env()?.chunk_bytes(64 * (rank + 1)).join()?;
    let mut data = vec![rank; 1000];
    comm.allreduce_in_place(&mut data, ReduceOp::Max)?;
    ensure!(data == vec![comm.size() - 1; 1000]);
    Ok(())
}

fn join_two_jobs() -> Outcome {
    let one = Communicator::from_env()?;
    let name = std::env::var("INTRANODE_NAME")? + "_second";
    // In the other one this process has another rank.
    let other = Config::new(name, one.size() - 1 - one.rank(), one.size()).join()?;
    for _ in 0..100 {
        still_works(&one)?;
        still_works(&other)?;
    }
    // The end of one job does not end the other.
    other.leave()?;
    still_works(&one)
}

/// Prints the error of joining.
fn report() -> Outcome {
    report_failure(Config::from_env().and_then(Config::join))
}

fn report_in_half_a_second() -> Outcome {
    let start = Instant::now();
    let result = Config::from_env()?.join_timeout(Duration::from_millis(500)).join();
    // The first rank that times out ends joining for all.
    let took = start.elapsed();
    ensure!(took < Duration::from_millis(1500), "it took {took:?}");
    report_failure(result)
}

fn report_failure(result: Result<Communicator, Error>) -> Outcome {
    let error = result.err().context("it joined")?;
    ensure!(error.is_fatal());
    println!("told: {error}");
    match error {
        Error::InitializationFailed(failure) => println!("InitializationFailed, missing {:?}", failure.missing),
        Error::InvalidConfiguration(bad) => println!("InvalidConfiguration of {}", bad.setting),
        other => println!("{other:?}"),
    }
    Ok(())
}

/// The processes have ended with success, after they have written all of these.
pub(crate) fn ensure_told(job: &mut Job, processes: &[usize], parts: &[&str]) -> Outcome {
    job.wait_all()?;
    for process in processes {
        let output = job.output(*process)?;
        ensure!(job.code(*process) == Some(0), "process {process} failed: {output}");
        let missing = parts.iter().find(|part| !output.contains(**part));
        ensure!(missing.is_none(), "process {process} did not say {missing:?}: {output}");
    }
    Ok(())
}

fn rank_0_starts_last(wait: Wait) -> Outcome {
    let mut job = Job::new(4, wait);
    for rank in 1..4 {
        let process = job.start(rank, "join")?;
        job.await_output(process, "joining")?;
    }
    job.start(0, "join")?;
    job.finish(&[0; 4])
}

fn the_name_is_free_once_all_have_joined(wait: Wait) -> Outcome {
    let mut first = Job::new(2, wait);
    let mut second = first.namesake();
    for job in [&mut first, &mut second] {
        job.start_all("join_and_wait")?;
        for process in 0..2 {
            job.await_output(process, "joined")?;
        }
        ensure!(!job.path().exists(), "{} is still there", job.name());
    }
    first.tell_all()?;
    first.wait_all()?;
    second.tell_all()?;
    second.finish(&[0; 2])?;
    first.finish(&[0; 2])
}

fn the_staging_of_rank_0_counts(wait: Wait) -> Outcome {
    let mut job = Job::new(4, wait);
    job.start_all("join_with_a_staging_of_its_own")?;
    job.finish(&[0; 4])
}

fn two_jobs_at_once(wait: Wait) -> Outcome {
    let mut job = Job::new(4, wait);
    job.start_all("join_two_jobs")?;
    job.finish(&[0; 4])
}

fn a_rank_that_never_joins_is_named(wait: Wait) -> Outcome {
    // Rank 0 has started, rank 1 has not; then vice versa.
    for (there, missing) in [(vec![0, 2], "1"), (vec![0], "1, 2"), (vec![1, 2], "0")] {
        let mut job = Job::new(3, wait);
        let start = Instant::now();
        for rank in &there {
            job.start(*rank, "report_in_half_a_second")?;
        }
        let processes: Vec<usize> = (0..there.len()).collect();
        let named = format!("missing [{missing}]");
        let told = format!("rank {missing} never joined within 500ms");
        ensure_told(&mut job, &processes, &[&told, &named])?;
        ensure!(start.elapsed() >= Duration::from_millis(500), "too early");
        job.left_nothing()?;
    }
    Ok(())
}

fn ranks_with_different_sizes(wait: Wait) -> Outcome {
    for told in ["2", "4"] {
        let mut job = Job::new(3, wait);
        let right = job.start(0, "report")?;
        let wrong = job.start_with(1, "report", |command| _ = command.env("INTRANODE_SIZE", told))?;
        let reason = format!("made for 3 ranks, this rank expects {told}");
        ensure_told(&mut job, &[wrong], &["InitializationFailed", &reason])?;
        ensure_told(&mut job, &[right], &["InitializationFailed", "rank 1", "another number of ranks"])?;
        job.left_nothing()?;
    }
    Ok(())
}

fn two_processes_with_rank_0(wait: Wait) -> Outcome {
    let mut job = Job::new(2, wait);
    let first = job.start(0, "join")?;
    job.await_name()?;
    let second = job.start(0, "report")?;
    let holder = format!("process {}", job.pid(first));
    job.await_output(second, "told")?;
    job.start(1, "join")?;
    ensure_told(&mut job, &[second], &["InitializationFailed", "rank 0", &holder])?;
    job.finish(&[0; 2])
}

fn two_processes_with_rank_1(wait: Wait) -> Outcome {
    // The second of the two gets the error; the job continues with the first.
    let mut job = Job::new(3, wait);
    job.start(0, "join")?;
    let twins = [job.start(1, "join")?, job.start(1, "join")?];
    let second = job.first_to_end(&twins)?;
    let first = twins[usize::from(second == twins[0])];
    job.start(2, "join")?;
    job.wait_all()?;
    let output = job.output(second)?;
    let told = format!("process {} is rank 1 already", job.pid(first));
    ensure!(job.code(second) == Some(1) && output.contains(&told), "no {told:?}: {output}");
    for process in [0, first, 3] {
        ensure!(job.code(process) == Some(0), "the job was disturbed: {}", job.output(process)?);
    }
    job.left_nothing()
}

/// A job of which rank 0 was killed while it waited for the others.
fn leave_a_stale_segment(wait: Wait) -> anyhow::Result<Job> {
    let mut dead = Job::new(2, wait);
    let rank_0 = dead.start(0, "join")?;
    dead.await_name()?;
    dead.kill(rank_0)?;
    ensure!(dead.path().exists(), "the kill left nothing");
    Ok(dead)
}

fn a_stale_segment_is_removed(wait: Wait) -> Outcome {
    let dead = leave_a_stale_segment(wait)?;
    let mut job = dead.namesake();
    job.start_all("join")?;
    job.finish(&[0; 2])?;
    let message = format!("removed what a job that has ended left under {}", job.name());
    let outputs = job.output(0)? + &job.output(1)?;
    ensure!(outputs.matches(&message).count() == 1, "{outputs}");
    Ok(())
}

fn ranks_that_meet_a_stale_segment(wait: Wait) -> Outcome {
    let dead = leave_a_stale_segment(wait)?;
    let mut job = dead.namesake();
    let early = job.start(1, "join")?;
    job.await_output(early, "joining")?;
    job.start(0, "join")?;
    job.finish(&[0; 2])
}
