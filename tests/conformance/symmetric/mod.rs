//! The rows of symmetric memory. A row's number is that of its case in docs/symmetric-memory.md.

mod collectives;
mod heap;
mod phases;

use libtest_mimic::Trial;

use crate::scenario::Scenario;
use crate::{processes, threads};

/// The rows that run on a joined communicator.
pub(crate) fn rows() -> Vec<Scenario> {
    let mut all = heap::rows();
    all.extend(phases::rows());
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
    all.flatten().map(|trial| trial.with_ignored_flag(!allowed)).collect()
}
