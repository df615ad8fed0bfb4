//! Messages that are lost, torn, or in each other's way: the faults of other libraries among them.

use Ordering::{AcqRel, Acquire, Relaxed, Release};
use intranode::protocol::{Ordering, Platform};

use crate::harness::known_bad::{KnownBad, Participant, Reason};
use crate::harness::waiting::Waiting::Parking;
use crate::harness::word::Word;

/// What the words of the protocols here hold, besides what they hold at the start.
const DONE: u32 = 1;
const WITHDRAWN: u32 = 2;
const CHANGED: u32 = 3;

pub(crate) fn all() -> Vec<KnownBad> {
    let deadlock = |name, threads, protocol, mistake| {
        KnownBad::protocol(name, Reason::Deadlock, Parking, threads, protocol, mistake)
    };
    let assertion = |name, text, protocol, mistake| {
        KnownBad::protocol(name, Reason::Assertion(text), Parking, 2, protocol, mistake)
    };
    vec![
        KnownBad::race(
            "message_published_before_its_bytes",
            2,
            published_before_its_bytes,
            "A sender publishes a cell before it has written it.",
        ),
        KnownBad::race(
            "message_credit_before_the_copy",
            2,
            credit_before_the_copy,
            "A receiver says that it has taken a cell, or pulled a message, before it has copied it: the sender writes \
             there again.",
        ),
        KnownBad::race(
            "message_slot_that_is_not_blank",
            2,
            slot_that_is_not_blank,
            "A sender publishes a slot, and leaves the word of the next one as the payload of an earlier cell has made it: the receiver \
             takes that for a message.",
        ),
        KnownBad::race(
            "message_line_answered_unread",
            2,
            line_answered_unread,
            "A sender takes whatever comes from the other side for an acknowledgement, and writes the line of the pair again: the other \
             side has sent before it has read.",
        ),
        deadlock(
            "message_credit_without_a_ring",
            2,
            credit_without_a_ring,
            "A receiver takes a cell and does not ring: the sender that waits for room sleeps on.",
        ),
        deadlock(
            "message_claimed_element",
            3,
            claimed_element,
            "Two senders claim elements of one queue (as UCX's), and the first is killed before it has filled its own: the \
             receiver waits for it, and never sees what the second has sent.",
        ),
        deadlock(
            "message_shared_pool",
            3,
            shared_pool,
            "All senders have their buffers from one pool (as Mercury's), and one is killed when it has taken the last: no \
             other can send.",
        ),
        deadlock(
            "message_queue_with_head_and_tail",
            3,
            queue_with_head_and_tail,
            "A sender claims a place by the head of one queue, and moves the tail when it has filled it (as Mercury's, and \
             others). The first is killed in between: the second waits for it, and the receiver sees neither.",
        ),
        deadlock(
            "message_credits_not_flushed",
            2,
            credits_not_flushed,
            "A receiver says only now and then that it has taken cells, and sleeps before it does: the sender that waits for \
             room sleeps too.",
        ),
        deadlock(
            "message_ticket_after_the_look",
            2,
            ticket_after_the_look,
            "A receiver looks for a message, and reads its bell only then: it sleeps on the value that tells of the message.",
        ),
        assertion(
            "message_pulled_without_a_second_look",
            "withdrawn bytes",
            pulled_without_a_second_look,
            "A receiver sees that an offer stands, copies, and says that it has: the sender has withdrawn it in between, and \
             changed its memory.",
        ),
        assertion(
            "message_withdrawn_by_a_store",
            "received and withdrawn",
            withdrawn_by_a_store,
            "A sender looks whether its offer stands, and stores that it is withdrawn: the receiver has pulled it in between.",
        ),
    ]
}

/// The word that publishes a cell of thread 0's.
fn turn<'a>(rank: &Participant<'a>) -> &'a Word {
    &rank.shared.words[0][0]
}

/// What thread 1 says about it: that it is taken, or what has become of an offer.
fn taken<'a>(rank: &Participant<'a>) -> &'a Word {
    &rank.shared.words[1][0]
}

/// The bell of thread 0.
fn bell<'a>(rank: &Participant<'a>) -> &'a Word {
    &rank.shared.words[0][1]
}

/// Polls until the word holds this.
fn awaits(rank: &Participant<'_>, word: &Word, value: u32) {
    let _ = rank.machine.spin("spin", word, Acquire, false, |seen| seen == value);
}

