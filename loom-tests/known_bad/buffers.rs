//! Rules about buffers and about whom to wait for, each broken.

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

pub(crate) const ALL: [KnownBad; 7] = [
    race(
        "one_buffer",
        2,
        one_buffer,
        "One buffer a rank: written for the next round while a peer reads this one's.",
    ),
    race(
        "root_runs_ahead",
        2,
        root_runs_ahead,
        "A root does not wait for its readers: it is two rounds ahead.",
    ),
    race(
        "readers_wait_for_root_only",
        3,
        readers_wait_for_root_only,
        "A reader waits for the root alone: as the next root it overwrites what a slower reader still reads.",
    ),
    race(
        "refuser_leaves",
        2,
        refuser_leaves,
        "A rank that refuses does not wait: after two refusals it laps a peer.",
    ),
    race(
        "parity_by_chunk",
        2,
        parity_by_chunk,
        "The buffer follows the chunk's index: two calls of one chunk each share a buffer in a row.",
    ),
    race(
        "slice_in_place",
        2,
        slice_in_place,
        "The folded slice is written over contributions that others still fold.",
    ),
    race(
        "memory_changes_early",
        2,
        memory_changes_early,
        "A rank that has fetched what it needs returns, and writes to what others fetch from it.",
    ),
];

fn one_buffer(party: &mut Party<'_>, mistake: bool) {
    for _ in 0..2 {
        party.write(if mistake { 0 } else { party.next().parity() });
        let parity = party.round();
        party.read(1 - party.rank, if mistake { 0 } else { parity });
    }
}

fn memory_changes_early(party: &mut Party<'_>, mistake: bool) {
    party.write(0);
    party.round();
    party.read(1 - party.rank, 0);
    if !mistake {
        party.round();
    }
    party.write(0);
}

fn root_runs_ahead(party: &mut Party<'_>, mistake: bool) {
    for _ in 0..3 {
        let parity = party.next().parity();
        if party.rank == 0 {
            party.write(parity);
        }
        party.arrive();
        if party.rank != 0 || !mistake {
            party.wait_for_all();
        }
        party.completed = party.next();
        if party.rank != 0 {
            party.read(0, parity);
        }
    }
}

fn readers_wait_for_root_only(party: &mut Party<'_>, mistake: bool) {
    for root in [1, 0, 1] {
        let parity = party.next().parity();
        if party.rank == root {
            party.write(parity);
        }
        party.arrive();
        if party.rank == root || !mistake {
            party.wait_for_all();
        } else {
            party.wait_for(root);
        }
        party.completed = party.next();
        if party.rank != root {
            party.read(root, parity);
        }
    }
}

fn refuser_leaves(party: &mut Party<'_>, mistake: bool) {
    for _ in 0..3 {
        let parity = party.next().parity();
        party.write(parity);
        party.arrive();
        if party.rank == 1 || !mistake {
            party.wait_for_all();
        }
        party.completed = party.next();
        if party.rank == 1 {
            party.read(0, parity);
        }
    }
}

fn parity_by_chunk(party: &mut Party<'_>, mistake: bool) {
    for _call in 0..2 {
        for chunk in 0..1 {
            party.write(if mistake { chunk % 2 } else { party.next().parity() });
            let parity = party.round();
            party.read(1 - party.rank, if mistake { chunk % 2 } else { parity });
        }
    }
}

fn slice_in_place(party: &mut Party<'_>, mistake: bool) {
    party.write(party.next().parity());
    let parity = party.round();
    for rank in 0..2 {
        party.read(rank, parity);
    }
    let target = if mistake { parity } else { party.next().parity() };
    party.write(target);
    party.round();
    party.read(1 - party.rank, target);
}
