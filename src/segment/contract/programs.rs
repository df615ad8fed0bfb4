//! The contract of a platform's waits, as programs that every platform can run: production's in unit tests, the model
//! checkers' next to their models.

use super::{Acquire, Payload, Platform, Relaxed, Release, Slot, WAITER};

/// The value of the word at a turn, with `WAITER` set, as the protocols set it before they sleep.
pub(crate) const fn value(turn: u32) -> u32 {
    turn << 1 | WAITER
}

/// Waits until the word has a value.
pub(crate) type Until<P> = fn(&P, &<P as Platform>::Word, u32);

/// Sleeps until the word has a value.
pub(crate) fn sleep_until<P: Platform>(platform: &P, word: &P::Word, expected: u32) {
    loop {
        let seen = platform.load("look", word, Acquire);
        if seen == expected {
            return;
        }
        // A wait may end spuriously.
        let _ = platform.wait("sleep", word, seen, &platform.deadline());
    }
}

/// Spins until the word has a value.
pub(crate) fn spin_until<P: Platform>(platform: &P, word: &P::Word, expected: u32) {
    while platform.spin("look", word, Acquire, false, |seen| seen == expected).is_err() {}
}

/// One of two players that alternate: waits for its turn, writes the shared header, ends its turn, and wakes the other. A
/// lost wake-up is a hang; a missing ordering is a data race on the header.
pub(crate) fn take_turns<P: Platform>(platform: &P, slot: &Slot<P>, until: Until<P>, player: u32, turns: u32) {
    for turn in (player..turns).step_by(2) {
        until(platform, &slot.state, value(turn));
        slot.header.write(|mut header| header.put(0, &turn.to_ne_bytes()));
        change(platform, &slot.state, value(turn), value(turn + 1));
    }
}

/// Changes the word while other threads sleep on it, or are about to, and wakes them all.
pub(crate) fn change<P: Platform>(platform: &P, word: &P::Word, from: u32, to: u32) {
    let before = platform.compare_exchange("change", word, from, to, Release, Relaxed);
    assert_eq!(before, Ok(from), "another thread has changed it");
    platform.wake_all("wake", word);
}

/// Sleeps on a word that does not change until the deadline has passed.
pub(crate) fn outlast<P: Platform>(platform: &P, word: &P::Word, unchanged: u32) {
    let deadline = platform.deadline();
    while platform.wait("sleep", word, unchanged, &deadline).is_ok() {}
}
