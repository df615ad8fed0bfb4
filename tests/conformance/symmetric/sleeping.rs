//! Cases 47 to 50, and 53: ranks that sleep, and the cost of waking them.

use std::ops::Range;
use std::sync::atomic::Ordering::Release;
use std::time::Duration;

use anyhow::{Context, ensure};
use intranode::{Communicator, Signal};

use super::sleeper::{Turns, median, spin};
use super::turns;
use crate::scenario::{Outcome, Scenario, row, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    // In other rows a rank that has a processor of its own would find nearly everything before it sleeps.
    let asleep = [
        row!(case_47_a_sleeper_is_woken_by_every_write),
        row!(case_48_no_wake_up_is_lost),
        row!(case_50_a_store_through_atomics_is_found),
    ];
    let mut rows: Vec<Scenario> = asleep.into_iter().map(|row| row.spin(Duration::ZERO)).collect();
    // And with as many yields before each sleep as the library chooses.
    rows.push(row!(case_48_no_wake_up_is_lost_where_ranks_share_processors));
    rows.into_iter().map(|row| row.ranks(&[2, 4])).collect()
}

/// The longest sleep is 10 ms. A wake-up takes less than a tenth of that.
const WOKEN: Duration = Duration::from_millis(5);

fn case_47_a_sleeper_is_woken_by_every_write(comm: Communicator) -> Outcome {
    const TURNS: u64 = 10;
    for (kind, name) in KINDS.iter().enumerate() {
        let turns = Turns::new(&comm, TURNS)?;
        let delays =
            turns.play(|_| turns.await_asleep(), |target, turn| write(&comm, &turns, kind, target, turn))?;
        let median = median(delays);
        ensure!(median.is_none_or(|delay| delay < WOKEN), "{name} is seen after {median:?}");
    }
    still_works(&comm)
}

const KINDS: [&str; 13] = [
    "store",
    "set",
    "put",
    "put_strided",
    "swap",
    "compare_swap",
    "add",
    "fetch_add",
    "fetch_or",
    "fetch_max",
    "fetch_update",
    "put_signal with Set",
    "put_signal with Add",
];

/// Raises the target's element 0 from one less to this turn.
fn write(comm: &Communicator, turns: &Turns<'_>, kind: usize, target: usize, turn: u64) -> Outcome {
    let cells = &turns.cells;
    let cell = cells.at(target)?;
    let before = turn - 1;
    match kind {
        0 => cell.store(0, turn),
        1 => cell.set(0, turn),
        2 => cell.put(0, &[turn, 7, 7]),
        3 => cell.put_strided(0, 3, &[turn, 7]),
        4 => ensure!(cell.swap(0, turn) == before),
        5 => ensure!(cell.compare_swap(0, before, turn) == Ok(before)),
        6 => cell.add(0, 1),
        7 => ensure!(cell.fetch_add(0, 1) == before),
        8 => drop(cell.fetch_or(0, turn)),
        9 => ensure!(cell.fetch_max(0, turn) == before),
        10 => ensure!(cell.fetch_update(0, |value| value + 1) == before),
        11 => cells.put_signal(target, 1, &[5, 5], cells, 0, Signal::Set(turn))?,
        12 => cells.put_signal(target, 1, &[5, 5], cells, 0, Signal::Add(1))?,
        _ => anyhow::bail!("rank {} knows no such write", comm.rank()),
    }
    Ok(())
}

fn case_48_no_wake_up_is_lost(comm: Communicator) -> Outcome {
    never_late(&comm, turns(20_000))
}

fn case_48_no_wake_up_is_lost_where_ranks_share_processors(comm: Communicator) -> Outcome {
    never_late(&comm, turns(5_000))
}

/// The writer writes at a random moment around that at which the other rank falls asleep.
pub(super) fn never_late(comm: &Communicator, number: u64) -> Outcome {
    /// What a wake-up that was lost costs: 10 ms, since it is lost when the sleep begins, and what a timer takes. Ranks that are
    /// threads are woken sooner by the library's ticker, so it is found over processes only.
    const LOST: Range<Duration> = Duration::from_micros(9_500)..Duration::from_micros(10_500);
    let turns = Turns::new(comm, number)?;
    let mut random = fastrand::Rng::new();
    let pause = |turn| {
        // The sleeper has marked its bell, or is in the system's hands, or sleeps.
        spin(random.u64(0..if turn % 4 == 0 { 2000 } else { 60 }));
        Ok(())
    };
    // Most by a store or a put: on x86-64 an atomic operation is a fence by itself.
    let kind = |turn: u64| [0, 2, 0, 2, 0, 4, 2, 7][turn as usize % 8];
    let delays = turns.play(pause, |target, turn| write(comm, &turns, kind(turn), target, turn))?;
    let lost: Vec<_> = delays.iter().filter(|delay| LOST.contains(delay)).collect();
    ensure!(lost.is_empty(), "of {number} sleeps these have ended when a timer did: {lost:?}");
    // A hypervisor that does not say so may take the processor away for as long.
    let late: Vec<_> = delays.iter().filter(|delay| **delay > LOST.start).collect();
    ensure!(late.len() as u64 <= 1 + number / 10_000, "of {number} sleeps these have ended late: {late:?}");
    ensure!(
        comm.rank().is_multiple_of(2) || delays.len() as u64 > number / 2,
        "the writer was held up in most turns"
    );
    Ok(())
}

/// It rings no bell; the sleeper looks again after 10 ms. With `notify` it does so at once.
fn case_50_a_store_through_atomics_is_found(comm: Communicator) -> Outcome {
    const TURNS: u64 = 15;
    for notified in [false, true] {
        let turns = Turns::new(&comm, TURNS)?;
        let delays = turns.play(
            |_| turns.await_asleep(),
            |target, turn| {
                turns.cells.at(target)?.atomics()[0].store(turn, Release);
                if notified { Ok(comm.notify(target)?) } else { Ok(()) }
            },
        )?;
        if comm.rank().is_multiple_of(2) {
            continue;
        }
        let median = median(delays).context("the writer was held up in all turns")?;
        let limit = if notified { WOKEN } else { 2 * WOKEN + WOKEN };
        ensure!(median < limit, "it is found after {median:?}, notified: {notified}");
    }
    still_works(&comm)
}
