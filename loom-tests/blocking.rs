//! Spinning that blocks: the rank is not runnable until the newest value satisfies it.
//!
//! Loads that could only fail are not explored, and loom knows that a blocked thread can not run, which keeps its
//! search complete for three ranks and small enough. Whoever changes the word hands over what it knows, so a
//! missing ordering is the other machines' to find.

use intranode::protocol::{Ordering, Platform};

use crate::machine::{Machine, Word};

pub(crate) fn spin(
    machine: &Machine,
    site: &'static str,
    word: &Word,
    order: Ordering,
    until: impl Fn(u32) -> bool,
) -> u32 {
    while !until(word.newest.get()) {
        word.blocked.borrow_mut().push(loom::thread::current());
        loom::thread::park();
    }
    loop {
        let seen = machine.load(site, word, order);
        if until(seen) {
            return seen;
        }
        // An older value: the next look is explored as the other result of this one.
        loom::skip_branch();
        loom::thread::yield_now();
    }
}
