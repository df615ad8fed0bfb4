//! Waiting for any of many descriptors: epoll, level-triggered.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// A set of descriptors, and a descriptor itself: readable when one of them is, or when one is closed by its other side.
#[derive(Debug)]
pub(crate) struct Epoll(OwnedFd);

/// The most descriptors of one [`Epoll::wait`].
pub(crate) const BATCH: usize = 64;

impl Epoll {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: I7: touches no memory.
        let descriptor = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: I7: a descriptor that was just opened, and that has no other owner.
        Ok(Epoll(unsafe { OwnedFd::from_raw_fd(descriptor) }))
    }

    /// Adds a descriptor, which is known by this key until it is removed.
    pub(crate) fn add(&self, descriptor: BorrowedFd<'_>, key: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: key };
        self.control(libc::EPOLL_CTL_ADD, descriptor, &mut event)
    }

    /// Whether a descriptor that was added counts. One that does not is there all the same, and known by its key.
    pub(crate) fn heed(&self, descriptor: BorrowedFd<'_>, key: u64, counts: bool) {
        let events = if counts { libc::EPOLLIN as u32 } else { 0 };
        // It only fails if it was not added.
        let _ = self.control(libc::EPOLL_CTL_MOD, descriptor, &mut libc::epoll_event { events, u64: key });
    }

    /// Removes a descriptor. To close it is not enough where a forked child has it too.
    pub(crate) fn remove(&self, descriptor: BorrowedFd<'_>) {
        let mut event = libc::epoll_event { events: 0, u64: 0 };
        // An error would mean that it is not there.
        let _ = self.control(libc::EPOLL_CTL_DEL, descriptor, &mut event);
    }

    fn control(
        &self,
        operation: libc::c_int,
        descriptor: BorrowedFd<'_>,
        event: &mut libc::epoll_event,
    ) -> io::Result<()> {
        // SAFETY: I7: a live event.
        let result = unsafe { libc::epoll_ctl(self.0.as_raw_fd(), operation, descriptor.as_raw_fd(), event) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// The keys of those that are ready, up to [`BATCH`]; waits for the first at most for so long, without limit if there is none. A
    /// signal ends the wait early.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<Vec<u64>> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; BATCH];
        // Rounded up: a wait is not shorter than asked for.
        let milliseconds = timeout.map_or(-1, |timeout| {
            libc::c_int::try_from(timeout.as_nanos().div_ceil(1_000_000)).unwrap_or(libc::c_int::MAX)
        });
        let (start, len) = (events.as_mut_ptr(), BATCH as libc::c_int);
        // SAFETY: I7: live events, of the stated number.
        let count = unsafe { libc::epoll_wait(self.0.as_raw_fd(), start, len, milliseconds) };
        let Ok(count) = usize::try_from(count) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted { Ok(Vec::new()) } else { Err(error) };
        };
        Ok(events[..count].iter().map(|event| event.u64).collect())
    }
}

impl AsFd for Epoll {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use crate::sys::testing::is_closed_by_exec;

    #[test]
    fn what_is_readable_or_closed_is_found_until_it_is_removed() {
        let epoll = Epoll::new().unwrap();
        assert!(is_closed_by_exec(&epoll));
        let (own, mut other) = UnixStream::pair().unwrap();
        epoll.add(own.as_fd(), 7).unwrap();
        assert_eq!(epoll.wait(Some(Duration::ZERO)).unwrap(), []);
        other.write_all(b"x").unwrap();
        assert_eq!(epoll.wait(None).unwrap(), [7]);
        epoll.heed(own.as_fd(), 7, false);
        assert_eq!(epoll.wait(Some(Duration::ZERO)).unwrap(), []);
        epoll.heed(own.as_fd(), 7, true);
        assert_eq!(epoll.wait(None).unwrap(), [7]);
        (&own).read_exact(&mut [0]).unwrap();
        assert_eq!(epoll.wait(Some(Duration::ZERO)).unwrap(), []);
        drop(other);
        assert_eq!(epoll.wait(None).unwrap(), [7]);
        epoll.remove(own.as_fd());
        assert_eq!(epoll.wait(Some(Duration::from_millis(1))).unwrap(), []);
    }
}
