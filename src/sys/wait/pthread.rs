//! Sleeping and waking by a process-shared mutex and condition variable, for systems without cross-process futexes.
//!
//! Condition variables are not robust: a process that dies while it waits can leave callers of broadcast, and sometimes
//! waiters, blocked inside the C library for ever. So every wait ends after 10 ms and reads the word again. Where a rank's
//! death must not block others, the futex wait is needed.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use crate::sys::wait::clock::Moment;
use crate::tuning::{PTHREAD_LOCK_PAUSE, PTHREAD_LOCK_RETRY, PTHREAD_LOCK_YIELDS, PTHREAD_MAX_SLEEP};

/// The size of the memory that [`Pair::init`] and [`Pair::at`] need.
pub(crate) const PAIR_SIZE: usize = size_of::<Pair>();
/// Its alignment.
pub(crate) const PAIR_ALIGN: usize = align_of::<Pair>();

/// A mutex and a condition variable in memory that processes share.
#[repr(C)]
pub(crate) struct Pair {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    condvar: UnsafeCell<libc::pthread_cond_t>,
}

// SAFETY: I1: both may be used by several threads; all access is by the C library's functions.
unsafe impl Send for Pair {}
// SAFETY: I1: as above.
unsafe impl Sync for Pair {}

impl Pair {
    /// Initialises a pair.
    ///
    /// # Safety
    /// [`PAIR_SIZE`] bytes at `at`, aligned to [`PAIR_ALIGN`], are writable, and no other thread or process uses them yet.
    pub(crate) unsafe fn init(at: *mut u8) -> io::Result<()> {
        // SAFETY: the caller's promise.
        let pair = unsafe { &*at.cast::<Pair>() };
        // Miri shares no mutex between processes, and ranks that are threads use none.
        if cfg!(miri) {
            return Ok(());
        }
        init_mutex(pair.mutex.get())?;
        init_condvar(pair.condvar.get())
    }

    /// The pair that this process or another has initialised at an address.
    ///
    /// # Safety
    /// [`Pair::init`] has succeeded for this memory, which stays mapped for `'a`.
    pub(crate) unsafe fn at<'a>(at: *mut u8) -> &'a Pair {
        // SAFETY: the caller's promise.
        unsafe { &*at.cast::<Pair>() }
    }

    /// Sleeps while the word holds `expected`, until a deadline in nanoseconds of the monotonic clock. Returns true if the
    /// deadline has passed.
    ///
    /// A thread that changes the word calls [`Pair::wake_all`] afterwards. The word is loaded Relaxed.
    pub(crate) fn wait(&self, word: &AtomicU32, expected: u32, deadline: Option<u64>) -> bool {
        self.wait_bounded(word, expected, deadline, PTHREAD_MAX_SLEEP.as_nanos() as u64)
    }

    fn wait_bounded(&self, word: &AtomicU32, expected: u32, deadline: Option<u64>, max_sleep: u64) -> bool {
        while word.load(Ordering::Relaxed) == expected {
            let now = now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return true;
            }
            let until = deadline.unwrap_or(u64::MAX).min(now + max_sleep);
            match self.lock(until) {
                // No lost wake-up: a change before the lock is seen by this load, and the wake_all of a later change waits
                // for the mutex, which this thread releases only by sleeping.
                Some(locked) if word.load(Ordering::Relaxed) == expected => locked.sleep(until),
                Some(_) => {}
                None => thread::sleep(PTHREAD_LOCK_PAUSE),
            }
        }
        false
    }

    /// Ends all waits on words that have changed.
    pub(crate) fn wake_all(&self) {
        self.wake_all_within(PTHREAD_MAX_SLEEP.as_nanos() as u64);
    }

    fn wake_all_within(&self, timeout: u64) {
        // A waiter that has read the old value holds the mutex until it sleeps, so this broadcast reaches it. If the
        // holder is stopped, it broadcasts without the mutex: a waiter that misses that reads the word again after 10 ms.
        let _locked = self.lock(now() + timeout);
        // SAFETY: I1 and I7: initialised by `init`.
        unsafe { libc::pthread_cond_broadcast(self.condvar.get()) };
    }

    /// Locks the mutex, unless that takes too long.
    fn lock(&self, until: u64) -> Option<Locked<'_>> {
        for attempt in 0.. {
            // SAFETY: I1 and I7: initialised by `init`.
            match unsafe { libc::pthread_mutex_trylock(self.mutex.get()) } {
                0 => return Some(Locked { pair: self }),
                libc::EBUSY if now() >= until => return None,
                libc::EBUSY if attempt < PTHREAD_LOCK_YIELDS => thread::yield_now(),
                libc::EBUSY => thread::sleep(PTHREAD_LOCK_RETRY),
                error => return self.is_recovered(error).then_some(Locked { pair: self }),
            }
        }
        None
    }

    /// After an error of a locking function: whether this thread holds the robust mutex of a dead owner. There is nothing
    /// to repair, since the mutex guards no data.
    #[cfg(target_os = "linux")]
    fn is_recovered(&self, error: libc::c_int) -> bool {
        // SAFETY: I1 and I7: after EOWNERDEAD this thread holds the mutex, which is inconsistent.
        error == libc::EOWNERDEAD && unsafe { libc::pthread_mutex_consistent(self.mutex.get()) } == 0
    }

    #[cfg(not(target_os = "linux"))]
    fn is_recovered(&self, _error: libc::c_int) -> bool {
        false
    }
}

