//! System calls that are refused, or counted: messages between ranks that are awake make none, and a burst to one that sleeps
//! makes one.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, ensure};
use intranode::{Communicator, Error, Messages};
use libc::c_long;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, kill, sigaction};
use nix::unistd::Pid;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::{await_stopped, bytes, pair};
use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};
use crate::symmetric::sleeper::{await_asleep, thread};

pub(super) fn rows() -> Vec<Scenario> {
    // No rank sleeps as long as it polls.
    const LONG: Duration = Duration::from_secs(600);
    const SIGSYS: i32 = -libc::SIGSYS;
    vec![
        row!(message_no_sleeper_no_system_call).ranks(&[2]).spin(LONG).processes_only(),
        // That the row above can fail: the same with a sleeper.
        row!(message_a_sleeper_costs_a_system_call)
            .ranks(&[2])
            .spin(Duration::ZERO)
            .processes_only()
            .ends(|rank, _| if rank == 0 { SIGSYS } else { 0 }),
        row!(message_a_burst_costs_one_wake_up).ranks(&[2, 4]).spin(Duration::ZERO).processes_only(),
    ]
}

/// What becomes of these system calls of this thread, and of all others.
fn filter(calls: &[c_long], these: SeccompAction, others: SeccompAction) -> Outcome {
    let rules = calls.iter().map(|call| (*call, vec![])).collect();
    let filter = SeccompFilter::new(rules, others, these, std::env::consts::ARCH.try_into()?)?;
    Ok(apply_filter(&BpfProgram::try_from(filter)?)?)
}

/// From now on this thread is not allowed to read another process's memory, nor its own in this way.
pub(super) fn refuse_reading() -> Outcome {
    filter(&[libc::SYS_process_vm_readv], SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
}

/// What a thread calls that polls, and what it calls when it ends.
const POLLING: &[c_long] = &[
    libc::SYS_sched_yield,
    libc::SYS_clock_gettime,
    libc::SYS_exit,
    libc::SYS_munmap,
    libc::SYS_madvise,
    libc::SYS_sigaltstack,
    libc::SYS_rt_sigprocmask,
];

/// Both ranks play on a thread that may make no system call but those of polling.
fn message_no_sleeper_no_system_call(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    comm.barrier()?;
    let player = std::thread::spawn(move || {
        // What is allocated is allocated here.
        play(&mut messages, rank, other, 100)?;
        filter(POLLING, SeccompAction::Allow, SeccompAction::KillProcess)?;
        play(&mut messages, rank, other, 2000)?;
        anyhow::Ok(messages)
    });
    let messages = player.join().ok().context("it has panicked")??;
    comm.barrier()?;
    drop(messages);
    Ok(())
}

/// Ping-pong with messages in a cell and in buffers.
fn play(messages: &mut Messages, rank: usize, other: usize, turns: usize) -> Outcome {
    const LENGTHS: [usize; 4] = [8, 40, 41, 5000];
    let (mut sent, mut received) = ([0u8; 5000], [0u8; 5000]);
    for turn in 0..turns {
        let (len, tag) = (LENGTHS[turn % LENGTHS.len()], turn as u64);
        sent[..len].fill(turn as u8);
        if rank == 0 {
            messages.send(&sent[..len], other, tag)?;
        }
        let envelope = messages.recv(&mut received, other, tag)?;
        ensure!(envelope.bytes == len && received[..len] == sent[..len], "turn {turn}");
        if rank == 1 {
            messages.send(&sent[..len], other, tag)?;
        }
    }
    Ok(())
}

fn message_a_sleeper_costs_a_system_call(comm: Communicator) -> Outcome {
    let (mut messages, rank, other) = pair(&comm)?;
    if rank == 0 {
        let mut sleeper = [0; 2];
        messages.recv(&mut sleeper, other, 1)?;
        await_asleep(sleeper)?;
        filter(&[], SeccompAction::Allow, SeccompAction::KillProcess)?;
        messages.send(&[7u8], other, 2)?;
        // Not reached: even the message would end it.
        anyhow::bail!("it wakes a sleeper without a system call");
    }
    messages.send(&thread(), other, 1)?;
    let mut received = [0u8];
    // The message is there when its sender ends, and wins over its death.
    messages.recv(&mut received, other, 2)?;
    ensure!(received == [7]);
    ensure_matches!(messages.recv(&mut received, other, 2), Err(Error::RankDied { rank: 0, .. }));
    Ok(())
}

/// How many system calls were trapped instead of being made.
static TRAPPED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_: libc::c_int) {
    TRAPPED.fetch_add(1, Relaxed);
}

const BURST: usize = 60;

/// Sends a burst to rank 1. Returns the number of `futex` calls, none of which is made.
fn burst(mut messages: Messages, rank: usize) -> anyhow::Result<(Messages, u32)> {
    let counting = SigAction::new(SigHandler::Handler(count), SaFlags::empty(), SigSet::empty());
    // SAFETY: the handler makes one atomic addition.
    unsafe { sigaction(Signal::SIGSYS, &counting) }?;
    let sender = std::thread::spawn(move || {
        filter(&[libc::SYS_futex], SeccompAction::Trap, SeccompAction::Allow)?;
        for number in 0..BURST {
            messages.send(&bytes(rank + number, 20 + number), 1, 5)?;
        }
        anyhow::Ok((messages, TRAPPED.load(Relaxed)))
    });
    sender.join().ok().context("it has panicked")?
}

/// All other ranks send to rank 1 while it sleeps, and cannot run.
fn message_a_burst_costs_one_wake_up(comm: Communicator) -> Outcome {
    // A rank that is stopped may have the mutex of the pthread wait.
    if std::env::var("INTRANODE_WAIT").is_ok_and(|wait| wait == "pthread") {
        return Ok(());
    }
    let (mut messages, rank, size) = (comm.messages()?, comm.rank(), comm.size());
    let others = (0..size).filter(|rank| *rank != 1);
    if rank == 1 {
        others.clone().try_for_each(|to| messages.send(&thread(), to, 1))?;
        for from in others {
            for number in 0..BURST {
                let received = messages.recv_vec::<u8>(from, 5)?.0;
                ensure!(received == bytes(from + number, 20 + number), "message {number} of rank {from}");
            }
        }
        return still_works(&comm);
    }
    let mut sleeper = [0; 2];
    messages.recv(&mut sleeper, 1, 1)?;
    if rank == 0 {
        // A rank that takes a message wakes its sender too: only when all have taken theirs, it sleeps on.
        (2..size).try_for_each(|from| messages.recv(&mut [0u8], from, 6).map(drop))?;
        await_asleep(sleeper)?;
        kill(Pid::from_raw(sleeper[0]), Signal::SIGSTOP)?;
        await_stopped(sleeper[0])?;
        (2..size).try_for_each(|to| messages.send(&[0u8], to, 2))?;
    } else {
        messages.send(&[0u8], 0, 6)?;
        messages.recv(&mut [0u8], 0, 2)?;
    }
    let (mut messages, calls) = burst(messages, rank)?;
    if rank == 0 {
        let mut all = calls;
        for from in 2..size {
            let mut calls = [0];
            messages.recv(&mut calls, from, 3)?;
            all += calls[0];
        }
        kill(Pid::from_raw(sleeper[0]), Signal::SIGCONT)?;
        ensure!(all == 1, "{all} wake-ups for one sleeper");
    } else {
        messages.send(&[calls], 0, 3)?;
    }
    still_works(&comm)
}
