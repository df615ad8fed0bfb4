//! Each rank's share of the processors.

use std::ops::Range;
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use intranode::Blocks;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// The number of threads for each rank, by the affinity and the container's quota.
pub(crate) fn threads_per_rank(ranks: u32) -> usize {
    let processors = available_parallelism().map_or(1, usize::from);
    (processors / ranks as usize).max(1)
}

/// Binds this process, and the program that it executes, to its share of the allowed processors.
pub(crate) fn bind(rank: usize, ranks: usize) -> Result<()> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).context("cannot read the allowed processors")?;
    let allowed: Vec<usize> = (0..CpuSet::count()).filter(|&cpu| allowed.is_set(cpu) == Ok(true)).collect();
    let mut mine = CpuSet::new();
    for &cpu in &allowed[share(allowed.len(), rank, ranks)] {
        mine.set(cpu)?;
    }
    sched_setaffinity(this, &mine).context("cannot bind the rank to its processors")
}

/// A contiguous share, since neighbouring processors usually share a cache.
fn share(processors: usize, rank: usize, ranks: usize) -> Range<usize> {
    if ranks <= processors {
        return Blocks::new(processors, ranks).range(rank);
    }
    // Ranks that follow one another communicate most: docs/adr/0075-ranks-in-a-row-share-a-processor.md.
    let one = rank * processors / ranks;
    one..one + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_processors_are_divided() {
        let shares: Vec<_> = (0..2).map(|rank| share(5, rank, 2)).collect();
        assert_eq!(shares, [0..3, 3..5]);
    }

    #[test]
    fn too_few_processors_are_shared_by_ranks_in_a_row() {
        let shares: Vec<_> = (0..5).map(|rank| share(2, rank, 5)).collect();
        assert_eq!(shares, [0..1, 0..1, 0..1, 1..2, 1..2]);
    }
}
