//! Endpoints that sleep though something has come, lose what was sent before the end, or believe what was revoked.

use Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use intranode::protocol::generation::WAITER;
use intranode::protocol::symmetric::SymmetricPlatform;
use intranode::protocol::{Ordering, Platform};

use crate::harness::known_bad::{KnownBad, Participant, Reason, START};
use crate::harness::waiting::Waiting::Parking;
use crate::harness::word::Word;

/// What the words hold, besides what they hold at the start.
const DONE: u32 = 1;
const WITHDRAWN: u32 = 2;
const CHANGED: u32 = 3;

pub(crate) fn all() -> Vec<KnownBad> {
    let protocol =
        |name, reason, protocol, mistake| KnownBad::protocol(name, reason, Parking, 2, protocol, mistake);
    vec![
        protocol(
            "endpoint_parks_without_a_second_look",
            Reason::Deadlock,
            parks_without_a_second_look,
            "An endpoint finds its channel empty, marks it, and sleeps: a message has come in between.",
        ),
        protocol(
            "endpoint_fences_ahead_of_its_mark",
            Reason::Deadlock,
            fences_ahead_of_its_mark,
            "An endpoint that parks several channels by one fence marks one of them behind it, looks, and sleeps: neither sees what \
             the other has written.",
        ),
        protocol(
            "endpoint_reads_packets_after_arming",
            Reason::Deadlock,
            reads_packets_after_arming,
            "An endpoint marks, looks, and only then reads the packets of before: with them the one that tells of a message \
             which came behind the look.",
        ),
        protocol(
            "endpoint_mark_taken_without_a_packet",
            Reason::Deadlock,
            mark_taken_without_a_packet,
            "A peer takes the mark away, and sends no packet: the endpoint sleeps on, and so do all later messages.",
        ),
        protocol(
            "endpoint_revoked_without_a_second_check",
            Reason::Assertion("revoked bytes"),
            revoked_without_a_second_check,
            "A peer checks its lease before each piece that it pulls, and not behind the last: the owner has revoked meanwhile, and \
             changed its memory.",
        ),
        protocol(
            "endpoint_confirms_by_a_load",
            Reason::Assertion("revoked bytes"),
            confirms_by_a_load,
            "A peer that leaves its lease open looks behind the last piece whether it stands, by a load: that may find what the lease was              before the owner has revoked, though the piece is from behind that.",
        ),
        protocol(
            "endpoint_takes_the_rest_before_it_looks_at_closed",
            Reason::Assertion("a message is lost"),
            takes_the_rest_first,
            "An endpoint is told that a peer has hung up, takes in what it sees, and then looks whether the peer had closed: what it \
             sees by then has come too late.",
        ),
    ]
}

/// The word that publishes a message of thread 1's.
fn turn<'a>(rank: &Participant<'a>) -> &'a Word {
    &rank.shared.words[1][0]
}

/// The mark of thread 0.
fn mark<'a>(rank: &Participant<'a>) -> &'a Word {
    &rank.shared.words[0][0]
}

/// The packets for thread 0.
fn packets<'a>(rank: &Participant<'a>) -> &'a Word {
    &rank.shared.words[0][1]
}

/// No packet waits.
fn none() -> u32 {
    START.initial_words()[1]
}

/// Publishes a message; takes the mark, if it is there, and sends a packet.
fn sends(rank: &Participant<'_>, with_packet: bool) {
    rank.machine.store("publish", turn(rank), DONE, Release);
    rank.machine.fence("fence", SeqCst);
    let seen = rank.machine.load("look-for-mark", mark(rank), Relaxed);
    let takes =
        |seen: u32| rank.machine.compare_exchange("take", mark(rank), seen, seen & !WAITER, Relaxed, Relaxed);
    if seen & WAITER != 0 && takes(seen).is_ok() && with_packet {
        rank.machine.modify("packet", packets(rank), AcqRel, |_| DONE);
        rank.machine.wake_all("packet-wake", packets(rank));
    }
}

fn reads_packets(rank: &Participant<'_>) {
    rank.machine.modify("read-packets", packets(rank), AcqRel, |_| none());
}

fn marks(rank: &Participant<'_>) {
    rank.machine.fetch_or("mark", mark(rank), WAITER, Relaxed);
    rank.machine.fence("fence", SeqCst);
}

