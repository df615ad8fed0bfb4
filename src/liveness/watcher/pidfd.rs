//! Detects by pidfds that another rank's process has ended, in case its liveness word was overwritten.
//!
//! A pidfd is opened when its rank is first among the neighbours. Unlike a process id, it never refers to another process.
//! Ranks in another PID namespace, as in a container of their own, are skipped: their process ids mean nothing here.

use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::ptr;
use std::sync::atomic::Ordering;

use crate::segment::layout::WATCHERS;
use crate::segment::mapped::MappedSegment;

/// The pidfds of some ranks.
pub(super) struct Processes {
    /// The PID namespace of this process; `None` if it is unknown.
    namespace: Option<u32>,
    open: Vec<(usize, ProcessFd)>,
}

impl Processes {
    /// Publishes the PID namespace of this process, which has claimed `rank`.
    pub(super) fn new(mapped: &MappedSegment, rank: usize) -> Self {
        let namespace = pid_namespace();
        if let Some(namespace) = namespace {
            // Release: the claim is visible before it.
            mapped.pid_namespace(rank).store(namespace, Ordering::Release);
        }
        Processes { namespace, open: Vec::new() }
    }

    /// Polls the first [`WATCHERS`] of these ranks in this process's namespace. Returns those whose processes have ended.
    pub(super) fn ended(&mut self, mapped: &MappedSegment, ranks: impl Iterator<Item = usize>) -> Vec<usize> {
        let Some(namespace) = self.namespace else { return Vec::new() };
        let mut previous = mem::take(&mut self.open);
        let mut ended = Vec::new();
        let local = ranks.filter(|rank| mapped.pid_namespace(*rank).load(Ordering::Acquire) == namespace);
        for rank in local.take(WATCHERS) {
            let known = previous.iter().position(|(known, _)| *known == rank);
            let known = known.map(|index| previous.swap_remove(index).1).filter(ProcessFd::is_own);
            let descriptor = match known {
                Some(descriptor) => Ok(descriptor),
                None => pidfd_open(mapped.segment().claims[rank].load(Ordering::Relaxed)),
            };
            match descriptor {
                Ok(descriptor) => self.open.push((rank, descriptor)),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => ended.push(rank),
                // Without a pidfd the process counts as alive.
                Err(_) => {}
            }
        }
        let entry = |(_, process): &(usize, ProcessFd)| libc::pollfd {
            fd: process.number(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut entries: Vec<_> = self.open.iter().map(entry).collect();
        // SAFETY: I7: live entries, of the stated number.
        unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, 0) };
        // A pidfd becomes readable when its process has ended.
        let ready = self.open.iter().zip(&entries).filter(|(_, entry)| entry.revents & libc::POLLIN != 0);
        ended.extend(ready.filter(|((_, process), _)| process.is_own()).map(|((rank, _), _)| *rank));
        ended
    }
}

/// A descriptor of a process. Programs close descriptors that they do not know; what has its number then is theirs.
struct ProcessFd(Option<OwnedFd>);

impl ProcessFd {
    fn number(&self) -> RawFd {
        self.0.as_ref().map_or(-1, AsRawFd::as_raw_fd)
    }

    /// Whether it still is a descriptor of a process.
    fn is_own(&self) -> bool {
        let no_info = ptr::null::<libc::siginfo_t>();
        // SAFETY: I7: signal 0 is only checked, and no structure is passed.
        let result = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.number(), 0, no_info, 0) };
        // Other errors concern the process.
        result == 0 || io::Error::last_os_error().raw_os_error() != Some(libc::EBADF)
    }
}

impl Drop for ProcessFd {
    fn drop(&mut self) {
        if !self.is_own() {
            mem::forget(self.0.take());
        }
    }
}

/// The inode of this process's PID namespace, which identifies it.
fn pid_namespace() -> Option<u32> {
    let inode = fs::metadata("/proc/self/ns/pid").ok()?.ino();
    u32::try_from(inode).ok().filter(|inode| *inode != 0)
}

fn pidfd_open(process: u32) -> io::Result<ProcessFd> {
    // SAFETY: I7: touches no memory.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: I7: a descriptor that was just opened, and that has no other owner.
    Ok(ProcessFd(Some(unsafe { OwnedFd::from_raw_fd(descriptor as _) })))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{await_that, segment};
    use super::*;
    use crate::sys::testing::{end_of, fork, spawning};

    #[test]
    fn a_process_that_nobody_has_waited_for_has_ended_and_polling_keeps_no_descriptors() {
        let mapped = segment(2);
        // Nobody else starts a process, or opens a file for it, meanwhile.
        let _spawning = spawning();
        let mut processes = Processes::new(&mapped, 0);
        let namespace = mapped.pid_namespace(0).load(Ordering::Acquire);
        mapped.pid_namespace(1).store(namespace, Ordering::Release);
        let child = fork(|| true);
        mapped.segment().claims[1].store(child as u32, Ordering::Relaxed);
        await_that("the child has not ended", || processes.ended(&mapped, [1].into_iter()) == [1]);
        let number = processes.open[0].1.number();
        for _ in 0..10 {
            assert_eq!(processes.ended(&mapped, [1].into_iter()), [1]);
            assert_eq!(processes.open[0].1.number(), number, "another descriptor");
        }
        assert!(end_of(child));
    }
}
