//! Rows 2 and 27 for files: those of other programs under a job's names stay unchanged, and those of a killed process are
//! removed by the next job.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use intranode::segment::layout::Layout;
use libtest_mimic::Completion;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::unistd::Pid;

use super::job::Job;
use super::joining::{refuse_tmpfile, remove_unsigned};
use super::stepping::{self, run_until};
use super::{Program, Test, rank, repeat};

pub(crate) const TESTS: &[Test] = &[
    ("row_02_killed_at_a_step_of_making_a_region_with_a_name", || killed_at_each_step(false)),
    ("row_02_killed_at_a_step_of_making_a_region_under_a_private_name", || killed_at_each_step(true)),
    ("row_27_files_of_other_programs_have_the_job_s_name", they_have_the_job_s_name),
    ("row_27_files_of_other_programs_have_the_names_of_regions", they_have_the_names_of_regions),
];

pub(crate) const PROGRAMS: &[Program] = &[
    ("has regions with names", has_regions_with_names),
    ("stops before a region", stops_before_a_region),
    ("stops before a region, without O_TMPFILE", || {
        refuse_tmpfile()?;
        stops_before_a_region()
    }),
    ("makes a region", makes_a_region),
];

/// A file of another program, removed on drop.
struct Other {
    path: PathBuf,
    content: Vec<u8>,
    file: File,
    inode: u64,
}

impl Other {
    /// `locked`: the program holds a lock on the whole file.
    fn put(path: &Path, content: &[u8], locked: bool) -> Result<Self> {
        let file = File::options().read(true).write(true).create_new(true).open(path)?;
        file.write_all_at(content, 0)?;
        if locked {
            let (l_type, l_whence) = (libc::F_WRLCK as libc::c_short, libc::SEEK_SET as libc::c_short);
            let all = libc::flock { l_type, l_whence, l_start: 0, l_len: 0, l_pid: 0 };
            fcntl(&file, FcntlArg::F_OFD_SETLK(&all))?;
        }
        let inode = file.metadata()?.ino();
        Ok(Other { path: path.to_owned(), content: content.to_owned(), file, inode })
    }

    /// Fails unless it exists, unchanged.
    fn ensure_untouched(&self) -> Result<()> {
        let name = self.path.display();
        let metadata = fs::metadata(&self.path).with_context(|| format!("{name} was removed"))?;
        ensure!(metadata.ino() == self.inode, "{name} was replaced");
        let mut now = vec![0; self.content.len()];
        self.file.read_exact_at(&mut now, 0).with_context(|| format!("{name} was truncated"))?;
        ensure!(metadata.len() == self.content.len() as u64 && now == self.content, "{name} was changed");
        Ok(())
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        // Best effort.
        let _ = fs::remove_file(&self.path);
    }
}

/// Contents without a signature.
fn contents() -> Vec<Vec<u8>> {
    let segment = segment().len();
    let text = b"the only copy of something".to_vec();
    vec![Vec::new(), vec![0; 1], vec![0; 100], vec![0; 8192], vec![0; 8192 + 512], vec![0; segment], text]
}

/// The segment of a job of two ranks whose rank 0 was killed.
fn segment() -> Vec<u8> {
    let layout = Layout::new(2, Layout::default_chunk(2)).expect("the layout of a job without settings");
    let mut content = layout.preamble(std::process::id()).to_vec();
    content.resize(layout.len(), 0);
    content
}

/// A region of one page whose creator was killed.
fn region(job: &str) -> Vec<u8> {
    let magic = u64::from_be_bytes(*b"intrapar").to_ne_bytes();
    let length = job.len() as u32;
    let numbers = [1, std::process::id()].map(u32::to_ne_bytes).concat();
    let offset = 4096u64.to_ne_bytes();
    let mut content = vec![0; 4096];
    for field in [&magic[..], &numbers, &offset, &length.to_ne_bytes(), job.as_bytes()] {
        content.extend(field);
    }
    content.resize(4096 + 512, 0);
    content
}

fn with_short_timeout(command: &mut Command) {
    command.env("INTRANODE_JOIN_TIMEOUT", "1.5");
}

/// Both ranks get an error, and the file stays.
fn they_have_the_job_s_name() -> Result<Completion> {
    let unsigned = contents().into_iter().map(|content| (content, false));
    for (content, locked) in unsigned.chain([(segment(), true)]) {
        let mut job = Job::new(2);
        let other = Other::put(&job.path(), &content, locked)?;
        let reasons = if locked { ["others hold", "never joined"] } else { ["a file of another program"; 2] };
        for (rank, reason) in reasons.into_iter().enumerate() {
            job.start(rank, "works on request", with_short_timeout)?;
            let report = job.report(rank)?;
            ensure!(report.kind == "not-joined" && report.text.contains(reason), "{report:?}");
        }
        job.release(|_| 0)?;
        other.ensure_untouched()?;
        drop(other);
        job.ensure_nothing_left()?;
    }
    Ok(Completion::Completed)
}

