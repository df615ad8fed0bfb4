//! Rules about buffers and about which ranks to wait for, each broken.

use crate::harness::known_bad::{KnownBad, Participant};

pub(crate) fn all() -> Vec<KnownBad> {
    vec![
        KnownBad::race(
            "one_buffer",
            2,
            one_buffer,
            "One buffer a rank: written for the next round while a peer reads this one's.",
        ),
        KnownBad::race(
            "root_runs_ahead",
            2,
            root_runs_ahead,
            "A root does not wait for its readers: it is two rounds ahead.",
        ),
        KnownBad::race(
            "sender_runs_ahead",
            2,
            sender_runs_ahead,
            "In a gather, or a reduce to a root, a sender has nothing to read, and does not wait: it is two rounds ahead.",
        ),
        KnownBad::race(
            "readers_wait_for_root_only",
            3,
            readers_wait_for_root_only,
            "A reader waits for the root alone: as the next root it overwrites what a slower reader still reads.",
        ),
        KnownBad::race(
            "refuser_leaves",
            2,
            refuser_leaves,
            "A rank that refuses does not wait: after two refusals it laps a peer.",
        ),
        KnownBad::race(
            "parity_by_chunk",
            2,
            parity_by_chunk,
            "The buffer follows the chunk's index: two calls of one chunk each share a buffer in a row.",
        ),
        KnownBad::race(
            "turn_of_a_mismatch",
            2,
            turn_of_a_mismatch,
            "A turn counts though the calls differ: a rank that has staged nothing does not count it, and reads another buffer.",
        ),
        KnownBad::race(
            "read_without_a_turn",
            2,
            read_without_a_turn,
            "A rank reads what was staged with a header though another's data come later: it was no turn, and the owner fills the buffer again.",
        ),
        KnownBad::race(
            "buffers_swapped_by_own_count",
            2,
            buffers_swapped_by_own_count,
            "Two ranks swap their buffers by how often each has staged something, not by the turn: both write to one.",
        ),
        KnownBad::race(
            "slice_in_place",
            2,
            slice_in_place,
            "The folded slice is written over contributions that others still fold.",
        ),
        KnownBad::race(
            "memory_changes_early",
            2,
            memory_changes_early,
            "A rank that has fetched what it needs returns, and writes to what others fetch from it.",
        ),
    ]
}

fn one_buffer(rank: &mut Participant<'_>, mistake: bool) {
    for _ in 0..2 {
        rank.write(if mistake { 0 } else { rank.next().parity() });
        let parity = rank.round();
        rank.read(1 - rank.number, if mistake { 0 } else { parity });
    }
}

fn buffers_swapped_by_own_count(rank: &mut Participant<'_>, mistake: bool) {
    let mut staged = 0;
    for turn in 0..3 {
        // The second rank has nothing to send in between.
        let sends = rank.number == 0 || turn != 1;
        let parity = rank.next().parity();
        let is_swapped = |count: usize| count / 2 % 2;
        if sends {
            rank.put(rank.number ^ is_swapped(if mistake { staged } else { turn }), parity);
            staged += 1;
        }
        rank.round();
        if rank.number == 1 || turn != 1 {
            rank.read((1 - rank.number) ^ is_swapped(turn), parity);
        }
    }
}

fn memory_changes_early(rank: &mut Participant<'_>, mistake: bool) {
    rank.write(0);
    rank.round();
    rank.read(1 - rank.number, 0);
    if !mistake {
        rank.round();
    }
    rank.write(0);
}

fn root_runs_ahead(rank: &mut Participant<'_>, mistake: bool) {
    for _ in 0..3 {
        let parity = rank.next().parity();
        if rank.number == 0 {
            rank.write(parity);
        }
        rank.arrive();
        if rank.number != 0 || !mistake {
            rank.wait_for_all();
        }
        rank.completed = rank.next();
        if rank.number != 0 {
            rank.read(0, parity);
        }
    }
}

fn sender_runs_ahead(rank: &mut Participant<'_>, mistake: bool) {
    for _ in 0..3 {
        let parity = rank.next().parity();
        if rank.number == 1 {
            rank.write(parity);
        }
        rank.arrive();
        if rank.number == 0 || !mistake {
            rank.wait_for_all();
        }
        rank.completed = rank.next();
        if rank.number == 0 {
            rank.read(1, parity);
        }
    }
}

fn readers_wait_for_root_only(rank: &mut Participant<'_>, mistake: bool) {
    for root in [1, 0, 1] {
        let parity = rank.next().parity();
        if rank.number == root {
            rank.write(parity);
        }
        rank.arrive();
        if rank.number == root || !mistake {
            rank.wait_for_all();
        } else {
            rank.wait_for(root);
        }
        rank.completed = rank.next();
        if rank.number != root {
            rank.read(root, parity);
        }
    }
}

fn refuser_leaves(rank: &mut Participant<'_>, mistake: bool) {
    for _ in 0..3 {
        let parity = rank.next().parity();
        rank.write(parity);
        rank.arrive();
        if rank.number == 1 || !mistake {
            rank.wait_for_all();
        }
        rank.completed = rank.next();
        if rank.number == 1 {
            rank.read(0, parity);
        }
    }
}

fn parity_by_chunk(rank: &mut Participant<'_>, mistake: bool) {
    for _call in 0..2 {
        for chunk in 0..1 {
            rank.write(if mistake { chunk % 2 } else { rank.next().parity() });
            let parity = rank.round();
            rank.read(1 - rank.number, if mistake { chunk % 2 } else { parity });
        }
    }
}

fn turn_of_a_mismatch(rank: &mut Participant<'_>, mistake: bool) {
    let mut turn = 0;
    if rank.number == 0 {
        rank.write(turn % 2);
        turn += usize::from(mistake);
    }
    rank.round();
    for _ in 0..2 {
        rank.write(turn % 2);
        rank.round();
        rank.read(1 - rank.number, turn % 2);
        turn += 1;
    }
}

fn read_without_a_turn(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number == 0 {
        rank.write(0);
    }
    rank.round();
    if mistake && rank.number == 1 {
        rank.read(0, 0);
    }
    rank.write(0);
    rank.round();
    rank.read(1 - rank.number, 0);
}

fn slice_in_place(rank: &mut Participant<'_>, mistake: bool) {
    rank.write(rank.next().parity());
    let parity = rank.round();
    for owner in 0..2 {
        rank.read(owner, parity);
    }
    let target = if mistake { parity } else { rank.next().parity() };
    rank.write(target);
    rank.round();
    rank.read(1 - rank.number, target);
}
