//! Where the memory of symmetric objects comes from: a small `/dev/shm`, and files with names.

use std::thread;

use anyhow::ensure;
use intranode::{Communicator, SymmetricOptions};
use libtest_mimic::Trial;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use crate::job::{Job, WAITS};
use crate::scenario::{Outcome, Scenario, row, still_works};
use crate::{processes, threads};

/// The rows that do not run by themselves.
pub(crate) fn rows() -> Vec<Scenario> {
    vec![row!(case_14_dev_shm_of_64_kib), row!(case_14_by_name_where_one_rank_needs_it)]
}

/// Their trials. The first is ignored where this process may not mount a file system.
pub(crate) fn trials() -> Vec<Trial> {
    let allowed = may_mount();
    let small = row!(case_14_dev_shm_of_64_kib).ranks(&[2, 4]);
    let mut trials: Vec<Trial> =
        [threads::trials(small), processes::trials(small)].into_iter().flatten().collect();
    trials = trials.into_iter().map(|trial| trial.with_ignored_flag(!allowed)).collect();
    let by_name = |size: usize| {
        let name = "case_14_by_name_where_one_rank_needs_it";
        let run = move || falls_back(name, size).map_err(|error| format!("{error:#}").into());
        Trial::test(format!("processes::{size}::{name}"), run)
    };
    trials.extend([2, 4].map(by_name));
    trials
}

/// Whether this process may mount a file system in a mount namespace of its own.
fn may_mount() -> bool {
    // A namespace belongs to a thread.
    thread::spawn(|| mount_dev_shm().is_ok()).join().unwrap_or(false)
}

/// Gives this thread a `/dev/shm` of 64 KiB.
fn mount_dev_shm() -> nix::Result<()> {
    let (nothing, private) = (None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE);
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(nothing, "/", nothing, private, nothing)?;
    mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), Some("size=64k"))
}

fn case_14_dev_shm_of_64_kib(comm: Communicator) -> Outcome {
    const LEN: usize = 4 << 20;
    mount_dev_shm()?;
    let size = nix::sys::statvfs::statvfs("/dev/shm")?;
    ensure!(size.blocks() * size.fragment_size() == 64 << 10, "{size:?}");
    let mut own = comm.symmetric::<u8>(LEN)?.into_own()?;
    // Touches every page: without allocated memory this would raise SIGBUS.
    own.fill(comm.rank() as u8 + 1);
    let all = own.open()?.into_read()?;
    for rank in 0..comm.size() {
        ensure!(all.of(rank).iter().all(|value| usize::from(*value) == rank + 1));
    }
    ensure!(std::fs::read_dir("/dev/shm")?.next().is_none(), "there is something in /dev/shm");
    still_works(&comm)
}

/// The last rank cannot open a memfd, so all fall back to named files.
fn falls_back(role: &str, size: usize) -> Outcome {
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

fn case_14_by_name_where_one_rank_needs_it(comm: Communicator) -> Outcome {
    for (turn, alignment) in [1, 1 << 16, 1 << 20].into_iter().enumerate() {
        let options = SymmetricOptions::new().alignment(alignment);
        let mut own = comm.symmetric_with::<u32>(100_000, &options)?.into_own()?;
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        ensure!(!maps.contains("/memfd:intranode"), "it has no name: {maps}");
        ensure!(own.as_ptr().addr().is_multiple_of(alignment));
        own.fill((10 * turn + comm.rank()) as u32);
        let all = own.open()?.into_read()?;
        for rank in 0..comm.size() {
            ensure!(all.of(rank).iter().all(|value| *value as usize == 10 * turn + rank));
        }
    }
    still_works(&comm)
}
