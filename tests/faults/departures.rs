//! Row 37: a rank that has sent messages leaves, or becomes another program.

use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use libtest_mimic::Completion;
use nix::libc;

use super::job::{Job, PROGRAM};
use super::report::now;
use super::senders::{data, messages};
use super::symmetric::rank_1_leaves;
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_37_leaves_when_it_has_sent", leaves_when_it_has_sent),
    ("row_37_becomes_another_program_with_an_offer_open", becomes_another_program),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("sends and leaves", sends_and_leaves),
    ("receives until it has left", receives_until_it_has_left),
    ("offers, and becomes another program", offers_and_becomes_another_program),
    ("is the other program", is_the_other_program),
    ("receives an offer of what is gone", receives_an_offer_of_what_is_gone),
];

fn leaves_when_it_has_sent() -> Result<Completion> {
    let program = |rank| if rank == 1 { "sends and leaves" } else { "receives until it has left" };
    rank_1_leaves(10, program, ("received", "recv"))
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
        let since = now();
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

/// It has memory at all addresses at which the first program may have had what it offered, and its token.
fn is_the_other_program() -> Result<()> {
    let data = vec![2u8; 4 * OFFERED];
    let heap: Vec<Box<[u8; 64]>> = (0..32 << 10).map(|_| Box::new([2; 64])).collect();
    rank::send("became")?;
    while rank::receive()?.is_some() {}
    ensure!(data.iter().step_by(4096).all(|value| *value == 2) && heap.iter().all(|bytes| bytes[0] == 2));
    Ok(())
}

fn receives_an_offer_of_what_is_gone() -> Result<()> {
    let (comm, mut messages) = messages()?;
    // The offer is there.
    comm.barrier()?;
    rank::receive()?;
    let mut received = vec![0u8; OFFERED];
    // Whatever the other program has there, it is no message.
    let error = messages.recv(&mut received, 1, 1).expect_err("it is gone");
    rank::report(&error)
}
