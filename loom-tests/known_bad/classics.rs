//! Barriers that textbooks warn of, and one that a specification asks for.

use Ordering::{AcqRel, Acquire, Release};
use intranode::protocol::{Generation, Ordering, Platform};

use crate::harness::known_bad::{KnownBad, Participant, Reason, START};
use crate::harness::waiting::Waiting::Blocking;

/// One generation, in the units of a word.
const UNIT: u32 = Generation::new(1).word();

pub(crate) fn all() -> Vec<KnownBad> {
    vec![
        KnownBad::protocol(
            "no_generation",
            Reason::Deadlock,
            Blocking,
            2,
            no_generation,
            "Arrival is a flag that its owner lowers again: a slow rank never sees it raised.",
        ),
        KnownBad::protocol(
            "count_reset_after_release",
            Reason::Deadlock,
            Blocking,
            2,
            count_reset_after_release,
            "The last to arrive lets the others go before it resets the count: an early next arrival is lost.",
        ),
        KnownBad::race(
            "collective_seq",
            2,
            collective_seq,
            "Rank 0 counts a collective as complete when it has read itself: \
             it overwrites its buffer under a rank that still reads.",
        ),
    ]
}

fn no_generation(rank: &mut Participant<'_>, mistake: bool) {
    let (mine, other) = (rank.word(rank.number, 0), rank.word(1 - rank.number, 0));
    let start = mine.newest.get();
    for round in 1..=2 {
        let up = if mistake { start + UNIT } else { start + UNIT * round };
        rank.machine.modify("raise", mine, Release, |_| up);
        let _ = rank.machine.spin("spin", other, Acquire, false, |seen| seen >= up);
        if mistake {
            rank.machine.modify("lower", mine, Release, |_| start);
        }
    }
}

/// The central barrier of the next two: rank 0's words are the count and the generation.
fn central(rank: &Participant<'_>, reset_late: bool) {
    let (count, generation) = (rank.word(0, 0), rank.word(0, 1));
    let now = rank.machine.load("generation", generation, Acquire);
    let ranks = rank.shared.words.len() as u32;
    // The count starts at START, in the units of a word.
    let start = START.word();
    let arrived = rank.machine.modify("arrive", count, AcqRel, |seen| seen + UNIT);
    if arrived != start + UNIT * (ranks - 1) {
        let _ = rank.machine.spin("spin", generation, Acquire, false, |seen| seen != now);
        return;
    }
    if !reset_late {
        rank.machine.modify("reset", count, Release, |_| start);
    }
    rank.machine.modify("release", generation, Release, |seen| seen + UNIT);
    if reset_late {
        rank.machine.modify("reset", count, Release, |_| start);
    }
}

fn count_reset_after_release(rank: &mut Participant<'_>, mistake: bool) {
    for _ in 0..2 {
        central(rank, mistake);
    }
}

fn collective_seq(rank: &mut Participant<'_>, mistake: bool) {
    let sequence = rank.word(1, 0);
    let start = START.word();
    for collective in 0..2 {
        let _ =
            rank.machine.spin("sequence", sequence, Acquire, false, |seen| seen >= start + UNIT * collective);
        rank.write(0);
        central(rank, false);
        rank.read(1 - rank.number, 0);
        if !mistake {
            central(rank, false);
        }
        if rank.number == 0 {
            rank.machine.modify("bump", sequence, Release, |seen| seen + UNIT);
        }
    }
}
