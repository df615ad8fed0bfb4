//! Sleeping and waking by a mutex and a condition variable, for systems without futexes between processes.
//!
//! A condition variable was not made for processes that are killed: one that dies while it waits can leave those who
//! wake, and sometimes those who wait, blocked inside the C library for ever. So every wait is cut into slices, after
//! which it looks again, and whoever needs the promises about death uses futexes.

use std::cell::UnsafeCell;
use std::io;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

/// How long a wait sleeps at most before it looks at the word again, in nanoseconds.
const SLICE: u64 = 10_000_000;
/// The pause of a wait that cannot get the mutex.
const NAP: Duration = Duration::from_millis(1);
/// How to wait for the mutex: it is never held for long, unless its holder was stopped or killed.
const YIELDS: u32 = 100;
const RETRY: Duration = Duration::from_micros(50);

/// What [`Pair::init`] and [`Pair::at`] need.
pub(crate) const PAIR_SIZE: usize = size_of::<Pair>();
/// As above.
pub(crate) const PAIR_ALIGN: usize = align_of::<Pair>();

/// A mutex and a condition variable in memory that processes share.
#[repr(C)]
pub(crate) struct Pair {
    mutex: UnsafeCell<libc::pthread_mutex_t>,
    condvar: UnsafeCell<libc::pthread_cond_t>,
}

// SAFETY: I1: both are made for use by several threads; all access is by the C library's functions.
unsafe impl Send for Pair {}
// SAFETY: I1: as above.
unsafe impl Sync for Pair {}

impl Pair {
    /// Makes a pair.
    ///
    /// # Safety
    /// [`PAIR_SIZE`] bytes at `at`, aligned to [`PAIR_ALIGN`], can be written, and nobody else uses them yet.
    pub(crate) unsafe fn init(at: *mut u8) -> io::Result<()> {
        // SAFETY: the caller's promise.
        let pair = unsafe { &*at.cast::<Pair>() };
        init_mutex(pair.mutex.get())?;
        init_condvar(pair.condvar.get())
    }

    /// The pair that was made at a place, by this process or by another.
    ///
    /// # Safety
    /// [`Pair::init`] has succeeded at this place, which stays mapped for `'a`.
    pub(crate) unsafe fn at<'a>(at: *mut u8) -> &'a Pair {
        // SAFETY: the caller's promise.
        unsafe { &*at.cast::<Pair>() }
    }

    /// Sleeps while the word holds `expected`, until a deadline in nanoseconds of the monotonic clock. True: it has
    /// passed.
    ///
    /// Whoever changes the word calls [`Pair::wake_all`] afterwards. The word is read without ordering.
    pub(crate) fn wait(&self, word: &AtomicU32, expected: u32, deadline: Option<u64>) -> bool {
        self.wait_in_slices(word, expected, deadline, SLICE)
    }

    fn wait_in_slices(&self, word: &AtomicU32, expected: u32, deadline: Option<u64>, slice: u64) -> bool {
        while word.load(Ordering::Relaxed) == expected {
            let now = now();
            if deadline.is_some_and(|deadline| deadline <= now) {
                return true;
            }
            let until = deadline.unwrap_or(u64::MAX).min(now + slice);
            match self.lock(until) {
                // A change that came before the lock is seen here: its wake_all has held the mutex, or will wait for
                // it. One that comes later finds this thread asleep.
                Some(locked) if word.load(Ordering::Relaxed) == expected => locked.sleep(until),
                Some(_) => {}
                None => thread::sleep(NAP),
            }
        }
        false
    }

    /// Ends all waits on words that have changed.
    pub(crate) fn wake_all(&self) {
        self.wake_all_within(SLICE);
    }

    fn wake_all_within(&self, patience: u64) {
        // Whoever has seen the old word has the mutex until it is asleep, so that no wake-up comes between.
        // Without it after all if its holder was stopped: whoever falls asleep meanwhile looks again after a slice.
        let _locked = self.lock(now() + patience);
        // SAFETY: I1 and I7: `init` has made it.
        unsafe { libc::pthread_cond_broadcast(self.condvar.get()) };
    }

    /// Takes the mutex, if that is possible in time.
    fn lock(&self, until: u64) -> Option<Locked<'_>> {
        for attempt in 0.. {
            // SAFETY: I1 and I7: `init` has made it.
            match unsafe { libc::pthread_mutex_trylock(self.mutex.get()) } {
                0 => return Some(Locked { pair: self }),
                libc::EBUSY if now() >= until => return None,
                libc::EBUSY if attempt < YIELDS => thread::yield_now(),
                libc::EBUSY => thread::sleep(RETRY),
                error => return self.recovered(error).then_some(Locked { pair: self }),
            }
        }
        None
    }

    /// After an error of a function that takes the mutex: whether this thread has it all the same, since its holder
    /// has died. There is nothing to repair: the mutex guards no data.
    #[cfg(target_os = "linux")]
    fn recovered(&self, error: libc::c_int) -> bool {
        // SAFETY: I1 and I7: this thread holds it, in the state that this function is for.
        error == libc::EOWNERDEAD && unsafe { libc::pthread_mutex_consistent(self.mutex.get()) } == 0
    }

    #[cfg(not(target_os = "linux"))]
    fn recovered(&self, _error: libc::c_int) -> bool {
        false
    }
}

/// The mutex is held. Released on drop.
struct Locked<'a> {
    pair: &'a Pair,
}

impl Locked<'_> {
    /// Sleeps until someone wakes, or until a moment has come. Gives the mutex up.
    fn sleep(self, until: u64) {
        match timed_wait(self.pair.condvar.get(), self.pair.mutex.get(), until) {
            0 | libc::ETIMEDOUT => {}
            error if self.pair.recovered(error) => {}
            // Whatever it is, waiting must not become spinning.
            _ => thread::sleep(NAP),
        }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: I1 and I7: `init` has made it. If a failed sleep has lost it, a robust mutex reports that, and the others
        // never lose it.
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
    let left = timespec(until.saturating_sub(now()));
    // SAFETY: I1 and I7: both are initialised, this thread holds the mutex, and the time outlives the call.
    unsafe { libc::pthread_cond_timedwait_relative_np(condvar, mutex, &raw const left) }
}

fn timespec(nanos: u64) -> libc::timespec {
    const SECOND: u64 = 1_000_000_000;
    libc::timespec { tv_sec: (nanos / SECOND) as _, tv_nsec: (nanos % SECOND) as _ }
}

/// The monotonic clock, in nanoseconds.
fn now() -> u64 {
    let mut time = timespec(0);
    // SAFETY: I1 and I7: the clock exists, and the time is ours to write.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
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

/// These functions return their error.
fn check(error: libc::c_int) -> io::Result<()> {
    if error == 0 { Ok(()) } else { Err(io::Error::from_raw_os_error(error)) }
}

#[cfg(test)]
mod tests;