/// Sleeps until the word holds this.
fn sleeps_until(rank: &Participant<'_>, word: &Word, value: u32) {
    loop {
        let seen = rank.machine.load("look", word, Acquire);
        if seen == value {
            return;
        }
        let _ = rank.machine.wait("sleep", word, seen, &false);
    }
}

fn fills(rank: &Participant<'_>, word: &Word) {
    rank.machine.modify("fill", word, Release, |_| DONE);
    rank.machine.wake_all("fill-wake", word);
}

fn published_before_its_bytes(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 1 {
        awaits(rank, turn(rank), DONE);
        return rank.read(0, 0);
    }
    if !mistake {
        rank.write(0);
    }
    rank.machine.store("publish", turn(rank), DONE, Release);
    if mistake {
        rank.write(0);
    }
}

fn credit_before_the_copy(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 0 {
        rank.write(0);
        rank.machine.store("publish", turn(rank), DONE, Release);
        awaits(rank, taken(rank), DONE);
        return rank.write(0);
    }
    awaits(rank, turn(rank), DONE);
    if !mistake {
        rank.read(0, 0);
    }
    rank.machine.store("take", taken(rank), DONE, Release);
    if mistake {
        rank.read(0, 0);
    }
}

/// The word of the next slot holds what publishes it until the sender has made it blank.
fn slot_that_is_not_blank(rank: &mut Participant<'_>, mistake: bool) {
    let (first, second) = (turn(rank), bell(rank));
    if rank.number == 1 {
        awaits(rank, first, DONE);
        awaits(rank, second, DONE);
        return rank.read(0, 0);
    }
    rank.machine.store("before", second, DONE, Relaxed);
    if !mistake {
        rank.machine.store("blank", second, CHANGED, Relaxed);
    }
    rank.machine.store("publish", first, DONE, Release);
    rank.write(0);
    rank.machine.store("publish-next", second, DONE, Release);
}

/// Each side has one word, and the message is thread 0's.
fn line_answered_unread(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 0 {
        rank.write(0);
        rank.machine.store("publish", turn(rank), DONE, Release);
        awaits(rank, taken(rank), DONE);
        return rank.write(0);
    }
    if mistake {
        rank.machine.store("answer", taken(rank), DONE, Release);
    }
    awaits(rank, turn(rank), DONE);
    rank.read(0, 0);
    if !mistake {
        rank.machine.store("answer", taken(rank), DONE, Release);
    }
}

fn credit_without_a_ring(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 0 {
        loop {
            let seen = rank.machine.load("bell", bell(rank), Acquire);
            if rank.machine.load("credit", taken(rank), Acquire) == DONE {
                return;
            }
            let _ = rank.machine.wait("sleep", bell(rank), seen, &false);
        }
    }
    rank.machine.store("take", taken(rank), DONE, Release);
    if !mistake {
        rank.machine.modify("ring", bell(rank), AcqRel, |seen| seen.wrapping_add(4));
        rank.machine.wake_all("ring-wake", bell(rank));
    }
}

/// Thread 1 is killed when it has claimed an element. Thread 0 receives what thread 2 has sent.
fn claimed_element(rank: &mut Participant<'_>, mistake: bool) {
    let (first, second, claims) = (turn(rank), bell(rank), taken(rank));
    match rank.number {
        0 => sleeps_until(rank, if mistake { first } else { second }, DONE),
        1 => {
            rank.machine.modify("claim", claims, AcqRel, |seen| seen.wrapping_add(1));
        }
        // Mended, each sender has a queue of its own.
        _ if !mistake => fills(rank, second),
        _ => {
            let before = rank.machine.load("start", claims, Relaxed);
            let claimed_first = before % 16 == 0
                && rank.machine.compare_exchange("claim", claims, before, before + 1, AcqRel, Relaxed).is_ok();
            fills(rank, if claimed_first { first } else { second });
        }
    }
}

