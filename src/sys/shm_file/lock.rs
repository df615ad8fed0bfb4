//! The lock that says who is at work on a segment's file.
//!
//! It is a lock of the open file, so it holds for as long as the file is open or mapped, and ends with the process in
//! any case. Its length tells a job, which keeps it, from someone who is about to unlink the file of a dead job: a
//! rank that joins must not take the second for the first.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// How many bytes each locks, from the first.
const JOB: libc::off_t = 1;
const RECLAIMER: libc::off_t = 2;

/// Who holds the lock of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// Nobody: the job is dead.
    Nobody,
    /// A live job.
    Job,
    /// Someone who is removing what a dead job has left.
    Reclaimer,
}

/// Takes the lock as a job. False: someone has it.
pub(super) fn claim(file: &File) -> io::Result<bool> {
    set(file, JOB)
}

/// Takes the lock in order to remove the file. False: someone has it.
pub(super) fn reclaim(file: &File) -> io::Result<bool> {
    set(file, RECLAIMER)
}

/// Finds out who has the lock, without taking it.
pub(super) fn holder(file: &File) -> io::Result<Holder> {
    let mut lock = describe(JOB);
    // SAFETY: I7: the descriptor is open and the description is ours to write into.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_GETLK, &raw mut lock) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(match (lock.l_type == libc::F_UNLCK as libc::c_short, lock.l_len) {
        (true, _) => Holder::Nobody,
        (false, JOB) => Holder::Job,
        (false, _) => Holder::Reclaimer,
    })
}

fn set(file: &File, len: libc::off_t) -> io::Result<bool> {
    let lock = describe(len);
    // SAFETY: I7: the descriptor is open and the description outlives the call.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if result >= 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) { Ok(false) } else { Err(error) }
}

fn describe(len: libc::off_t) -> libc::flock {
    // SAFETY: I7: a plain structure of integers, for which zeros are valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    // These constants are `c_int` on one system and `c_short` on another.
    lock.l_type = libc::F_WRLCK as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_len = len;
    lock
}

/// Locks all of a file, as no job does.
#[cfg(test)]
pub(super) fn claim_all_for_tests(file: &File) -> bool {
    set(file, 0).expect("the lock of a file")
}
