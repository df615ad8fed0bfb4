//! The rounds between the epochs of a region, each left too early.

use super::{KnownBad, Party, Reason};
use crate::machine::Waiting;

const fn race(
    name: &'static str,
    threads: usize,
    run: fn(&mut Party<'_>, bool),
    story: &'static str,
) -> KnownBad {
    KnownBad { name, story, reason: Reason::Race, waiting: Waiting::Blocking, threads, run }
}

pub(crate) const ALL: [KnownBad; 5] = [
    race(
        "region_read_before_all_have_published",
        2,
        read_before_all_have_published,
        "A rank reads as soon as it has published itself: a peer still writes.",
    ),
    race(
        "region_read_when_the_leader_has_published",
        3,
        read_when_the_leader_has_published,
        "A rank waits for the leader alone: another rank still writes its part.",
    ),
    race(
        "region_written_before_all_have_given_back",
        2,
        written_before_all_have_given_back,
        "A rank writes as soon as it has given back itself: a peer still reads.",
    ),
    race(
        "region_reader_arrives_and_reads_on",
        2,
        reader_arrives_and_reads_on,
        "A reader keeps a reference when it arrives at the round that takes back: the owner writes under it.",
    ),
    race(
        "exchange_kept_across_a_turn",
        2,
        exchange_kept_across_a_turn,
        "A reader keeps what a turn has brought across the next: two turns later the owner writes under it.",
    ),
];

/// The cell of each rank that stands for its part of the region.
const REGION: usize = 0;

/// Arrives, waits for some, and has completed the round.
fn round_with(party: &mut Party<'_>, whom: impl Fn(usize) -> bool) {
    party.arrive();
    for rank in party.others().into_iter().filter(|rank| whom(*rank)) {
        party.wait_for(rank);
    }
    party.completed = party.next();
}

fn read_all(party: &Party<'_>) {
    for rank in party.others() {
        party.read(rank, REGION);
    }
}

fn read_before_all_have_published(party: &mut Party<'_>, mistake: bool) {
    party.write(REGION);
    round_with(party, |_| !mistake);
    read_all(party);
}

fn read_when_the_leader_has_published(party: &mut Party<'_>, mistake: bool) {
    party.write(REGION);
    round_with(party, |rank| rank == 0 || !mistake);
    read_all(party);
}

fn written_before_all_have_given_back(party: &mut Party<'_>, mistake: bool) {
    party.write(REGION);
    party.round();
    read_all(party);
    round_with(party, |_| !mistake);
    party.write(REGION);
}

fn reader_arrives_and_reads_on(party: &mut Party<'_>, mistake: bool) {
    party.write(REGION);
    party.round();
    read_all(party);
    party.round();
    if party.rank == 0 {
        party.write(REGION);
    } else if mistake {
        party.read(0, REGION);
    }
}

fn exchange_kept_across_a_turn(party: &mut Party<'_>, mistake: bool) {
    for turn in 0..2 {
        party.write(turn);
        party.round();
        party.read(1 - party.rank, turn);
    }
    if party.rank == 0 {
        party.write(0);
    } else if mistake {
        party.read(0, 0);
    }
}
