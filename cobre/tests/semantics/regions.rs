//! Cobre's shared regions.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, ensure};
use cobre_comm::{
    CommData, CommError, Communicator, LocalBackend, LocalCommKind, LocalCommunicator, ReduceOp,
    SharedMemoryProvider, SharedRegion, TopologyProvider,
};
use intranode_cobre::{ShmBackend, ShmRegion};

use crate::{Outcome, Row, SEVERAL, USUAL, drivers, ensure_matches, rows};

pub(crate) fn rows() -> Vec<Row> {
    let mut all = rows![USUAL;
        the_leader_writes_and_everyone_reads,
        exactly_one_rank_of_a_node_is_its_leader,
        followers_have_nothing_to_write,
        split_local_is_for_one_rank_on_a_node,
        a_local_backend_has_the_ranks_of_its_node_and_its_own_life,
        several_regions_of_every_type,
        a_region_of_nothing,
        regions_come_and_go_1000_times,
        one_copy_of_20_8_megabytes,
        a_region_larger_than_memory,
        a_slice_stays_while_the_leader_writes_again,
        values_written_again_take_no_more_memory,
        a_type_that_can_not_be_shared,
    ]
    .to_vec();
    all.extend(rows![SEVERAL;
        a_type_that_can_not_be_shared_on_one_rank,
        ranks_that_fence_different_regions,
    ]);
    all.extend(rows![&[1]; one_rank_is_as_with_the_local_backend]);
    all.extend(rows![&[2]; reading_before_the_first_fence_panics]);
    all
}

/// A region whose value `i` is `value(i)`, published.
fn published<C, T>(comm: &C, count: usize, value: impl Fn(usize) -> T) -> Result<C::Region<T>, CommError>
where
    C: SharedMemoryProvider,
    T: CommData,
{
    let mut region = comm.create_shared_region(count)?;
    fill(&mut region, value);
    region.fence()?;
    Ok(region)
}

/// Writes everything, which on followers is nothing.
fn fill<T: CommData>(region: &mut impl SharedRegion<T>, value: impl Fn(usize) -> T) {
    for (index, place) in region.as_mut_slice().iter_mut().enumerate() {
        *place = value(index);
    }
}

fn holds<T: CommData + PartialEq>(
    region: &impl SharedRegion<T>,
    count: usize,
    value: impl Fn(usize) -> T,
) -> Outcome {
    ensure!(region.as_slice().len() == count);
    ensure!(region.as_slice().iter().enumerate().all(|(index, seen)| *seen == value(index)));
    Ok(())
}

fn the_leader_writes_and_everyone_reads(comm: &ShmBackend) -> Outcome {
    let region = published(comm, 100, |index| index as f64 + 0.5)?;
    holds(&region, 100, |index| index as f64 + 0.5)?;
    // Another fence publishes nothing new.
    region.fence()?;
    holds(&region, 100, |index| index as f64 + 0.5)
}

fn exactly_one_rank_of_a_node_is_its_leader(comm: &ShmBackend) -> Outcome {
    let mut leaders = [0_u64];
    comm.allreduce(&[u64::from(comm.is_leader())], &mut leaders, ReduceOp::Sum)?;
    // Of each node.
    ensure!(leaders == [comm.topology().num_hosts() as u64]);
    ensure!(comm.is_leader() == (comm.communicator().rank() == 0));
    Ok(())
}

fn followers_have_nothing_to_write(comm: &ShmBackend) -> Outcome {
    let mut region = comm.create_shared_region::<u32>(10)?;
    let expected = if comm.is_leader() { 10 } else { 0 };
    ensure!(region.as_mut_slice().len() == expected);
    region.fence()?;
    ensure!(region.as_mut_slice().len() == expected);
    // It was zeros, and nobody has written.
    region.fence()?;
    holds(&region, 10, |_| 0)
}

fn split_local_is_for_one_rank_on_a_node(comm: &ShmBackend) -> Outcome {
    let local = SharedMemoryProvider::split_local(comm);
    if comm.communicator().size() == 1 {
        let local = local?;
        ensure!(matches!(local, LocalCommKind::Local(_)));
        ensure!(local.rank() == 0 && local.size() == 1);
        local.barrier()?;
    } else {
        ensure_matches!(
            local.map(|_| ()),
            Err(CommError::CollectiveFailed { operation: "split_local", mpi_error_code: 0, message })
            if message.contains("ShmBackend::split_local")
        );
    }
    Ok(comm.barrier()?)
}

fn a_local_backend_has_the_ranks_of_its_node_and_its_own_life(comm: &ShmBackend) -> Outcome {
    let sum = |comm: &ShmBackend| -> Outcome {
        let mut ranks = [0];
        comm.allreduce(&[comm.rank()], &mut ranks, ReduceOp::Sum)?;
        let (rank, size) = (comm.rank(), comm.size());
        ensure!(rank < size && ranks == [size * (size - 1) / 2]);
        Ok(())
    };
    let node = comm.communicator();
    let first = comm.split_local()?;
    let second = first.split_local()?;
    for local in [&first, &second] {
        ensure!(local.rank() == node.rank() && local.size() == node.size());
        ensure!(local.is_leader() == comm.is_leader());
    }
    let region = published(&first, 10, |index| index)?;
    sum(&first)?;
    sum(comm)?;
    // What it was made from goes first.
    drop(first);
    sum(&second)?;
    holds(&region, 10, |index| index)?;
    drop(second);
    sum(comm)
}

