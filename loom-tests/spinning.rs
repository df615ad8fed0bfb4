//! Waiting by looking again and again.
//!
//! The plainest machine: nothing but the word's own orderings connects the ranks. loom treats a yield as "somebody
//! else has to move", which bounds the number of looks; with more than two threads that may also skip an
//! interleaving, so this machine is used for two.

use intranode::protocol::{Ordering, Platform};

use crate::machine::{Machine, Word};

pub(crate) fn spin(
    machine: &Machine,
    site: &'static str,
    word: &Word,
    order: Ordering,
    until: impl Fn(u32) -> bool,
) -> u32 {
    loop {
        let seen = machine.load(site, word, order);
        if until(seen) {
            return seen;
        }
        loom::thread::yield_now();
    }
}
