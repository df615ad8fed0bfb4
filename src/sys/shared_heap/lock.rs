//! The lock of the heap's state. It allocates nothing, and a thread that finds that another forks does not wait for that thread.
//!
//! A fork runs functions of others while the heap must not change, before and after ours, and these may wait for threads that
//! allocate. So during a fork the heap is closed: memory comes from the system then, and what is freed is noted.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use crate::sys::wait::futex;

const FREE: u32 = 0;
const HELD: u32 = 1;
/// Held, and some thread may sleep.
const AWAITED: u32 = 2;
const FORKING: u32 = 3;

/// How often a thread looks before it sleeps: what is done under the lock mostly takes less than a microsecond.
const LOOKS: u32 = 100;

#[derive(Debug)]
pub(super) struct Lock(AtomicU32);

/// The heap is closed, since a thread of the process forks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Forking;

impl Lock {
    pub(super) const fn new() -> Self {
        Lock(AtomicU32::new(FREE))
    }

    /// Takes the lock.
    pub(super) fn acquire(&self) -> Result<(), Forking> {
        let (mut taken, mut looks) = (HELD, 0);
        loop {
            match self.0.load(Relaxed) {
                FREE => {
                    if self.0.compare_exchange_weak(FREE, taken, Acquire, Relaxed).is_ok() {
                        return Ok(());
                    }
                }
                FORKING => return Err(Forking),
                _ if looks < LOOKS => {
                    looks += 1;
                    std::hint::spin_loop();
                }
                seen => {
                    // Others may sleep too, so who takes it after a sleep wakes them in turn.
                    taken = AWAITED;
                    if seen == AWAITED || self.0.compare_exchange(HELD, AWAITED, Relaxed, Relaxed).is_ok() {
                        let _ = futex::wait(&self.0, AWAITED, None);
                    }
                }
            }
        }
    }

    /// Gives it back.
    pub(super) fn release(&self) {
        if self.0.swap(FREE, Release) == AWAITED {
            futex::wake_all(&self.0);
        }
    }

    /// Takes it for a fork, after one that is under way.
    pub(super) fn acquire_to_fork(&self) {
        while self.acquire().is_err() {
            let _ = futex::wait(&self.0, FORKING, None);
        }
    }

    /// The holder forks now: nobody waits for it any more.
    pub(super) fn close(&self) {
        if self.0.swap(FORKING, Release) == AWAITED {
            futex::wake_all(&self.0);
        }
    }

    /// After the fork, in the parent and in the child.
    pub(super) fn open(&self) {
        self.0.store(FREE, Release);
        futex::wake_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::UnsafeCell;
    use std::sync::atomic::AtomicBool;

    use super::*;

    struct Counter(Lock, UnsafeCell<u64>);

    // SAFETY: the number is accessed under the lock only.
    unsafe impl Sync for Counter {}

    impl Counter {
        /// Adds one under the lock, which is there.
        fn add(&self) {
            let number = self.1.get();
            // SAFETY: the lock is held.
            let value = unsafe { number.read() };
            std::thread::yield_now();
            // SAFETY: as above.
            unsafe { number.write(value + 1) };
        }
    }

    #[test]
    fn one_thread_at_a_time_holds_it_also_where_some_fork() {
        const TURNS: u64 = if cfg!(miri) { 200 } else { 3_000 };
        let counter = Counter(Lock::new(), UnsafeCell::new(0));
        let refused = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (counter, refused) = (&counter, &refused);
                scope.spawn(move || {
                    for turn in 0..TURNS {
                        if thread == 0 && turn % 8 == 0 {
                            counter.0.acquire_to_fork();
                            counter.add();
                            counter.0.close();
                            counter.add();
                            counter.0.open();
                        } else if counter.0.acquire().is_ok() {
                            counter.add();
                            counter.0.release();
                        } else {
                            refused.fetch_add(1, Relaxed);
                        }
                    }
                });
            }
        });
        let forks = TURNS.div_ceil(8);
        assert_eq!(counter.1.into_inner(), 4 * TURNS + forks - u64::from(refused.into_inner()));
    }

    #[test]
    fn a_closed_heap_lets_nobody_wait_but_another_fork() {
        let (lock, went_on) = (Lock::new(), AtomicBool::new(false));
        assert_eq!(lock.acquire(), Ok(()));
        std::thread::scope(|scope| {
            // It sleeps until the heap is closed.
            let waits = scope.spawn(|| lock.acquire());
            while lock.0.load(Relaxed) != AWAITED {
                std::thread::yield_now();
            }
            lock.close();
            assert_eq!(waits.join().unwrap(), Err(Forking));
            scope.spawn(|| {
                lock.acquire_to_fork();
                assert!(went_on.load(Relaxed));
                lock.release();
            });
            went_on.store(true, Relaxed);
            lock.open();
        });
        assert_eq!(lock.acquire(), Ok(()));
    }
}
