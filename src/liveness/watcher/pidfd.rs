//! Whether the other ranks' processes still exist: what counts when a word has been overwritten.
//!
//! A process's number is looked up once, when its rank is near for the first time; from then on a descriptor stands for it,
//! and cannot come to mean another process. Ranks in another PID namespace, as in a container of its own, are left out:
//! their numbers mean nothing here.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::Ordering;

use crate::segment::layout::WATCHERS;
use crate::segment::mapped::MappedSegment;

/// The processes of some ranks.
pub(super) struct Processes {
    /// The PID namespace of this process; `None` if it is not known.
    space: Option<u32>,
    opened: Vec<(usize, OwnedFd)>,
}

impl Processes {
    /// Announces the PID namespace of this process, which has claimed `rank`.
    pub(super) fn new(world: &MappedSegment, rank: usize) -> Self {
        let space = space();
        if let Some(space) = space {
            // With the claim.
            world.space(rank).store(space, Ordering::Release);
        }
        Processes { space, opened: Vec::new() }
    }

    /// Those of the first few of these ranks in this process's namespace whose processes have ended.
    pub(super) fn ended(&mut self, world: &MappedSegment, ranks: impl Iterator<Item = usize>) -> Vec<usize> {
        let Some(space) = self.space else { return Vec::new() };
        let mut known = std::mem::take(&mut self.opened);
        let mut ended = Vec::new();
        let near = ranks.filter(|rank| world.space(*rank).load(Ordering::Acquire) == space);
        for rank in near.take(WATCHERS) {
            let descriptor = match known.iter().position(|(known, _)| *known == rank) {
                Some(index) => Ok(known.swap_remove(index).1),
                None => open(world.segment().claims[rank].load(Ordering::Relaxed)),
            };
            match descriptor {
                Ok(descriptor) => self.opened.push((rank, descriptor)),
                Err(error) if error.raw_os_error() == Some(libc::ESRCH) => ended.push(rank),
                // There is no telling.
                Err(_) => {}
            }
        }
        let poll = |(_, process): &(usize, OwnedFd)| libc::pollfd {
            fd: process.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        let mut polls: Vec<_> = self.opened.iter().map(poll).collect();
        // SAFETY: I7: live entries, of the number that is stated.
        unsafe { libc::poll(polls.as_mut_ptr(), polls.len() as libc::nfds_t, 0) };
        // The descriptor of a process can be read when the process has ended.
        let ready = self.opened.iter().zip(&polls).filter(|(_, poll)| poll.revents != 0);
        ended.extend(ready.map(|((rank, _), _)| *rank));
        ended
    }
}

/// The namespace in which this process has its number.
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
