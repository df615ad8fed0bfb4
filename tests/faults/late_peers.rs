//! Row 36: a rank is stopped to which messages are sent, or from which they are awaited.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use intranode::{Error, Source, Tag};
use libtest_mimic::Completion;
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};

use super::job::Job;
use super::report::Report;
use super::senders::{LENGTH, data, length, messages, without_reading};
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_36_a_receiver_is_frozen", || a_receiver_is_frozen(|_| ())),
    ("row_36_a_receiver_is_frozen_that_is_sent_parts", || a_receiver_is_frozen(without_reading)),
    ("row_36_a_receiver_is_frozen_until_its_channel_is_full", until_its_channel_is_full),
    ("row_36_a_sender_is_frozen", a_sender_is_frozen),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("sends to one that is stopped", sends_to_one_that_is_stopped),
    ("receives what is not taken back", receives_what_is_not_taken_back),
    ("fills a channel", fills_a_channel),
    ("waits for one that is stopped", waits_for_one_that_is_stopped),
    ("answers", answers),
];

const TIMEOUT: Duration = Duration::from_millis(500);

fn soon(command: &mut Command) {
    command.env("INTRANODE_TIMEOUT", TIMEOUT.as_secs_f64().to_string());
}

/// It is stopped anywhere, also while it copies. The message of which its sender has been told that it was not sent is not
/// received, although it continues.
fn a_receiver_is_frozen(change: fn(&mut Command)) -> Result<Completion> {
    for _ in 0..repeat(6) {
        let program =
            |rank| if rank == 0 { "sends to one that is stopped" } else { "receives what is not taken back" };
        let mut job = Job::joined_with(2, program, |command| {
            soon(command);
            change(command);
        })?;
        job.await_line(1, "in the middle")?;
        thread::sleep(Duration::from_micros(fastrand::u64(0..20_000)));
        job.signal(1, SIGSTOP)?;
        let report = job.report(0)?;
        ensure!(report.kind == "timed-out" && report.ranks == [1], "{report:?}");
        ensure!(report.pid == Some(job.pid(1)?), "another process: {report:?}");
        job.signal(1, SIGCONT)?;
        job.send(0, "go on")?;
        [0, 1].into_iter().try_for_each(|rank| job.await_line(rank, "works"))?;
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

/// Messages with this tag are long, and hold their number; the next one is the last.
const LONG: u64 = 1;
const LAST: u64 = 2;

fn sends_to_one_that_is_stopped() -> Result<()> {
    let (comm, mut messages) = messages()?;
    let mut values = vec![0; 1 << 20];
    for number in 1.. {
        values.fill(number);
        let Err(error) = messages.send(&values, 1, LONG) else { continue };
        ensure!(!error.is_fatal(), "{error}");
        // The memory is this rank's own again.
        values.fill(u64::MAX);
        rank::send(&Report::of(&error).line())?;
        rank::receive()?;
        messages.send(&[number], 1, LAST)?;
        break;
    }
    comm.barrier()?;
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

fn receives_what_is_not_taken_back() -> Result<()> {
    let (comm, mut messages) = messages()?;
    let (mut values, mut next) = (vec![0u64; 1 << 20], 1);
    loop {
        // A rank that was stopped may be late itself, after which it goes on.
        let envelope = match messages.recv(&mut values, Source::Any, Tag::Any) {
            Err(Error::TimedOut { .. }) => continue,
            other => other?,
        };
        if envelope.tag == LAST {
            ensure!(values[0] == next, "{}: {} was not sent, and {next} is next", rank::WRONG_DATA, values[0]);
            break;
        }
        let wrong = values.iter().find(|value| **value != next);
        ensure!(wrong.is_none(), "{}: {wrong:?} in message {next}", rank::WRONG_DATA);
        if next == 2 {
            rank::send("in the middle")?;
        }
        next += 1;
    }
    comm.barrier()?;
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

fn until_its_channel_is_full() -> Result<Completion> {
    for len in ["8", "5000", "60000"] {
        let program = |rank| if rank == 0 { "fills a channel" } else { "answers" };
        let mut job = Job::joined_with(2, program, |command| {
            soon(command);
            command.env(LENGTH, len);
        })?;
        [0, 1].into_iter().try_for_each(|rank| job.await_line(rank, "ready"))?;
        job.signal(1, SIGSTOP)?;
        job.send(0, "fill")?;
        let report = job.report(0)?;
        ensure!(report.kind == "timed-out" && report.ranks == [1], "{report:?}");
        job.signal(1, SIGCONT)?;
        job.send(0, "go on")?;
        job.send(1, "answer")?;
        [0, 1].into_iter().try_for_each(|rank| job.await_line(rank, "works"))?;
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

/// How many messages were sent is the last one.
fn fills_a_channel() -> Result<()> {
    let (comm, mut messages) = messages()?;
    rank::send("ready")?;
    rank::receive()?;
    let mut sent = 0;
    let error = loop {
        match messages.send(&data(sent, length()?), 1, LONG) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
    };
    ensure!(!error.is_fatal(), "{error}");
    rank::send(&Report::of(&error).line())?;
    rank::receive()?;
    messages.send(&[sent], 1, LAST)?;
    comm.barrier()?;
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

/// Receives all messages up to the last, which has their number.
fn answers() -> Result<()> {
    let (comm, mut messages) = messages()?;
    rank::send("ready")?;
    rank::receive()?;
    let mut received = 0;
    loop {
        let (bytes, envelope) = messages.recv_vec::<u8>(0, Tag::Any)?;
        if envelope.tag == LAST {
            ensure!(bytes == usize::to_ne_bytes(received), "{}: not {received} were sent", rank::WRONG_DATA);
            break;
        }
        ensure!(bytes == data(received, length()?), "{}: message {received}", rank::WRONG_DATA);
        received += 1;
    }
    comm.barrier()?;
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

fn a_sender_is_frozen() -> Result<Completion> {
    for _ in 0..repeat(3) {
        let program = |rank| if rank == 0 { "waits for one that is stopped" } else { "fills a channel" };
        let mut job = Job::joined_with(2, program, |command| {
            soon(command);
            command.env(LENGTH, "8");
        })?;
        [0, 1].into_iter().try_for_each(|rank| job.await_line(rank, "ready"))?;
        job.signal(1, SIGSTOP)?;
        job.send(0, "wait")?;
        let report = job.report(0)?;
        ensure!(report.kind == "timed-out" && report.ranks == [1], "{report:?}");
        job.signal(1, SIGCONT)?;
        job.await_line(0, "goes on")?;
        let since = job.kill(1)?;
        job.all_report_death(&[0], &[1], since)?;
        job.finish(&[1])?;
    }
    Ok(Completion::Completed)
}

/// It waits for a message in all ways, in vain; then for one that comes, and then for ever.
fn waits_for_one_that_is_stopped() -> Result<()> {
    let (_comm, mut messages) = messages()?;
    rank::send("ready")?;
    rank::receive()?;
    let error = messages.recv(&mut [0u8], 1, 1).expect_err("it is stopped");
    let probed = messages.probe(Source::Any, Tag::Any).expect_err("it is stopped");
    ensure!(!error.is_fatal() && matches!(probed, Error::TimedOut { .. }), "{error}, {probed}");
    rank::send(&Report::of(&error).line())?;
    messages.send(&[1u8], 1, 3)?;
    rank::send("goes on")?;
    loop {
        match messages.recv(&mut [0u8], 1, 1) {
            Err(Error::TimedOut { .. }) => {}
            Err(error) => return rank::report(&error),
            Ok(_) => bail!("{}: nothing was sent", rank::WRONG_DATA),
        }
    }
}