fn has_come(rank: &Participant<'_>) -> bool {
    rank.machine.load("arrived", turn(rank), Acquire) == DONE
}

/// Waits until a packet is there.
fn sleeps(rank: &Participant<'_>) {
    let _ = rank.machine.wait("epoll", packets(rank), none(), &false);
}

fn parks_without_a_second_look(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 1 {
        return sends(rank, true);
    }
    while !has_come(rank) {
        reads_packets(rank);
        marks(rank);
        if mistake || !has_come(rank) {
            sleeps(rank);
        }
    }
}

fn fences_ahead_of_its_mark(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 1 {
        return sends(rank, true);
    }
    loop {
        reads_packets(rank);
        if mistake {
            rank.machine.fence("fence", SeqCst);
            rank.machine.fetch_or("mark", mark(rank), WAITER, Relaxed);
        } else {
            marks(rank);
        }
        if has_come(rank) {
            return;
        }
        sleeps(rank);
    }
}

fn reads_packets_after_arming(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 1 {
        return sends(rank, true);
    }
    loop {
        if !mistake {
            reads_packets(rank);
        }
        marks(rank);
        if has_come(rank) {
            return;
        }
        if mistake {
            reads_packets(rank);
        }
        sleeps(rank);
    }
}

fn mark_taken_without_a_packet(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 1 {
        return sends(rank, !mistake);
    }
    loop {
        reads_packets(rank);
        marks(rank);
        if has_come(rank) {
            return;
        }
        sleeps(rank);
    }
}

/// Thread 0 revokes, and changes its memory, of which thread 1 pulls two pieces.
fn revoked_without_a_second_check(rank: &mut Participant<'_>, mistake: bool) {
    let (lease, pieces) = (turn(rank), [mark(rank), packets(rank)]);
    let standing = START.initial_words()[0];
    if rank.number == 0 {
        let _ = rank.machine.compare_exchange("withdraw", lease, standing, WITHDRAWN, Relaxed, Acquire);
        return pieces.into_iter().for_each(|piece| rank.machine.store("change", piece, CHANGED, Relaxed));
    }
    let mut copied = Vec::new();
    for piece in pieces {
        if rank.machine.load("offered", lease, Relaxed) != standing {
            return;
        }
        copied.push(rank.machine.load("copy", piece, Relaxed));
    }
    let pulled =
        mistake || rank.machine.compare_exchange("settle", lease, standing, DONE, Release, Relaxed).is_ok();
    assert!(!pulled || !copied.contains(&CHANGED), "revoked bytes were received");
}

/// The same with a lease that stays open.
fn confirms_by_a_load(rank: &mut Participant<'_>, mistake: bool) {
    let (lease, piece) = (turn(rank), mark(rank));
    let standing = START.initial_words()[0];
    if rank.number == 0 {
        let _ = rank.machine.compare_exchange("withdraw", lease, standing, WITHDRAWN, Acquire, Acquire);
        return rank.machine.store("change", piece, CHANGED, Relaxed);
    }
    let copied = rank.machine.load("copy", piece, Relaxed);
    let stands = if mistake {
        rank.machine.load("confirm", lease, Relaxed) == standing
    } else {
        rank.machine.compare_exchange("confirm", lease, standing, standing, Release, Relaxed).is_ok()
    };
    assert!(!stands || copied != CHANGED, "revoked bytes were received");
}

/// Thread 1 sends, closes and hangs up. The system tells that it has, and orders nothing.
fn takes_the_rest_first(rank: &mut Participant<'_>, mistake: bool) {
    let (closed, hung_up) = (mark(rank), packets(rank));
    if rank.number == 1 {
        rank.machine.store("publish", turn(rank), DONE, Release);
        rank.machine.store("close", closed, DONE, Release);
        rank.machine.store("hang-up", hung_up, DONE, Relaxed);
        return rank.machine.wake_all("hang-up-wake", hung_up);
    }
    while rank.machine.load("hung-up", hung_up, Relaxed) != DONE {
        sleeps(rank);
    }
    let has_closed = || rank.machine.load("closed", closed, Acquire) == DONE;
    let (has_come, has_closed) = if mistake {
        let has_come = has_come(rank);
        (has_come, has_closed())
    } else {
        let has_closed = has_closed();
        (has_come(rank), has_closed)
    };
    assert!(has_come || !has_closed, "a message is lost");
}