/// The locked mutex. Unlocked on drop.
struct Locked<'a> {
    pair: &'a Pair,
}

impl Locked<'_> {
    /// Sleeps until a broadcast or the deadline. Unlocks the mutex.
    fn sleep(self, until: u64) {
        match timed_wait(self.pair.condvar.get(), self.pair.mutex.get(), until) {
            0 | libc::ETIMEDOUT => {}
            error if self.pair.is_recovered(error) => {}
            // An unexpected error must not turn the wait into a busy loop.
            _ => thread::sleep(PTHREAD_LOCK_PAUSE),
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: I1 and I7: initialised by `init`. If a failed sleep has lost the mutex, a robust one reports that; one
        // that is not robust is never lost.
        unsafe { libc::pthread_mutex_unlock(self.pair.mutex.get()) };
    }
}

#[cfg(not(target_vendor = "apple"))]
fn timed_wait(
    condvar: *mut libc::pthread_cond_t,
    mutex: *mut libc::pthread_mutex_t,
    until: u64,
) -> libc::c_int {
    let until = timespec(until);
    // SAFETY: I1 and I7: both are initialised, this thread holds the mutex, and the time outlives the call.
    unsafe { libc::pthread_cond_timedwait(condvar, mutex, &raw const until) }
}

#[cfg(target_vendor = "apple")]
fn timed_wait(
    condvar: *mut libc::pthread_cond_t,
    mutex: *mut libc::pthread_mutex_t,
    until: u64,
) -> libc::c_int {
    let duration = timespec(until.saturating_sub(now()));
    // SAFETY: I1 and I7: both are initialised, this thread holds the mutex, and the time outlives the call.
    unsafe { libc::pthread_cond_timedwait_relative_np(condvar, mutex, &raw const duration) }
}

fn timespec(nanos: u64) -> libc::timespec {
    const SECOND: u64 = 1_000_000_000;
    libc::timespec { tv_sec: (nanos / SECOND) as _, tv_nsec: (nanos % SECOND) as _ }
}

/// The monotonic clock, in nanoseconds.
fn now() -> u64 {
    Moment::now().nanoseconds()
}

fn init_mutex(mutex: *mut libc::pthread_mutex_t) -> io::Result<()> {
    let mut attributes = MaybeUninit::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: I1 and I7: room for the attributes, which this makes.
    check(unsafe { libc::pthread_mutexattr_init(attributes) })?;
    // SAFETY: I1 and I7: the attributes were made above.
    check(unsafe { libc::pthread_mutexattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) })?;
    #[cfg(target_os = "linux")]
    // SAFETY: I1 and I7: the attributes were made above.
    check(unsafe { libc::pthread_mutexattr_setrobust(attributes, libc::PTHREAD_MUTEX_ROBUST) })?;
    // SAFETY: I1 and I7: the caller owns the mutex's place.
    check(unsafe { libc::pthread_mutex_init(mutex, attributes) })?;
    // SAFETY: I1 and I7: the attributes were made above.
    check(unsafe { libc::pthread_mutexattr_destroy(attributes) })
}

fn init_condvar(condvar: *mut libc::pthread_cond_t) -> io::Result<()> {
    let mut attributes = MaybeUninit::uninit();
    let attributes = attributes.as_mut_ptr();
    // SAFETY: I1 and I7: room for the attributes, which this makes.
    check(unsafe { libc::pthread_condattr_init(attributes) })?;
    // SAFETY: I1 and I7: the attributes were made above.
    check(unsafe { libc::pthread_condattr_setpshared(attributes, libc::PTHREAD_PROCESS_SHARED) })?;
    #[cfg(not(target_vendor = "apple"))]
    // SAFETY: I1 and I7: the attributes were made above.
    check(unsafe { libc::pthread_condattr_setclock(attributes, libc::CLOCK_MONOTONIC) })?;
    // SAFETY: I1 and I7: the caller owns the condition variable's place.
    check(unsafe { libc::pthread_cond_init(condvar, attributes) })?;
    // SAFETY: I1 and I7: the attributes were made above.
    check(unsafe { libc::pthread_condattr_destroy(attributes) })
}

/// The pthread functions return their error.
fn check(error: libc::c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

#[cfg(test)]
mod tests;
