//! Rows 19 to 21: memory that is not there, is taken away, or must not be used.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use intranode::{Config, Error};
use libtest_mimic::Completion;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};

use super::job::Job;
use super::{Program, Test, rank, states};

pub(crate) const TESTS: &[Test] = &[
    ("row_19_dev_shm_has_64_kib", || in_dev_shm_of("64k")),
    ("row_19_dev_shm_is_full", || in_dev_shm_of("8m")),
    ("row_19_dev_shm_has_64_mib", || in_dev_shm_of("64m")),
    ("row_20_cut_short_while_joining", cut_short_while_joining),
    ("row_20_cut_short_after_all_have_joined", cut_short_after_all_have_joined),
    ("row_21_a_segment_beyond_the_limit_of_the_control_group", a_segment_beyond_the_limit),
    ("row_21_a_region_beyond_the_limit_of_the_control_group", a_region_beyond_the_limit),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("has a small dev shm", has_a_small_dev_shm),
    ("joins, announced", joins_announced),
    ("joins within a limit", joins_within_a_limit),
    ("has a region within a limit", has_a_region_within_a_limit),
];

const SIZE: &str = "FAULTS_DEV_SHM";

fn in_dev_shm_of(size: &str) -> Result<Completion> {
    // A process with a world of its own, in which it runs a job.
    let mut job = Job::new(1);
    job.start(0, "has a small dev shm", |command| {
        command.env(SIZE, size);
    })?;
    let outcome = job.line(0)?;
    job.finish(&[])?;
    match outcome.strip_prefix("not allowed: ") {
        Some(reason) => Ok(Completion::ignored_with(reason)),
        None => Ok(Completion::Completed),
    }
}

fn has_a_small_dev_shm() -> Result<()> {
    let size = std::env::var(SIZE)?;
    let nothing = None::<&str>;
    let mounted = unshare(CloneFlags::CLONE_NEWNS)
        .and_then(|()| mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing))
        .and_then(|()| {
            let options = format!("size={size}");
            mount(Some("none"), "/dev/shm", Some("tmpfs"), MsFlags::empty(), Some(options.as_str()))
        });
    if let Err(error) = mounted {
        return rank::say(&format!("not allowed: a /dev/shm of its own: {error}"));
    }
    if size == "8m" {
        // Somebody else has nearly all of it.
        fs::write("/dev/shm/other", vec![1; 8 << 20])?;
    }
    if size == "64m" {
        let mut job = Job::joined(3, "works")?;
        for rank in 0..3 {
            job.await_line(rank, "works")?;
        }
        job.finish(&[])?;
    } else {
        let mut job = Job::new(2);
        let shortly = |command: &mut std::process::Command| {
            command.env("INTRANODE_JOIN_TIMEOUT", "0.5");
        };
        job.start(1, "joins", shortly)?;
        job.start(0, "joins", shortly)?;
        let report = job.report(0)?;
        ensure!(report.kind == "no-memory", "{report:?}");
        let bytes: usize = report.text.split(' ').nth(1).unwrap_or_default().parse()?;
        ensure!(bytes > 1 << 20 && report.text.contains("/dev/shm"), "{report:?}");
        let report = job.report(1)?;
        ensure!(report.kind == "not-joined" && report.ranks == [0], "{report:?}");
        job.finish(&[])?;
    }
    rank::say("done")
}

fn announced(command: &mut std::process::Command) {
    states::reporting(command);
    command.env("INTRANODE_JOIN_TIMEOUT", "1");
}

/// As a program does that opens something of the same name as if it were new.
fn cut_short_while_joining() -> Result<Completion> {
    let mut job = Job::new(3);
    job.start(0, "joins, announced", announced)?;
    job.await_name()?;
    job.start(1, "joins, announced", announced)?;
    for rank in 0..2 {
        job.await_line(rank, "joining")?;
    }
    let waits = [0, 1].map(|rank| Ok(format!("rank {rank} (process {}) waits in init", job.pid(rank)?)));
    let [first, second]: [Result<String>; 2] = waits;
    states::await_state(&mut job, 1, &[&first?, &second?])?;
    File::options().write(true).truncate(true).open(job.path())?;
    for rank in 0..2 {
        let line = job.line(rank)?;
        // One of them may have noticed only that the other does not come.
        let told = ["another program has cut the file", "never joined"];
        ensure!(told.iter().any(|part| line.contains(part)), "{line}");
    }
    // An error each, no signal.
    job.release(|_| 0)?;
    job.left_nothing()?;
    Ok(Completion::Completed)
}

