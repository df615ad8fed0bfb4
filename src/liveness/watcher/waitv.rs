//! Sleeping on several words at once: `futex_waitv`.

use core::ptr;
use core::sync::atomic::AtomicU32;
use std::io;

use crate::sys::wait::clock::Moment;

/// `futex_waitv` failed: the kernel is older than 5.16, or a seccomp filter refuses it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refused;

/// The kernel's `struct futex_waitv`.
#[repr(C)]
struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// The kernel's `struct __kernel_timespec`: 64 bits even where `time_t` has 32.
#[repr(C)]
struct Timespec {
    seconds: i64,
    nanoseconds: i64,
}

/// The words to sleep on, each with the value that was read.
#[derive(Default)]
pub(super) struct WaitList(Vec<Waiter>);

impl WaitList {
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn push(&mut self, word: &AtomicU32, seen: u32) {
        let address = word.as_ptr().expose_provenance() as u64;
        // Without FUTEX2_PRIVATE: the words are shared between processes.
        let flags = libc::FUTEX2_SIZE_U32 as u32;
        self.0.push(Waiter { value: seen.into(), address, flags, reserved: 0 });
    }

    /// Sleeps while all words have the values that were read, at most until the deadline. May return at any time.
    pub(super) fn wait(&self, until: Option<Moment>) -> Result<(), Refused> {
        let until = until.map(|until| {
            let (seconds, nanoseconds) = until.split();
            Timespec { seconds, nanoseconds }
        });
        let until = until.as_ref().map_or(ptr::null(), ptr::from_ref);
        // SAFETY: I7: the list is live and of this length, the time is null or live; the call writes nothing. An unmapped
        // address would be an error.
        let status = unsafe {
            libc::syscall(libc::SYS_futex_waitv, self.0.as_ptr(), self.0.len(), 0, until, libc::CLOCK_MONOTONIC)
        };
        if status >= 0 {
            return Ok(());
        }
        match io::Error::last_os_error().raw_os_error() {
            // A word has changed, the deadline has passed, or a signal was handled.
            Some(libc::EAGAIN | libc::ETIMEDOUT | libc::EINTR) => Ok(()),
            _ => Err(Refused),
        }
    }
}
