//! Files of other programs under a job's name.

use std::fs::{self, File};
use std::io::Write;

use anyhow::ensure;
use intranode::segment::layout::{Layout, PREAMBLE};
use libtest_mimic::Trial;
use nix::fcntl::{FcntlArg, fcntl};

use crate::job::{Job, Wait};
use crate::joining::{Test, ensure_told, over_every_wait};
use crate::scenario::Outcome;

pub(crate) fn trials() -> Vec<Trial> {
    let tests: &[(&str, Test)] = &[
        ("a_segment_of_another_program", a_segment_of_another_program),
        ("a_live_segment_of_another_program", a_live_segment_of_another_program),
        ("a_stale_segment_of_another_version_is_removed", a_stale_segment_of_another_version),
        ("a_live_segment_of_another_version", a_live_segment_of_another_version),
        ("a_live_segment_cut_short", a_live_segment_cut_short),
    ];
    over_every_wait(tests)
}

/// Another program's file under the job's name.
fn plant(job: &Job, content: &[u8]) -> anyhow::Result<File> {
    let mut file = File::options().read(true).write(true).create_new(true).open(job.path())?;
    file.write_all(content)?;
    Ok(file)
}

/// Locks the file as a live job does.
fn lock(file: &File) -> Outcome {
    let description = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as _,
        l_whence: nix::libc::SEEK_SET as _,
        l_start: 0,
        l_len: 1,
        l_pid: 0,
    };
    fcntl(file, FcntlArg::F_OFD_SETLK(&description))?;
    Ok(())
}

/// Both ranks of a job get an error that describes the file under its name, and the file does not change.
fn ensure_refused(job: &mut Job, content: &[u8], rank_0: &str, rank_1: &str) -> Outcome {
    job.start(0, "report")?;
    job.start(1, "report")?;
    ensure_told(job, &[0], &["InitializationFailed", rank_0])?;
    ensure_told(job, &[1], &["InitializationFailed", rank_1])?;
    ensure!(fs::read(job.path()).is_ok_and(|now| now == content), "the file was changed or removed");
    fs::remove_file(job.path())?;
    job.left_nothing()
}

fn a_segment_of_another_program(wait: Wait) -> Outcome {
    let mut job = Job::new(2, wait);
    let content = [0x2A; 10_000];
    plant(&job, &content)?;
    let told = "is a file of another program";
    ensure_refused(&mut job, &content, told, told)
}

fn a_live_segment_of_another_program(wait: Wait) -> Outcome {
    let mut job = Job::new(2, wait);
    let content = [0x2A; 10_000];
    let file = plant(&job, &content)?;
    lock(&file)?;
    ensure_refused(&mut job, &content, "another program", "not a segment of this library")
}

/// The header of a live job's segment, modified, and padded to the segment's length.
fn segment(change: impl FnOnce(&mut [u8; PREAMBLE])) -> Vec<u8> {
    let layout = Layout::new(2, 4096).expect("a small segment");
    let mut preamble = layout.preamble(std::process::id());
    change(&mut preamble);
    let mut content = preamble.to_vec();
    content.resize(layout.len(), 0);
    content
}

/// The version follows the eight bytes of the magic number.
fn other_version(preamble: &mut [u8; PREAMBLE]) {
    preamble[8..12].copy_from_slice(&77u32.to_ne_bytes());
}

fn a_stale_segment_of_another_version(wait: Wait) -> Outcome {
    let mut job = Job::new(2, wait);
    plant(&job, &segment(other_version))?;
    job.start_all("join")?;
    job.finish(&[0; 2])
}

fn a_live_segment_of_another_version(wait: Wait) -> Outcome {
    let mut job = Job::new(2, wait);
    let content = segment(other_version);
    let file = plant(&job, &content)?;
    lock(&file)?;
    ensure_refused(&mut job, &content, "live job", "layout version 77")
}

fn a_live_segment_cut_short(wait: Wait) -> Outcome {
    let mut job = Job::new(2, wait);
    let mut content = segment(|_| ());
    content.truncate(content.len() - 4096);
    let file = plant(&job, &content)?;
    lock(&file)?;
    let holder = format!("process {}", std::process::id());
    ensure_refused(&mut job, &content, &holder, &format!("is {} bytes long", content.len()))
}
