//! Descriptors that no part of a program takes for its standard streams.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Takes over a file or socket that was just opened.
///
/// A process that was started without standard streams, or has closed them, gets their numbers for what it opens next. What any part of
/// it, or this library, then writes to standard error would be written into shared memory, or sent to a peer. So they are left free.
pub(crate) fn beyond_standard<D: AsRawFd + From<OwnedFd> + Into<OwnedFd>>(opened: D) -> io::Result<D> {
    if opened.as_raw_fd() > libc::STDERR_FILENO {
        return Ok(opened);
    }
    // The standard library clones to numbers behind the standard streams.
    Ok(opened.into().try_clone()?.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::in_forked_child;

    #[test]
    fn the_numbers_of_the_standard_streams_stay_free() {
        assert!(in_forked_child(|| {
            let close = |number| {
                // SAFETY: I7: the child's own, which it does not use.
                unsafe { libc::close(number) }
            };
            let is_open = |number| {
                // SAFETY: I7: touches no memory.
                unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
            };
            (0..=2).for_each(|number| _ = close(number));
            let file = std::fs::File::open("/dev/null").and_then(beyond_standard);
            file.is_ok_and(|file| file.as_raw_fd() > 2) && (0..=2).all(|number| !is_open(number))
        }));
    }
}
