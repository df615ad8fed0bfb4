//! Deaths that not everybody learns of.

use intranode::protocol::watch::{ANNOUNCED, DIED, NOTICED};
use intranode::protocol::{Ordering, Platform};

use super::{KnownBad, Party, Reason};
use crate::machine::{Waiting, Word};
use Ordering::{Acquire, Relaxed, Release};

pub(crate) const ALL: [KnownBad; 4] = [
    KnownBad {
        name: "fate_after_the_bump",
        story: "A watcher changes the word on which all sleep before it marks the fate: \
                one that reads in between knows the word already, and sleeps.",
        reason: Reason::Deadlock,
        waiting: Waiting::Parking,
        threads: 2,
        run: fate_after_the_bump,
    },
    KnownBad {
        name: "announced_before_the_wake",
        story: "A death is marked as announced before anybody was woken: \
                who marked it is stopped, and who finds it next leaves it at that.",
        reason: Reason::Deadlock,
        waiting: Waiting::Parking,
        threads: 3,
        run: announced_before_the_wake,
    },
    KnownBad {
        name: "the_same_neighbour_for_ever",
        story: "A watcher does not look past the rank that has died: the next one died with it, and nobody is told.",
        reason: Reason::Deadlock,
        waiting: Waiting::Parking,
        threads: 2,
        run: the_same_neighbour_for_ever,
    },
    KnownBad {
        name: "one_word_for_all_watchers",
        story: "Two watchers sleep on one word of a rank: the kernel wakes the one that is stopped.",
        reason: Reason::Deadlock,
        waiting: Waiting::Parking,
        threads: 3,
        run: one_word_for_all_watchers,
    },
];

fn fate<'a>(party: &Party<'a>) -> &'a Word {
    &party.ground.words[0][0]
}

fn notices<'a>(party: &Party<'a>) -> &'a Word {
    &party.ground.words[0][1]
}

fn alive<'a>(party: &Party<'a>, index: usize) -> &'a Word {
    &party.ground.words[index][0]
}

fn notice(party: &Party<'_>, bits: u32) -> u32 {
    party.machine.fetch_or("notice", fate(party), bits, Relaxed)
}

fn announce(party: &Party<'_>) {
    party.machine.modify("announce", notices(party), Release, |seen| seen.wrapping_add(4));
    party.machine.wake_all("announce-wake", notices(party));
}

/// Sleeps until it learns of the death.
fn is_told(party: &Party<'_>) {
    loop {
        let seen = party.machine.load("notices", notices(party), Acquire);
        if party.machine.load("fate", fate(party), Relaxed) & NOTICED != 0 {
            return;
        }
        let _ = party.machine.wait("watch", notices(party), seen, &false);
    }
}

/// Sleeps until the kernel has marked the word.
fn watches(party: &Party<'_>, word: &Word) {
    loop {
        let seen = party.machine.load("look", word, Relaxed);
        if seen == DIED {
            return;
        }
        let _ = party.machine.wait("watch", word, seen, &false);
    }
}

fn kernel(party: &Party<'_>, word: &Word) {
    party.machine.modify("kernel", word, Relaxed, |_| DIED);
    party.machine.wake_one("kernel-wake", word);
}

fn fate_after_the_bump(party: &mut Party<'_>, mistake: bool) {
    if party.rank == 0 {
        return is_told(party);
    }
    if !mistake {
        notice(party, NOTICED);
    }
    announce(party);
    if mistake {
        notice(party, NOTICED);
    }
}

/// Thread 1 is stopped when it has marked the fate.
fn announced_before_the_wake(party: &mut Party<'_>, mistake: bool) {
    match party.rank {
        0 => is_told(party),
        1 => {
            notice(party, if mistake { NOTICED | ANNOUNCED } else { NOTICED });
        }
        _ => {
            if notice(party, NOTICED) & ANNOUNCED == 0 {
                announce(party);
                notice(party, ANNOUNCED);
            }
        }
    }
}

/// Thread 1 is the kernel: two ranks die, of which thread 0 watches the first.
fn the_same_neighbour_for_ever(party: &mut Party<'_>, mistake: bool) {
    let (near, far) = (alive(party, 0), alive(party, 1));
    if party.rank == 1 {
        kernel(party, far);
        kernel(party, near);
        return;
    }
    watches(party, near);
    if mistake {
        // Nobody is left to announce anything.
        is_told(party);
    } else {
        watches(party, far);
    }
}

/// Thread 1 sleeps once, and is stopped. Thread 2 is the kernel.
fn one_word_for_all_watchers(party: &mut Party<'_>, mistake: bool) {
    let (first, second) = (alive(party, 0), alive(party, 1));
    match party.rank {
        0 => watches(party, if mistake { first } else { second }),
        1 => {
            let seen = party.machine.load("look", first, Relaxed);
            if seen != DIED {
                let _ = party.machine.wait("watch", first, seen, &false);
            }
        }
        _ => {
            kernel(party, first);
            kernel(party, second);
        }
    }
}
