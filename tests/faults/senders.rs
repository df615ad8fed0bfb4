//! Row 34: a rank is killed that has sent a message, or sends one.

use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use intranode::{Communicator, Error, Messages, Tag};
use libtest_mimic::Completion;
use nix::errno::Errno;
use nix::libc;
use nix::sys::signal::{Signal::SIGKILL, raise};

use super::job::Job;
use super::liveness::refuse;
use super::report::{Report, now};
use super::stepping::{self, Moments};
use super::symmetric::{await_asleep, others};
use super::traffic::{KINDS, Traffic};
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_34_killed_in_messages_of_2", || killed_in_messages(2)),
    ("row_34_killed_in_messages_of_4", || killed_in_messages(4)),
    ("row_34_killed_in_messages_of_8", || killed_in_messages(8)),
    ("row_34_killed_when_it_has_sent", killed_when_it_has_sent),
    ("row_34_killed_at_a_step_of_sending_8_bytes", || killed_at_a_step_of_sending("8")),
    ("row_34_killed_at_a_step_of_sending_5000_bytes", || killed_at_a_step_of_sending("5000")),
    ("row_34_killed_at_a_step_of_sending_300_kb", || killed_at_a_step_of_sending("300000")),
    ("row_34_killed_while_its_message_is_fetched", || killed_in_a_fetch(1, |_| ())),
    ("row_34_killed_while_its_message_comes_through_buffers", || killed_in_a_fetch(1, without_reading)),
    ("row_34_killed_after_another_has_left", killed_after_another_has_left),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("exchanges messages", exchanges_messages),
    ("sends and dies", sends_and_dies),
    ("sends in steps", sends_in_steps),
    ("receives until it fails", receives_until_it_fails),
    ("sends 16 MiB", sends_16_mib),
    ("receives 16 MiB", receives_16_mib),
    ("sends and goes on", sends_and_goes_on),
    ("receives from the dead", receives_from_the_dead),
    ("has messages, and leaves", has_messages_and_leaves),
];

/// The variable with the length of a message.
pub(crate) const LENGTH: &str = "FAULTS_LENGTH";

/// The variable for ranks that may not read each other's memory.
const NO_READING: &str = "FAULTS_NO_READING";

pub(crate) fn without_reading(command: &mut Command) {
    command.env(NO_READING, "1");
}

/// Joins, and makes messages.
pub(crate) fn messages() -> Result<(Communicator, Messages)> {
    if std::env::var_os(NO_READING).is_some() {
        refuse(&[libc::SYS_process_vm_readv], Errno::EPERM)?;
    }
    let comm = rank::join()?;
    let messages = comm.messages()?;
    Ok((comm, messages))
}

pub(crate) fn length() -> Result<usize> {
    Ok(std::env::var(LENGTH)?.parse()?)
}

/// The data of a message.
pub(crate) fn data(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|index| (number * 31 + index * 7 + index / 251) as u8).collect()
}

/// The median of delays after a death has to be below this.
const USUALLY: Duration = Duration::from_millis(50);

fn killed_in_messages(size: usize) -> Result<Completion> {
    for _ in 0..repeat(20) {
        let mut job = Job::joined(size, "exchanges messages")?;
        (0..size).try_for_each(|rank| job.await_line(rank, "ready"))?;
        thread::sleep(Duration::from_micros(fastrand::u64(0..5000)));
        let victim = fastrand::usize(0..size);
        let since = job.kill(victim)?;
        job.all_report_death_in_any_call(&others(size, victim), &[victim], since)?;
        job.finish(&[victim])?;
    }
    Ok(Completion::Completed)
}

fn exchanges_messages() -> Result<()> {
    let comm = rank::join()?;
    let mut traffic = Traffic::new(&comm)?;
    rank::send("ready")?;
    let mut number = 0;
    rank::repeat(&comm, |comm| {
        number += 1;
        let len = [1, 1000, 50_000][number / KINDS.len() % 3];
        traffic.exchange(comm, KINDS[number % KINDS.len()], len)
    })
}

