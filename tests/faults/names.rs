//! Rows 17, 18 and 27: several jobs of one name, and damaged segments.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::process::Command;

use anyhow::{Result, ensure};
use libtest_mimic::Completion;

use super::job::Job;
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_17_four_ranks_0_race_for_a_stale_name", four_ranks_0_race),
    ("row_18_a_second_rank_0_while_joining", || a_second_rank_while_joining(0)),
    ("row_18_a_second_rank_1_while_joining", || a_second_rank_while_joining(1)),
    ("row_18_a_new_job_of_the_name_of_one_that_has_joined", a_new_job_of_the_same_name),
    ("row_27_the_header_of_a_live_segment_is_damaged", the_header_is_damaged),
    ("row_27_a_live_segment_is_longer_than_it_says", the_length_is_wrong),
];

pub(crate) const PROGRAMS: &[Program] = &[("works on request", works_on_request)];

/// Reports an error of joining too.
fn works_on_request() -> Result<()> {
    let comm = match rank::join() {
        Ok(comm) => comm,
        Err(error) => return rank::report(&error.downcast()?),
    };
    rank::receive()?;
    rank::ensure_works(&comm, 100)?;
    rank::send("works")?;
    while rank::receive()?.is_some() {}
    Ok(())
}

fn with_short_timeout(command: &mut Command) {
    command.env("INTRANODE_JOIN_TIMEOUT", "5");
}

/// Other ranks join first, and find the stale segment of a dead job.
fn four_ranks_0_race() -> Result<Completion> {
    const RIVALS: [usize; 4] = [0, 4, 5, 6];
    for _ in 0..repeat(10) {
        let mut dead = Job::new(4);
        dead.start(0, "works on request", |_| ())?;
        dead.await_name()?;
        dead.kill(0)?;
        dead.status(0)?;
        let mut job = dead.namesake();
        for rank in 1..3 {
            job.start(rank, "works on request", |_| ())?;
        }
        for process in RIVALS {
            job.start(process, "works on request", |command| {
                command.env("INTRANODE_RANK", "0");
            })?;
        }
        // Until rank 3 joins, the winner has the name.
        let mut rivals = RIVALS.to_vec();
        let mut errors = Vec::new();
        while rivals.len() > 1 {
            let (loser, line) = job.first_line(&rivals)?;
            rivals.retain(|rival| *rival != loser);
            errors.push(line);
        }
        let winner = rivals[0];
        let holder = format!("process {} is rank 0", job.pid(winner)?);
        ensure!(errors.iter().all(|line| line.contains(&holder)), "{errors:?}, not {holder}");
        job.start(3, "works on request", |_| ())?;
        job.await_joined([winner, 1, 2, 3])?;
        let members = [winner, 1, 2, 3];
        members.iter().try_for_each(|process| job.send(*process, "work"))?;
        members.iter().try_for_each(|process| job.await_line(*process, "works"))?;
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

fn a_second_rank_while_joining(second: usize) -> Result<Completion> {
    const SECOND: usize = 7;
    let mut job = Job::new(3);
    for rank in 0..2 {
        job.start(rank, "works on request", |_| ())?;
    }
    job.await_name()?;
    // Of two ranks 1 either may be second; of two ranks 0 it is the one that is started here.
    job.start(SECOND, "works on request", |command| {
        command.env("INTRANODE_RANK", second.to_string());
    })?;
    let (loser, line) = job.first_line(&[second, SECOND])?;
    let winner = if loser == SECOND { second } else { SECOND };
    ensure!(second == 1 || loser == SECOND, "{line}");
    ensure!(line.contains(&format!("process {} is rank {second}", job.pid(winner)?)), "{line}");
    job.start(2, "works on request", |_| ())?;
    let others = [0, winner, 1, 2];
    let mut members: Vec<usize> = others.into_iter().filter(|process| *process != loser).collect();
    members.sort();
    members.dedup();
    ensure!(members.len() == 3, "{members:?}");
    for process in &members {
        job.await_line(*process, "joined")?;
        job.send(*process, "work")?;
    }
    members.iter().try_for_each(|process| job.await_line(*process, "works"))?;
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn a_new_job_of_the_same_name() -> Result<Completion> {
    let mut first = Job::joined(3, "works on request")?;
    let mut second = first.namesake();
    for rank in 0..3 {
        second.start(rank, "works on request", |_| ())?;
    }
    second.await_joined(0..3)?;
    for job in [&mut first, &mut second] {
        (0..3).try_for_each(|rank| job.send(rank, "work"))?;
        (0..3).try_for_each(|rank| job.await_line(rank, "works"))?;
    }
    second.release(|_| 0)?;
    first.finish(&[])?;
    Ok(Completion::Completed)
}

/// The error of rank 1 after rank 0's segment was changed.
fn refusal_after(change: impl Fn(&File) -> Result<()>) -> Result<String> {
    let mut job = Job::new(2);
    job.start(0, "works on request", with_short_timeout)?;
    job.await_name()?;
    change(&File::options().read(true).write(true).open(job.path())?)?;
    job.start(1, "works on request", with_short_timeout)?;
    let report = job.report(1)?;
    job.kill(0)?;
    job.release(|rank| if rank == 0 { -9 } else { 0 })?;
    fs::remove_file(job.path())?;
    job.ensure_nothing_left()?;
    ensure!(report.kind == "not-joined", "{report:?}");
    Ok(report.text)
}

fn the_header_is_damaged() -> Result<Completion> {
    let refusal = |offset: u64, bytes: &'static [u8]| {
        refusal_after(move |file: &File| Ok(file.write_all_at(bytes, offset)?))
    };
    for (offset, bytes, reason) in [
        (0, &b"another?"[..], "not a segment of this library"),
        (8, &[99, 0, 0, 0], "version 99"),
        (12, &[16, 0, 0, 0], "another word size"),
        (20, &[3, 0, 0, 0], "should be"),
        (28, &[1], "multiples of 64"),
        (36, &[255; 8], "should be"),
    ] {
        let text = refusal(offset, bytes)?;
        ensure!(text.contains(reason), "{bytes:?} at {offset}: {text}");
    }
    Ok(Completion::Completed)
}

fn the_length_is_wrong() -> Result<Completion> {
    let text = refusal_after(|file| Ok(file.set_len(file.metadata()?.len() + 1)?))?;
    ensure!(text.contains("bytes long and should be"), "{text}");
    Ok(Completion::Completed)
}
