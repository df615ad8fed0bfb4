//! Four ways to wait. No single one shows everything, because loom's own `unpark` hands over all that the waker knows.
//!
//! **Spinning** polls again and again. Nothing but the word's own orderings connects the ranks. loom takes a yield to
//! mean that another thread has to move first, which bounds the number of polls; with more than two threads that may
//! also skip an interleaving, so this is used for two.
//!
//! **Dozing** gives up spinning at once, and its sleep ends when the word has changed. That hands over nothing: what the
//! rank then knows, it knows from its own loads. It yields, so it is used for two threads.
//!
//! **Blocking** makes the rank not runnable until the newest value satisfies it. Loads that could only fail are not
//! explored, and loom knows that a blocked thread cannot run, which keeps its search complete for three ranks and small
//! enough. The thread that changes the word hands over what it knows, so a missing ordering is the other ways' to find.
//!
//! **Parking** is a futex: queue up, compare, sleep until another thread wakes. A lost wake-up is a deadlock. The thread
//! that wakes hands over what it knows, as in blocking.

use loom::thread;

use crate::harness::trace::Action;
use crate::harness::word::Word;

/// How the ranks of a model wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    Spinning,
    Dozing,
    Blocking,
    Parking,
}

pub(crate) fn spin(poll: impl Fn() -> u32, until: impl Fn(u32) -> bool) -> u32 {
    loop {
        let seen = poll();
        if until(seen) {
            return seen;
        }
        thread::yield_now();
    }
}

pub(crate) fn block(word: &Word, poll: impl Fn() -> u32, until: impl Fn(u32) -> bool) -> u32 {
    while !until(word.newest.get()) {
        word.blocked.borrow_mut().push(thread::current());
        thread::park();
    }
    loop {
        let seen = poll();
        if until(seen) {
            return seen;
        }
        // An older value: the next poll is explored as the other result of this one.
        loom::skip_branch();
        thread::yield_now();
    }
}

pub(crate) fn doze(word: &Word, expected: u32, record: impl Fn(Action)) {
    record(Action::Sleep(word.label, expected));
    while word.newest.get() == expected {
        thread::yield_now();
    }
    record(Action::Woken(word.label));
}

pub(crate) fn park(word: &Word, expected: u32, record: impl Fn(Action)) {
    let me = thread::current();
    let queue = &word.queue;
    queue.lock();
    queue.enter(me.clone());
    let seen = word.read_under_lock();
    if seen != expected {
        queue.leave(me.id());
        record(Action::NoSleep(word.label, seen));
        return;
    }
    record(Action::Sleep(word.label, expected));
    while queue.holds(me.id()) {
        thread::park();
    }
    record(Action::Woken(word.label));
}

/// The same on several words: queue up and compare, word by word, and sleep until another thread wakes from any. Until
/// the sleeper runs again it stays in the other queues, where it may be woken in another's place.
pub(crate) fn park_on_any(words: &[(&Word, u32)], record: impl Fn(Action)) {
    let me = thread::current();
    let leave = |entered: usize| {
        for (word, _) in words[..entered].iter().filter(|(word, _)| word.queue.holds(me.id())) {
            word.queue.lock();
            word.queue.leave(me.id());
        }
    };
    for (index, (word, expected)) in words.iter().enumerate() {
        word.queue.lock();
        word.queue.enter(me.clone());
        let seen = word.read_under_lock();
        if seen != *expected {
            record(Action::NoSleep(word.label, seen));
            return leave(index + 1);
        }
    }
    words.iter().for_each(|(word, expected)| record(Action::Sleep(word.label, *expected)));
    while words.iter().all(|(word, _)| word.queue.holds(me.id())) {
        thread::park();
    }
    leave(words.len());
    record(Action::WokenFromOneOfSeveral);
}

/// Wakes the `most` longest sleepers.
pub(crate) fn wake(word: &Word, most: usize, record: impl Fn(Action)) {
    word.queue.lock();
    record(Action::Wake(word.label, word.queue.wake(most)));
}
