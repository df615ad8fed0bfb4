//! The rounds between the epochs of a region, each left too early.

use Ordering::{AcqRel, Relaxed};
use intranode::protocol::generation::POISON;
use intranode::protocol::{Ordering, Platform};

use crate::harness::known_bad::{KnownBad, Participant, Reason};
use crate::harness::waiting::Waiting::Blocking;

pub(crate) fn all() -> Vec<KnownBad> {
    vec![
        KnownBad::race(
            "region_read_before_all_have_published",
            2,
            read_before_all_have_published,
            "A rank reads as soon as it has published itself: a peer still writes.",
        ),
        KnownBad::race(
            "region_read_when_the_leader_has_published",
            3,
            read_when_the_leader_has_published,
            "A rank waits for the leader alone: another rank still writes its block.",
        ),
        KnownBad::race(
            "region_written_before_all_have_reclaimed",
            2,
            written_before_all_have_reclaimed,
            "A rank writes as soon as it has reclaimed itself: a peer still reads.",
        ),
        KnownBad::race(
            "region_reader_arrives_and_reads_on",
            2,
            reader_arrives_and_reads_on,
            "A reader keeps a reference when it arrives at the round that reclaims: the owner writes under it.",
        ),
        KnownBad::race(
            "exchange_kept_across_a_round",
            2,
            exchange_kept_across_a_round,
            "A reader keeps what one round has brought across the next: two rounds later the owner writes under it.",
        ),
        KnownBad::race(
            "in_place_without_a_second_round",
            2,
            in_place_without_a_second_round,
            "A rank whose block is read in place returns after the round that has published it, and writes: a peer still reads.",
        ),
        KnownBad::race(
            "result_over_a_contribution_in_place",
            2,
            result_over_a_contribution_in_place,
            "The other rank's slice of the result is written over the contribution before that rank has folded it.",
        ),
        KnownBad::race(
            "offer_taken_for_granted",
            2,
            offer_taken_for_granted,
            "A rank takes its offer as accepted before the others have answered, and writes its staging again: a peer that does \
             not have the region reads it.",
        ),
        KnownBad::race(
            "found_memory_is_forgotten",
            2,
            found_memory_is_forgotten,
            "A rank says that it has found a peer's buffer, and gives its mapping back when the call ends: in the next call, in \
             which nothing is offered any more, it turns to staging, which the peer writes again.",
        ),
        KnownBad::protocol(
            "in_place_kept_though_given_up",
            Reason::Assertion("wrong data"),
            Blocking,
            3,
            in_place_kept_though_given_up,
            "A rank keeps what it has read in place though it could not arrive at the last round: its peer has given up, \
             returned, and written its buffer.",
        ),
    ]
}

/// The cell of each rank that stands for its block of the region.
const REGION: usize = 0;

/// A round in which the rank waits for some of the others only.
fn round_with(rank: &mut Participant<'_>, waits_for: impl Fn(usize) -> bool) {
    rank.arrive();
    for other in rank.others().into_iter().filter(|other| waits_for(*other)) {
        rank.wait_for(other);
    }
    rank.completed = rank.next();
}

fn read_all(rank: &Participant<'_>) {
    for owner in rank.others() {
        rank.read(owner, REGION);
    }
}

fn read_before_all_have_published(rank: &mut Participant<'_>, mistake: bool) {
    rank.write(REGION);
    round_with(rank, |_| !mistake);
    read_all(rank);
}

fn read_when_the_leader_has_published(rank: &mut Participant<'_>, mistake: bool) {
    rank.write(REGION);
    round_with(rank, |other| other == 0 || !mistake);
    read_all(rank);
}

fn written_before_all_have_reclaimed(rank: &mut Participant<'_>, mistake: bool) {
    rank.write(REGION);
    rank.round();
    read_all(rank);
    round_with(rank, |_| !mistake);
    rank.write(REGION);
}

fn reader_arrives_and_reads_on(rank: &mut Participant<'_>, mistake: bool) {
    rank.write(REGION);
    rank.round();
    read_all(rank);
    rank.round();
    if rank.number == 0 {
        rank.write(REGION);
    } else if mistake {
        rank.read(0, REGION);
    }
}

fn exchange_kept_across_a_round(rank: &mut Participant<'_>, mistake: bool) {
    for buffer in 0..2 {
        rank.write(buffer);
        rank.round();
        rank.read(1 - rank.number, buffer);
    }
    if rank.number == 0 {
        rank.write(0);
    } else if mistake {
        rank.read(0, 0);
    }
}

fn in_place_without_a_second_round(rank: &mut Participant<'_>, mistake: bool) {
    rank.write(REGION);
    rank.round();
    read_all(rank);
    if !mistake {
        rank.round();
    }
    // The next call's data.
    rank.write(REGION);
}

fn result_over_a_contribution_in_place(rank: &mut Participant<'_>, mistake: bool) {
    let (own, other) = (rank.number, 1 - rank.number);
    rank.write(0);
    rank.write(1);
    rank.round();
    // Each rank folds a slice, and puts it in the place of its own contribution.
    rank.read(other, own);
    rank.write(own);
    if !mistake {
        rank.round();
    }
    rank.write(other);
}

fn offer_taken_for_granted(rank: &mut Participant<'_>, mistake: bool) {
    const STAGING: usize = 0;
    rank.write(STAGING);
    rank.round();
    // It does not have the region that rank 0 has offered.
    if rank.number == 1 {
        rank.read(0, STAGING);
    }
    // Its answer.
    if !mistake {
        rank.round();
    }
    if rank.number == 0 {
        rank.write(STAGING);
    }
}

fn found_memory_is_forgotten(rank: &mut Participant<'_>, mistake: bool) {
    const STAGING: usize = 0;
    const MEMORY: usize = 1;
    if rank.number == 0 {
        rank.write(MEMORY);
    }
    // The offer, the answer, and the call, which ends after one more round.
    for _ in 0..4 {
        rank.round();
    }
    // The next call: the place is known.
    rank.round();
    if rank.number == 1 {
        rank.read(0, if mistake { STAGING } else { MEMORY });
    } else {
        rank.write(STAGING);
    }
}

/// Thread 1 reads what is in place at thread 0, which arrives at the last round, and gives up at once. A word of thread 2, which
/// does nothing, is that memory.
fn in_place_kept_though_given_up(rank: &mut Participant<'_>, mistake: bool) {
    const CHANGED: u32 = 77;
    if rank.number == 2 {
        return;
    }
    assert!(rank.arrive() && rank.wait_for(1 - rank.number), "poison before anybody has given up");
    rank.completed = rank.next();
    let memory = rank.word(2, 0);
    if rank.number == 0 {
        rank.arrive();
        rank.machine.fetch_or("poison", rank.word(1, rank.next().parity()), POISON, AcqRel);
        rank.machine.store("changed", memory, CHANGED, Relaxed);
    } else {
        let read = rank.machine.load("read-in-place", memory, Relaxed);
        let keeps = rank.arrive() || mistake;
        assert!(!keeps || read != CHANGED, "wrong data: what the peer has written after it gave up");
    }
}
