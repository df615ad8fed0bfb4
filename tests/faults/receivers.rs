//! Rows 35 to 37: a rank is killed that receives; a rank is stopped; a rank leaves, or becomes another program, when it has
//! sent.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use intranode::{Error, Source, Tag};
use libtest_mimic::Completion;
use nix::libc;
use nix::sys::signal::Signal::{SIGCONT, SIGSTOP};

use super::job::{Job, PROGRAM};
use super::report::Report;
use super::senders::{LENGTH, TIMES, data, killed_in_a_fetch, length, messages, without_reading};
use super::stepping::{self, Moments};
use super::symmetric::await_asleep;
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_35_killed_at_a_step_of_receiving_8_bytes", || killed_at_a_step_of_receiving("8")),
    ("row_35_killed_at_a_step_of_receiving_5000_bytes", || killed_at_a_step_of_receiving("5000")),
    ("row_35_killed_at_a_step_of_receiving_300_kb", || killed_at_a_step_of_receiving("300000")),
    ("row_35_killed_while_it_fetches", || killed_in_a_fetch(0, |_| ())),
    ("row_35_killed_while_it_is_sent_parts", || killed_in_a_fetch(0, without_reading)),
    ("row_36_a_receiver_is_frozen", || a_receiver_is_frozen(|_| ())),
    ("row_36_a_receiver_is_frozen_that_is_sent_parts", || a_receiver_is_frozen(without_reading)),
    ("row_36_a_receiver_is_frozen_until_its_channel_is_full", until_its_channel_is_full),
    ("row_36_a_sender_is_frozen", a_sender_is_frozen),
    ("row_37_leaves_when_it_has_sent", leaves_when_it_has_sent),
    ("row_37_becomes_another_program_with_an_offer_open", becomes_another_program),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("sends to one in steps", sends_to_one_in_steps),
    ("receives in steps", receives_in_steps),
    ("sends to one that is stopped", sends_to_one_that_is_stopped),
    ("receives what is not taken back", receives_what_is_not_taken_back),
    ("fills a channel", fills_a_channel),
    ("waits for one that is stopped", waits_for_one_that_is_stopped),
    ("answers", answers),
    ("sends and leaves", sends_and_leaves),
    ("receives until it has left", receives_until_it_has_left),
    ("offers, and becomes another program", offers_and_becomes_another_program),
    ("is the other program", is_the_other_program),
    ("receives an offer of what is gone", receives_an_offer_of_what_is_gone),
];

/// The longest message that is sent without its receiver.
const LONGEST: usize = 64 << 10;

/// How many messages of this length fill the cells or the buffers of a channel, and one more. A long one needs none.
fn count(len: usize) -> usize {
    match len {
        0..=40 => 64 + 1,
        41..=LONGEST => 64 / len.div_ceil(4096) + 1,
        _ => 1,
    }
}

/// The sender of one message too many, or of a long one, waits for a receiver that is killed somewhere on its way.
fn killed_at_a_step_of_receiving(len: &str) -> Result<Completion> {
    let mut moments = Moments::default();
    for turn in 0..repeat(TIMES) {
        let program = |rank| if rank == 1 { "receives in steps" } else { "sends to one in steps" };
        let mut job = Job::joined_with(2, program, |command| {
            command.env(LENGTH, len);
        })?;
        job.await_line(0, "waits")?;
        if turn % 4 < 2 {
            await_asleep(&mut job, 0)?;
        }
        job.send(1, "go")?;
        let steps = match stepping::step(job.pid(1)?, moments.next()) {
            Ok(steps) => steps,
            Err(error) => return Ok(Completion::ignored_with(format!("ptrace: {error}"))),
        };
        // Where it has received, a sender that is there in time is told.
        let in_time = if moments.is_whole() { Some(job.line(0)?) } else { None };
        let since = job.kill(1)?;
        let line = in_time.map_or_else(|| job.line(0), Ok)?;
        let sent = ["not sent", "sent"].iter().position(|known| *known == line);
        moments.record(steps, sent.context(line)? == 1)?;
        job.all_report_death(&[0], &[1], since)?;
        job.finish(&[1])?;
    }
    eprintln!("{len} bytes in {} steps: not sent and sent {:?} times", moments.all, moments.counts);
    ensure!(moments.all > 50, "these are not all steps");
    Ok(Completion::Completed)
}

fn sends_to_one_in_steps() -> Result<()> {
    let (_comm, mut messages) = messages()?;
    let data = data(1, length()?);
    for _ in 1..count(data.len()) {
        messages.send(&data, 1, 1)?;
    }
    // A long one is offered before the receiver begins.
    let mut offered = if data.len() > LONGEST { Some(messages.start_send(&data, 1, 1)?) } else { None };
    rank::send("waits")?;
    let sent = match &mut offered {
        Some(sending) => messages.wait(sending).map(drop),
        None => messages.send(&data, 1, 1),
    };
    let error = match sent {
        Ok(()) => {
            rank::send("sent")?;
            messages.recv(&mut [0u8], 1, 1).expect_err("nothing is sent")
        }
        Err(error) => {
            rank::send("not sent")?;
            error
        }
    };
    rank::report(&error)
}

