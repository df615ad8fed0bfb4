//! Numbers that nobody else has.

use std::hash::{BuildHasher, RandomState};
use std::process;
use std::time::Instant;

/// A random number. The standard library's keys alone are not: a forked child has those of its parent, and so has each of its siblings.
pub(crate) fn number() -> u64 {
    RandomState::new().hash_one((process::id(), Instant::now()))
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::io::{self, Read, Write};

    use super::*;
    use crate::sys::testing;

    #[test]
    fn forked_children_have_numbers_of_their_own() {
        // From here on this thread has keys, which its children inherit.
        number();
        let of_child = || {
            let (mut from, mut to) = io::pipe().unwrap();
            assert!(testing::in_forked_child(|| to.write_all(&number().to_ne_bytes()).is_ok()));
            let mut number = [0; 8];
            from.read_exact(&mut number).unwrap();
            number
        };
        assert_ne!(of_child(), of_child());
    }
}
