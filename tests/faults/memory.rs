//! Rows 19 to 21: too little memory, and files that others cut short.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use intranode::{Communicator, Error};
use libtest_mimic::Completion;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::job::Job;
use super::{Program, Test, rank};

pub(crate) const TESTS: &[Test] = &[
    ("row_19_a_region_larger_than_dev_shm", || in_small_dev_shm("64m", "has a region of 300 MB")),
    ("row_19_a_region_by_name_larger_than_dev_shm", || in_small_dev_shm("64m", "has no room for 300 MB")),
    ("row_19_dev_shm_is_too_small_for_the_job", || in_small_dev_shm("64k", "has no room to join")),
    ("row_20_a_sealed_region_can_not_be_cut", a_region_can_not_be_cut),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("has a region of 300 MB", || in_own_mount(has_a_large_region)),
    ("has no room for 300 MB", || in_own_mount(has_no_room_for_a_region)),
    ("has no room to join", || in_own_mount(has_no_room_to_join)),
    ("cuts its region", cuts_its_region),
];

const LARGE: usize = 300 << 20;

/// The variable that says how large `/dev/shm` shall be.
const SIZE: &str = "FAULTS_DEV_SHM";
/// A directory in which the ranks of a job find the same small file system.
const SHARED: &str = "FAULTS_SHARED";

/// A job whose ranks have a `/dev/shm` of this size, of their own.
fn in_small_dev_shm(size: &str, program: &str) -> Result<Completion> {
    let mut job = Job::new(2);
    // A mount is for one process and what it starts: this one's helper starts the ranks.
    job.start(0, program, |command: &mut Command| {
        command.env(SIZE, size).env(SHARED, "maker");
    })?;
    let line = job.line(0)?;
    if let Some(reason) = line.strip_prefix("not allowed: ") {
        job.finish(&[])?;
        return Ok(Completion::ignored_with(reason.to_owned()));
    }
    ensure!(line == "done", "it says {line:?}");
    job.finish(&[])?;
    Ok(Completion::Completed)
}

/// In the process that the test has started: makes the file system, and starts this program again as each rank, in it.
/// In such a rank: does it.
fn in_own_mount(work: fn() -> Result<()>) -> Result<()> {
    if std::env::var(SHARED).as_deref() != Ok("maker") {
        return work();
    }
    let small = format!("size={}", std::env::var(SIZE)?);
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let nothing = None::<&str>;
    let made = unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(nothing, "/", nothing, private, nothing))
        .and_then(|()| mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), Some(small.as_str())));
    if let Err(error) = made {
        return rank::say(&format!("not allowed: a mount of its own: {error}"));
    }
    let mut ranks = Vec::new();
    for rank in 0..2 {
        let mut command = Command::new(std::env::current_exe()?);
        command.env(SHARED, "rank").env("INTRANODE_RANK", rank.to_string());
        ranks.push(command.spawn()?);
    }
    let mut statuses = Vec::new();
    for mut rank in ranks {
        statuses.push(rank.wait()?);
    }
    ensure!(statuses.iter().all(std::process::ExitStatus::success), "{statuses:?}");
    let left: Vec<_> = fs::read_dir("/dev/shm")?.collect();
    ensure!(left.is_empty(), "{left:?} is left");
    rank::say("done")
}

fn has_a_large_region() -> Result<()> {
    let comm = Communicator::from_env()?;
    let mut region = comm.region::<u8>(LARGE)?;
    region.distribute()?;
    let own = comm.rank() as u8 + 1;
    // Every page is touched: where there was no memory, this would be a SIGBUS.
    region.as_mut_slice().fill(own);
    let shared = region.publish()?;
    ensure!(shared[0] == 1 && shared[LARGE - 1] == 2);
    Ok(())
}

fn has_no_room_for_a_region() -> Result<()> {
    // SAFETY: no other thread of this process exists yet.
    unsafe { std::env::set_var("INTRANODE_MEMORY", "named") };
    let comm = Communicator::from_env()?;
    match comm.region::<u8>(LARGE) {
        Err(Error::AllocationFailed { requested_bytes: LARGE, reason }) => {
            ensure!(reason.contains("file system of shared memory"), "{reason}");
        }
        other => bail!("{other:?}"),
    }
    // There is room for less.
    let mut region = comm.region::<u8>(1 << 20)?;
    region.as_mut_slice().fill(7);
    ensure!(region.publish()?.iter().all(|byte| *byte == 7));
    Ok(())
}

fn has_no_room_to_join() -> Result<()> {
    if std::env::var("INTRANODE_RANK")? != "0" {
        return Ok(());
    }
    match Communicator::from_env() {
        Err(Error::AllocationFailed { requested_bytes, .. }) => ensure!(requested_bytes > 64 << 10),
        other => bail!("{other:?}"),
    }
    Ok(())
}

fn a_region_can_not_be_cut() -> Result<Completion> {
    let mut job = Job::joined_with(3, |_| "cuts its region", |_| ())?;
    for rank in 0..3 {
        job.await_line(rank, "works")?;
    }
    job.finish(&[])?;
    Ok(Completion::Completed)
}

/// Tries to cut what all have mapped, through the links that the system has for each mapping.
fn cuts_its_region() -> Result<()> {
    const LEN: usize = 1 << 20;
    let comm = rank::join()?;
    let mut region = comm.region::<u64>(LEN)?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let own = maps.lines().find(|line| line.contains("memfd:intranode")).context("the region is mapped")?;
    let range = own.split(' ').next().context("a line begins with a range")?;
    match fs::File::options().write(true).open(format!("/proc/self/map_files/{range}")) {
        Ok(file) => {
            for len in [0, 4096, 1 << 40] {
                let cut = file.set_len(len);
                ensure!(cut.is_err(), "it was cut to {len} bytes");
            }
        }
        // Only a privileged process finds files there: then nobody else does.
        Err(error) => ensure!(error.kind() == std::io::ErrorKind::PermissionDenied, "{error}"),
    }
    comm.barrier()?;
    region.as_mut_slice().fill(5);
    ensure!(region.publish()?.iter().all(|value| *value == 5));
    rank::say("works")?;
    rank::heard()?;
    Ok(())
}
