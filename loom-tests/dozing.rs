//! Sleeping without any happens-before: a rank gives up spinning at once, and a sleep ends when the word has
//! changed, whoever changed it. What the rank then knows, it knows from its own loads.
//!
//! loom's `unpark` would hand over all that the waker knows, and hide a missing Acquire. A yield hands over nothing,
//! at the price named in `spinning.rs`: complete for two threads only.

use crate::machine::{Machine, Word};
use crate::trace::Act;

pub(crate) fn wait(machine: &Machine, site: &'static str, word: &Word, expected: u32) {
    machine.slot(site, Act::Sleep(word.label, expected));
    while word.newest.get() == expected {
        loom::thread::yield_now();
    }
    machine.slot(site, Act::Woken(word.label));
}
