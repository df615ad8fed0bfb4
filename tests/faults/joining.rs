//! Rows 12 and 16: ranks killed while they join, one at each system call, or all at once.

use std::fs;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use libtest_mimic::Completion;
use nix::errno::Errno;
use nix::libc;
use nix::unistd::Pid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};

use super::job::Job;
use super::report::now;
use super::stepping::{self, run_until};
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_12_rank_0_is_killed_at_a_step_of_joining", || killed_at_each_step(0, "stops first")),
    ("row_12_rank_1_is_killed_at_a_step_of_joining", || killed_at_each_step(1, "stops first")),
    ("row_12_rank_0_is_killed_where_new_files_have_names", || {
        killed_at_each_step(0, "stops first, without O_TMPFILE")
    }),
    ("row_16_all_are_killed_while_they_join", || all_are_killed(2)),
    ("row_16_all_are_killed_after_they_joined", || all_are_killed(3)),
    ("row_16_all_are_killed_with_regions", all_are_killed_with_regions),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("stops first", stops_first),
    ("stops first, without O_TMPFILE", || {
        refuse_tmpfile()?;
        stops_first()
    }),
    ("joins", joins),
];

const JOIN_TIMEOUT: Duration = Duration::from_millis(300);

fn with_short_timeout(command: &mut Command) {
    command.env("INTRANODE_JOIN_TIMEOUT", JOIN_TIMEOUT.as_secs_f64().to_string());
}

/// Kills one of two ranks at a system call, a later one each time, until it has joined.
fn killed_at_each_step(victim: usize, program: &str) -> Result<Completion> {
    let survivor = 1 - victim;
    // Every call with FAULTS_REPEAT=8.
    let stride = 8usize.div_ceil(repeat(1));
    let mut outcomes = [0; 3];
    for calls in (0..).map(|step| fastrand::usize(0..stride) + step * stride) {
        let mut job = Job::new(2);
        job.start(survivor, "joins", with_short_timeout)?;
        job.start(victim, program, with_short_timeout)?;
        let pid = Pid::from_raw(job.pid(victim)?.try_into()?);
        let Some(through) = run_until(pid, calls)? else {
            return Ok(Completion::ignored_with(stepping::NOT_TRACED));
        };
        let since = now();
        if through {
            // It has joined.
            job.kill(victim)?;
        }
        let mut report = job.line(survivor)?;
        let joined = report == "joined";
        if joined {
            report = job.line(survivor)?;
        }
        let report = super::report::Report::parse(&report)?;
        let named = [format!("rank {victim} never joined"), format!("rank {victim} (process {pid}) has died")];
        let how = named.iter().position(|text| report.text.contains(text));
        let Some(how) = how else { bail!("killed at call {calls}: {report:?}") };
        ensure!(!joined || report.kind == "died", "{report:?}");
        ensure!(report.at.saturating_sub(since) < JOIN_TIMEOUT + super::job::BOUND, "{report:?}");
        outcomes[if joined { 2 } else { how }] += 1;
        job.release(|rank| if rank == victim { -9 } else { 0 })?;
        // The next job of this name works, although rank 0 may have left a file.
        let mut next = job.namesake();
        next.start(0, "leaves", |_| ())?;
        next.start(1, "barriers", |_| ())?;
        next.await_joined([0, 1])?;
        next.send(0, "leave")?;
        let report = next.report(1)?;
        ensure!(report.kind == "left", "{report:?}");
        next.release(|_| 0)?;
        if program != "stops first" {
            remove_unsigned(&next)?;
        }
        next.ensure_nothing_left()?;
        if through {
            break;
        }
    }
    let [never, died, after] = outcomes;
    eprintln!("rank {victim}: never joined {never}, died while joining {died}, died afterwards {after}");
    ensure!(never > 0 && died > 0 && after > 0, "not all steps were reached");
    Ok(Completion::Completed)
}

/// Removes the empty file of a process that was killed between creating it under a private name and signing it.
pub(crate) fn remove_unsigned(job: &Job) -> Result<()> {
    let private = format!("{}_new_", &job.name()[1..]);
    for entry in fs::read_dir("/dev/shm")? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&private) {
            let len = entry.metadata()?.len();
            ensure!(len == 0, "{} is left, of {len} bytes", entry.path().display());
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// From here on O_TMPFILE fails in this process.
pub(crate) fn refuse_tmpfile() -> Result<()> {
    // O_TMPFILE includes O_DIRECTORY.
    let only = u64::from((libc::O_TMPFILE & !libc::O_DIRECTORY) as u32);
    let has = SeccompCondition::new(2, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(only), only)?;
    let rules = [(libc::SYS_openat, vec![SeccompRule::new(vec![has])?])];
    let refuse = SeccompAction::Errno(Errno::EOPNOTSUPP as u32);
    let arch = std::env::consts::ARCH.try_into()?;
    let filter = SeccompFilter::new(rules.into_iter().collect(), SeccompAction::Allow, refuse, arch)?;
    Ok(apply_filter(&BpfProgram::try_from(filter)?)?)
}

fn stops_first() -> Result<()> {
    stepping::begin()?;
    let comm = intranode::Config::from_env()?.join()?;
    stepping::stop()?;
    rank::repeat(&comm, |comm| comm.barrier())
}

/// Reports an error of joining too.
fn joins() -> Result<()> {
    match rank::join() {
        Ok(comm) => rank::repeat(&comm, |comm| comm.barrier()),
        Err(error) => rank::report(&error.downcast()?),
    }
}

fn all_are_killed_with_regions() -> Result<Completion> {
    for _ in 0..repeat(5) {
        let mut job = Job::joined(3, "alternates epochs")?;
        std::thread::sleep(Duration::from_micros(fastrand::u64(0..3000)));
        (0..3).try_for_each(|rank| job.kill(rank).map(drop))?;
        job.finish(&[0, 1, 2])?;
    }
    Ok(Completion::Completed)
}

/// `come` of three ranks are started, and all are killed.
fn all_are_killed(come: usize) -> Result<Completion> {
    for _ in 0..repeat(5) {
        let mut job = Job::new(3);
        for rank in 0..come {
            job.start(rank, "barriers", |_| ())?;
        }
        if come == 3 {
            job.await_joined(0..3)?;
        } else {
            job.await_name()?;
        }
        for rank in job.ranks() {
            job.kill(rank)?;
        }
        for rank in job.ranks() {
            job.status(rank)?;
        }
        ensure!(job.path().exists() == (come < 3), "the name is there until all have joined");
        let mut next = job.namesake();
        for rank in 0..3 {
            next.start(rank, "barriers", |_| ())?;
        }
        next.await_joined(0..3)?;
        let since = next.kill(2)?;
        next.all_report_death(&[0, 1], &[2], since)?;
        next.finish(&[2])?;
    }
    Ok(Completion::Completed)
}