/// The receivers sleep, or spin. They get all that was sent, and only then the error.
fn killed_when_it_has_sent() -> Result<Completion> {
    const SIZE: usize = 3;
    let mut delays = Vec::new();
    for turn in 0..repeat(20) {
        let program = |rank| if rank == 1 { "sends and dies" } else { "receives until it fails" };
        let mut job = Job::joined_with(SIZE, program, |command| {
            command.env(LENGTH, "60000");
        })?;
        for rank in [0, 2] {
            job.await_line(rank, "waits")?;
            if turn % 2 == 0 {
                await_asleep(&mut job, rank)?;
            }
        }
        let since = now();
        job.send(1, "go")?;
        for rank in [0, 2] {
            job.await_line(rank, "received 2")?;
        }
        delays.push(job.all_report_death(&[0, 2], &[1], since)?);
        job.finish(&[1])?;
    }
    delays.sort();
    let median = delays[delays.len() / 2];
    ensure!(median < USUALLY, "usually known only after {median:?}");
    Ok(Completion::Completed)
}

fn sends_and_dies() -> Result<()> {
    let (_comm, mut messages) = messages()?;
    for to in [0, 2] {
        messages.send(&data(1, 5000), to, 1)?;
    }
    rank::receive()?;
    for to in [0, 2] {
        messages.send(&data(2, length()?), to, 2)?;
    }
    raise(SIGKILL)?;
    Ok(())
}

/// Receives a message, and one more if it comes as a whole, and reports how many, and the error that follows.
fn receives_until_it_fails() -> Result<()> {
    let (_comm, mut messages) = messages()?;
    let mut received = vec![9; 5000];
    messages.recv(&mut received, 1, 1)?;
    ensure!(received == data(1, 5000), rank::WRONG_DATA);
    rank::send("waits")?;
    let error = match messages.recv_vec::<u8>(1, 2) {
        Ok((received, _)) => {
            ensure!(received == data(2, length()?), rank::WRONG_DATA);
            rank::send("received 2")?;
            messages.recv(&mut [0u8], 1, Tag::Any).expect_err("no more was sent")
        }
        Err(error) => {
            rank::send("received 1")?;
            error
        }
    };
    rank::report(&error)
}

/// How often a rank is killed at some step.
const TIMES: usize = 24;

/// The second message is received as a whole, or not at all.
fn killed_at_a_step_of_sending(len: &str) -> Result<Completion> {
    killed_at_a_step(len, ["receives until it fails", "sends in steps"], ["received 1", "received 2"])
}

/// Rank 1 is killed somewhere on its way. `programs`: by rank. `outcomes`: what rank 0 says where what rank 1 did does not count,
/// and where it counts.
pub(crate) fn killed_at_a_step(len: &str, programs: [&str; 2], outcomes: [&str; 2]) -> Result<Completion> {
    let mut moments = Moments::default();
    for turn in 0..repeat(TIMES) {
        let mut job = Job::joined_with(
            2,
            |rank| programs[rank],
            |command| {
                command.env(LENGTH, len);
            },
        )?;
        job.await_line(0, "waits")?;
        if turn % 4 < 2 {
            await_asleep(&mut job, 0)?;
        }
        job.send(1, "go")?;
        let Some(steps) = stepping::step(job.pid(1)?, moments.next())? else {
            return Ok(Completion::ignored_with(stepping::NOT_TRACED));
        };
        // Where rank 1 has made all its steps, rank 0 gets there in time.
        let in_time = if moments.is_whole() { Some(job.line(0)?) } else { None };
        let since = job.kill(1)?;
        let line = in_time.map_or_else(|| job.line(0), Ok)?;
        let outcome = outcomes.iter().position(|known| *known == line);
        moments.record(steps, outcome.context(line)? == 1)?;
        job.all_report_death(&[0], &[1], since)?;
        job.finish(&[1])?;
    }
    eprintln!("{len} bytes in {} steps: {outcomes:?} {:?} times", moments.all, moments.counts);
    ensure!(moments.all > 50, "these are not all steps");
    Ok(Completion::Completed)
}

