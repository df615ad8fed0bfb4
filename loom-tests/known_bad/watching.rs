//! Deaths of which some watcher is not told.

use Ordering::{Acquire, Relaxed, Release};
use intranode::protocol::watch::{ANNOUNCED, DIED, NOTICED};
use intranode::protocol::{Ordering, Platform};

use crate::harness::known_bad::{KnownBad, Participant, Reason};
use crate::harness::waiting::Waiting::Parking;
use crate::harness::word::Word;

pub(crate) fn all() -> Vec<KnownBad> {
    let deadlock = |name, threads, protocol, mistake| {
        KnownBad::protocol(name, Reason::Deadlock, Parking, threads, protocol, mistake)
    };
    vec![
        deadlock(
            "fate_after_the_bump",
            2,
            fate_after_the_bump,
            "A watcher changes the word on which all sleep before it marks the fate: \
             one that reads in between knows the word already, and sleeps.",
        ),
        deadlock(
            "announced_before_the_wake",
            3,
            announced_before_the_wake,
            "A death is marked as announced before any watcher was woken: \
             the one that marked it is stopped, and the next that finds it does nothing.",
        ),
        deadlock(
            "the_same_neighbour_for_ever",
            2,
            the_same_neighbour_for_ever,
            "A watcher does not go on past the rank that has died: the next one died with it, and no rank is told.",
        ),
        deadlock(
            "one_word_for_all_watchers",
            3,
            one_word_for_all_watchers,
            "Two watchers sleep on one word of a rank: the kernel wakes the one that is stopped.",
        ),
    ]
}

fn fate<'a>(rank: &Participant<'a>) -> &'a Word {
    &rank.shared.words[0][0]
}

fn notices<'a>(rank: &Participant<'a>) -> &'a Word {
    &rank.shared.words[0][1]
}

fn alive<'a>(rank: &Participant<'a>, index: usize) -> &'a Word {
    &rank.shared.words[index][0]
}

fn notice(rank: &Participant<'_>, bits: u32) -> u32 {
    rank.machine.fetch_or("notice", fate(rank), bits, Relaxed)
}

fn announce(rank: &Participant<'_>) {
    rank.machine.modify("announce", notices(rank), Release, |seen| seen.wrapping_add(4));
    rank.machine.wake_all("announce-wake", notices(rank));
}

/// Sleeps until it learns of the death.
fn is_told(rank: &Participant<'_>) {
    loop {
        let seen = rank.machine.load("notices", notices(rank), Acquire);
        if rank.machine.load("fate", fate(rank), Relaxed) & NOTICED != 0 {
            return;
        }
        let _ = rank.machine.wait("watch", notices(rank), seen, &false);
    }
}

/// Sleeps until the kernel has marked the word.
fn watches(rank: &Participant<'_>, word: &Word) {
    loop {
        let seen = rank.machine.load("look", word, Relaxed);
        if seen == DIED {
            return;
        }
        let _ = rank.machine.wait("watch", word, seen, &false);
    }
}

fn kernel(rank: &Participant<'_>, word: &Word) {
    rank.machine.modify("kernel", word, Relaxed, |_| DIED);
    rank.machine.wake("kernel-wake", word, 1);
}

fn fate_after_the_bump(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 0 {
        return is_told(rank);
    }
    if !mistake {
        notice(rank, NOTICED);
    }
    announce(rank);
    if mistake {
        notice(rank, NOTICED);
    }
}

/// Thread 1 is stopped when it has marked the fate.
fn announced_before_the_wake(rank: &mut Participant<'_>, mistake: bool) {
    match rank.number {
        0 => is_told(rank),
        1 => {
            notice(rank, if mistake { NOTICED | ANNOUNCED } else { NOTICED });
        }
        _ => {
            if notice(rank, NOTICED) & ANNOUNCED == 0 {
                announce(rank);
                notice(rank, ANNOUNCED);
            }
        }
    }
}

/// Thread 1 is the kernel: two ranks die, of which thread 0 watches the first.
fn the_same_neighbour_for_ever(rank: &mut Participant<'_>, mistake: bool) {
    let (near, far) = (alive(rank, 0), alive(rank, 1));
    if rank.number == 1 {
        kernel(rank, far);
        kernel(rank, near);
        return;
    }
    watches(rank, near);
    if mistake {
        // No rank is left to announce anything.
        is_told(rank);
    } else {
        watches(rank, far);
    }
}

/// Thread 1 sleeps once, and is stopped. Thread 2 is the kernel.
fn one_word_for_all_watchers(rank: &mut Participant<'_>, mistake: bool) {
    let (first, second) = (alive(rank, 0), alive(rank, 1));
    match rank.number {
        0 => watches(rank, if mistake { first } else { second }),
        1 => {
            let seen = rank.machine.load("look", first, Relaxed);
            if seen != DIED {
                let _ = rank.machine.wait("watch", first, seen, &false);
            }
        }
        _ => {
            kernel(rank, first);
            kernel(rank, second);
        }
    }
}
