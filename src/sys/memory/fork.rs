//! Knowing that this process is a forked child.

use std::cell::UnsafeCell;
use std::io;
use std::process;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use super::pages;

/// What the page holds. The kernel gives a forked child a page of zeros instead.
const WIPED: u32 = 0;
const MARKED: u32 = 1;
/// The kernel refused to wipe: process ids are compared.
const COMPARED: u32 = 2;

/// Tells whether this process was forked after the guard was made.
///
/// Comparing process ids costs a system call each time, and a grandchild can have the id of its grandparent. A page
/// that the kernel wipes in a child costs one load. Where there is no such page, process ids have to do.
#[derive(Debug)]
pub(crate) struct ForkGuard {
    page: *mut u8,
    pid: u32,
}

// SAFETY: I5: the page is only ever used as an atomic word, and belongs to this guard.
unsafe impl Send for ForkGuard {}
// SAFETY: I5: as above.
unsafe impl Sync for ForkGuard {}

impl ForkGuard {
    /// A guard for the process that calls.
    pub(crate) fn new() -> io::Result<Self> {
        Self::with(wipe_on_fork)
    }

    fn with(wipe_on_fork: impl FnOnce(*mut u8) -> bool) -> io::Result<Self> {
        let page = pages::map(size_of::<AtomicU32>(), libc::MAP_PRIVATE | libc::MAP_ANON, -1)?;
        let guard = ForkGuard { page, pid: process::id() };
        let mark = if wipe_on_fork(page) { MARKED } else { COMPARED };
        guard.word().store(mark, Ordering::Relaxed);
        Ok(guard)
    }

    /// Whether this process is a forked child of the one that made the guard.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        match self.word().load(Ordering::Relaxed) {
            MARKED => false,
            WIPED => true,
            _ => process::id() != self.pid,
        }
    }

    #[inline]
    fn word(&self) -> &AtomicU32 {
        // SAFETY: I5: the page is aligned, readable and writable for as long as the guard lives, in a child too.
        unsafe { &*self.page.cast::<AtomicU32>() }
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        // SAFETY: I5: `new` mapped it, a child has it too, and nothing refers to it any more.
        unsafe { pages::unmap(self.page, size_of::<AtomicU32>()) };
    }
}

/// Does something during which no other thread of this process forks: a mapping exists for a moment before it is withheld
/// from children. Not against system calls that go past the C library's `fork`.
pub(super) fn while_nobody_forks<R>(work: impl FnOnce() -> R) -> R {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: I5: the three keep to what a fork's handlers may do. Where there is no memory to note them down, a child
        // may get a mapping that it does not touch.
        let _ = unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(unlock)) };
    });
    struct Unlock;
    impl Drop for Unlock {
        fn drop(&mut self) {
            unlock();
        }
    }
    lock();
    let _unlock = Unlock;
    work()
}

/// Held while this process forks, and by who must not be disturbed by that. In the child it is held by the thread that has
/// forked, which is the only one there.
struct Forking(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: I5: a mutex is made for use by several threads.
unsafe impl Sync for Forking {}

static FORKING: Forking = Forking(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

extern "C" fn lock() {
    // SAFETY: I5: initialised, never moved, and not held by this thread, which does not fork while it holds it.
    unsafe { libc::pthread_mutex_lock(FORKING.0.get()) };
}

extern "C" fn unlock() {
    // SAFETY: I5: held by this thread, or, in a child, by the one that it is a copy of.
    unsafe { libc::pthread_mutex_unlock(FORKING.0.get()) };
}

#[cfg(target_os = "linux")]
fn wipe_on_fork(page: *mut u8) -> bool {
    const UNKNOWN: libc::c_int = -1;
    let advise = |advice| {
        // SAFETY: I5: a private anonymous page of ours.
        unsafe { libc::madvise(page.cast(), size_of::<AtomicU32>(), advice) == 0 }
    };
    // An emulator such as qemu-user says yes to any advice, and does not wipe. A kernel refuses what it does not know.
    !advise(UNKNOWN) && advise(libc::MADV_WIPEONFORK)
}

#[cfg(not(target_os = "linux"))]
fn wipe_on_fork(_page: *mut u8) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::in_forked_child;

    #[test]
    fn a_forked_child_is_told_and_its_parent_is_not() {
        let guard = ForkGuard::new().unwrap();
        assert!(!guard.forked());
        assert!(in_forked_child(|| guard.forked()));
        assert!(!guard.forked());
    }

    #[test]
    fn where_the_kernel_refuses_to_wipe_process_ids_tell() {
        let guard = ForkGuard::with(|_| false).unwrap();
        assert_eq!(guard.word().load(Ordering::Relaxed), COMPARED);
        assert!(!guard.forked());
        assert!(in_forked_child(|| guard.forked()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_wipes() {
        let guard = ForkGuard::new().unwrap();
        assert_eq!(guard.word().load(Ordering::Relaxed), MARKED);
    }

    #[test]
    fn a_child_can_drop_its_copy_and_have_its_own() {
        let mut guard = Some(ForkGuard::new().unwrap());
        assert!(in_forked_child(|| {
            drop(guard.take());
            ForkGuard::new().is_ok_and(|own| !own.forked())
        }));
        assert!(!guard.as_ref().unwrap().forked());
    }
}
