//! Poison in the wrong place, and poison that is lost.

use intranode::protocol::generation::{POISON, WAITER};
use intranode::protocol::{Ordering, Platform};

use super::{KnownBad, Party, Reason};
use crate::machine::{Waiting, Word};
use Ordering::{AcqRel, Acquire, Relaxed, Release};

pub(crate) const ALL: [KnownBad; 4] = [
    KnownBad {
        name: "separate_poison_word",
        story: "A rank looks at a poison word before it sleeps on another: \
                the poisoner wakes an empty queue in between.",
        reason: Reason::Deadlock,
        waiting: Waiting::Parking,
        threads: 2,
        run: separate_poison_word,
    },
    KnownBad {
        name: "arrive_by_swap",
        story: "An arrival that overwrites whatever is there erases poison: ranks disagree about the round.",
        reason: Reason::Assertion("disagreement"),
        waiting: Waiting::Blocking,
        threads: 3,
        run: arrive_by_swap,
    },
    KnownBad {
        name: "selfish_survivor",
        story: "A rank that meets poison goes without waking: who had poisoned died before it could, \
                and a sleeper stays asleep.",
        reason: Reason::Deadlock,
        waiting: Waiting::Parking,
        threads: 3,
        run: selfish_survivor,
    },
    KnownBad {
        name: "spread_said_too_early",
        story: "A poisoner says that it has been everywhere before it has woken the sleepers, and dies: \
                the next is spared the way, and a sleeper stays asleep.",
        reason: Reason::Deadlock,
        waiting: Waiting::Parking,
        threads: 3,
        run: spread_said_too_early,
    },
];

/// Thread 0 waits for thread 1, which does not arrive but poisons. Thread 0's other word is the poison word.
fn separate_poison_word(party: &mut Party<'_>, mistake: bool) {
    let next = party.next();
    let old = next.previous().previous().word();
    let word = party.word(1, next.parity());
    let poison = if mistake { party.word(0, 0) } else { word };
    if party.rank == 1 {
        party.machine.fetch_or("poison", poison, POISON, AcqRel);
        party.machine.wake_all("poison-wake", word);
        return;
    }
    sleep_on(party, word, old, || party.machine.load("poisoned?", poison, Acquire) & POISON != 0);
}

/// Sleeps until the word is not `old` any more, or there is no need to.
fn sleep_on(party: &Party<'_>, word: &Word, old: u32, needless: impl Fn() -> bool) {
    while !needless() {
        let marked = party.machine.compare_exchange("waiter", word, old, old | WAITER, Relaxed, Acquire);
        match marked {
            Err(seen) if seen & !WAITER != old => return,
            _ => {}
        }
        let _ = party.machine.wait("sleep", word, old | WAITER, &false);
    }
}

/// Thread 1 waits for thread 0, whose word thread 2 poisons. It dies before it can wake anybody.
fn selfish_survivor(party: &mut Party<'_>, mistake: bool) {
    let next = party.next();
    let old = next.previous().previous().word();
    let word = party.word(0, next.parity());
    match party.rank {
        0 => {
            let arrive =
                |from| party.machine.compare_exchange("arrive", word, from, next.word(), Release, Relaxed);
            if arrive(old).is_ok() {
                return;
            }
            let poisoned = arrive(old | WAITER).is_err();
            if !(poisoned && mistake) {
                party.machine.wake_all("wake", word);
            }
        }
        1 => sleep_on(party, word, old, || false),
        _ => {
            party.machine.fetch_or("poison", word, POISON, AcqRel);
        }
    }
}

/// Thread 1 waits for thread 0, which leaves by poisoning. Thread 2 has poisoned before, and dies on the way. Thread 0's
/// other word says that the poison is everywhere.
fn spread_said_too_early(party: &mut Party<'_>, mistake: bool) {
    let next = party.next();
    let old = next.previous().previous().word();
    let (word, spread) = (party.word(0, next.parity()), party.word(0, 1 - next.parity()));
    let machine = party.machine;
    match party.rank {
        0 => {
            if machine.load("spread-known", spread, Acquire) & POISON == 0 {
                machine.fetch_or("poison", word, POISON, AcqRel);
                machine.wake_all("poison-wake", word);
            }
        }
        1 => sleep_on(party, word, old, || false),
        _ => {
            machine.fetch_or("poison", word, POISON, AcqRel);
            if mistake {
                machine.fetch_or("spread", spread, POISON, Release);
            }
        }
    }
}

/// Threads 0 and 1 meet, thread 2 poisons.
fn arrive_by_swap(party: &mut Party<'_>, mistake: bool) {
    if party.rank == 2 {
        party.poison_all();
        return;
    }
    let next = party.next();
    let arrived = if mistake {
        let word = party.word(party.rank, next.parity());
        party.machine.modify("arrive", word, Release, |_| next.word());
        true
    } else {
        party.arrive()
    };
    let together = arrived && party.wait_for(1 - party.rank);
    let mut verdicts = party.ground.verdicts.borrow_mut();
    verdicts[party.rank] = Some(together);
    if let [Some(first), Some(second), _] = verdicts[..] {
        assert!(
            first == second,
            "disagreement: one rank has completed round {}, the other has not",
            next.number()
        );
    }
}
