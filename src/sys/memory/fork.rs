//! Detecting that this process is a forked child.

use std::cell::UnsafeCell;
use std::io;
use std::process;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};

use super::pages;
use crate::sys::inherited;

/// The values of the page's word. With MADV_WIPEONFORK a forked child finds a page of zeros.
const WIPED: u32 = 0;
const MARKED: u32 = 1;
/// The kernel does not know MADV_WIPEONFORK: process ids are compared.
const COMPARED: u32 = 2;

/// Detects that this process was forked after the guard was made.
///
/// Comparing process ids costs a system call each time, and a grandchild can have the id of its grandparent. A page with
/// MADV_WIPEONFORK costs one load. Process ids are the fallback.
#[derive(Debug)]
pub(crate) struct ForkGuard {
    page: *mut u8,
    pid: u32,
}

// SAFETY: I5: the page is accessed as an atomic word only, and belongs to this guard.
unsafe impl Send for ForkGuard {}
// SAFETY: I5: as above.
unsafe impl Sync for ForkGuard {}

impl ForkGuard {
    /// A guard for the calling process.
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
        // SAFETY: I5: the page is aligned, and readable and writable while the guard lives, in a child too.
        unsafe { &*self.page.cast::<AtomicU32>() }
    }
}

impl Drop for ForkGuard {
    fn drop(&mut self) {
        // SAFETY: I5: `new` has mapped it, a child has a copy, and nothing refers to it any more.
        unsafe { pages::unmap(self.page, size_of::<AtomicU32>()) };
    }
}

/// Runs `work` while no other thread of this process can fork: a mapping exists for a moment before MADV_DONTFORK applies
/// to it, and a descriptor before it is noted to be closed in children. Does not exclude fork system calls that bypass the C library.
pub(in crate::sys) fn with_fork_lock<R>(work: impl FnOnce() -> R) -> R {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // Nothing forks there.
        if cfg!(miri) {
            return;
        }
        // SAFETY: I5: the three functions only lock, unlock and close. If registering fails for want of memory, a child may
        // inherit a mapping, which it does not touch, and descriptors.
        let _ = unsafe { libc::pthread_atfork(Some(lock), Some(unlock), Some(in_child)) };
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

/// Held by a thread that forks, and by one during whose work no other may fork. In the child the only thread, the one that
/// forked, holds it.
struct ForkLock(UnsafeCell<libc::pthread_mutex_t>);

// SAFETY: I5: a mutex may be used by several threads.
unsafe impl Sync for ForkLock {}

static FORK_LOCK: ForkLock = ForkLock(UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER));

extern "C" fn lock() {
    // SAFETY: I5: initialised, never moved, and not held by this thread, which does not fork while it holds it.
    unsafe { libc::pthread_mutex_lock(FORK_LOCK.0.get()) };
}

extern "C" fn unlock() {
    // SAFETY: I5: held by this thread, or, in a child, by the thread of which it is a copy.
    unsafe { libc::pthread_mutex_unlock(FORK_LOCK.0.get()) };
}

extern "C" fn in_child() {
    inherited::close_in_child();
    unlock();
}

#[cfg(all(target_os = "linux", not(miri)))]
fn wipe_on_fork(page: *mut u8) -> bool {
    const UNKNOWN: libc::c_int = -1;
    let advise = |advice| {
        // SAFETY: I5: our own private anonymous page.
        unsafe { libc::madvise(page.cast(), size_of::<AtomicU32>(), advice) == 0 }
    };
    // qemu-user accepts any advice, and does not wipe. A kernel refuses unknown advice.
    !advise(UNKNOWN) && advise(libc::MADV_WIPEONFORK)
}

#[cfg(any(not(target_os = "linux"), miri))]
fn wipe_on_fork(_page: *mut u8) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::testing::in_forked_child;

    #[test]
    fn a_forked_child_is_detected_and_its_parent_is_not() {
        let guard = ForkGuard::new().unwrap();
        assert!(!guard.forked());
        assert!(in_forked_child(|| guard.forked()));
        assert!(!guard.forked());
    }

    #[test]
    fn without_wipe_on_fork_process_ids_are_compared() {
        let guard = ForkGuard::with(|_| false).unwrap();
        assert_eq!(guard.word().load(Ordering::Relaxed), COMPARED);
        assert!(!guard.forked());
        assert!(in_forked_child(|| guard.forked()));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_wipes_on_fork() {
        let guard = ForkGuard::new().unwrap();
        assert_eq!(guard.word().load(Ordering::Relaxed), MARKED);
    }

    #[test]
    fn a_child_can_drop_its_copy_and_make_its_own() {
        let mut guard = Some(ForkGuard::new().unwrap());
        assert!(in_forked_child(|| {
            drop(guard.take());
            ForkGuard::new().is_ok_and(|own| !own.forked())
        }));
        assert!(!guard.as_ref().unwrap().forked());
    }
}
