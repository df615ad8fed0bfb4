//! `CLOCK_MONOTONIC` in nanoseconds, for the kernel's absolute time-outs.

use std::time::Duration;

/// A moment on `CLOCK_MONOTONIC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: I7: the call only writes the timespec that it is given.
        let status = unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
        assert_eq!(status, 0, "every system has the monotonic clock");
        Moment(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
    }

    /// The moment `duration` from now.
    pub(crate) fn after(duration: Duration) -> Self {
        let nanoseconds = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        Moment(Moment::now().0.saturating_add(nanoseconds))
    }

    /// The moment this number of nanoseconds after this one.
    #[cfg(target_os = "linux")]
    pub(crate) fn later(self, nanoseconds: u64) -> Self {
        Moment(self.0.saturating_add(nanoseconds))
    }

    pub(crate) fn has_passed(self) -> bool {
        Moment::now() >= self
    }

    pub(crate) fn nanoseconds(self) -> u64 {
        self.0
    }

    /// Seconds, and the remaining nanoseconds.
    #[cfg(target_os = "linux")]
    pub(crate) fn split(self) -> (i64, i64) {
        ((self.0 / 1_000_000_000) as i64, (self.0 % 1_000_000_000) as i64)
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn timespec(self) -> libc::timespec {
        let seconds = (self.0 / 1_000_000_000).min(libc::time_t::MAX as u64);
        libc::timespec { tv_sec: seconds as libc::time_t, tv_nsec: (self.0 % 1_000_000_000) as _ }
    }
}
