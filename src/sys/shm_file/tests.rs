//! Tests of the named file, and what they share.

mod creating;
mod foreign_files;
mod processes;
mod reclaiming;

use std::fs;
use std::process;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use super::open::LastSeen;
use super::*;
use crate::sys::testing::{LIMIT, no_spawning};

const LEN: usize = 256 << 10;
const MODES: [CreateMode; 2] = [CreateMode::Tmpfile, CreateMode::Excl];
const HELPER: &str = "sys::shm_file::tests::processes::helper";

/// A name for this test only.
fn name(test: &str) -> String {
    format!("/intranode-test-{}-{test}", process::id())
}

fn shm(name: &str) -> PathBuf {
    Path::new(file::DIRECTORY).join(&name[1..])
}

/// Writes this process's id, which the tests have in place of a preamble.
fn write_pid(mapping: &Mapping) {
    word(mapping).store(process::id(), Ordering::Release);
}

fn word(mapping: &Mapping) -> &AtomicU32 {
    // SAFETY: a page-aligned word inside the mapping, accessed as an atomic only.
    unsafe { &*mapping.start().cast::<AtomicU32>() }
}

fn signature(preamble: &[u8]) -> u32 {
    u32::from_ne_bytes(preamble[..4].try_into().unwrap())
}

fn signed(_preamble: &[u8], len: u64) -> Result<(), u64> {
    if len == LEN as u64 { Ok(()) } else { Err(len) }
}

/// Any first word but zero is a signature here.
fn is_segment(preamble: &[u8]) -> bool {
    preamble.len() >= 4 && signature(preamble) != 0
}

fn request(name: &str) -> CreateRequest<'_> {
    CreateRequest { name, len: LEN, signature: b"new!", is_segment }
}

fn create_in(
    directory: &Path,
    name: &str,
    init: impl FnMut(&Mapping),
    mode: CreateMode,
) -> Result<Created, CreateError> {
    super::create_in(directory, request(name), init, &[mode])
}

fn create(name: &str, len: usize, init: impl FnMut(&Mapping)) -> Result<Created, CreateError> {
    super::create(CreateRequest { len, ..request(name) }, init)
}

fn open<E>(
    name: &str,
    validate: impl FnMut(&[u8], u64) -> Result<(), E>,
    deadline: Option<Instant>,
) -> Result<Mapping, OpenError<E>> {
    super::open(name, is_segment, validate, deadline, None)
}

fn in_time() -> Option<Instant> {
    Some(Instant::now() + LIMIT)
}

fn soon() -> Option<Instant> {
    Some(Instant::now() + Duration::from_millis(20))
}

fn create_signed(name: &str, mode: CreateMode) -> Result<Created, CreateError> {
    let _no_spawning = no_spawning();
    create_in(Path::new(file::DIRECTORY), name, write_pid, mode)
}

fn last_seen(name: &str) -> LastSeen {
    match open(name, signed, soon()) {
        Err(OpenError::TimedOut { last, .. }) => last,
        other => panic!("{other:?}"),
    }
}

/// Keeps the name and drops the lock, as if the creator had been killed.
fn abandon(created: Created) {
    std::mem::forget(created.link);
    drop(created.mapping);
}

/// The regions and drafts of a job.
fn other_files(name: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(file::DIRECTORY).unwrap().map(|entry| entry.unwrap());
    let kind = |entry: &fs::DirEntry| names::kind(name, entry.file_name().to_str()?);
    let is_other = |entry: &fs::DirEntry| matches!(kind(entry), Some(names::Kind::Region | names::Kind::Draft));
    entries.filter(is_other).map(|entry| entry.path()).collect()
}
