//! A modelled word, and the threads that sleep on it.

use std::cell::{Cell, RefCell};

use intranode::protocol::Ordering::Relaxed;
use loom::sync::atomic::AtomicU32;
use loom::thread::{Thread, ThreadId};

use crate::harness::trace::Label;

/// A modelled word.
///
/// Every write in `protocol` is a read-modify-write, or a store to a word that no other thread writes meanwhile. So a
/// word's writes are totally ordered, and `newest` is the last of them. It is no part of the model: reading it orders
/// nothing and is no step. It only tells whether it is worth while to go on, and for which thread.
pub(crate) struct Word {
    pub(crate) modelled: AtomicU32,
    pub(crate) newest: Cell<u32>,
    pub(crate) label: Label,
    /// Blocked until the word changes.
    pub(crate) blocked: RefCell<Vec<Thread>>,
    pub(crate) queue: Queue,
}

impl Word {
    pub(crate) fn new(value: u32, label: Label) -> Self {
        Word {
            modelled: AtomicU32::new(value),
            newest: Cell::new(value),
            label,
            blocked: RefCell::default(),
            queue: Queue::new(),
        }
    }

    /// The word with a rank's turn, at the beginning: where two ranks write to each other's buffers, and in the second turn from then on to their own
    /// again.
    pub(crate) fn turn(rank: usize) -> Self {
        Word::new(2, Label { what: "turn", rank, parity: 0 })
    }

    /// A step has written this value.
    pub(crate) fn changed(&self, value: u32) {
        self.newest.set(value);
        for thread in self.blocked.take() {
            thread.unpark();
        }
    }

    /// Reads the word as the kernel does under its lock: the newest value, a step of its own, no ordering.
    pub(crate) fn read_under_lock(&self) -> u32 {
        let never = !self.newest.get();
        match self.modelled.compare_exchange(never, never, Relaxed, Relaxed) {
            Ok(seen) | Err(seen) => seen,
        }
    }
}

/// The sleepers on one word. It is a modelled object of its own, so that a wake-up is explored before and after a
/// thread has queued up.
pub(crate) struct Queue {
    step: AtomicU32,
    sleepers: RefCell<Vec<Sleeper>>,
}

enum Sleeper {
    Thread(Thread),
    /// One that is stopped: it does not run, even if it is woken.
    Stopped,
}

impl Queue {
    fn new() -> Self {
        Queue { step: AtomicU32::new(0), sleepers: RefCell::default() }
    }

    /// A step that loom takes to depend on every other one of this queue.
    pub(crate) fn lock(&self) {
        let _ = self.step.compare_exchange(1, 1, Relaxed, Relaxed);
    }

    pub(crate) fn holds(&self, thread: ThreadId) -> bool {
        self.sleepers.borrow().iter().any(|sleeper| sleeper.is(thread))
    }

    pub(crate) fn enter(&self, thread: Thread) {
        self.sleepers.borrow_mut().push(Sleeper::Thread(thread));
    }

    pub(crate) fn enter_stopped(&self) {
        self.sleepers.borrow_mut().push(Sleeper::Stopped);
    }

    pub(crate) fn leave(&self, thread: ThreadId) {
        self.sleepers.borrow_mut().retain(|sleeper| !sleeper.is(thread));
    }

    /// Takes the `most` longest sleepers out of the queue, and lets those run that can. Returns their number.
    pub(crate) fn wake(&self, most: usize) -> usize {
        let mut sleepers = self.sleepers.borrow_mut();
        let count = sleepers.len().min(most);
        for sleeper in sleepers.drain(..count) {
            if let Sleeper::Thread(thread) = sleeper {
                thread.unpark();
            }
        }
        count
    }
}

impl Sleeper {
    fn is(&self, id: ThreadId) -> bool {
        matches!(self, Sleeper::Thread(thread) if thread.id() == id)
    }
}