/// Thread 1 is killed when it has taken a buffer. Thread 0 frees none, since nobody has sent it anything.
fn shared_pool(rank: &mut Participant<'_>, mistake: bool) {
    let (pool, own) = (taken(rank), bell(rank));
    let takes = |word: &Word| loop {
        let seen = rank.machine.load("pool", word, Acquire);
        if seen != DONE && rank.machine.compare_exchange("take", word, seen, DONE, Acquire, Relaxed).is_ok() {
            return;
        }
        if seen == DONE {
            let _ = rank.machine.wait("sleep", word, seen, &false);
        }
    };
    match rank.number {
        0 => sleeps_until(rank, turn(rank), DONE),
        1 => takes(pool),
        _ => {
            // Mended, each sender has a pool of its own.
            takes(if mistake { pool } else { own });
            fills(rank, turn(rank));
        }
    }
}

/// Thread 1 is killed when it has claimed a place. Thread 0 receives what thread 2 has sent.
fn queue_with_head_and_tail(rank: &mut Participant<'_>, mistake: bool) {
    let (tail, own, head) = (turn(rank), bell(rank), taken(rank));
    let claims = || rank.machine.modify("claim", head, AcqRel, |seen| seen.wrapping_add(1));
    match rank.number {
        0 => sleeps_until(rank, if mistake { tail } else { own }, DONE),
        1 => {
            claims();
        }
        // Mended, each sender has a queue of its own.
        _ if !mistake => fills(rank, own),
        _ => {
            if claims() % 16 != 0 {
                // What comes before it has to be filled first.
                sleeps_until(rank, tail, DONE);
            }
            fills(rank, tail);
        }
    }
}

/// Thread 0 waits for room, and then sends what thread 1 waits for.
fn credits_not_flushed(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 0 {
        sleeps_until(rank, taken(rank), DONE);
        return fills(rank, turn(rank));
    }
    if !mistake {
        fills(rank, taken(rank));
    }
    sleeps_until(rank, turn(rank), DONE);
    if mistake {
        fills(rank, taken(rank));
    }
}

/// Thread 0 receives, and sleeps on its bell.
fn ticket_after_the_look(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 1 {
        rank.machine.store("publish", taken(rank), DONE, Release);
        rank.machine.modify("ring", bell(rank), AcqRel, |seen| seen.wrapping_add(4));
        return rank.machine.wake_all("ring-wake", bell(rank));
    }
    loop {
        let ticket = rank.machine.load("ticket", bell(rank), Acquire);
        if rank.machine.load("arrived", taken(rank), Acquire) == DONE {
            return;
        }
        let late = rank.machine.load("late-ticket", bell(rank), Acquire);
        let _ = rank.machine.wait("sleep", bell(rank), if mistake { late } else { ticket }, &false);
    }
}

/// Thread 0 withdraws an offer, and changes its memory. What the lease holds at the start is that the offer stands.
fn pulled_without_a_second_look(rank: &mut Participant<'_>, mistake: bool) {
    let (lease, memory) = (taken(rank), turn(rank));
    let offered = rank.machine.load("lease", lease, Relaxed);
    if rank.number == 0 {
        let _ = rank.machine.compare_exchange("withdraw", lease, offered, WITHDRAWN, Relaxed, Acquire);
        rank.machine.store("change", memory, CHANGED, Relaxed);
        return;
    }
    if offered == WITHDRAWN {
        return;
    }
    let copied = rank.machine.load("copy", memory, Relaxed);
    let pulled = if mistake {
        rank.machine.store("settle", lease, DONE, Release);
        true
    } else {
        rank.machine.compare_exchange("settle", lease, offered, DONE, Release, Relaxed).is_ok()
    };
    assert!(!pulled || copied != CHANGED, "withdrawn bytes were received");
}

/// Thread 0 withdraws an offer that thread 1 pulls: one of them succeeds.
fn withdrawn_by_a_store(rank: &mut Participant<'_>, mistake: bool) {
    let lease = taken(rank);
    let offered = rank.machine.load("lease", lease, Relaxed);
    let [standing, _] = crate::harness::known_bad::START.initial_words();
    let won = if offered != standing {
        false
    } else if rank.number == 0 && mistake {
        rank.machine.store("withdraw", lease, WITHDRAWN, Relaxed);
        true
    } else {
        let to = if rank.number == 0 { WITHDRAWN } else { DONE };
        rank.machine.compare_exchange("settle", lease, standing, to, AcqRel, Acquire).is_ok()
    };
    let mut verdicts = rank.shared.verdicts.borrow_mut();
    verdicts[rank.number] = Some(won);
    let both = verdicts.iter().all(|won| *won == Some(true));
    assert!(!both, "received and withdrawn");
}
