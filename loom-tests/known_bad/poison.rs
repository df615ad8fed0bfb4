//! Poison in the wrong place, and poison that is lost.

use Ordering::{AcqRel, Acquire, Relaxed, Release};
use intranode::protocol::generation::{POISON, WAITER};
use intranode::protocol::{Ordering, Platform};

use crate::harness::known_bad::{KnownBad, Participant, Reason};
use crate::harness::waiting::Waiting::{Blocking, Parking};
use crate::harness::word::Word;
use crate::models::passing_on::passed_on;

pub(crate) fn all() -> Vec<KnownBad> {
    vec![
        KnownBad::protocol(
            "separate_poison_word",
            Reason::Deadlock,
            Parking,
            2,
            separate_poison_word,
            "A rank polls a poison word before it sleeps on another: \
             the poisoner wakes an empty queue in between.",
        ),
        KnownBad::protocol(
            "arrive_by_swap",
            Reason::Assertion("disagreement"),
            Blocking,
            3,
            arrive_by_swap,
            "An arrival that overwrites whatever its word holds erases poison: ranks disagree about the round.",
        ),
        KnownBad::protocol(
            "survivor_wakes_nobody",
            Reason::Deadlock,
            Parking,
            3,
            survivor_wakes_nobody,
            "A rank that meets poison reports it without waking others: the poisoner died before it could, \
             and a sleeper stays asleep.",
        ),
        KnownBad::protocol(
            "spread_marked_too_early",
            Reason::Deadlock,
            Parking,
            3,
            spread_marked_too_early,
            "A poisoner marks all words as poisoned before it has woken the sleepers, and dies: \
             the next poisoner does nothing, and a sleeper stays asleep.",
        ),
        KnownBad {
            name: "leaves_without_passing_on",
            mistake: "A rank that was told in one communicator that another has aborted leaves a second one of both, \
                      and does not tell why: those who wait there are told that it has left.",
            reason: Reason::Assertion("hidden"),
            wrong: passed_on(Blocking, false).bound(2),
            mended: None,
        },
    ]
}

/// Thread 0 waits for thread 1, which does not arrive but poisons. Thread 0's other word is the poison word.
fn separate_poison_word(rank: &mut Participant<'_>, mistake: bool) {
    let next = rank.next();
    let old = next.previous().previous().word();
    let word = rank.word(1, next.parity());
    let poison = if mistake { rank.word(0, 0) } else { word };
    if rank.number == 1 {
        rank.machine.fetch_or("poison", poison, POISON, AcqRel);
        rank.machine.wake_all("poison-wake", word);
        return;
    }
    sleep_on(rank, word, old, || rank.machine.load("poisoned?", poison, Acquire) & POISON != 0);
}

/// Sleeps until the word is not `old` any more, or there is no need to.
fn sleep_on(rank: &Participant<'_>, word: &Word, old: u32, needless: impl Fn() -> bool) {
    while !needless() {
        let marked = rank.machine.compare_exchange("waiter", word, old, old | WAITER, Relaxed, Acquire);
        match marked {
            Err(seen) if seen & !WAITER != old => return,
            _ => {}
        }
        let _ = rank.machine.wait("sleep", word, old | WAITER, &false);
    }
}

/// Thread 1 waits for thread 0, whose word thread 2 poisons. It dies before it can wake any sleeper.
fn survivor_wakes_nobody(rank: &mut Participant<'_>, mistake: bool) {
    let next = rank.next();
    let old = next.previous().previous().word();
    let word = rank.word(0, next.parity());
    match rank.number {
        0 => {
            let arrive =
                |from| rank.machine.compare_exchange("arrive", word, from, next.word(), Release, Relaxed);
            if arrive(old).is_ok() {
                return;
            }
            let poisoned = arrive(old | WAITER).is_err();
            if !(poisoned && mistake) {
                rank.machine.wake_all("wake", word);
            }
        }
        1 => sleep_on(rank, word, old, || false),
        _ => {
            rank.machine.fetch_or("poison", word, POISON, AcqRel);
        }
    }
}

/// Thread 1 waits for thread 0, which leaves by poisoning. Thread 2 has poisoned before, and dies on the way. Thread 0's
/// other word tells that all words are poisoned.
fn spread_marked_too_early(rank: &mut Participant<'_>, mistake: bool) {
    let next = rank.next();
    let old = next.previous().previous().word();
    let (word, spread) = (rank.word(0, next.parity()), rank.word(0, 1 - next.parity()));
    let machine = rank.machine;
    match rank.number {
        0 => {
            if machine.load("spread-known", spread, Acquire) & POISON == 0 {
                machine.fetch_or("poison", word, POISON, AcqRel);
                machine.wake_all("poison-wake", word);
            }
        }
        1 => sleep_on(rank, word, old, || false),
        _ => {
            machine.fetch_or("poison", word, POISON, AcqRel);
            if mistake {
                machine.fetch_or("spread", spread, POISON, Release);
            }
        }
    }
}

/// Threads 0 and 1 meet, thread 2 poisons.
fn arrive_by_swap(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 2 {
        rank.poison_all();
        return;
    }
    let next = rank.next();
    let arrived = if mistake {
        let word = rank.word(rank.number, next.parity());
        rank.machine.modify("arrive", word, Release, |_| next.word());
        true
    } else {
        rank.arrive()
    };
    let together = arrived && rank.wait_for(1 - rank.number);
    let mut verdicts = rank.shared.verdicts.borrow_mut();
    verdicts[rank.number] = Some(together);
    if let [Some(first), Some(second), _] = verdicts[..] {
        assert!(
            first == second,
            "disagreement: one rank has completed round {}, the other has not",
            next.number()
        );
    }
}
