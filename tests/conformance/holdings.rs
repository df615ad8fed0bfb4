//! The resources of regions: memory, descriptors and mappings; also after fork, and with named memory.

use anyhow::{Context, ensure};
use intranode::{Communicator, Error, ReduceOp};
use libtest_mimic::Trial;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::job::{Job, WAITS};
use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(region_of_20_8_mb_is_there_once),
        row!(region_made_and_dropped_1000_times),
        row!(region_in_a_forked_child),
        row!(region_stray_store_is_a_fault),
    ];
    rows.into_iter().map(|row| row.ranks(&[1, 2, 4]).processes_only()).collect()
}

/// A number from one of this process's tables.
fn own_number(table: &str, line: &str) -> anyhow::Result<usize> {
    let text = std::fs::read_to_string(format!("/proc/self/{table}"))?;
    let value =
        text.lines().find_map(|found| found.strip_prefix(line)).with_context(|| format!("no {line}"))?;
    Ok(value.trim().trim_end_matches("kB").trim().parse()?)
}

/// The proportional set size of mappings with this name, summed over all ranks, in kB.
fn share_of_all(comm: &Communicator, name: &str) -> anyhow::Result<usize> {
    let table = std::fs::read_to_string("/proc/self/smaps")?;
    // The line of a mapping begins with its range, lines about it with a name that ends in a colon.
    let (mut inside, mut own) = (false, 0);
    for line in table.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if !first.ends_with(':') {
            inside = line.contains(name);
        } else if inside && first == "Pss:" {
            own += line.split_whitespace().nth(1).context("a number")?.parse::<usize>()?;
        }
    }
    let mut all = [own];
    comm.allreduce_in_place(&mut all, ReduceOp::Sum)?;
    Ok(all[0])
}

/// 20.8 MB, as for Cobre's opening tree and case data: in total, not for each rank.
fn region_of_20_8_mb_is_there_once(comm: Communicator) -> Outcome {
    const LEN: usize = 2_600_000;
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let mut region = comm.region::<f64>(LEN)?;
    region.as_mut_slice().fill(1.5);
    let shared = region.publish()?;
    // The page table of every rank has all of it.
    ensure!(shared.iter().sum::<f64>() == 1.5 * LEN as f64);
    comm.barrier()?;
    let (all, once) = (share_of_all(&comm, "memfd:intranode")?, LEN * size_of::<f64>() / 1024);
    comm.barrier()?;
    drop(shared);
    ensure!((once..once + once / 20).contains(&all), "{all} kB in all ranks together, of {once} kB");
    Ok(())
}

/// What this process has open.
pub(crate) struct Holdings {
    /// What the descriptors refer to.
    descriptors: Vec<String>,
    mappings: usize,
    /// In kB.
    memory: usize,
}

impl Holdings {
    pub(crate) fn now() -> anyhow::Result<Self> {
        let mut descriptors = Vec::new();
        for entry in std::fs::read_dir("/proc/self/fd")? {
            // Another thread may have closed it meanwhile.
            let Ok(target) = std::fs::read_link(entry?.path()) else { continue };
            descriptors.push(target.to_string_lossy().into_owned());
        }
        // The watcher opens the pidfds of its peers after some time.
        descriptors.retain(|target| target != "anon_inode:[pidfd]");
        descriptors.sort();
        let mappings = std::fs::read_to_string("/proc/self/maps")?.lines().count();
        Ok(Holdings { descriptors, mappings, memory: own_number("status", "VmRSS:")? })
    }

    /// Fails if this process holds more now.
    pub(crate) fn ensure_no_more(&self) -> Outcome {
        let now = Holdings::now()?;
        ensure!(
            now.descriptors.len() == self.descriptors.len(),
            "descriptors of {:?}, not {:?}",
            now.descriptors,
            self.descriptors
        );
        // The allocator's mappings may change by one or two.
        ensure!(now.mappings <= self.mappings + 2, "{} mappings, not {}", now.mappings, self.mappings);
        ensure!(now.memory < self.memory + 1024, "{} kB of memory, not {}", now.memory, self.memory);
        Ok(())
    }
}

