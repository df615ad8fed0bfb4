//! Rows 1 to 5, 7, 8 and 11: the ends of a process.

use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use libtest_mimic::Completion;

use super::job::Job;
use super::rank::{self, Buffers, KINDS, Kind, collective};
use super::{Program, Test, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_01_killed_in_a_barrier_of_2", || killed_in_barriers(2, 40, "0")),
    ("row_01_killed_in_a_barrier_of_4", || killed_in_barriers(4, 40, "0")),
    ("row_01_killed_in_a_barrier_of_8", || killed_in_barriers(8, 20, "0")),
    ("row_01_killed_in_a_barrier_in_groups", || killed_in_barriers(8, 20, "3")),
    ("row_02_killed_in_a_collective_of_2", || killed_in_collectives(2, &[1, 4096, 1 << 20, 64 << 20])),
    ("row_02_killed_in_a_collective_of_4", || killed_in_collectives(4, &[1, 4096, 1 << 20])),
    ("row_02_killed_in_a_collective_of_8", || killed_in_collectives(8, &[1, 4096, 1 << 20])),
    ("row_03_the_victim_holds_4_gib", || the_victim_holds_4_gib(|_| ())),
    ("row_24_killed_in_a_collective_of_4", || killed_in_collectives_with(4, &[1, 4096, 1 << 20], scanning)),
    ("row_24_the_victim_holds_4_gib", || the_victim_holds_4_gib(scanning)),
    ("row_04_two_are_killed_together", || several_are_killed(&[1, 3])),
    ("row_04_all_but_one_are_killed", || several_are_killed(&[0, 1, 3])),
    ("row_07_exits_without_leaving", || ends_without_leaving("exits")),
    ("row_07_returns_without_leaving", || ends_without_leaving("returns")),
    ("row_08_leaves_in_order", leaves_in_order),
    ("row_11_becomes_another_program", becomes_another_program),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("barriers", || rank::repeat(&rank::join()?, |comm| comm.barrier())),
    ("collectives", collectives),
    ("holds 4 GiB", holds_4_gib),
    ("exits", exits),
    ("returns", returns),
    ("leaves", leaves),
    ("execs", execs),
];

/// Sleeps until a random moment in the ranks' work.
fn random_moment() {
    thread::sleep(Duration::from_micros(fastrand::u64(0..3000)));
}

fn others(size: usize, victims: &[usize]) -> Vec<usize> {
    (0..size).filter(|rank| !victims.contains(rank)).collect()
}

fn killed_in_barriers(size: usize, times: usize, group: &str) -> Result<Completion> {
    for _ in 0..repeat(times) {
        let set = |command: &mut Command| {
            command.env("INTRANODE_GROUP", group);
        };
        let mut job = Job::joined_with(size, |_| "barriers", set)?;
        random_moment();
        let victim = fastrand::usize(0..size);
        let since = job.kill(victim)?;
        job.all_report_death(&others(size, &[victim]), &[victim], since)?;
        job.finish(&[victim])?;
    }
    Ok(Completion::Completed)
}

const KIND: &str = "FAULTS_KIND";
const BYTES: &str = "FAULTS_BYTES";

fn killed_in_collectives(size: usize, lengths: &[usize]) -> Result<Completion> {
    killed_in_collectives_with(size, lengths, |_| ())
}

pub(crate) fn killed_in_collectives_with(
    size: usize,
    lengths: &[usize],
    change: fn(&mut Command),
) -> Result<Completion> {
    for (kind, name) in KINDS.iter().enumerate().filter(|(_, kind)| **kind != Kind::Barrier) {
        for bytes in lengths {
            for _ in 0..repeat(2) {
                let mut job = Job::joined_with(
                    size,
                    |_| "collectives",
                    |command| {
                        command.env(KIND, kind.to_string()).env(BYTES, bytes.to_string());
                        change(command);
                    },
                )?;
                // The first touch of large buffers takes longer than the calls.
                (0..size).try_for_each(|rank| job.await_line(rank, "warm"))?;
                random_moment();
                let victim = fastrand::usize(0..size);
                let since = job.kill(victim)?;
                let named = job.all_report_death(&others(size, &[victim]), &[victim], since);
                named.map_err(|error| error.context(format!("{name:?} of {bytes} bytes")))?;
                job.finish(&[victim])?;
            }
        }
    }
    Ok(Completion::Completed)
}