fn cut_short_after_all_have_joined() -> Result<Completion> {
    let mut job = Job::new(2);
    job.start(0, "joins, announced", |_| ())?;
    job.await_name()?;
    // Whoever has it open can do so still when the name is gone.
    let file = File::options().write(true).open(job.path())?;
    job.start(1, "joins, announced", |_| ())?;
    for rank in 0..2 {
        job.await_line(rank, "joining")?;
        job.await_line(rank, "joined")?;
    }
    ensure!(!job.path().exists(), "there is no name by which others could find it");
    file.set_len(4096)?;
    let mut cut = 0;
    for rank in 0..2 {
        let line = job.line(rank)?;
        // One of them may notice only that the other has ended, which could not say any more that it leaves.
        let told = ["another program has cut the file", "has left", "has died"];
        ensure!(told.iter().any(|part| line.contains(part)), "{line}");
        cut += usize::from(line.contains(told[0]));
    }
    ensure!(cut > 0, "nobody has noticed");
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn joins_announced() -> Result<()> {
    rank::say("joining")?;
    let error = match Config::from_env()?.fatal_signals(true).join() {
        Err(error) => error,
        Ok(comm) => {
            rank::say("joined")?;
            let mut data = vec![1u64; 100_000];
            loop {
                if let Err(error) = comm.allreduce_in_place(&mut data, intranode::ReduceOp::Max) {
                    break error;
                }
                // Zeros are no result.
                ensure!(data.iter().all(|value| *value == 1), "wrong data");
            }
        }
    };
    rank::say(&error.to_string())
}

/// The limit, the segment that goes beyond it, and what may be used for everything else.
const LIMIT: usize = 96 << 20;
const STAGING: usize = 64 << 20;

fn a_segment_beyond_the_limit() -> Result<Completion> {
    let group = match Group::new(LIMIT) {
        Ok(group) => group,
        Err(error) => return Ok(Completion::ignored_with(format!("no control group of one's own: {error:#}"))),
    };
    let mut job = Job::new(2);
    for rank in 0..2 {
        job.start(rank, "joins within a limit", |command| {
            command.env(GROUP, &group.path).env("INTRANODE_JOIN_TIMEOUT", "1");
        })?;
    }
    let report = job.report(0)?;
    ensure!(report.kind == "no-memory" && report.text.contains("memory limit"), "{report:?}");
    let bytes: usize =
        report.text.split(' ').find_map(|word| word.parse().ok()).context("no number of bytes")?;
    ensure!(bytes > 4 * STAGING, "{report:?}");
    let report = job.report(1)?;
    ensure!(report.kind == "not-joined" && report.ranks == [0], "{report:?}");
    let most = group.most()?;
    ensure!(most < LIMIT as u64 / 2, "{most} bytes were allocated");
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn a_region_beyond_the_limit() -> Result<Completion> {
    let group = match Group::new(LIMIT) {
        Ok(group) => group,
        Err(error) => return Ok(Completion::ignored_with(format!("no control group of one's own: {error:#}"))),
    };
    let mut job = Job::new(2);
    for rank in 0..2 {
        job.start(rank, "has a region within a limit", |command| {
            command.env(GROUP, &group.path);
        })?;
    }
    (0..2).try_for_each(|rank| job.await_line(rank, "works"))?;
    let most = group.most()?;
    ensure!(most < LIMIT as u64 / 2, "{most} bytes were allocated");
    job.finish(&[])?;
    Ok(Completion::Completed)
}

const GROUP: &str = "FAULTS_GROUP";

fn enter_the_group() -> Result<()> {
    let group = PathBuf::from(std::env::var(GROUP)?);
    Ok(fs::write(group.join("cgroup.procs"), std::process::id().to_string())?)
}

/// Both ranks are refused, whoever of them would allocate, and go on.
fn has_a_region_within_a_limit() -> Result<()> {
    enter_the_group()?;
    let comm = Config::from_env()?.join()?;
    for _ in 0..2 {
        match comm.region::<u8>(2 * LIMIT) {
            Err(Error::AllocationFailed { requested_bytes, reason, .. }) => {
                ensure!(
                    requested_bytes == 2 * LIMIT && reason.contains("limit"),
                    "{requested_bytes}: {reason}"
                );
            }
            other => bail!("{other:?}"),
        }
    }
    comm.region::<u8>(1 << 20)?.publish()?;
    rank::say("works")?;
    rank::heard()?;
    Ok(())
}

fn joins_within_a_limit() -> Result<()> {
    enter_the_group()?;
    match Config::from_env()?.chunk_bytes(STAGING).join() {
        Ok(_) => bail!("it has joined"),
        Err(error @ (Error::AllocationFailed { .. } | Error::InitializationFailed(_))) => rank::report(&error),
        Err(error) => Err(error.into()),
    }
}

/// A control group below this process's own, with a limit on memory.
struct Group {
    path: PathBuf,
    version_1: bool,
}

impl Group {
    fn new(limit: usize) -> Result<Self> {
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let path_of = |matches: fn(&str) -> bool| {
            let mut lines = own.lines().map(|line| line.splitn(3, ':').collect::<Vec<_>>());
            lines.find(|fields| fields.len() == 3 && matches(fields[1])).map(|fields| fields[2][1..].to_owned())
        };
        let first = path_of(|controllers| controllers.split(',').any(|controller| controller == "memory"));
        let (own, version_1) = match first {
            Some(path) => (Path::new("/sys/fs/cgroup/memory").join(path), true),
            None => {
                let path = path_of(str::is_empty).context("no control groups")?;
                (Path::new("/sys/fs/cgroup").join(path), false)
            }
        };
        let group = Group { path: own.join(format!("faults-{}", std::process::id())), version_1 };
        fs::create_dir(&group.path).with_context(|| group.path.display().to_string())?;
        let file = if version_1 { "memory.limit_in_bytes" } else { "memory.max" };
        fs::write(group.path.join(file), limit.to_string()).context(file)?;
        Ok(group)
    }

    /// The most that was ever in use.
    fn most(&self) -> Result<u64> {
        let file = if self.version_1 { "memory.max_usage_in_bytes" } else { "memory.peak" };
        Ok(fs::read_to_string(self.path.join(file)).context(file)?.trim().parse()?)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // The processes in it have ended, but may not be gone.
        for _ in 0..1000 {
            if fs::remove_dir(&self.path).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
