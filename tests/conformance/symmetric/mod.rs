//! The rows of symmetric memory. A row's number is that of its case in docs/symmetric-memory.md.

mod atomics;
mod collectives;
mod heap;
mod lock;
mod order;
mod phases;
#[cfg(target_os = "linux")]
mod refused;
mod sleeper;
mod sleeping;
mod transfer;
mod waiting;

use libtest_mimic::Trial;

use crate::scenario::Scenario;
use crate::{processes, threads};

/// The rows that run on a joined communicator.
pub(crate) fn rows() -> Vec<Scenario> {
    let mut all = heap::rows();
    all.extend(transfer::rows());
    all.extend(phases::rows());
    all.extend(order::rows());
    all.extend(atomics::rows());
    all.extend(waiting::rows());
    all.extend(sleeping::rows());
    #[cfg(target_os = "linux")]
    all.extend(refused::rows());
    all.extend(lock::rows());
    all.extend(collectives::rows());
    all.into_iter().map(|row| row.ranks(&[2, 4])).collect()
}

/// Those that need a privilege.
pub(crate) fn privileged_rows() -> Vec<Scenario> {
    heap::privileged_rows().into_iter().map(|row| row.ranks(&[2, 4])).collect()
}

/// The trials of those: ignored without it.
pub(crate) fn trials() -> Vec<Trial> {
    let allowed = heap::may_mount();
    let all = privileged_rows().into_iter().flat_map(|row| [threads::trials(row), processes::trials(row)]);
    let mut all: Vec<Trial> = all.flatten().map(|trial| trial.with_ignored_flag(!allowed)).collect();
    #[cfg(target_os = "linux")]
    all.extend(refused::trials());
    all
}

/// The number of turns of a row that repeats itself: usually this many, or `INTRANODE_SYMMETRIC_TURNS`.
fn turns(usually: u64) -> u64 {
    let given = std::env::var("INTRANODE_SYMMETRIC_TURNS").ok();
    given.map_or(usually, |turns| turns.parse().expect("INTRANODE_SYMMETRIC_TURNS is a number"))
}
