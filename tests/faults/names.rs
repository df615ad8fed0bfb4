//! Rows 17, 18 and 27: other jobs and other programs under the same name, and segments that are not what they should be.

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

pub(crate) const PROGRAMS: &[Program] = &[("works when told", works_when_told)];

/// Reports also why it can not join.
fn works_when_told() -> Result<()> {
    let comm = match rank::join() {
        Ok(comm) => comm,
        Err(error) => return rank::report(&error.downcast()?),
    };
    rank::heard()?;
    rank::works(&comm, 100)?;
    rank::say("works")?;
    while rank::heard()?.is_some() {}
    Ok(())
}

fn shortly(command: &mut Command) {
    command.env("INTRANODE_JOIN_TIMEOUT", "5");
}

/// Other ranks come first, and meet what a dead job has left.
fn four_ranks_0_race() -> Result<Completion> {
    const RIVALS: [usize; 4] = [0, 4, 5, 6];
    for _ in 0..repeat(10) {
        let mut dead = Job::new(4);
        dead.start(0, "works when told", |_| ())?;
        dead.await_name()?;
        dead.kill(0)?;
        dead.status(0)?;
        let mut job = dead.namesake();
        for rank in 1..3 {
            job.start(rank, "works when told", |_| ())?;
        }
        for process in RIVALS {
            job.start(process, "works when told", |command| {
                command.env("INTRANODE_RANK", "0");
            })?;
        }
        // As long as rank 3 is not there, the winner has the name.
        let mut rivals = RIVALS.to_vec();
        let mut told = Vec::new();
        while rivals.len() > 1 {
            let (loser, line) = job.first_line(&rivals)?;
            rivals.retain(|rival| *rival != loser);
            told.push(line);
        }
        let winner = rivals[0];
        let holder = format!("process {} is rank 0", job.pid(winner)?);
        ensure!(told.iter().all(|line| line.contains(&holder)), "{told:?}, not {holder}");
        job.start(3, "works when told", |_| ())?;
        job.await_joined([winner, 1, 2, 3])?;
        let members = [winner, 1, 2, 3];
        members.iter().try_for_each(|process| job.tell(*process, "work"))?;
        members.iter().try_for_each(|process| job.await_line(*process, "works"))?;
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

fn a_second_rank_while_joining(second: usize) -> Result<Completion> {
    const SECOND: usize = 7;
    let mut job = Job::new(3);
    for rank in 0..2 {
        job.start(rank, "works when told", |_| ())?;
    }
    job.await_name()?;
    // Whoever of two ranks 1 comes second is told; of two ranks 0 that is clear.
    job.start(SECOND, "works when told", |command| {
        command.env("INTRANODE_RANK", second.to_string());
    })?;
    let told = job.first_line(&[second, SECOND])?;
    let (loser, line) = told;
    let winner = if loser == SECOND { second } else { SECOND };
    ensure!(second == 1 || loser == SECOND, "{line}");
    ensure!(line.contains(&format!("process {} is rank {second}", job.pid(winner)?)), "{line}");
    job.start(2, "works when told", |_| ())?;
    let others = [0, winner, 1, 2];
    let mut members: Vec<usize> = others.into_iter().filter(|process| *process != loser).collect();
    members.sort();
    members.dedup();
    ensure!(members.len() == 3, "{members:?}");
    for process in &members {
        job.await_line(*process, "joined")?;
        job.tell(*process, "work")?;
    }
    members.iter().try_for_each(|process| job.await_line(*process, "works"))?;
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn a_new_job_of_the_same_name() -> Result<Completion> {
    let mut first = Job::joined(3, "works when told")?;
    let mut second = first.namesake();
    for rank in 0..3 {
        second.start(rank, "works when told", |_| ())?;
    }
    second.await_joined(0..3)?;
    for job in [&mut first, &mut second] {
        (0..3).try_for_each(|rank| job.tell(rank, "work"))?;
        (0..3).try_for_each(|rank| job.await_line(rank, "works"))?;
    }
    second.release(|_| 0)?;
    first.finish(&[])?;
    Ok(Completion::Completed)
}

/// What rank 1 is told of a segment that rank 0 has made, and somebody has changed.
fn told_of(change: impl Fn(&File) -> Result<()>) -> Result<String> {
    let mut job = Job::new(2);
    job.start(0, "works when told", shortly)?;
    job.await_name()?;
    change(&File::options().read(true).write(true).open(job.path())?)?;
    job.start(1, "works when told", shortly)?;
    let report = job.report(1)?;
    job.kill(0)?;
    job.release(|rank| if rank == 0 { -9 } else { 0 })?;
    fs::remove_file(job.path())?;
    job.left_nothing()?;
    ensure!(report.kind == "not-joined", "{report:?}");
    Ok(report.text)
}

fn the_header_is_damaged() -> Result<Completion> {
    let told =
        |offset: u64, bytes: &'static [u8]| told_of(move |file: &File| Ok(file.write_all_at(bytes, offset)?));
    for (offset, bytes, reason) in [
        (0, &b"another?"[..], "not a segment of this library"),
        (8, &[99, 0, 0, 0], "version 99"),
        (12, &[16, 0, 0, 0], "another word size"),
        (20, &[3, 0, 0, 0], "should be"),
        (28, &[1], "multiples of 64"),
        (36, &[255; 8], "should be"),
    ] {
        let text = told(offset, bytes)?;
        ensure!(text.contains(reason), "{bytes:?} at {offset}: {text}");
    }
    Ok(Completion::Completed)
}

fn the_length_is_wrong() -> Result<Completion> {
    let text = told_of(|file| Ok(file.set_len(file.metadata()?.len() + 1)?))?;
    ensure!(text.contains("bytes long and should be"), "{text}");
    Ok(Completion::Completed)
}