fn several_regions_of_every_type(comm: &ShmBackend) -> Outcome {
    macro_rules! numbers {
        ($($number:ty)*) => {
            ($(published(comm, 1_000, |index| (index % 100) as $number)?,)*)
        };
    }
    let all = numbers!(u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64);
    let flags = published(comm, 1_000, |index| index % 3 == 0)?;
    let letters = published(comm, 100, |index| char::from_u32(0x1f600 + index as u32).unwrap_or('?'))?;
    macro_rules! check {
        ($($place:tt $number:ty),*) => {
            $(holds(&all.$place, 1_000, |index| (index % 100) as $number)?;)*
        };
    }
    check!(0 u8, 1 u16, 2 u32, 3 u64, 4 usize, 5 i8, 6 i16, 7 i32, 8 i64, 9 isize, 10 f32, 11 f64);
    // In another order than they were made.
    drop(all);
    holds(&letters, 100, |index| char::from_u32(0x1f600 + index as u32).unwrap_or('?'))?;
    holds(&flags, 1_000, |index| index % 3 == 0)
}

fn a_region_of_nothing(comm: &ShmBackend) -> Outcome {
    let region = published(comm, 0, |_| 0_u64)?;
    holds(&region, 0, |_| 0)
}

/// What this process has of what regions are made of: descriptors, mappings, and kilobytes of memory.
fn belongings() -> anyhow::Result<[usize; 3]> {
    let all = fs::read_dir("/proc/self/fd")?.collect::<Result<Vec<_>, _>>()?;
    // Those of processes are the watcher's, which opens them when it gets to it.
    let of_a_process = |entry: &fs::DirEntry| {
        fs::read_link(entry.path()).is_ok_and(|target| target.to_string_lossy().contains("pidfd"))
    };
    let descriptors = all.iter().filter(|entry| !of_a_process(entry)).count();
    let mappings = fs::read_to_string("/proc/self/maps")?.lines().count();
    Ok([descriptors, mappings, kilobytes("/proc/self/status", "VmRSS:")?])
}

fn kilobytes(file: &str, field: &str) -> anyhow::Result<usize> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)).context("no such field")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Whether the whole process belongs to this rank, so that it can be measured.
fn alone() -> bool {
    drivers::role().is_some()
}

/// Plays many times what must leave nothing behind.
fn leaves_nothing(comm: &ShmBackend, mut play: impl FnMut(usize) -> Outcome) -> Outcome {
    for round in 0..100 {
        play(round)?;
    }
    let before = belongings()?;
    for round in 100..1_000 {
        play(round)?;
    }
    if alone() {
        let after = belongings()?;
        ensure!(before[0] == after[0], "{before:?} became {after:?}");
        // A thread's first allocation makes a heap of its own.
        ensure!(after[1] <= before[1] + 2, "{before:?} became {after:?}");
        ensure!(after[2] < before[2] + 1_024, "{before:?} became {after:?}");
        let name = std::env::var("COBRE_SHM_NAME")?;
        for entry in fs::read_dir("/dev/shm")? {
            let entry = entry?.file_name();
            ensure!(!entry.to_string_lossy().starts_with(&name[1..]), "{entry:?} is left");
        }
    }
    Ok(comm.barrier()?)
}

fn regions_come_and_go_1000_times(comm: &ShmBackend) -> Outcome {
    leaves_nothing(comm, |round| {
        let region = published(comm, 10_000, |index| index + round)?;
        ensure!(region.as_slice()[9_999] == 9_999 + round);
        Ok(())
    })
}

/// Also where it is written again and again.
fn values_written_again_take_no_more_memory(comm: &ShmBackend) -> Outcome {
    let mut region = published(comm, 10_000, |index| index)?;
    leaves_nothing(comm, |round| {
        fill(&mut region, |index| index + round);
        region.fence()?;
        holds(&region, 10_000, |index| index + round)
    })
}

/// The specification's opening tree and case data, by four ranks.
fn one_copy_of_20_8_megabytes(comm: &ShmBackend) -> Outcome {
    const COUNT: usize = 20_800_000 / 8;
    let shared = || kilobytes("/proc/self/smaps_rollup", "Pss_Shmem:");
    let before = shared()?;
    // Nobody has the region when somebody looks, and then everybody.
    comm.barrier()?;
    let region = published(comm, COUNT, |index| index as f64)?;
    holds(&region, COUNT, |index| index as f64)?;
    comm.barrier()?;
    let mut more = [0_u64];
    let mine = shared()?.saturating_sub(before) as u64;
    comm.allreduce(&[mine], &mut more, ReduceOp::Sum)?;
    if alone() {
        let once = (COUNT * 8 / 1_024) as u64;
        ensure!((once * 9 / 10..once * 11 / 10).contains(&more[0]), "{more:?} kB, not {once} kB");
    }
    Ok(())
}

