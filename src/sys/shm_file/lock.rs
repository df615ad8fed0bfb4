//! The open file description lock on a segment's file.
//!
//! It holds while the file is open or mapped, and ends with the process. Its length distinguishes a job, which keeps it,
//! from a process that is removing a stale file: a joining rank must not take the latter for a live job.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// The number of bytes that each locks, from the first.
const JOB: libc::off_t = 1;
const RECLAIMER: libc::off_t = 2;

/// The holder of a file's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// No process: the job is dead.
    Nobody,
    /// A live job.
    Job,
    /// A process that is removing a stale file.
    Reclaimer,
}

/// Locks the file as a job. Returns false if it is locked already.
pub(super) fn claim(file: &File) -> io::Result<bool> {
    set(file, JOB)
}

/// Locks the file in order to remove it. Returns false if it is locked already.
pub(super) fn reclaim(file: &File) -> io::Result<bool> {
    set(file, RECLAIMER)
}

/// Reads who holds the lock, without locking.
pub(super) fn holder(file: &File) -> io::Result<Holder> {
    let mut lock = describe(JOB);
    // SAFETY: I7: the descriptor is open and the structure is live.
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
    // SAFETY: I7: the descriptor is open and the structure is live.
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
    // The constants are `c_int` on one system and `c_short` on another.
    lock.l_type = libc::F_WRLCK as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_len = len;
    lock
}

/// Locks the whole file, which no job does.
#[cfg(test)]
pub(super) fn claim_all_for_tests(file: &File) -> bool {
    set(file, 0).expect("the lock of a file")
}
