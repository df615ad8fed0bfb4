//! The heap of this process: its state behind the lock, and what can be seen without it.

use std::cell::UnsafeCell;
use std::mem;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

use super::freed::Freed;
use super::lock::{Forking, Lock};
use super::state::State;

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "there is one, in a static")]
enum Setup {
    /// No large block was requested yet.
    Missing,
    Ready(State),
    /// The system has refused it, or this is a child that could not get a copy.
    Refused,
}

#[derive(Debug)]
pub(super) struct Heap {
    lock: Lock,
    setup: UnsafeCell<Setup>,
    /// Of the range of addresses. They are stored before the first block is given out.
    start: AtomicUsize,
    len: AtomicUsize,
    /// No block is given out any more: who allocates need not take the lock.
    refused: AtomicBool,
    /// In the name of the memory; zero as long as nobody finds it.
    number: AtomicU64,
    freed: Freed,
}

// SAFETY: I20: the state is accessed under the lock only.
unsafe impl Sync for Heap {}

/// Ends the process where an allocator would unwind, which it must not.
struct NoUnwinding;

impl Drop for NoUnwinding {
    fn drop(&mut self) {
        give_up("its bookkeeping is damaged\n");
    }
}

/// Ends the process, without allocating.
pub(super) fn give_up(why: &str) -> ! {
    warn(why);
    std::process::abort()
}

/// A line to standard error, without allocating or locking.
pub(super) fn warn(what: &str) {
    for text in ["intranode: SharedHeap: ", what] {
        // SAFETY: I7: it reads a live text.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    }
}

impl Heap {
    pub(super) const fn new() -> Self {
        Heap {
            lock: Lock::new(),
            setup: UnsafeCell::new(Setup::Missing),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            refused: AtomicBool::new(false),
            number: AtomicU64::new(0),
            freed: Freed::new(),
        }
    }

    /// Takes a block, and reports whether it is zeros. `prepare` runs once, before the first. `None`: the system's allocator has to.
    pub(super) fn take(
        &self,
        (bytes, align): (usize, usize),
        prepare: fn() -> bool,
    ) -> Option<(*mut u8, bool)> {
        if self.refused.load(Relaxed) {
            return None;
        }
        let take = |setup: &mut Setup| {
            if matches!(setup, Setup::Missing) {
                *setup = State::new().filter(|_| prepare()).map_or(Setup::Refused, Setup::Ready);
                match setup {
                    Setup::Ready(state) => self.show(state),
                    _ => self.refused.store(true, Relaxed),
                }
            }
            let Setup::Ready(state) = setup else { return None };
            state.take(bytes, align)
        };
        self.with(take).ok().flatten()
    }

    fn show(&self, state: &State) {
        self.start.store(state.window.start().addr(), Relaxed);
        self.number.store(state.window.number, Relaxed);
        self.len.store(state.window.len(), Release);
    }

    /// The offset of an address in the range. Who has got a block there, from any thread, sees the range.
    pub(super) fn offset_of(&self, address: usize) -> Option<usize> {
        let len = self.len.load(Acquire);
        address.checked_sub(self.start.load(Relaxed)).filter(|offset| *offset < len)
    }

    /// The number in the name of the memory. `None`: nobody finds it.
    pub(super) fn number(&self) -> Option<u64> {
        Some(self.number.load(Relaxed)).filter(|number| *number != 0)
    }

    /// Whether others can still find the memory: a program may have closed its descriptor. During a fork: yes.
    pub(super) fn is_open(&self) -> bool {
        self.with(|setup| matches!(setup, Setup::Ready(state) if state.window.file().is_some())).unwrap_or(true)
    }

    /// A block of this heap is free.
    pub(super) fn release(&self, address: usize) {
        if self.with(|setup| release(setup, address)).is_err() {
            self.freed.note(address);
        }
    }

    /// Makes a block of this heap longer or shorter where it is. Reports whether it could.
    pub(super) fn resize(&self, address: usize, (old, new): (usize, usize)) -> bool {
        let resize = |setup: &mut Setup| match setup {
            Setup::Ready(state) => state.resize(address, new),
            _ => false,
        };
        // During a fork a shorter one stays as it is.
        self.with(resize).unwrap_or(new <= old)
    }

    fn with<R>(&self, work: impl FnOnce(&mut Setup) -> R) -> Result<R, Forking> {
        self.lock.acquire()?;
        let result = self.locked(work);
        self.lock.release();
        Ok(result)
    }

    /// Under the lock.
    fn locked<R>(&self, work: impl FnOnce(&mut Setup) -> R) -> R {
        self.locked_as_it_is(|setup| {
            self.freed.take_all(|address| release(setup, address));
            work(setup)
        })
    }

    /// The same, without freeing what was noted.
    fn locked_as_it_is<R>(&self, work: impl FnOnce(&mut Setup) -> R) -> R {
        let bomb = NoUnwinding;
        // SAFETY: I20: this thread holds the lock, and what follows does not take it.
        let setup = unsafe { &mut *self.setup.get() };
        let result = work(setup);
        mem::forget(bomb);
        result
    }

    /// Before a fork: takes the lock, does this with the state, and closes the heap.
    pub(super) fn before_fork<R>(&self, work: impl FnOnce(&mut State) -> R) -> Option<R> {
        self.lock.acquire_to_fork();
        let result = self.locked(|setup| match setup {
            Setup::Ready(state) => Some(work(state)),
            _ => None,
        });
        self.lock.close();
        result
    }

    /// After a fork, in the thread that was in [`before_fork`](Self::before_fork), or in its copy: does this with the state, and opens
    /// the heap. If it fails, no block is given out any more.
    pub(super) fn after_fork(&self, work: impl FnOnce(&mut State) -> bool) {
        // A child still has its parent's memory here: to free in it would take pages from blocks that the parent has given out since.
        self.locked_as_it_is(|setup| {
            let Setup::Ready(state) = setup else { return };
            let done = work(state);
            if !state.window.is_shared() {
                self.number.store(0, Relaxed);
            }
            if !done {
                self.refused.store(true, Relaxed);
                // What the state refers to stays.
                mem::forget(mem::replace(setup, Setup::Refused));
            }
        });
        self.lock.open();
    }
}

fn release(setup: &mut Setup, address: usize) {
    if let Setup::Ready(state) = setup
        && state.release(address).is_none()
    {
        give_up("memory is freed that was not allocated, or twice\n");
    }
}
