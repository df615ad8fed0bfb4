//! A futex: queue up, compare, sleep until somebody wakes. A lost wake-up is a deadlock.
//!
//! The queue is a modelled object of its own, so that a wake-up is explored before and after a rank has queued up.
//! Whoever wakes hands over what it knows, so a missing ordering is the other machines' to find.

use std::cell::RefCell;

use intranode::protocol::Ordering::Relaxed;
use loom::sync::atomic::AtomicU32;
use loom::thread::{Thread, ThreadId};

use crate::machine::{Machine, Word};
use crate::trace::Act;

/// The sleepers on one word.
pub(crate) struct Queue {
    step: AtomicU32,
    sleepers: RefCell<Vec<Thread>>,
}

impl Queue {
    pub(crate) fn new() -> Self {
        Queue { step: AtomicU32::new(0), sleepers: RefCell::default() }
    }

    /// A step that loom takes to depend on every other one of this queue.
    fn lock(&self) {
        let _ = self.step.compare_exchange(1, 1, Relaxed, Relaxed);
    }

    fn holds(&self, id: ThreadId) -> bool {
        self.sleepers.borrow().iter().any(|sleeper| sleeper.id() == id)
    }
}

pub(crate) fn wait(machine: &Machine, site: &'static str, word: &Word, expected: u32) {
    let me = loom::thread::current();
    let queue = &word.queue;
    queue.lock();
    queue.sleepers.borrow_mut().push(me.clone());
    let seen = word.under_lock();
    if seen != expected {
        queue.sleepers.borrow_mut().retain(|sleeper| sleeper.id() != me.id());
        machine.record(site, Act::NoSleep(word.label, seen));
        return;
    }
    machine.record(site, Act::Sleep(word.label, expected));
    while queue.holds(me.id()) {
        loom::thread::park();
    }
    machine.record(site, Act::Woken(word.label));
}

pub(crate) fn wake(machine: &Machine, site: &'static str, word: &Word, most: usize) {
    word.queue.lock();
    let mut sleepers = word.queue.sleepers.borrow_mut();
    let count = sleepers.len().min(most);
    machine.record(site, Act::Wake(word.label, count));
    for thread in sleepers.drain(..count) {
        thread.unpark();
    }
}
