//! The rows of symmetric memory. A row's number is that of its case in docs/symmetric-memory.md.

mod atomics;
pub(crate) mod collectives;
mod drops;
mod heap;
mod lock;
// Mounts a file system in a namespace of its own, for which there are functions on Linux only.
#[cfg(target_os = "linux")]
mod memory;
mod order;
mod phases;
#[cfg(target_os = "linux")]
mod refused;
mod requests;
mod segments;
pub(crate) mod sleeper;
mod sleeping;
mod transfer;
mod waiting;

use libtest_mimic::Trial;

use crate::scenario::Scenario;

/// The rows that run on a joined communicator.
pub(crate) fn rows() -> Vec<Scenario> {
    let all = [
        heap::rows(),
        requests::rows(),
        drops::rows(),
        segments::rows(),
        transfer::rows(),
        phases::rows(),
        order::rows(),
        atomics::rows(),
        waiting::rows(),
        sleeping::rows(),
        lock::rows(),
        collectives::rows(),
        #[cfg(target_os = "linux")]
        refused::rows(),
    ];
    let all = all.into_iter().flatten().map(|row| row.ranks(&[2, 4]));
    all.chain(collectives::rows_of_many_ranks()).collect()
}

/// Those whose calls have no data, which can also run with a hierarchical barrier.
pub(crate) fn rows_of_phases() -> Vec<Scenario> {
    phases::rows().into_iter().map(|row| row.ranks(&[4])).collect()
}

/// Those that run only as [`trials`] starts them.
pub(crate) fn special_rows() -> Vec<Scenario> {
    #[cfg(target_os = "linux")]
    return memory::rows();
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

/// Trials that do not only run a scenario.
pub(crate) fn trials() -> Vec<Trial> {
    #[cfg(target_os = "linux")]
    return [memory::trials(), refused::trials()].into_iter().flatten().collect();
    #[cfg(not(target_os = "linux"))]
    Vec::new()
}

/// The number of turns of a row that repeats itself: usually this many, or `INTRANODE_SYMMETRIC_TURNS`.
fn turns(usually: u64) -> u64 {
    let given = std::env::var("INTRANODE_SYMMETRIC_TURNS").ok();
    given.map_or(usually, |turns| turns.parse().expect("INTRANODE_SYMMETRIC_TURNS is a number"))
}