/// Jobs with named regions, and one that fails because two ranks never join.
fn they_have_the_names_of_regions() -> Result<Completion> {
    let mut job = Job::new(3);
    let mut others = Vec::new();
    let live = region(job.name());
    let unsigned = contents().into_iter().map(|content| (content, false));
    for (number, (content, locked)) in unsigned.chain([(live, true)]).enumerate() {
        for infix in ["_region_", "_new_"] {
            let name = format!("{}{infix}{:x}", job.name(), number + 1);
            others.push(Other::put(&Path::new("/dev/shm").join(&name[1..]), &content, locked)?);
        }
    }
    job.start(0, "works on request", with_short_timeout)?;
    let report = job.report(0)?;
    ensure!(report.kind == "not-joined" && report.ranks == [1, 2], "{report:?}");
    job.release(|_| 0)?;
    others.iter().try_for_each(Other::ensure_untouched)?;

    let mut job = job.namesake();
    for rank in 0..3 {
        job.start(rank, "has regions with names", |command| {
            command.env("INTRANODE_MEMORY", "named");
        })?;
    }
    (0..3).try_for_each(|rank| job.await_line(rank, "works"))?;
    job.release(|_| 0)?;
    others.iter().try_for_each(Other::ensure_untouched)?;

    // A dead process's region among these files is removed.
    let dead = Path::new("/dev/shm").join(format!("{}_region_77", &job.name()[1..]));
    fs::write(&dead, region(job.name()))?;
    let mut job = job.namesake();
    job.start(0, "works on request", with_short_timeout)?;
    job.await_name()?;
    ensure!(!dead.exists(), "a dead job's region was not removed");
    job.report(0)?;
    job.release(|_| 0)?;
    others.iter().try_for_each(Other::ensure_untouched)?;
    drop(others);
    job.ensure_nothing_left()?;
    Ok(Completion::Completed)
}

fn has_regions_with_names() -> Result<()> {
    let comm = intranode::Communicator::from_env()?;
    for len in [1, 1000, 100_000] {
        let mut region = comm.region::<u64>(len)?;
        region.as_mut_slice().fill(7);
        let shared = region.publish()?;
        ensure!(shared.iter().all(|value| *value == 7), "wrong data");
        rank::ensure_works(&comm.split(comm.rank() % 2, 0)?, 4)?;
    }
    rank::ensure_works(&comm, 4)?;
    rank::send("works")
}

/// Kills rank 0 of two at a system call of creating a region, a later one each time, until it completes.
fn killed_at_each_step(private: bool) -> Result<Completion> {
    let program = if private { "stops before a region, without O_TMPFILE" } else { "stops before a region" };
    let named = |command: &mut Command| {
        command.env("INTRANODE_MEMORY", "named");
    };
    // Every call with FAULTS_REPEAT=4. The file has its name during more than four calls.
    let stride = 4usize.div_ceil(repeat(1));
    let mut outcomes = [0; 2];
    for calls in (0..).map(|step| fastrand::usize(0..stride) + step * stride) {
        let mut job = Job::new(2);
        job.start(0, program, named)?;
        job.start(1, "makes a region", named)?;
        job.await_joined([0, 1])?;
        let pid = Pid::from_raw(job.pid(0)?.try_into()?);
        let Some(through) = run_until(pid, calls)? else {
            return Ok(Completion::ignored_with(stepping::NOT_TRACED));
        };
        if through {
            job.kill(0)?;
        }
        let report = job.report(1)?;
        ensure!(report.kind == "died" && report.ranks == [0], "killed at call {calls}: {report:?}");
        job.release(|rank| if rank == 0 { -9 } else { 0 })?;
        let files = count_other_files(&job)?;
        outcomes[usize::from(files > 0)] += 1;
        let mut next = job.namesake();
        next.start(0, "has regions with names", named)?;
        next.start(1, "has regions with names", named)?;
        (0..2).try_for_each(|rank| next.await_line(rank, "works"))?;
        next.release(|_| 0)?;
        if private {
            remove_unsigned(&next)?;
        }
        next.ensure_nothing_left()?;
        if through {
            break;
        }
    }
    let [nothing, something] = outcomes;
    eprintln!("nothing left {nothing} times, something {something} times");
    ensure!(nothing > 0 && something > 0, "not all steps were reached");
    Ok(Completion::Completed)
}

/// The number of a job's files other than its segment.
fn count_other_files(job: &Job) -> Result<usize> {
    let mut count = 0;
    for entry in fs::read_dir("/dev/shm")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        count += usize::from(name.starts_with(&format!("{}_", &job.name()[1..])));
    }
    Ok(count)
}

fn stops_before_a_region() -> Result<()> {
    let comm = rank::join()?;
    stepping::begin()?;
    let region = comm.region::<u8>(10_000);
    stepping::stop()?;
    drop(region);
    Ok(())
}

/// Reports the error that ends the job.
fn makes_a_region() -> Result<()> {
    let comm = rank::join()?;
    rank::repeat(&comm, |comm| comm.region::<u8>(10_000).map(drop).and_then(|()| comm.barrier()))
}
