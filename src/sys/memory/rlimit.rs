//! The limits of getrlimit(2) that memory meets.
//!
//! Where one leaves too little, a mapping fails, which is an error; but so does what allocates a few bytes more, in this
//! library, in the program, or in a thread that starts: and that ends the process, or keeps it waiting for ever. So
//! whoever maps asks first, and leaves a [`RESERVE`].

use std::fs;

use super::headroom::{Headroom, Limit};
use super::pages::page_size;

/// What stays free for the stack of a watcher's thread, for what the system and the C library need to start it (measured:
/// 270 KiB with its stack), and for what a call allocates for itself.
const RESERVE: u64 = 1 << 20;

/// What a thread takes that the standard library starts: 2 MiB of stack, unless the environment says otherwise, and what it
/// needs to start.
pub(crate) const THREAD: u64 = 3 << 20;

/// How long a file may become; `None`: there is no limit.
pub(crate) fn file_size() -> Option<Headroom> {
    soft(libc::RLIMIT_FSIZE).map(|bytes| Headroom { bytes, limit: Limit::FileSize })
}

/// The limit that leaves no room to map so much memory that is shared, and so much of this process alone; `None`: there
/// is room, or no telling.
pub(crate) fn refuses(shared: u64, private: u64) -> Option<Headroom> {
    let limits = [
        (libc::RLIMIT_AS, Limit::Mapped, MAPPED, shared.saturating_add(private)),
        (libc::RLIMIT_DATA, Limit::Data, DATA, private),
    ];
    limits.into_iter().find_map(|(resource, limit, field, wanted)| {
        let left = left(soft(resource)?, used(field)?);
        left.is_none_or(|left| left < wanted).then_some(Headroom { bytes: left.unwrap_or(0), limit })
    })
}

/// What is left beside the reserve; `None`: not even that.
fn left(limit: u64, used: u64) -> Option<u64> {
    limit.checked_sub(used.checked_add(RESERVE)?)
}

/// Where `/proc/self/statm` has what is mapped, and what of that is data. It counts the stack as data, which is more than
/// the limit does.
const MAPPED: usize = 0;
const DATA: usize = 5;

/// How many bytes this process uses of what a limit counts.
fn used(field: usize) -> Option<u64> {
    let text = fs::read_to_string("/proc/self/statm").ok()?;
    let pages = text.split_ascii_whitespace().nth(field)?.parse::<u64>().ok()?;
    pages.checked_mul(page_size() as u64)
}

/// What the C library calls the type of these constants differs between systems.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
type Resource = libc::__rlimit_resource_t;
#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
type Resource = libc::c_int;

/// The limit that holds; `None`: there is none.
fn soft(resource: Resource) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: I7: it writes a live limit, or fails.
    unsafe { libc::getrlimit(resource, &raw mut limit) };
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_limits_nothing_is_refused() {
        for resource in [libc::RLIMIT_AS, libc::RLIMIT_DATA] {
            if let Some(limit) = soft(resource) {
                return println!("SKIPPED: this process has a limit of {limit} bytes");
            }
        }
        assert_eq!(refuses(1 << 60, 1 << 60), None);
    }

    #[test]
    fn what_is_left_leaves_the_reserve() {
        assert_eq!(left(RESERVE + 10, 3), Some(7));
        assert_eq!(left(RESERVE + 3, 3), Some(0));
        assert_eq!(left(RESERVE + 2, 3), None);
        assert_eq!(left(u64::MAX, u64::MAX), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn what_is_used_grows_with_what_is_mapped() {
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
