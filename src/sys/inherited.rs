//! Descriptors that a forked child inherits, and must not keep: it would keep the memory of its parent's files after its parent's
//! death. They are closed in the child before `fork` returns there.
//!
//! The list of them only grows, and entries are used again, so that a child can walk it as its parent's other threads have left it:
//! it makes system calls only. A child of the bare system call runs no handlers, and keeps what it has inherited.

use std::fs::File;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd, RawFd};
use std::os::unix::fs::MetadataExt;
use std::sync::OnceLock;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicU64};

/// What an entry has in place of a descriptor.
const FREE: RawFd = -1;
/// An owner writes it.
const TAKEN: RawFd = -2;
/// This is a child, in which the descriptor was closed. Its owner's copy still has the entry.
const CLOSED: RawFd = -3;

/// A descriptor that is closed in forked children, as long as it is the same file.
#[derive(Debug)]
pub(crate) struct Inherited {
    descriptor: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    next: OnceLock<&'static Inherited>,
}

// Relaxed is enough: `fork` copies what the thread that forks sees, and no other thread writes an entry meanwhile.
impl Inherited {
    const fn new() -> Self {
        Inherited {
            descriptor: AtomicI32::new(FREE),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            next: OnceLock::new(),
        }
    }

    fn take(&self) -> bool {
        self.descriptor.compare_exchange(FREE, TAKEN, Relaxed, Relaxed).is_ok()
    }

    /// Whether this process has the descriptor, as far as this library has closed it.
    pub(crate) fn is_open(&self) -> bool {
        self.descriptor.load(Relaxed) != CLOSED
    }

    /// Its owner has closed it, and has kept other threads from forking from before that until this returns.
    pub(crate) fn release(&self) {
        self.descriptor.store(FREE, Relaxed);
    }

    fn close_in_child(&self) {
        let descriptor = self.descriptor.load(Relaxed);
        if descriptor < 0 {
            return;
        }
        // SAFETY: I5: it is closed only if it still is the file that was noted, whose owner does not use it any more in this
        // process; else it is only looked at.
        let file = ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) });
        let noted = (self.device.load(Relaxed), self.inode.load(Relaxed));
        self.descriptor.store(CLOSED, Relaxed);
        if file.metadata().is_ok_and(|found| (found.dev(), found.ino()) == noted) {
            drop(ManuallyDrop::into_inner(file));
        }
    }
}

static FIRST: Inherited = Inherited::new();

/// Notes an open file of this device and inode. The caller keeps other threads from forking from before it was opened until this returns.
pub(crate) fn note(file: &File, device: u64, inode: u64) -> &'static Inherited {
    let mut entry = &FIRST;
    while !entry.take() {
        entry = entry.next.get_or_init(|| Box::leak(Box::new(Inherited::new())));
    }
    entry.device.store(device, Relaxed);
    entry.inode.store(inode, Relaxed);
    entry.descriptor.store(file.as_raw_fd(), Relaxed);
    entry
}

/// In a forked child, by its only thread: closes them all. Async-signal-safe.
pub(crate) fn close_in_child() {
    let mut next = Some(&FIRST);
    while let Some(entry) = next {
        entry.close_in_child();
        next = entry.next.get().copied();
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use crate::sys::testing::in_forked_child;

    #[test]
    fn a_child_closes_what_was_noted_and_no_other_file_of_that_number() {
        let file = File::open("/dev/null").unwrap();
        let found = file.metadata().unwrap();
        for (inode, is_it) in [(found.ino(), true), (found.ino() + 1, false)] {
            let entry = note(&file, found.dev(), inode);
            assert!(in_forked_child(|| {
                close_in_child();
                file.metadata().is_err() == is_it && !entry.is_open()
            }));
            assert!(entry.is_open() && file.metadata().is_ok());
            entry.release();
        }
    }
}