fn receives_in_steps() -> Result<()> {
    let (_comm, mut messages) = messages()?;
    let mut received = vec![0; length()?];
    rank::receive()?;
    stepping::begin()?;
    messages.recv(&mut received, 0, 1)?;
    stepping::stop()?;
    ensure!(received == data(1, length()?), rank::WRONG_DATA);
    Ok(())
}

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

fn leaves_when_it_has_sent() -> Result<Completion> {
    for turn in 0..repeat(10) {
        let program = |rank| if rank == 1 { "sends and leaves" } else { "receives until it has left" };
        let mut job = Job::joined_with(3, program, |_| ())?;
        for rank in [0, 2] {
            job.await_line(rank, "waits")?;
            if turn % 2 == 0 {
                await_asleep(&mut job, rank)?;
            }
        }
        job.send(1, "leave")?;
        for rank in [0, 2] {
            job.await_line(rank, "received")?;
            let report = job.report(rank)?;
            ensure!(
                report.kind == "left" && report.ranks == [1] && report.text.starts_with("recv"),
                "{report:?}"
            );
        }
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

const LENGTHS: [usize; 4] = [8, 5000, 60_000, 300_000];

fn sends_and_leaves() -> Result<()> {
    let (comm, mut messages) = messages()?;
    rank::receive()?;
    for (number, len) in LENGTHS.into_iter().rev().enumerate() {
        for to in [0, 2] {
            messages.send(&data(number, len), to, 1)?;
        }
    }
    drop(messages);
    Ok(comm.leave()?)
}

fn receives_until_it_has_left() -> Result<()> {
    let (_comm, mut messages) = messages()?;
    rank::send("waits")?;
    for (number, len) in LENGTHS.into_iter().rev().enumerate() {
        ensure!(messages.recv_vec::<u8>(1, 1)?.0 == data(number, len), "{}: {len} bytes", rank::WRONG_DATA);
    }
    rank::send("received")?;
    rank::report(&messages.recv(&mut [0u8], 1, 1).expect_err("it has left"))
}

/// The new program has the same process, and other data at the same addresses.
fn becomes_another_program() -> Result<Completion> {
    for _ in 0..repeat(5) {
        let program = |rank| {
            if rank == 1 { "offers, and becomes another program" } else { "receives an offer of what is gone" }
        };
        let mut job = Job::joined_with(2, program, |_| ())?;
        job.await_line(1, "became")?;
        let since = super::report::now();
        job.send(0, "receive")?;
        job.all_report_death(&[0], &[1], since)?;
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

/// Begins anew with memory at the addresses that it always has, so that what was offered is mapped in the new program too.
fn with_fixed_addresses(program: &str) -> Result<()> {
    const RANDOM: libc::c_int = libc::ADDR_NO_RANDOMIZE;
    // SAFETY: a flag of this process, for programs that it executes; all bits ask for the present one.
    let now = unsafe { libc::personality(0xFFFF_FFFF) };
    if now & RANDOM == 0 {
        // SAFETY: as above.
        unsafe { libc::personality((now | RANDOM) as libc::c_ulong) };
        return become_program(program);
    }
    Ok(())
}

fn become_program(program: &str) -> Result<()> {
    Err(Command::new(std::env::current_exe()?).env(PROGRAM, program).exec()).context("exec")
}

const OFFERED: usize = 32 << 20;

fn offers_and_becomes_another_program() -> Result<()> {
    with_fixed_addresses("offers, and becomes another program")?;
    let (comm, mut messages) = messages()?;
    let data = vec![1u8; OFFERED];
    let sending = messages.start_send(&data, 0, 1)?;
    comm.barrier()?;
    std::mem::forget(sending);
    become_program("is the other program")
}

fn is_the_other_program() -> Result<()> {
    let data = vec![2u8; OFFERED];
    rank::send("became")?;
    while rank::receive()?.is_some() {}
    ensure!(data.iter().all(|value| *value == 2));
    Ok(())
}

fn receives_an_offer_of_what_is_gone() -> Result<()> {
    let (comm, mut messages) = messages()?;
    // The offer is there.
    comm.barrier()?;
    rank::receive()?;
    let mut received = vec![0u8; OFFERED];
    let error = messages.recv(&mut received, 1, 1).expect_err("it is gone");
    ensure!(received.iter().all(|value| *value != 2), "{}: of the other program", rank::WRONG_DATA);
    rank::report(&error)
}
