//! A descriptor that becomes readable after some time: timerfd.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use crate::sys::descriptors::beyond_standard;

/// Readable from the end of the time that was set last.
#[derive(Debug)]
pub(crate) struct Timer(OwnedFd);

impl Timer {
    /// No time is set.
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::TFD_CLOEXEC | libc::TFD_NONBLOCK;
        // SAFETY: I7: touches no memory.
        let descriptor = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: I7: a descriptor that was just opened, and that has no other owner.
        beyond_standard(unsafe { OwnedFd::from_raw_fd(descriptor) }).map(Timer)
    }

    /// Sets the time, from now on, at most a second less a nanosecond; none if it is zero. It is not readable until then.
    pub(crate) fn set(&self, time: Duration) {
        let zero = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec { tv_sec: 0, tv_nsec: time.subsec_nanos() as _ };
        let times = libc::itimerspec { it_interval: zero, it_value: value };
        // SAFETY: I7: a live value, and none is asked for. It cannot fail with a timer and such a time.
        unsafe { libc::timerfd_settime(self.0.as_raw_fd(), 0, &raw const times, core::ptr::null_mut()) };
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::sys::epoll::Epoll;
    use crate::sys::testing::is_closed_by_exec;

    #[test]
    fn a_timer_is_readable_after_its_time_until_it_is_set_again() {
        let (epoll, timer) = (Epoll::new().unwrap(), Timer::new().unwrap());
        assert!(is_closed_by_exec(&timer));
        epoll.add(timer.as_fd(), 7).unwrap();
        assert_eq!(epoll.wait(Some(Duration::from_millis(1))).unwrap(), []);
        timer.set(Duration::from_millis(1));
        assert_eq!(epoll.wait(None).unwrap(), [7]);
        timer.set(Duration::ZERO);
        assert_eq!(epoll.wait(Some(Duration::from_millis(2))).unwrap(), []);
    }
}
