//! A futex: compare under a lock, then sleep until somebody wakes. A lost wake-up is a deadlock.

use crate::machine::{Machine, Word};
use crate::trace::Act;

pub(crate) fn wait(machine: &Machine, site: &'static str, word: &Word, expected: u32) {
    let seen = word.under_lock();
    if seen != expected {
        machine.record(site, Act::NoSleep(word.label, seen));
        return;
    }
    machine.record(site, Act::Sleep(word.label, expected));
    word.parked.borrow_mut().push(loom::thread::current());
    loom::thread::park();
    machine.record(site, Act::Woken(word.label));
}

pub(crate) fn wake(machine: &Machine, site: &'static str, word: &Word, most: usize) {
    word.under_lock();
    let mut parked = word.parked.borrow_mut();
    let count = parked.len().min(most);
    machine.record(site, Act::Wake(word.label, count));
    for thread in parked.drain(..count) {
        thread.unpark();
    }
}
