//! Rows 19, 20 and 26 for regions: a small `/dev/shm`, truncation, few privileges.

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
    ("row_20_a_sealed_region_cannot_be_truncated", a_region_cannot_be_truncated),
    ("row_26_regions_of_an_unprivileged_user", regions_of_an_unprivileged_user),
    ("row_26_placement_is_refused", placement_is_refused),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("has a region of 300 MB", || in_own_mount(has_a_large_region)),
    ("has no room for 300 MB", || in_own_mount(has_no_room_for_a_region)),
    ("truncates its region", truncates_its_region),
    ("has memfds", has_memfds),
    ("places a region under a policy", places_a_region_under_a_policy),
];

const LARGE: usize = 300 << 20;

/// Distinguishes the process that mounts the file system from the ranks that it starts.
const SHARED: &str = "FAULTS_SHARED";

/// A job whose ranks have a `/dev/shm` of 64 MiB in a mount namespace of their own.
fn in_small_dev_shm(program: &str) -> Result<Completion> {
    let mut job = Job::new(2);
    // A mount namespace belongs to a process and its children: that process starts the ranks.
    job.start(0, program, |command: &mut Command| {
        command.env(SHARED, "mounts");
    })?;
    let line = job.line(0)?;
    if let Some(reason) = line.strip_prefix("not allowed: ") {
        job.finish(&[])?;
        return Ok(Completion::ignored_with(reason.to_owned()));
    }
    ensure!(line == "done", "it sent {line:?}");
    job.finish(&[])?;
    Ok(Completion::Completed)
}

/// In the process that the test has started: mounts the file system, and starts this program again as each rank. In a rank:
/// runs `work`.
fn in_own_mount(work: fn() -> Result<()>) -> Result<()> {
    if std::env::var(SHARED).as_deref() != Ok("mounts") {
        return work();
    }
    let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
    let nothing = None::<&str>;
    let made = unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(nothing, "/", nothing, private, nothing))
        .and_then(|()| mount(Some("tmpfs"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), Some("size=64m")));
    if let Err(error) = made {
        return rank::send(&format!("not allowed: a mount of its own: {error}"));
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
    let files: Vec<_> = fs::read_dir("/dev/shm")?.collect();
    ensure!(files.is_empty(), "{files:?} are left");
    rank::send("done")
}

fn has_a_large_region() -> Result<()> {
    let comm = Communicator::from_env()?;
    let mut region = comm.region::<u8>(LARGE)?;
    region.distribute()?;
    let own = comm.rank() as u8 + 1;
    // Touches every page: without allocated memory this would raise SIGBUS.
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

fn a_region_cannot_be_truncated() -> Result<Completion> {
    works_under("truncates its region")
}

fn works_under(program: &str) -> Result<Completion> {
    let mut job = Job::joined_with(3, |_| program, |_| ())?;
    for rank in 0..3 {
        job.await_line(rank, "works")?;
    }
    job.finish(&[])?;
    Ok(Completion::Completed)
}

/// Tries to truncate the region's file, through /proc/self/map_files.
fn truncates_its_region() -> Result<()> {
    const LEN: usize = 1 << 20;
    let comm = rank::join()?;
    let mut region = comm.region::<u64>(LEN)?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    let own = maps.lines().find(|line| line.contains("memfd:intranode")).context("the region is mapped")?;
    let range = own.split(' ').next().context("a line begins with a range")?;
    match fs::File::options().write(true).open(format!("/proc/self/map_files/{range}")) {
        Ok(file) => {
            for len in [0, 4096, 1 << 40] {
                let resized = file.set_len(len);
                ensure!(resized.is_err(), "its length is {len} bytes now");
            }
        }
        // Only a privileged process can open these links.
        Err(error) => ensure!(error.kind() == std::io::ErrorKind::PermissionDenied, "{error}"),
    }
    comm.barrier()?;
    region.as_mut_slice().fill(5);
    ensure!(region.publish()?.iter().all(|value| *value == 5));
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

/// The unprivileged user nobody.
const NOBODY: u32 = 65534;

fn regions_of_an_unprivileged_user() -> Result<Completion> {
    let become_nobody = |command: &mut Command| {
        if nix::unistd::geteuid().is_root() {
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
        }
    };
    let mut job = Job::new(3);
    for rank in 0..3 {
        if let Err(error) = job.start(rank, "has memfds", become_nobody) {
            let reason = format!("this program cannot be run as another user: {error:#}");
            return Ok(Completion::ignored_with(reason));
        }
    }
    for rank in 0..3 {
        job.await_line(rank, "works")?;
    }
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn has_memfds() -> Result<()> {
    let comm = Communicator::from_env()?;
    let half = comm.split(comm.rank() % 2, 0)?;
    let mut region = comm.region::<u64>(100_000)?;
    let maps = fs::read_to_string("/proc/self/maps")?;
    ensure!(maps.lines().filter(|line| line.contains("memfd:intranode")).count() == 2, "{maps}");
    region.as_mut_slice().fill(9);
    ensure!(region.publish()?.iter().all(|value| *value == 9));
    half.barrier()?;
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}

fn placement_is_refused() -> Result<Completion> {
    let completion = works_under("places a region under a policy")?;
    // With one node the system is not asked.
    let nodes = fs::read_to_string("/sys/devices/system/node/has_memory").unwrap_or_default();
    if nodes.contains(['-', ',']) {
        Ok(completion)
    } else {
        Ok(Completion::ignored_with("memory is in one NUMA node here: nothing was refused"))
    }
}

/// Everything works but placement.
fn places_a_region_under_a_policy() -> Result<()> {
    refuse(&[nix::libc::SYS_mbind], Errno::EPERM)?;
    let comm = rank::join()?;
    let options = intranode::RegionOptions::new().placement(intranode::Placement::Interleaved);
    let mut region = comm.region_with::<u64>(100_000, &options)?;
    region.as_mut_slice().fill(9);
    let shared = region.publish()?;
    ensure!(shared.iter().all(|value| *value == 9));
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}
