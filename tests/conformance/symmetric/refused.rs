//! Cases 49 and 53, under filters of system calls: a write makes none if nobody sleeps, and all that waits and orders works
//! without membarrier.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use intranode::{Communicator, Error, Signal, Symmetric, Until};
use libtest_mimic::Trial;
use nix::errno::Errno;
use nix::libc;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

use super::sleeper::{await_asleep, thread};
use super::{order, sleeping, turns};
use crate::job::{Job, WAITS, Wait};
use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    const SIGSYS: i32 = -libc::SIGSYS;
    let mut rows = vec![
        row!(case_49_no_sleeper_no_system_call),
        // That the row above can fail: the same with a sleeper.
        row!(case_49_a_sleeper_costs_a_system_call).ends(|rank, _| if rank == 0 { SIGSYS } else { 0 }),
    ];
    rows.extend(WITHOUT_MEMBARRIER);
    rows.into_iter().map(|row| row.ranks(&[2, 4]).spin(Duration::ZERO).processes_only()).collect()
}

const WITHOUT_MEMBARRIER: [Scenario; 2] =
    [row!(case_53_membarrier_is_refused_on_one_rank), row!(case_53_membarrier_is_refused_on_all_ranks)];

/// Ends the process at any system call of this thread but those.
fn allow_only(calls: &[libc::c_long]) -> Outcome {
    filter(calls, SeccompAction::Allow, SeccompAction::KillProcess)
}

fn filter(calls: &[libc::c_long], these: SeccompAction, others: SeccompAction) -> Outcome {
    let rules = calls.iter().map(|call| (*call, vec![])).collect();
    let filter = SeccompFilter::new(rules, others, these, std::env::consts::ARCH.try_into()?)?;
    Ok(apply_filter(&BpfProgram::try_from(filter)?)?)
}

/// What a thread calls when it ends.
const END_OF_A_THREAD: &[libc::c_long] =
    &[libc::SYS_exit, libc::SYS_munmap, libc::SYS_madvise, libc::SYS_sigaltstack, libc::SYS_rt_sigprocmask];

/// Rank 0 makes every one-sided call on a thread that may make no system call; the others are in a barrier.
fn case_49_no_sleeper_no_system_call(comm: Communicator) -> Outcome {
    let (data, signals) = (comm.symmetric::<u64>(100)?, comm.symmetric::<i64>(2)?);
    let shared = Arc::new((comm, data, signals));
    if shared.0.rank() == 0 {
        let shared = Arc::clone(&shared);
        let caller = std::thread::spawn(move || {
            let (comm, data, signals) = &*shared;
            allow_only(END_OF_A_THREAD)?;
            (0..1000).try_for_each(|turn| one_sided_calls(comm, data, signals, turn))
        });
        caller.join().ok().context("it has panicked")??;
    }
    let (comm, _, signals) = &*shared;
    comm.barrier()?;
    ensure_matches!(signals.test(0, Until::Eq(1000)), Ok(Some(1000)));
    still_works(comm)
}

fn one_sided_calls(comm: &Communicator, data: &Symmetric<u64>, signals: &Symmetric<i64>, turn: u64) -> Outcome {
    for rank in 0..comm.size() {
        let remote = data.at(rank)?;
        remote.store(1, turn);
        remote.put(2, &[turn; 80]);
        remote.put_strided(3, 7, &[turn; 3]);
        remote.get(0, &mut [0; 90]);
        remote.get_strided(0, 2, &mut [0; 9]);
        remote.swap(1, remote.load(2));
        let _ = remote.compare_swap(1, turn, turn);
        remote.fetch_update(1, |value| value ^ remote.fetch_add(2, 1) ^ remote.fetch_min(3, 1));
        comm.fence();
        comm.quiet()?;
        data.put_signal(rank, 0, &[turn], signals, 0, Signal::Add(1))?;
        data.put_signal(rank, 0, &[], signals, 1, Signal::Set(3))?;
        comm.notify(rank)?;
    }
    // For what is there it does not wait.
    ensure!(data.test(0, Until::Eq(turn))? == Some(turn) && data.wait_until(0, Until::Eq(turn))? == turn);
    Ok(())
}

fn case_49_a_sleeper_costs_a_system_call(comm: Communicator) -> Outcome {
    let object = comm.symmetric::<i32>(3)?;
    match comm.rank() {
        0 => {
            object.wait_until(2, Until::Eq(1))?;
            let mut sleeper = [0; 2];
            object.at(0)?.get(0, &mut sleeper);
            await_asleep(sleeper)?;
            allow_only(&[])?;
            object.at(1)?.store(0, 1);
            // Not reached: even the message would end it.
            anyhow::bail!("it wakes a sleeper without a system call");
        }
        1 => {
            object.at(0)?.put(0, &thread());
            object.at(0)?.store(2, 1);
            // The value is there when the writer ends, and wins over its death.
            ensure!(object.wait_until(0, Until::Ne(0))? == 1);
        }
        _ => {}
    }
    ensure_matches!(comm.barrier(), Err(Error::RankDied { rank: 0, .. }));
    Ok(())
}

fn case_53_membarrier_is_refused_on_one_rank(comm: Communicator) -> Outcome {
    if comm.rank() == comm.size() - 1 {
        filter(&[libc::SYS_membarrier], SeccompAction::Errno(Errno::EPERM as u32), SeccompAction::Allow)?;
    }
    all_holds(comm)
}

fn case_53_membarrier_is_refused_on_all_ranks(comm: Communicator) -> Outcome {
    filter(&[libc::SYS_membarrier], SeccompAction::Errno(Errno::ENOSYS as u32), SeccompAction::Allow)?;
    all_holds(comm)
}

fn all_holds(comm: Communicator) -> Outcome {
    sleeping::never_late(&comm, turns(5_000))?;
    order::store_buffering(&comm, turns(2_000))?;
    still_works(&comm)
}

/// The rows with sleeps, and which fences they have used.
pub(crate) fn trials() -> Vec<Trial> {
    let fences = |name: &'static str, expected: &'static str| {
        let run = move |wait: Wait, size| {
            uses_fences(name, expected, wait, size).map_err(|error| format!("{error:#}").into())
        };
        let cases = WAITS.iter().flat_map(|wait| [2, 4].map(|size| (*wait, size)));
        let trial = move |(wait, size): (Wait, usize)| {
            Trial::test(format!("processes::{}::{size}::fences_of_{name}", wait.name()), move || {
                run(wait, size)
            })
        };
        cases.map(trial).collect::<Vec<_>>()
    };
    let [one, all] = WITHOUT_MEMBARRIER.map(|row| fences(row.name, "Symmetric"));
    // SAFETY: a query accesses no memory.
    let known = unsafe { libc::syscall(libc::SYS_membarrier, 0, 0, 0) };
    let usual = if known > 0 && known & 0b110 == 0b110 { "Membarrier" } else { "Symmetric" };
    [one, all, fences("case_47_a_sleeper_is_woken_by_every_write", usual)].into_iter().flatten().collect()
}

fn uses_fences(role: &str, expected: &str, wait: Wait, size: usize) -> Outcome {
    let mut job = Job::new(size, wait);
    for rank in 0..size {
        job.start_with(rank, role, |command| {
            command.env("INTRANODE_DEBUG", "1").env("INTRANODE_SYMMETRIC_TURNS", "200");
        })?;
    }
    job.finish(&vec![0; size])?;
    let text = format!("fences of symmetric memory: {expected}");
    for process in 0..size {
        let output = job.output(process)?;
        ensure!(output.contains(&text), "no {text:?} in {output:?}");
    }
    Ok(())
}
