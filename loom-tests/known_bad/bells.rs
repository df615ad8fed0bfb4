//! Bells with which a rank sleeps although its cell has changed, or is told of an end that it need not know.

use Ordering::{AcqRel, Acquire, Relaxed, Release};
use intranode::protocol::generation::{POISON, WAITER};
use intranode::protocol::symmetric::SymmetricPlatform;
use intranode::protocol::{Ordering, Platform};

use crate::harness::known_bad::{KnownBad, Participant, Reason};
use crate::harness::waiting::Waiting::Parking;
use crate::harness::word::Word;

/// One wake-up in the bell's count.
const COUNT: u32 = 4;

pub(crate) fn all() -> Vec<KnownBad> {
    let deadlock = |name, threads, protocol, mistake| {
        KnownBad::protocol(name, Reason::Deadlock, Parking, threads, protocol, mistake)
    };
    vec![
        deadlock(
            "bell_without_the_light_fence",
            2,
            without_the_light_fence,
            "A writer looks at the bell before its value can be seen: neither side sees the other.",
        ),
        deadlock(
            "bell_without_the_heavy_fence",
            2,
            without_the_heavy_fence,
            "A sleeper looks at its cell before its `WAITER` can be seen: neither side sees the other.",
        ),
        deadlock(
            "bell_without_a_second_look",
            2,
            without_a_second_look,
            "A sleeper looks at its cell, sets `WAITER` and sleeps: the value has come in between.",
        ),
        deadlock(
            "bell_rung_before_the_write",
            2,
            rung_before_the_write,
            "A writer rings before it writes: the sleeper wakes, finds nothing and sleeps again.",
        ),
        deadlock(
            "bell_wakes_before_it_takes",
            2,
            wakes_before_it_takes,
            "A writer wakes before it takes `WAITER`: a rank that is about to sleep finds the bell unchanged.",
        ),
        deadlock(
            "bell_keeps_waiter",
            2,
            keeps_waiter,
            "A writer wakes and leaves `WAITER` as it is: a rank that is about to sleep finds the bell unchanged.",
        ),
        deadlock(
            "bell_without_a_count",
            3,
            without_a_count,
            "A writer takes `WAITER` and counts nothing: a second thread of the rank sets it again, and the first, \
             which is about to sleep, finds the bell unchanged.",
        ),
        deadlock(
            "bell_written_anew",
            3,
            written_anew,
            "A writer that has found `WAITER` writes the bell anew: poison that has come meanwhile is erased.",
        ),
        KnownBad::protocol(
            "poison_beats_the_value",
            Reason::Assertion("the value was there"),
            Parking,
            2,
            poison_beats_the_value,
            "A rank looks for poison first: a rank that has written and then left is reported instead of its value.",
        ),
    ]
}

fn bell<'a>(rank: &Participant<'a>) -> &'a Word {
    &rank.shared.words[0][0]
}

/// The cell that a thread waits for.
fn cell<'a>(rank: &Participant<'a>, index: usize) -> &'a Word {
    &rank.shared.words[1][index]
}

/// Its lowest bit tells.
fn is_written(rank: &Participant<'_>, cell: &Word) -> bool {
    rank.machine.load("test", cell, Acquire) & 1 != 0
}

fn write(rank: &Participant<'_>, cell: &Word) {
    rank.machine.fetch_or("write", cell, 1, Release);
}

fn mark(rank: &Participant<'_>) -> u32 {
    rank.machine.fetch_or("mark", bell(rank), WAITER, Relaxed) | WAITER
}

fn sleep(rank: &Participant<'_>, seen: u32) {
    let _ = rank.machine.wait("sleep", bell(rank), seen, &false);
}

/// Waits for a cell, or for poison. Returns whether for the cell.
fn wait(rank: &Participant<'_>, cell: &Word) -> bool {
    loop {
        let seen = mark(rank);
        rank.machine.fence_heavy("heavy");
        if is_written(rank, cell) {
            return true;
        }
        if seen & POISON != 0 {
            return false;
        }
        sleep(rank, seen);
    }
}

/// Looks for `WAITER`, replaces the bell by what `rung` makes of it if it is there, and wakes.
fn ring(rank: &Participant<'_>, rung: impl Fn(u32) -> u32) {
    rank.machine.fence_light("light");
    ring_without_fence(rank, rung);
}

fn ring_without_fence(rank: &Participant<'_>, rung: impl Fn(u32) -> u32) {
    let bell = bell(rank);
    let mut seen = rank.machine.load("ring", bell, Relaxed);
    while seen & WAITER != 0 {
        match rank.machine.compare_exchange("take", bell, seen, rung(seen), Relaxed, Relaxed) {
            Ok(_) => return rank.machine.wake_all("wake", bell),
            Err(now) => seen = now,
        }
    }
}