fn region_made_and_dropped_1000_times(comm: Communicator) -> Outcome {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let turn = |turn: u64| {
        let mut region = comm.region::<u64>(10_000)?;
        region.distribute()?;
        region.as_mut_slice().fill(turn);
        let shared = region.publish()?;
        ensure!(shared.iter().all(|value| *value == turn));
        let mut region = shared.reclaim()?;
        let mut exchange = comm.exchange::<u64>(&vec![10; comm.size()])?;
        exchange.own().fill(turn);
        ensure!(exchange.share()?.iter().all(|value| *value == turn));
        region.as_mut_slice().fill(0);
        if turn.is_multiple_of(10) {
            still_works(&comm.split(comm.rank() % 2, 0)?)?;
        }
        Ok(())
    };
    (0..50).try_for_each(turn)?;
    comm.barrier()?;
    let before = Holdings::now()?;
    (50..1050).try_for_each(turn)?;
    comm.barrier()?;
    before.ensure_no_more()
}

/// The exit status of a forked child after success.
const AS_EXPECTED: i32 = 42;

fn region_in_a_forked_child(comm: Communicator) -> Outcome {
    let mut region = comm.region::<u8>(100)?;
    region.as_mut_slice().fill(3);
    let shared = region.publish()?;
    // SAFETY: the child calls the library, which returns before it allocates or locks, and ends at once.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let refused = matches!(comm.region::<u8>(1).map(drop), Err(Error::Forked { .. }))
                && matches!(comm.split_local().map(drop), Err(Error::Forked { .. }))
                && matches!(
                    shared.reclaim().map(drop),
                    Err(Error::Forked { .. } | Error::AllocationFailed { .. })
                );
            // SAFETY: ends the child, without running the parent's exit handlers.
            unsafe { nix::libc::_exit(if refused { AS_EXPECTED } else { 1 }) }
        }
    };
    ensure_matches!(waitpid(child, None)?, WaitStatus::Exited(_, AS_EXPECTED));
    ensure!(shared.iter().all(|value| *value == 3));
    still_works(&comm)
}

/// Runs in a child process with a job of its own: a store into a published region through a pointer.
fn region_stray_store_is_a_fault(comm: Communicator) -> Outcome {
    let shared = comm.region::<u8>(100)?.publish()?;
    let place = shared.as_ptr().cast_mut();
    if let Some(child) = start_stray()? {
        use std::os::unix::process::ExitStatusExt;
        ensure!(child.signal() == Some(nix::libc::SIGSEGV), "it ended with {child:?}");
    } else {
        // SAFETY: none: this is the fault to be tested. It ends the process.
        unsafe { place.write_volatile(1) };
        anyhow::bail!("the store was not noticed");
    }
    still_works(&comm)
}

/// Starts this rank's program again, alone in a job of its own; `None` in that process.
fn start_stray() -> anyhow::Result<Option<std::process::ExitStatus>> {
    const STRAY: &str = "CONFORMANCE_STRAY";
    if std::env::var_os(STRAY).is_some() {
        return Ok(None);
    }
    let name = format!("/conformance-stray-{}", std::process::id());
    let status = std::process::Command::new(std::env::current_exe()?)
        .env(STRAY, "1")
        .env("INTRANODE_NAME", name)
        .env("INTRANODE_RANK", "0")
        .env("INTRANODE_SIZE", "1")
        .status()?;
    Ok(Some(status))
}

/// Trials that do not use a scenario.
pub(crate) fn trials() -> Vec<Trial> {
    // Other systems have no memfds.
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    let sizes = [1, 2, 4];
    let trial = |size: usize| {
        let run = move || with_named_memory(size, NAMED).map_err(|error| format!("{error:#}").into());
        Trial::test(format!("processes::{size}::region_by_name_where_one_rank_needs_it"), run)
    };
    sizes.into_iter().map(trial).collect()
}

/// The last rank makes no memfd.
pub(crate) fn with_named_memory(size: usize, role: &str) -> Outcome {
    let mut job = Job::new(size, WAITS[0]);
    for rank in 0..size {
        job.start_with(rank, role, |command| {
            if rank == size - 1 {
                command.env("INTRANODE_MEMORY", "named");
            }
        })?;
    }
    job.finish(&vec![0; size])
}

/// The role of ranks that all fall back to named files.
pub(crate) const ROLE: (&str, fn() -> Outcome) = (NAMED, use_named);
const NAMED: &str = "region_by_name_where_one_rank_needs_it";

fn use_named() -> Outcome {
    let comm = Communicator::from_env()?;
    for turn in 0..20 {
        let mut region = comm.region::<u32>(100_000)?;
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        ensure!(!maps.contains("/memfd:intranode"), "it has no name: {maps}");
        region.distribute()?;
        region.as_mut_slice().fill(turn);
        let shared = region.publish()?;
        ensure!(shared.iter().all(|value| *value == turn));
    }
    still_works(&comm)
}
