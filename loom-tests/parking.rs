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
    sleepers: RefCell<Vec<Sleeper>>,
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
        self.sleepers.borrow().iter().any(|sleeper| sleeper.id() == Some(id))
    }

    fn enter(&self, thread: Thread) {
        self.sleepers.borrow_mut().push(Sleeper::Thread(thread));
    }

    fn leave(&self, id: ThreadId) {
        self.sleepers.borrow_mut().retain(|sleeper| sleeper.id() != Some(id));
    }

    /// A rank sleeps on the word that is stopped: it does not run, even if it is woken.
    pub(crate) fn enter_stopped(&self) {
        self.sleepers.borrow_mut().push(Sleeper::Killed);
    }
}

/// Who sleeps.
enum Sleeper {
    Thread(Thread),
    Killed,
}

impl Sleeper {
    fn id(&self) -> Option<ThreadId> {
        match self {
            Sleeper::Thread(thread) => Some(thread.id()),
            Sleeper::Killed => None,
        }
    }
}

pub(crate) fn wait(machine: &Machine, site: &'static str, word: &Word, expected: u32) {
    let me = loom::thread::current();
    let queue = &word.queue;
    queue.lock();
    queue.enter(me.clone());
    let seen = word.under_lock();
    if seen != expected {
        queue.leave(me.id());
        machine.slot(site, Act::NoSleep(word.label, seen));
        return;
    }
    machine.slot(site, Act::Sleep(word.label, expected));
    while queue.holds(me.id()) {
        loom::thread::park();
    }
    machine.slot(site, Act::Woken(word.label));
}

pub(crate) fn wake(machine: &Machine, site: &'static str, word: &Word, most: usize) {
    word.queue.lock();
    let mut sleepers = word.queue.sleepers.borrow_mut();
    let count = sleepers.len().min(most);
    machine.slot(site, Act::Wake(word.label, count));
    for sleeper in sleepers.drain(..count) {
        if let Sleeper::Thread(thread) = sleeper {
            thread.unpark();
        }
    }
}

/// The same on several words: queue up and compare, word by word, and sleep until somebody wakes from any. Until the
/// sleeper runs again it stays in the other queues, where it may be woken in another's place.
pub(crate) fn wait_any(machine: &Machine, site: &'static str, words: &[(&Word, u32)]) {
    let me = loom::thread::current();
    let leave = |entered: usize| {
        for (word, _) in words[..entered].iter().filter(|(word, _)| word.queue.holds(me.id())) {
            word.queue.lock();
            word.queue.leave(me.id());
        }
    };
    for (index, (word, expected)) in words.iter().enumerate() {
        word.queue.lock();
        word.queue.enter(me.clone());
        let seen = word.under_lock();
        if seen != *expected {
            machine.slot(site, Act::NoSleep(word.label, seen));
            return leave(index + 1);
        }
    }
    words.iter().for_each(|(word, expected)| machine.slot(site, Act::Sleep(word.label, *expected)));
    while words.iter().all(|(word, _)| word.queue.holds(me.id())) {
        loom::thread::park();
    }
    leave(words.len());
    machine.slot(site, Act::Header("woken"));
}
