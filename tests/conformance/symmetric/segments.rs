//! The segments that symmetric objects lie in.

use anyhow::{Context, ensure};
use intranode::{Communicator, Placement, SymmetricOptions};

use crate::scenario::{Outcome, Scenario, row, still_works};
#[cfg(target_os = "linux")]
use {
    crate::scenario::ensure_matches,
    intranode::Error,
    nix::sys::resource::{Resource, getrlimit, setrlimit},
};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(empty_segments_are_given_back).processes_only(),
        #[cfg(target_os = "linux")]
        row!(an_empty_segment_gives_way_where_memory_is_short).processes_only(),
        row!(many_objects_in_few_segments).processes_only(),
        row!(objects_of_a_split_communicator),
        row!(one_mapping_in_a_process),
        row!(objects_placed_in_every_way),
    ]
}

/// The mappings of memfds in this process.
fn memfds() -> anyhow::Result<usize> {
    Ok(std::fs::read_to_string("/proc/self/maps")?.matches("memfd:intranode").count())
}

fn empty_segments_are_given_back(comm: Communicator) -> Outcome {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let before = memfds()?;
    let small = comm.symmetric::<u8>(1000)?;
    let mut large = Vec::new();
    for step in 0..5 {
        large.push(comm.symmetric::<u8>(1_000_000 << step)?);
    }
    let most = memfds()?.checked_sub(before).context("a mapping is gone")?;
    ensure!(most == 6, "{most} segments");
    for object in large {
        object.free()?;
    }
    // That of the small object, and the largest.
    let left = memfds()?.checked_sub(before).context("a mapping is gone")?;
    ensure!(left == 2, "{left} segments are left");
    small.free()?;
    let left = memfds()?.checked_sub(before).context("a mapping is gone")?;
    ensure!(left == 1, "{left} segments are left");
    still_works(&comm)
}

/// With room for any of the objects, and not for two of them.
#[cfg(target_os = "linux")]
fn an_empty_segment_gives_way_where_memory_is_short(comm: Communicator) -> Outcome {
    const MIB: usize = 1 << 20;
    let before = getrlimit(Resource::RLIMIT_AS)?;
    let len = |bytes: usize| bytes / comm.size();
    let kept = comm.symmetric::<u8>(100)?;
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let pages: u64 = pages.split(' ').next().context("how many pages are mapped")?.parse()?;
    let page = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE)?.context("the size of a page")?;
    setrlimit(Resource::RLIMIT_AS, pages * page as u64 + 40 * MIB as u64, before.1)?;
    comm.symmetric::<u8>(len(20 * MIB))?.free()?;
    comm.symmetric::<u8>(len(28 * MIB))?.free()?;
    drop(comm.region::<u8>(28 * MIB)?);
    comm.symmetric::<u8>(len(28 * MIB))?.free()?;
    // Of another kind.
    let options = SymmetricOptions::new().placement(Placement::Leader);
    let mut own = comm.symmetric_with::<u8>(len(28 * MIB), &options)?.into_own()?;
    own.fill(1);
    // That one is not empty.
    ensure_matches!(comm.symmetric::<u8>(len(28 * MIB)).map(drop), Err(Error::AllocationFailed { .. }));
    setrlimit(Resource::RLIMIT_AS, before.0, before.1)?;
    ensure!(own.iter().all(|byte| *byte == 1));
    kept.free()?;
    still_works(&comm)
}

fn many_objects_in_few_segments(comm: Communicator) -> Outcome {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let before = memfds()?;
    let objects: Result<Vec<_>, _> = (0..1000).map(|_| comm.symmetric::<u8>(1024)).collect();
    let (objects, segments) = (objects?, memfds()? - before);
    // 64, 128, 256, 512 and 1,024 KiB.
    ensure!(segments == 5, "{} objects have {segments} segments", objects.len());
    still_works(&comm)
}

fn objects_of_a_split_communicator(comm: Communicator) -> Outcome {
    let half = comm.split(comm.rank() % 2, 0)?;
    // The heaps of communicators know nothing of each other.
    let all = comm.symmetric::<usize>(10)?;
    let mut own = half.symmetric::<usize>(1000 + comm.rank() % 2)?.into_own()?;
    own.fill(comm.rank());
    let part = own.open()?.into_read()?;
    for rank in 0..half.size() {
        ensure!(part.of(rank).iter().all(|value| *value == comm.rank() % 2 + 2 * rank));
    }
    drop(half);
    all.free()?;
    ensure!(part.of(0).len() == 1000 + comm.rank() % 2);
    still_works(&comm)
}

/// Ranks of one process have one address for an instance, ranks of several have one each.
fn one_mapping_in_a_process(comm: Communicator) -> Outcome {
    for comm in [comm.split_local()?, comm] {
        let object = comm.symmetric::<u64>(100)?.into_read()?;
        let own = [u64::from(std::process::id()), object.of(0).as_ptr().addr() as u64];
        let mut all = vec![0; 2 * comm.size()];
        comm.allgather(&own, &mut all)?;
        let other = all.chunks(2).find(|other| other[0] == own[0] && other[1] != own[1]);
        ensure!(other.is_none(), "this process has mapped it twice: {all:x?}");
    }
    Ok(())
}

fn objects_placed_in_every_way(comm: Communicator) -> Outcome {
    let mut kept = Vec::new();
    for placement in [Placement::Leader, Placement::Distributed, Placement::Interleaved] {
        for huge_pages in [false, true] {
            let options = SymmetricOptions::new().placement(placement).huge_pages(huge_pages);
            for len in [10, 3_000_000] {
                let mut own = comm.symmetric_with::<u8>(len, &options)?.into_own()?;
                own.fill(comm.rank() as u8 + 1);
                let all = own.open()?.into_read()?;
                for rank in 0..comm.size() {
                    ensure!(all.of(rank).iter().all(|value| usize::from(*value) == rank + 1));
                }
                kept.push(all);
            }
        }
    }
    still_works(&comm)
}
