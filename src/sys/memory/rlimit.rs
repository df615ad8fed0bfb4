//! The limits of getrlimit(2) that concern memory.
//!
//! A large mapping that fails is an error. But one that succeeds and exhausts the limit makes the next small allocation
//! fail, in this library, in the program, or in a thread that starts, which ends the process or blocks it for ever. So the
//! limits are read before each large mapping, and a [`RESERVE`] stays free.

use std::fs;

use super::headroom::{Headroom, Limit};
use super::pages::page_size;

/// Stays free for starting the watcher's thread (measured: 270 KiB with its stack), and for what a call allocates.
const RESERVE: u64 = 1 << 20;

/// The memory of a thread that the standard library starts: 2 MiB of stack by default, and what starting it takes.
pub(crate) const THREAD: u64 = 3 << 20;

/// The largest size of a file; `None` without a limit.
pub(crate) fn file_size() -> Option<Headroom> {
    soft(libc::RLIMIT_FSIZE).map(|bytes| Headroom { bytes, limit: Limit::FileSize })
}

/// The limit that forbids to map `shared` and `private` bytes more; `None`: there is room, or the usage is unknown.
pub(crate) fn refuses(shared: u64, private: u64) -> Option<Headroom> {
    let limits = [
        (libc::RLIMIT_AS, Limit::Mapped, MAPPED, shared.saturating_add(private)),
        (libc::RLIMIT_DATA, Limit::Data, DATA, private),
    ];
    limits.into_iter().find_map(|(resource, limit, field, needed)| {
        let remaining = remaining(soft(resource)?, used(field)?);
        let is_exceeded = remaining.is_none_or(|remaining| remaining < needed);
        is_exceeded.then_some(Headroom { bytes: remaining.unwrap_or(0), limit })
    })
}

/// What a limit leaves besides the reserve; `None`: less than the reserve.
fn remaining(limit: u64, used: u64) -> Option<u64> {
    limit.checked_sub(used.checked_add(RESERVE)?)
}

/// Fields of `/proc/self/statm`: all mappings, and data. The latter includes the stack, which RLIMIT_DATA does not count.
const MAPPED: usize = 0;
const DATA: usize = 5;

/// The bytes in a field of `/proc/self/statm`.
fn used(field: usize) -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages = text.split_ascii_whitespace().nth(field)?.parse::<u64>().ok()?;
    pages.checked_mul(page_size() as u64)
}

/// The type of the RLIMIT constants, which differs between C libraries.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
type Resource = libc::c_int;

/// The most descriptors of this process; `None` if there is no limit.
#[cfg(target_os = "linux")]
pub(crate) fn descriptors() -> Option<u64> {
    soft(libc::RLIMIT_NOFILE)
}

/// The soft limit; `None` if it is infinite.
fn soft(resource: Resource) -> Option<u64> {
    // Miri does not know them.
    if cfg!(miri) {
        return None;
    }
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: I7: it writes a live limit, or fails.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing;

    #[test]
    fn without_limits_nothing_is_refused() {
        for resource in [libc::RLIMIT_AS, libc::RLIMIT_DATA] {
            if let Some(limit) = soft(resource) {
                return testing::skipped(format_args!("this process has a limit of {limit} bytes"));
            }
        }
        assert_eq!(refuses(1 << 60, 1 << 60), None);
    }

    #[test]
    fn the_reserve_stays_free() {
        assert_eq!(remaining(RESERVE + 10, 3), Some(7));
        assert_eq!(remaining(RESERVE + 3, 3), Some(0));
        assert_eq!(remaining(RESERVE + 2, 3), None);
        assert_eq!(remaining(u64::MAX, u64::MAX), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_mapping_counts_as_used() {
        use crate::sys::memory::mapping::Mapping;
        const LEN: usize = 1 << 30;
        let before = [MAPPED, DATA].map(|field| used(field).unwrap());
        let mapping = Mapping::anonymous(LEN).unwrap();
        let after = [MAPPED, DATA].map(|field| used(field).unwrap());
        drop(mapping);
        // Other tests map less in the meantime.
        for (before, after) in before.into_iter().zip(after) {
            assert!(after > before + LEN as u64 / 2, "{before}, then {after}");
        }
    }
}