fn collectives() -> Result<()> {
    let kind = KINDS[std::env::var(KIND)?.parse::<usize>()?];
    let bytes = std::env::var(BYTES)?.parse()?;
    let (mut buffers, mut round) = (Buffers::default(), 0);
    let comm = rank::join()?;
    collective(&comm, kind, bytes, round, &mut buffers)?;
    rank::send("warm")?;
    rank::repeat(&comm, |comm| {
        round += 1;
        collective(comm, kind, bytes, round, &mut buffers)
    })
}

/// Without futex_waitv.
fn scanning(command: &mut Command) {
    command.env("INTRANODE_LIVENESS", "scan");
}

fn the_victim_holds_4_gib(change: fn(&mut Command)) -> Result<Completion> {
    let free = available_memory()?;
    if free < 8 << 30 {
        return Ok(Completion::ignored_with(format!("only {} MiB of memory are free", free >> 20)));
    }
    let program = |rank| if rank == 1 { "holds 4 GiB" } else { "barriers" };
    let mut job = Job::joined_with(3, program, change)?;
    job.await_line(1, "holds it")?;
    let since = job.kill(1)?;
    // Its memory is still being torn down.
    let named = job.all_report_death(&[0, 2], &[1], since)?;
    job.status(1)?;
    let ended = super::report::now() - since;
    ensure!(named < ended, "named after {named:?}, when the process had ended after {ended:?}");
    job.finish(&[1])?;
    Ok(Completion::Completed)
}

fn available_memory() -> Result<u64> {
    let text = std::fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:")).unwrap_or_default();
    Ok(line.trim().trim_end_matches(" kB").parse::<u64>()? << 10)
}

fn holds_4_gib() -> Result<()> {
    let comm = rank::join()?;
    let mut memory = vec![0u8; 4 << 30];
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = 1);
    rank::send("holds it")?;
    rank::repeat(&comm, |comm| comm.barrier())?;
    drop(memory);
    Ok(())
}

fn several_are_killed(victims: &[usize]) -> Result<Completion> {
    for _ in 0..repeat(10) {
        let mut job = Job::joined(4, "barriers")?;
        random_moment();
        let mut since = Duration::ZERO;
        for victim in victims {
            since = job.kill(*victim)?;
        }
        job.all_report_death(&others(4, victims), victims, since)?;
        job.finish(victims)?;
    }
    Ok(Completion::Completed)
}

fn ends_without_leaving(program: &str) -> Result<Completion> {
    for _ in 0..repeat(5) {
        let mut job = Job::joined_with(3, |rank| if rank == 1 { program } else { "barriers" }, |_| ())?;
        let since = super::report::now();
        job.send(1, "end")?;
        job.all_report_death(&[0, 2], &[1], since)?;
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

fn exits() -> Result<()> {
    let _comm = rank::join()?;
    rank::receive()?;
    std::process::exit(0)
}

fn returns() -> Result<()> {
    std::mem::forget(rank::join()?);
    rank::receive()?;
    Ok(())
}

fn leaves_in_order() -> Result<Completion> {
    for _ in 0..repeat(5) {
        let mut job = Job::joined_with(3, |rank| if rank == 1 { "leaves" } else { "barriers" }, |_| ())?;
        job.send(1, "leave")?;
        for rank in [0, 2] {
            let report = job.report(rank)?;
            ensure!(report.kind == "left" && report.ranks == [1], "{report:?}");
        }
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

fn leaves() -> Result<()> {
    let comm = rank::join()?;
    rank::receive()?;
    comm.leave()?;
    // The end of the process is no death either.
    Ok(())
}

fn becomes_another_program() -> Result<Completion> {
    for _ in 0..repeat(5) {
        let mut job = Job::joined_with(3, |rank| if rank == 1 { "execs" } else { "barriers" }, |_| ())?;
        let since = super::report::now();
        job.send(1, "become another program")?;
        job.all_report_death(&[0, 2], &[1], since)?;
        ensure!(!job.has_ended(1)?, "the other program runs");
        job.finish(&[])?;
    }
    Ok(Completion::Completed)
}

fn execs() -> Result<()> {
    let _comm = rank::join()?;
    rank::receive()?;
    // cat reads until the test closes its input.
    Err(Command::new("cat").exec().into())
}