fn counted(seen: u32) -> u32 {
    (seen & !WAITER) + COUNT
}

fn without_the_light_fence(rank: &mut Participant<'_>, mistake: bool) {
    let cell = cell(rank, 0);
    if rank.number == 0 {
        wait(rank, cell);
        return;
    }
    write(rank, cell);
    if mistake { ring_without_fence(rank, counted) } else { ring(rank, counted) }
}

fn without_the_heavy_fence(rank: &mut Participant<'_>, mistake: bool) {
    let cell = cell(rank, 0);
    if rank.number == 1 {
        write(rank, cell);
        return ring(rank, counted);
    }
    loop {
        let seen = mark(rank);
        if !mistake {
            rank.machine.fence_heavy("heavy");
        }
        if is_written(rank, cell) {
            return;
        }
        sleep(rank, seen);
    }
}

fn without_a_second_look(rank: &mut Participant<'_>, mistake: bool) {
    let cell = cell(rank, 0);
    if rank.number == 1 {
        write(rank, cell);
        return ring(rank, counted);
    }
    while !is_written(rank, cell) {
        let seen = mark(rank);
        rank.machine.fence_heavy("heavy");
        if !mistake && is_written(rank, cell) {
            return;
        }
        sleep(rank, seen);
    }
}

fn rung_before_the_write(rank: &mut Participant<'_>, mistake: bool) {
    let cell = cell(rank, 0);
    if rank.number == 0 {
        wait(rank, cell);
        return;
    }
    if mistake {
        ring(rank, counted);
        write(rank, cell);
    } else {
        write(rank, cell);
        ring(rank, counted);
    }
}

fn wakes_before_it_takes(rank: &mut Participant<'_>, mistake: bool) {
    let cell = cell(rank, 0);
    if rank.number == 0 {
        wait(rank, cell);
        return;
    }
    write(rank, cell);
    if !mistake {
        return ring(rank, counted);
    }
    rank.machine.fence_light("light");
    if rank.machine.load("ring", bell(rank), Relaxed) & WAITER != 0 {
        rank.machine.wake_all("wake", bell(rank));
        rank.machine.modify("take", bell(rank), Relaxed, counted);
    }
}

fn keeps_waiter(rank: &mut Participant<'_>, mistake: bool) {
    let cell = cell(rank, 0);
    if rank.number == 0 {
        wait(rank, cell);
        return;
    }
    write(rank, cell);
    ring(rank, |seen| if mistake { seen } else { counted(seen) });
}

/// Threads 0 and 1 are two of one rank, which wait for different cells.
fn without_a_count(rank: &mut Participant<'_>, mistake: bool) {
    if rank.number < 2 {
        wait(rank, cell(rank, rank.number));
        return;
    }
    for index in 0..2 {
        write(rank, cell(rank, index));
        ring(rank, |seen| if mistake { seen & !WAITER } else { counted(seen) });
    }
}

/// Thread 0 waits for a cell that is never written. Thread 1 writes another, and thread 2 poisons.
fn written_anew(rank: &mut Participant<'_>, mistake: bool) {
    match rank.number {
        0 => {
            wait(rank, cell(rank, 0));
        }
        1 if mistake => {
            write(rank, cell(rank, 1));
            rank.machine.fence_light("light");
            let seen = rank.machine.load("ring", bell(rank), Relaxed);
            if seen & WAITER != 0 {
                rank.machine.modify("take", bell(rank), Relaxed, |_| counted(seen));
                rank.machine.wake_all("wake", bell(rank));
            }
        }
        1 => {
            write(rank, cell(rank, 1));
            ring(rank, counted);
        }
        _ => poison(rank),
    }
}

fn poison(rank: &Participant<'_>) {
    rank.machine.fetch_or("poison", bell(rank), POISON, AcqRel);
    rank.machine.wake_all("poison-wake", bell(rank));
}

fn poison_beats_the_value(rank: &mut Participant<'_>, mistake: bool) {
    let cell = cell(rank, 0);
    if rank.number == 1 {
        write(rank, cell);
        ring(rank, counted);
        return poison(rank);
    }
    if !mistake {
        assert!(wait(rank, cell), "the value was there");
        return;
    }
    loop {
        let seen = mark(rank);
        rank.machine.fence_heavy("heavy");
        assert!(seen & POISON == 0, "the value was there");
        if is_written(rank, cell) {
            return;
        }
        sleep(rank, seen);
    }
}
