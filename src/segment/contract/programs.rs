//! The demands on a platform's way of waiting, as programs that every platform can run: the settings of sleeping that
//! production has in unit tests, the model checkers' machines beside their models.

use super::{Acquire, Payload, Platform, Relaxed, Release, Slot, WAITER};

/// What the word holds at a turn. It says that somebody sleeps, as the protocols do before they sleep.
pub(crate) const fn value(turn: u32) -> u32 {
    turn << 1 | WAITER
}

/// A way to wait until the word has a value.
pub(crate) type Until<P> = fn(&P, &<P as Platform>::Word, u32);

/// Sleeps until the word has this value.
pub(crate) fn sleep_until<P: Platform>(platform: &P, word: &P::Word, wanted: u32) {
    loop {
        let seen = platform.load("look", word, Acquire);
        if seen == wanted {
            return;
        }
        // It may end at any time, for no reason.
        let _ = platform.wait("sleep", word, seen, &platform.deadline());
    }
}

/// Spins until the word has this value. On machines that never give up spinning this ends at once when it has.
pub(crate) fn spin_until<P: Platform>(platform: &P, word: &P::Word, wanted: u32) {
    while platform.spin("look", word, Acquire, false, |seen| seen == wanted).is_err() {}
}

/// What one of two players does who take turns: waits for its turn, uses what both share, ends its turn, and wakes the
/// other. A wake-up that is lost is a hang; an ordering that is not kept is a race.
pub(crate) fn take_turns<P: Platform>(platform: &P, slot: &Slot<P>, until: Until<P>, player: u32, turns: u32) {
    for turn in (player..turns).step_by(2) {
        until(platform, &slot.state, value(turn));
        slot.header.write(|mut header| header.put(0, &turn.to_ne_bytes()));
        change(platform, &slot.state, value(turn), value(turn + 1));
    }
}

/// Changes the word while others sleep on it, or are about to, and wakes them all.
pub(crate) fn change<P: Platform>(platform: &P, word: &P::Word, from: u32, to: u32) {
    let before = platform.compare_exchange("change", word, from, to, Release, Relaxed);
    assert_eq!(before, Ok(from), "somebody else has changed it");
    platform.wake_all("wake", word);
}

/// Sleeps on a word that nobody changes until the deadline has passed.
pub(crate) fn outlast<P: Platform>(platform: &P, word: &P::Word, unchanged: u32) {
    let deadline = platform.deadline();
    while platform.wait("sleep", word, unchanged, &deadline).is_ok() {}
}
