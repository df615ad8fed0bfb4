//! Blocks that are freed during a fork, when the heap is closed: they are noted, and really freed by who takes the lock next.

use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

/// What does not fit is lost until the process ends: a fork takes less than a millisecond from here on, in which a program hardly
/// frees as many large blocks.
const MOST: usize = 128;

#[derive(Debug)]
pub(super) struct Freed {
    /// Addresses; zero is none.
    blocks: [AtomicUsize; MOST],
    /// How many are noted, or about to be.
    noted: AtomicUsize,
}

impl Freed {
    pub(super) const fn new() -> Self {
        Freed { blocks: [const { AtomicUsize::new(0) }; MOST], noted: AtomicUsize::new(0) }
    }

    /// Notes a block, if there is room.
    pub(super) fn note(&self, address: usize) {
        self.noted.fetch_add(1, Relaxed);
        let is_free = |place: &&AtomicUsize| place.compare_exchange(0, address, Release, Relaxed).is_ok();
        if self.blocks.iter().find(is_free).is_none() {
            self.noted.fetch_sub(1, Relaxed);
        }
    }

    /// Takes what was noted.
    pub(super) fn take_all(&self, mut take: impl FnMut(usize)) {
        if self.noted.load(Relaxed) == 0 {
            return;
        }
        for place in &self.blocks {
            let address = place.swap(0, Acquire);
            if address != 0 {
                self.noted.fetch_sub(1, Relaxed);
                take(address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_taken_once() {
        let freed = Freed::new();
        freed.take_all(|address| panic!("{address}"));
        (1..=MOST + 3).for_each(|address| freed.note(address));
        for expected in [(1..=MOST).collect(), Vec::new()] {
            let mut taken = Vec::new();
            freed.take_all(|address| taken.push(address));
            assert_eq!(taken, expected);
        }
        assert_eq!(freed.noted.load(Relaxed), 0);
    }
}