fn a_region_larger_than_memory(comm: &ShmBackend) -> Outcome {
    let count = usize::MAX / 2;
    ensure_matches!(
        comm.create_shared_region::<u8>(count).map(drop),
        Err(CommError::AllocationFailed { requested_bytes, .. }) if *requested_bytes == usize::MAX / 2
    );
    ensure_matches!(
        comm.create_shared_region::<f64>(count).map(drop),
        Err(CommError::AllocationFailed { requested_bytes: usize::MAX, .. })
    );
    let region = published(comm, 3, |index| index)?;
    holds(&region, 3, |index| index)
}

fn a_slice_stays_while_the_leader_writes_again(comm: &ShmBackend) -> Outcome {
    let mut region = published(comm, 5_000, |_| 1_u64)?;
    if comm.is_leader() {
        fill(&mut region, |_| 2);
        // Not fenced yet.
        holds(&region, 5_000, |_| 1)?;
        region.fence()?;
    } else {
        let old = region.as_slice();
        region.fence()?;
        ensure!(old.iter().all(|value| *value == 1));
    }
    holds(&region, 5_000, |_| 2)?;
    // Some of the values change.
    if let Some(first) = region.as_mut_slice().first_mut() {
        *first = 3;
    }
    region.fence()?;
    holds(&region, 5_000, |index| if index == 0 { 3 } else { 2 })
}

fn reading_before_the_first_fence_panics(comm: &ShmBackend) -> Outcome {
    let region = comm.create_shared_region::<i32>(4)?;
    let read = catch_unwind(AssertUnwindSafe(|| region.as_slice().len()));
    ensure!(read.is_err());
    region.fence()?;
    holds(&region, 4, |_| 0)
}

#[derive(Clone, Copy, Default)]
struct Padded(#[expect(dead_code)] u8, #[expect(dead_code)] u32);

fn is_refused(result: Result<ShmRegion<Padded>, CommError>) -> Outcome {
    ensure_matches!(
        result.map(drop),
        Err(CommError::CollectiveFailed { operation: "create_shared_region", mpi_error_code: 0, message })
        if message.contains("Padded")
    );
    Ok(())
}

fn a_type_that_can_not_be_shared(comm: &ShmBackend) -> Outcome {
    is_refused(comm.create_shared_region(3))?;
    Ok(comm.barrier()?)
}

fn a_type_that_can_not_be_shared_on_one_rank(comm: &ShmBackend) -> Outcome {
    if comm.rank() == 1 {
        is_refused(comm.create_shared_region(3))?;
    } else {
        ensure_matches!(
            comm.create_shared_region::<u64>(3).map(drop),
            Err(CommError::CollectiveFailed { operation: "create_shared_region", message, .. })
            if message.contains("rank 1")
        );
    }
    Ok(comm.barrier()?)
}

fn ranks_that_fence_different_regions(comm: &ShmBackend) -> Outcome {
    if comm.communicator().size() == 1 {
        // A fence is the node's, and here nobody fences another region.
        return Ok(());
    }
    let fails = |region: &ShmRegion<u64>| {
        ensure_matches!(
            region.fence(),
            Err(CommError::CollectiveFailed { operation: "fence", mpi_error_code: 0, .. })
        );
        Ok(())
    };
    let mut regions = [comm.create_shared_region(3)?, comm.create_shared_region(3)?];
    for region in &mut regions {
        fill(region, |_| 5_u64);
    }
    let mine = usize::from(comm.communicator().rank() == 1);
    // What was to be published is lost; what comes after works.
    fails(&regions[mine])?;
    let mut regions = [published(comm, 3, |_| 5_u64)?, published(comm, 3, |_| 6)?];
    fill(&mut regions[0], |_| 7);
    fails(&regions[mine])?;
    regions[0].fence()?;
    holds(&regions[0], 3, |_| 7)?;
    holds(&regions[1], 3, |_| 6)
}

/// What code that is generic over Cobre's traits sees.
fn shared<C: Communicator + SharedMemoryProvider>(comm: &C) -> anyhow::Result<Vec<String>> {
    let mut log = vec![format!("{}", comm.is_leader())];
    let local = SharedMemoryProvider::split_local(comm)?;
    log.push(format!("{} of {}, {:?}", local.rank(), local.size(), local.barrier()));
    let mut numbers = published(comm, 7, |index| index as f64)?;
    log.push(format!("{:?}", numbers.as_slice()));
    numbers.as_mut_slice()[3] = -1.5;
    numbers.fence()?;
    log.push(format!("{:?}", numbers.as_slice()));
    let mut flags = comm.create_shared_region::<bool>(2)?;
    flags.as_mut_slice()[1] = true;
    flags.fence()?;
    log.push(format!("{:?}", flags.as_slice()));
    Ok(log)
}

fn one_rank_is_as_with_the_local_backend(comm: &ShmBackend) -> Outcome {
    let (ours, theirs) = (shared(comm)?, shared(&LocalBackend)?);
    ensure!(ours == theirs, "{ours:?} is not {theirs:?}");
    Ok(())
}
