//! Rows 13 and 14: a stopped rank, which cannot be distinguished from a slow one.

use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Completion;
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};

use super::job::{BOUND, Job};
use super::report::now;
use super::{Test, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_13_frozen", || frozen("0", &[1])),
    // A leader, and another rank of its group.
    ("row_13_frozen_in_groups", || frozen("2", &[0, 1])),
    ("row_14_a_frozen_waiter_learns_of_a_death", a_frozen_waiter_learns_of_a_death),
];

const TIMEOUT: Duration = Duration::from_millis(500);

fn frozen(group: &str, victims: &[usize]) -> Result<Completion> {
    for &victim in victims.iter().cycle().take(repeat(3) * victims.len()) {
        let mut job = Job::joined_with(
            3,
            |_| "barriers",
            |command| {
                command.env("INTRANODE_TIMEOUT", TIMEOUT.as_secs_f64().to_string());
                command.env("INTRANODE_GROUP", group);
            },
        )?;
        let pid = job.pid(victim)?;
        let since = job.signal(victim, SIGSTOP)?;
        let mut texts = Vec::new();
        for rank in (0..3).filter(|rank| *rank != victim) {
            let report = job.report(rank)?;
            ensure!(report.kind == "timed-out" && report.ranks == [victim], "{report:?}");
            ensure!(report.pid == Some(pid), "{pid}: {report:?}");
            let after = report.at.saturating_sub(since);
            // A wait may have begun before the signal was sent.
            ensure!(after > TIMEOUT / 2 && after < TIMEOUT + BOUND, "after {after:?}");
            texts.push(report.text);
        }
        job.signal(victim, SIGCONT)?;
        let report = job.report(victim)?;
        ensure!(report.kind == "timed-out" && report.ranks == [victim], "the frozen rank: {report:?}");
        texts.push(report.text);
        ensure!(texts.iter().all(|text| *text == texts[0]), "not the same on all ranks: {texts:?}");
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

fn a_frozen_waiter_learns_of_a_death() -> Result<Completion> {
    for _ in 0..repeat(3) {
        let mut job = Job::joined(2, "barriers")?;
        job.signal(0, SIGSTOP)?;
        job.kill(1)?;
        job.status(1)?;
        let since = now();
        job.signal(0, SIGCONT)?;
        job.all_report_death(&[0], &[1], since)?;
        job.finish(&[1])?;
    }
    Ok(Completion::Completed)
}
