//! Rows 19, 20 and 26 where they are about regions: a small `/dev/shm`, files that others cut short, few privileges.

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use intranode::{Communicator, Error};
use libtest_mimic::Completion;
use nix::errno::Errno;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::job::Job;
use super::liveness::refuse;
use super::{Program, Test, rank};

pub(crate) const TESTS: &[Test] = &[
    ("row_19_a_region_larger_than_dev_shm", || in_small_dev_shm("has a region of 300 MB")),
    ("row_19_a_region_by_name_larger_than_dev_shm", || in_small_dev_shm("has no room for 300 MB")),
    ("row_20_a_sealed_region_can_not_be_cut", a_region_can_not_be_cut),
    ("row_26_regions_of_an_unprivileged_user", regions_of_an_unprivileged_user),
    ("row_26_placement_is_refused", || works_under("places a region under a policy")),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("has a region of 300 MB", || in_own_mount(has_a_large_region)),
    ("has no room for 300 MB", || in_own_mount(has_no_room_for_a_region)),
    ("cuts its region", cuts_its_region),
    ("has memory without a name", has_memory_without_a_name),
    ("places a region under a policy", places_a_region_under_a_policy),
];

const LARGE: usize = 300 << 20;

/// The variable that tells the maker of a small file system from the ranks that have it.
const SHARED: &str = "FAULTS_SHARED";

/// A job whose ranks have a `/dev/shm` of 64 MiB, of their own.
fn in_small_dev_shm(program: &str) -> Result<Completion> {
    let mut job = Job::new(2);
    // A mount is for one process and what it starts: this one's helper starts the ranks.
    job.start(0, program, |command: &mut Command| {
        command.env(SHARED, "maker");
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
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let nothing = None::<&str>;
    let made = unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(nothing, "/", nothing, private, nothing))
        .and_then(|()| mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), Some("size=64m")));
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
        Err(Error::AllocationFailed { requested_bytes: LARGE, reason, .. }) => {
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

fn a_region_can_not_be_cut() -> Result<Completion> {
    works_under("cuts its region")
}

fn works_under(program: &str) -> Result<Completion> {
    let mut job = Job::joined_with(3, |_| program, |_| ())?;
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

/// The user who may do least.
const NOBODY: u32 = 65534;

fn regions_of_an_unprivileged_user() -> Result<Completion> {
    let become_nobody = |command: &mut Command| {
        if nix::unistd::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
        }
    };
    let mut job = Job::new(3);
    for rank in 0..3 {
        if let Err(error) = job.start(rank, "has memory without a name", become_nobody) {
            let reason = format!("this program can not be run as another user: {error:#}");
            return Ok(Completion::ignored_with(reason));
        }
    }
    for rank in 0..3 {
        job.await_line(rank, "works")?;
    }
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn has_memory_without_a_name() -> Result<()> {
    let comm = Communicator::from_env()?;
    let half = comm.split(comm.rank() % 2, 0)?;
    let mut region = comm.region::<u64>(100_000)?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    ensure!(maps.lines().filter(|line| line.contains("memfd:intranode")).count() == 2, "{maps}");
    region.as_mut_slice().fill(9);
    ensure!(region.publish()?.iter().all(|value| *value == 9));
    half.barrier()?;
    rank::say("works")?;
    rank::heard()?;
    Ok(())
}

/// Everything works but placement, and the report of it says so.
fn places_a_region_under_a_policy() -> Result<()> {
    refuse(&[nix::libc::SYS_mbind, nix::libc::SYS_move_pages], Errno::EPERM)?;
    let comm = rank::join()?;
    let options = intranode::RegionOptions::new().placement(intranode::Placement::Interleaved);
    let mut region = comm.region_with::<u64>(100_000, &options)?;
    region.as_mut_slice().fill(9);
    let shared = region.publish()?;
    ensure!(shared.iter().all(|value| *value == 9));
    let error = shared.pages().err().context("it can not be told where they lie")?;
    ensure!(error.kind() == std::io::ErrorKind::PermissionDenied, "{error}");
    rank::say("works")?;
    rank::heard()?;
    Ok(())
}
