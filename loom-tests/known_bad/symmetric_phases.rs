//! The rounds between the phases of a symmetric object, each left too early.

use crate::harness::known_bad::{KnownBad, Participant};

pub(crate) fn all() -> Vec<KnownBad> {
    vec![
        KnownBad::race(
            "symmetric_owned_before_all_have_put",
            2,
            owned_before_all_have_put,
            "A rank writes its own instance as soon as it has made its own last put: a peer still puts there.",
        ),
        KnownBad::race(
            "symmetric_put_before_all_have_opened",
            2,
            put_before_all_have_opened,
            "A rank puts as soon as it has given up its own references: a peer still reads its instance.",
        ),
        KnownBad::race(
            "symmetric_reused_before_all_have_dropped",
            3,
            reused_before_all_have_dropped,
            "Memory is given out again when two ranks have dropped what was there: the third still puts there.",
        ),
    ]
}

/// The cell of each rank that stands for its instance.
const INSTANCE: usize = 0;

/// A round in which the rank waits for some of the others only.
fn round_with(rank: &mut Participant<'_>, waits_for: impl Fn(usize) -> bool) {
    rank.arrive();
    for other in rank.others().into_iter().filter(|other| waits_for(*other)) {
        rank.wait_for(other);
    }
    rank.completed = rank.next();
}

fn owned_before_all_have_put(rank: &mut Participant<'_>, mistake: bool) {
    rank.put(1 - rank.number, INSTANCE);
    round_with(rank, |_| !mistake);
    rank.write(INSTANCE);
}

fn put_before_all_have_opened(rank: &mut Participant<'_>, mistake: bool) {
    rank.read(rank.number, INSTANCE);
    round_with(rank, |_| !mistake);
    rank.put(1 - rank.number, INSTANCE);
}

fn reused_before_all_have_dropped(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 2 {
        rank.put(0, INSTANCE);
    }
    round_with(rank, |other| other != 2 || !mistake);
    if rank.number == 0 {
        rank.write(INSTANCE);
    }
}