fn sends_in_steps() -> Result<()> {
    let (_comm, mut messages) = messages()?;
    let second = data(2, length()?);
    messages.send(&data(1, 5000), 0, 1)?;
    rank::receive()?;
    stepping::begin()?;
    let sending = messages.start_send(&second, 0, 2)?;
    stepping::stop()?;
    drop(sending);
    Ok(())
}

/// Rank 1 sends 16 MiB to rank 0 again and again, until one of them is killed.
pub(crate) fn killed_in_a_fetch(victim: usize, change: fn(&mut Command)) -> Result<Completion> {
    for _ in 0..repeat(10) {
        let program = |rank| if rank == 1 { "sends 16 MiB" } else { "receives 16 MiB" };
        let mut job = Job::joined_with(2, program, change)?;
        job.await_line(1 - victim, "in the middle")?;
        thread::sleep(Duration::from_micros(fastrand::u64(0..30_000)));
        let since = job.kill(victim)?;
        job.all_report_death(&[1 - victim], &[victim], since)?;
        job.finish(&[victim])?;
    }
    Ok(Completion::Completed)
}

const LARGE: usize = 16 << 20;

fn sends_16_mib() -> Result<()> {
    let (_comm, mut messages) = messages()?;
    let mut values = vec![0; LARGE];
    for turn in 1..=u8::MAX {
        values.fill(turn);
        if let Err(error) = messages.send(&values, 0, turn.into()) {
            return rank::report(&error);
        }
        if turn == 2 {
            rank::send("in the middle")?;
        }
    }
    anyhow::bail!("no rank was killed")
}

fn receives_16_mib() -> Result<()> {
    let (_comm, mut messages) = messages()?;
    let mut values = vec![0u8; LARGE];
    loop {
        let envelope = match messages.recv(&mut values, 1, Tag::Any) {
            Ok(envelope) => envelope,
            Err(error) => return rank::report(&error),
        };
        let right = values.iter().all(|value| u64::from(*value) == envelope.tag);
        ensure!(right, "{}: a part of message {}", rank::WRONG_DATA, envelope.tag);
        if envelope.tag == 2 {
            rank::send("in the middle")?;
        }
    }
}

/// After a rank has left, the death of another is no longer the cause of the communicator's end.
fn killed_after_another_has_left() -> Result<Completion> {
    for turn in 0..repeat(6) {
        let program = |rank| match rank {
            0 => "receives from the dead",
            1 => "sends and goes on",
            _ => "has messages, and leaves",
        };
        let mut job = Job::joined_with(3, program, |_| ())?;
        job.send(2, "leave")?;
        ensure!(job.status(2)? == 0);
        [0, 1].into_iter().try_for_each(|rank| job.send(rank, "go on"))?;
        job.await_line(1, "has sent")?;
        job.await_line(0, "received")?;
        if turn % 2 == 0 {
            await_asleep(&mut job, 0)?;
        }
        let since = job.kill(1)?;
        job.all_report_death(&[0], &[1], since)?;
        job.finish(&[1])?;
    }
    Ok(Completion::Completed)
}

fn receives_from_the_dead() -> Result<()> {
    let (_comm, mut messages) = messages()?;
    rank::receive()?;
    ensure!(matches!(messages.recv(&mut [0u8], 2, 1), Err(Error::RankLeft { rank: 2, .. })), "it has left");
    ensure!(messages.recv_vec::<u8>(1, 1)?.0 == data(1, 100_000), rank::WRONG_DATA);
    rank::send("received")?;
    rank::report(&messages.recv(&mut [0u8], 1, 2).expect_err("it has died"))
}

fn sends_and_goes_on() -> Result<()> {
    let (_comm, mut messages) = messages()?;
    rank::receive()?;
    messages.send(&data(1, 100_000), 0, 1)?;
    rank::send("has sent")?;
    let error = messages.recv(&mut [0u8], 0, 1).expect_err("nothing is sent");
    rank::send(&Report::of(&error).line())
}

fn has_messages_and_leaves() -> Result<()> {
    let (comm, messages) = messages()?;
    rank::receive()?;
    drop(messages);
    Ok(comm.leave()?)
}
