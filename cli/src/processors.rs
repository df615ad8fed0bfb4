//! Each rank's share of the processors.

use std::ops::Range;
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::Pid;

/// How many threads each rank may run; affinity and the container's quota are counted in.
pub(crate) fn threads_per_rank(ranks: u32) -> usize {
    let processors = available_parallelism().map_or(1, usize::from);
    (processors / ranks as usize).max(1)
}

/// Keeps this process, and what it becomes, on its share of the processors that it may use.
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

/// Contiguous, since neighbouring processors usually share a cache; the first ranks get the remainder.
fn share(processors: usize, rank: usize, ranks: usize) -> Range<usize> {
    if ranks > processors {
        let one = rank % processors;
        return one..one + 1;
    }
    let (each, remainder) = (processors / ranks, processors % ranks);
    let first = rank * each + rank.min(remainder);
    first..first + each + usize::from(rank < remainder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn enough_processors_are_divided_without_gap_or_overlap() {
        for processors in 1..20 {
            for ranks in 1..=processors {
                let mut next = 0;
                for rank in 0..ranks {
                    let share = share(processors, rank, ranks);
                    assert_eq!(share.start, next);
                    assert!(share.len() == processors / ranks || share.len() == processors / ranks + 1);
                    next = share.end;
                }
                assert_eq!(next, processors);
            }
        }
    }

    #[test]
    fn too_few_processors_are_taken_in_turn() {
        let shares: Vec<_> = (0..5).map(|rank| share(2, rank, 5)).collect();
        assert_eq!(shares, [0..1, 1..2, 0..1, 1..2, 0..1]);
    }
}
