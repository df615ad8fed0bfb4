//! Barriers that textbooks warn of, and one that a specification asks for.

use intranode::protocol::{Generation, Ordering, Platform};

use super::{KnownBad, Party, Reason};
use crate::machine::Waiting;
use Ordering::{AcqRel, Acquire, Release};

/// One generation, in the units of a word.
const UNIT: u32 = Generation::new(1).word();

pub(crate) const ALL: [KnownBad; 3] = [
    KnownBad {
        name: "no_generation",
        story: "Arrival is a flag that its owner takes down again: a slow rank never sees it up.",
        reason: Reason::Deadlock,
        waiting: Waiting::Blocking,
        threads: 2,
        run: no_generation,
    },
    KnownBad {
        name: "count_reset_after_release",
        story: "The last to arrive lets the others go before it resets the count: an early next arrival is lost.",
        reason: Reason::Deadlock,
        waiting: Waiting::Blocking,
        threads: 2,
        run: count_reset_after_release,
    },
    KnownBad {
        name: "collective_seq",
        story: "Rank 0 counts a collective as complete when it has read itself: \
                it overwrites its buffer under a rank that still reads.",
        reason: Reason::Race,
        waiting: Waiting::Blocking,
        threads: 2,
        run: collective_seq,
    },
];

fn no_generation(party: &mut Party<'_>, mistake: bool) {
    let (mine, other) = (party.word(party.rank, 0), party.word(1 - party.rank, 0));
    let start = mine.newest.get();
    for round in 1..=2 {
        let up = if mistake { start + UNIT } else { start + UNIT * round };
        party.machine.modify("raise", mine, Release, |_| up);
        let _ = party.machine.spin("spin", other, Acquire, false, |seen| seen >= up);
        if mistake {
            party.machine.modify("lower", mine, Release, |_| start);
        }
    }
}

/// The central barrier of the next two: rank 0's words are the count and the generation.
fn central(party: &Party<'_>, reset_late: bool) {
    let (count, generation) = (party.word(0, 0), party.word(0, 1));
    let now = party.machine.load("generation", generation, Acquire);
    let ranks = party.ground.words.len() as u32;
    // The count starts at START, in the units of a word.
    let start = UNIT * super::START;
    let arrived = party.machine.modify("arrive", count, AcqRel, |seen| seen + UNIT);
    if arrived != start + UNIT * (ranks - 1) {
        let _ = party.machine.spin("spin", generation, Acquire, false, |seen| seen != now);
        return;
    }
    if !reset_late {
        party.machine.modify("reset", count, Release, |_| start);
    }
    party.machine.modify("release", generation, Release, |seen| seen + UNIT);
    if reset_late {
        party.machine.modify("reset", count, Release, |_| start);
    }
}

fn count_reset_after_release(party: &mut Party<'_>, mistake: bool) {
    for _ in 0..2 {
        central(party, mistake);
    }
}

fn collective_seq(party: &mut Party<'_>, mistake: bool) {
    let sequence = party.word(1, 0);
    let start = UNIT * super::START;
    for collective in 0..2 {
        let _ =
            party.machine.spin("sequence", sequence, Acquire, false, |seen| seen >= start + UNIT * collective);
        party.write(0);
        central(party, false);
        party.read(1 - party.rank, 0);
        if !mistake {
            central(party, false);
        }
        if party.rank == 0 {
            party.machine.modify("bump", sequence, Release, |seen| seen + UNIT);
        }
    }
}
