//! Whether the peers' processes still exist: what counts when a word has been overwritten.
//!
//! A process's number is looked up once, when the peer has just come; from then on a descriptor stands for it, and can
//! not come to mean another process. Peers in another space of process numbers, as in a container of its own, are left
//! out: their numbers mean nothing here.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use crate::layout::MAX_PAIRED;
use crate::sys::world::World;

/// The processes of the peers.
pub(super) struct Processes {
    /// The space of this process; `None` if it is not known, or there are too many peers to hold a descriptor of each.
    space: Option<u32>,
    opened: Vec<Option<OwnedFd>>,
}

impl Processes {
    /// Announces the space of this process, which has claimed `rank`.
    pub(super) fn new(world: &World, rank: usize) -> Self {
        let ranks = world.layout().ranks();
        let space = space().filter(|_| ranks <= MAX_PAIRED);
        if let Some(space) = space {
            // With the claim.
            world.space(rank).store(space, Ordering::Release);
        }
        Processes { space, opened: (0..ranks).map(|_| None).collect() }
    }

    /// Whether the process of a peer has ended. Not if it has not come yet, or there is no telling.
    pub(super) fn ended(&mut self, world: &World, peer: usize) -> bool {
        let Some(space) = self.space else { return false };
        if world.space(peer).load(Ordering::Acquire) != space {
            return false;
        }
        let opened = &mut self.opened[peer];
        if opened.is_none() {
            match open(world.segment().claims[peer].load(Ordering::Relaxed)) {
                Ok(descriptor) => *opened = Some(descriptor),
                Err(error) => return error.raw_os_error() == Some(libc::ESRCH),
            }
        }
        opened.as_ref().is_some_and(is_ready)
    }
}

/// The space in which this process has its number: the namespace's own number.
fn space() -> Option<u32> {
    let number = fs::metadata("/proc/self/ns/pid").ok()?.ino();
    u32::try_from(number).ok().filter(|number| *number != 0)
}

fn open(process: u32) -> io::Result<OwnedFd> {
    // SAFETY: I7: touches no memory.
    let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
    if descriptor < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: I7: a descriptor that was just opened, and that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as _) })
}

/// The descriptor of a process can be read when the process has ended.
fn is_ready(process: &OwnedFd) -> bool {
    let mut poll = libc::pollfd { fd: process.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: I7: one live entry.
    unsafe { libc::poll(&raw mut poll, 1, 0) > 0 }
}
