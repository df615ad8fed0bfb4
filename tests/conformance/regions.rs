//! The rows about shared regions.

use anyhow::{Context, ensure};
use intranode::{Blocks, Communicator, Error, Operation, Placement, ReduceOp, RegionOptions};
use libtest_mimic::Trial;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::job::{Job, WAITS};
use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(region_the_leader_writes_and_everyone_reads),
        row!(region_is_leader_on_exactly_one_rank),
        row!(region_each_rank_writes_its_own_block),
        row!(region_any_partition),
        row!(region_is_taken_back_and_published_again),
        row!(region_outlives_its_communicator_and_its_peers),
        row!(region_several_of_different_types_at_once),
        row!(region_placed_in_every_way),
        row!(region_with_huge_pages),
        row!(region_with_different_options),
        row!(region_of_nothing),
        row!(region_of_half_of_all_numbers),
        row!(region_parts_that_overlap_or_reach_too_far),
        row!(region_epochs_out_of_step),
        row!(region_publishing_different_ones),
    ];
    let of_processes = [
        row!(region_of_20_8_mb_is_there_once),
        row!(region_made_and_dropped_1000_times),
        row!(region_in_a_forked_child),
        row!(region_stray_store_is_a_fault),
    ];
    let of_processes = of_processes.into_iter().map(|row| row.processes_only());
    rows.into_iter().chain(of_processes).map(|row| row.ranks(&[1, 2, 4])).collect()
}

fn region_the_leader_writes_and_everyone_reads(comm: Communicator) -> Outcome {
    let mut region = comm.region::<f64>(100)?;
    ensure!(region.len() == 100 && !region.is_empty());
    ensure!(region.as_mut_slice().len() == if comm.rank() == 0 { 100 } else { 0 });
    ensure!(region.as_mut_slice().iter().all(|value| *value == 0.0), "it begins as zeros");
    for (index, value) in region.as_mut_slice().iter_mut().enumerate() {
        *value = index as f64 / 3.0;
    }
    let shared = region.publish()?;
    ensure!(shared.len() == 100);
    ensure!(shared.iter().enumerate().all(|(index, value)| *value == index as f64 / 3.0), "{shared:?}");
    still_works(&comm)
}

fn region_is_leader_on_exactly_one_rank(comm: Communicator) -> Outcome {
    let region = comm.region::<u8>(1)?;
    let mut leaders = [u32::from(region.is_leader())];
    comm.allreduce_in_place(&mut leaders, ReduceOp::Sum)?;
    ensure!(leaders == [1], "{leaders:?} leaders");
    ensure!(region.is_leader() == (comm.rank() == 0));
    Ok(())
}

fn region_each_rank_writes_its_own_block(comm: Communicator) -> Outcome {
    for len in [0, 1, 3, 10, 100_003] {
        let mut region = comm.region::<u64>(len)?;
        region.distribute()?;
        for part in region.parts().to_vec() {
            region.as_mut_slice().iter_mut().zip(part).for_each(|(value, index)| *value = 7 * index as u64 + 1);
        }
        let shared = region.publish()?;
        let wrong = (0..len).find(|index| shared[*index] != 7 * *index as u64 + 1);
        ensure!(wrong.is_none(), "of {len}, the first that is wrong is {wrong:?}");
    }
    Ok(())
}

fn region_any_partition(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let mut region = comm.region::<u32>(10 * size)?;
    // The rank's own column of ten rows, from the last to the first, but for the first row, which nobody has.
    let own: Vec<_> = (1..10).rev().map(|row| row * size + rank).map(|index| index..index + 1).collect();
    region.assign(own)?;
    ensure!(region.parts().is_sorted_by_key(|part| part.start) && region.parts().len() == 9);
    for part in region.parts_mut() {
        part.fill(rank as u32 + 1);
    }
    let shared = region.publish()?;
    for (index, value) in shared.iter().enumerate() {
        let expected = if index < size { 0 } else { index % size + 1 };
        ensure!(*value as usize == expected, "{index} is {value}");
    }
    Ok(())
}

fn region_is_taken_back_and_published_again(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let mut region = comm.region::<usize>(3 * size)?;
    region.assign([rank..rank + 1, size + rank..size + rank + 1, 2 * size + rank..2 * size + rank + 1])?;
    for turn in 0..200 {
        for part in region.parts_mut() {
            ensure!(part == [if turn == 0 { 0 } else { 1000 * (turn - 1) + rank }], "in turn {turn}: {part:?}");
            part.fill(1000 * turn + rank);
        }
        let shared = region.publish()?;
        let wrong = shared.iter().enumerate().find(|(index, value)| **value != 1000 * turn + index % size);
        ensure!(wrong.is_none(), "in turn {turn}: {wrong:?}");
        region = shared.reclaim()?;
    }
    // Others may own it next, as it is.
    region.assign((rank == size - 1).then_some(0..3 * size))?;
    ensure!((rank == size - 1) == (region.as_mut_slice().first() == Some(&199_000)));
    Ok(())
}

fn region_outlives_its_communicator_and_its_peers(comm: Communicator) -> Outcome {
    let rank = comm.rank();
    let mut region = comm.region::<u16>(5000)?;
    region.as_mut_slice().fill(42);
    let shared = region.publish()?;
    let second = comm.region::<u16>(1)?;
    if rank % 2 == 1 {
        return Ok(());
    }
    drop(comm);
    ensure!(shared.iter().all(|value| *value == 42));
    // Its rank has left.
    ensure_matches!(second.publish().map(drop), Err(Error::RankLeft { .. }));
    ensure!(shared.iter().all(|value| *value == 42));
    Ok(())
}

fn region_several_of_different_types_at_once(comm: Communicator) -> Outcome {
    let mut bytes = comm.region::<u8>(4097)?;
    let mut numbers = comm.region::<f64>(1000)?;
    let mut pairs = comm.region::<[i32; 3]>(10)?;
    bytes.as_mut_slice().fill(7);
    numbers.distribute()?;
    numbers.as_mut_slice().fill(0.5);
    pairs.as_mut_slice().fill([1, 2, 3]);
    // In another order than they were made in.
    let pairs = pairs.publish()?;
    let bytes = bytes.publish()?;
    let numbers = numbers.publish()?;
    ensure!(bytes.iter().all(|byte| *byte == 7) && bytes.len() == 4097);
    ensure!(numbers.iter().all(|number| *number == 0.5) && numbers.len() == 1000);
    ensure!(pairs.iter().all(|pair| *pair == [1, 2, 3]) && pairs.len() == 10);
    drop(numbers);
    let mut bytes = bytes.reclaim()?;
    bytes.as_mut_slice().fill(8);
    ensure!(pairs.iter().all(|pair| *pair == [1, 2, 3]));
    ensure!(bytes.publish()?.iter().all(|byte| *byte == 8));
    Ok(())
}

fn region_placed_in_every_way(comm: Communicator) -> Outcome {
    const LEN: usize = 300_000;
    for placement in
        [Placement::Leader, Placement::Distributed, Placement::Interleaved, Placement::Nodes(vec![0])]
    {
        let options = RegionOptions::new().placement(placement.clone());
        let mut region = comm.region_with::<u64>(LEN, &options)?;
        let blocks = Blocks::new(LEN, comm.size());
        let own = match placement {
            Placement::Distributed => blocks.range(comm.rank()),
            _ if comm.rank() == 0 => 0..LEN,
            _ => 0..0,
        };
        ensure!(region.as_mut_slice().len() == own.len());
        region.as_mut_slice().iter_mut().zip(own).for_each(|(value, index)| *value = index as u64);
        let shared = region.publish()?;
        ensure!(shared.iter().enumerate().all(|(index, value)| *value == index as u64), "{placement:?}");
        match shared.pages() {
            Ok(pages) => {
                let found: usize = pages.nodes.iter().map(|(_, count)| count).sum();
                let all = (LEN * size_of::<u64>()).div_ceil(pages.size);
                ensure!(found + pages.unknown == all, "{pages}");
                ensure!(pages.unknown == 0 || !cfg!(target_os = "linux"), "{pages}");
            }
            // A container may forbid it, and other systems have no such call.
            Err(error) => eprintln!("where the pages lie is not told: {error}"),
        }
    }
    Ok(())
}

fn region_with_huge_pages(comm: Communicator) -> Outcome {
    let options = RegionOptions::new().huge_pages(true);
    for len in [10, 5 << 20, (4 << 20) + 1] {
        let mut region = comm.region_with::<u8>(len, &options)?;
        region.distribute()?;
        let own = comm.rank() as u8 + 1;
        region.as_mut_slice().fill(own);
        let shared = region.publish()?;
        for rank in 0..comm.size() {
            let block = &shared[Blocks::new(len, comm.size()).range(rank)];
            ensure!(block.iter().all(|value| usize::from(*value) == rank + 1));
        }
        drop(shared.reclaim()?);
    }
    Ok(())
}

fn region_with_different_options(comm: Communicator) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let options = RegionOptions::new().huge_pages(comm.rank() == 0);
    ensure_matches!(comm.region_with::<u8>(10, &options).map(drop), Err(Error::Mismatch { .. }));
    ensure_matches!(comm.region::<u8>(10 + comm.rank()).map(drop), Err(Error::Mismatch { .. }));
    let typed =
        if comm.rank() == 0 { comm.region::<u32>(10).map(drop) } else { comm.region::<f32>(10).map(drop) };
    ensure_matches!(typed, Err(Error::Mismatch { .. }));
    still_works(&comm)
}

fn region_of_nothing(comm: Communicator) -> Outcome {
    let mut region = comm.region::<f64>(0)?;
    ensure!(region.is_empty() && region.as_mut_slice().is_empty() && region.parts().is_empty());
    ensure!(region.publish()?.is_empty());
    Ok(())
}

fn region_of_half_of_all_numbers(comm: Communicator) -> Outcome {
    fn asks<T: intranode::bytemuck::Pod>(comm: &Communicator, expected: usize) -> Outcome {
        match comm.region::<T>(usize::MAX / 2) {
            Err(Error::AllocationFailed { requested_bytes, reason }) => {
                ensure!(requested_bytes == expected, "{requested_bytes}: {reason}");
                ensure!(!reason.is_empty());
            }
            other => anyhow::bail!("{:?}", other.map(drop)),
        }
        still_works(comm)
    }
    asks::<u8>(&comm, usize::MAX / 2)?;
    asks::<f64>(&comm, usize::MAX)?;
    // More than there is, on any machine, and no overflow.
    ensure_matches!(comm.region::<u8>(1 << 55).map(drop), Err(Error::AllocationFailed { .. }));
    still_works(&comm)
}

fn region_parts_that_overlap_or_reach_too_far(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let mut region = comm.region::<u8>(size)?;
    let before = region.parts().to_vec();
    // Every rank wants the first: seen by all, whoever is the second.
    let result = region.assign([0..1, 0..size.min(2)]);
    ensure_matches!(result, Err(Error::OverlappingBlocks { operation: Operation::Assign, .. }));
    ensure!(!result.unwrap_err().is_fatal() && region.parts() == before);
    let last = size - 1;
    let result = region.assign(Some(if rank == last { 0..size + 1 } else { rank..rank + 1 }));
    if rank == last {
        ensure_matches!(result, Err(Error::InvalidBufferSize { .. }));
        let (expected, actual) = (size + 1, size);
        let text = result.unwrap_err().to_string();
        ensure!(text.contains(&expected.to_string()) && text.contains(&actual.to_string()), "{text}");
    } else {
        ensure_matches!(result, Err(Error::Refused { rank, .. }) if *rank == last);
    }
    ensure!(region.parts() == before);
    #[expect(clippy::reversed_empty_ranges, reason = "what must be refused")]
    let result = region.assign(Some(1..0));
    ensure_matches!(result, Err(Error::InvalidBufferSize { .. }));
    region.distribute()?;
    region.as_mut_slice().fill(rank as u8);
    let shared = region.publish()?;
    ensure!(shared.iter().enumerate().all(|(index, value)| usize::from(*value) == index));
    Ok(())
}

/// A rank that does something else in place of publishing, or of taking back: all are told, and nobody reads or writes.
fn region_epochs_out_of_step(comm: Communicator) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let last = comm.rank() == comm.size() - 1;
    let region = comm.region::<u64>(10)?;
    let published = if last { comm.barrier().map(|()| None) } else { region.publish().map(Some) };
    let error = published.map(drop).unwrap_err();
    ensure_matches!(error, Error::Mismatch { .. });
    let text = error.to_string();
    ensure!(text.contains("publish(10 × u64, region") && text.contains("called barrier"), "{text}");

    let shared = comm.region::<u64>(10)?.publish()?;
    let reclaimed = if last {
        ensure!(shared.iter().all(|value| *value == 0));
        drop(shared);
        comm.barrier().map(|()| None)
    } else {
        shared.reclaim().map(Some)
    };
    ensure_matches!(reclaimed.map(drop), Err(Error::Mismatch { .. }));
    still_works(&comm)
}

fn region_publishing_different_ones(comm: Communicator) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let (one, other) = (comm.region::<u64>(10)?, comm.region::<u64>(10)?);
    let result = if comm.rank() == 0 { one.publish() } else { other.publish() };
    ensure_matches!(result.map(drop), Err(Error::Mismatch { .. }));
    still_works(&comm)
}

/// A number from one of this process's tables.
fn own_number(table: &str, line: &str) -> anyhow::Result<usize> {
    let text = std::fs::read_to_string(format!("/proc/self/{table}"))?;
    let value =
        text.lines().find_map(|found| found.strip_prefix(line)).with_context(|| format!("no {line}"))?;
    Ok(value.trim().trim_end_matches("kB").trim().parse()?)
}

/// The proportional share of memory that all ranks have of mappings with this name, in kB.
fn share_of_all(comm: &Communicator, name: &str) -> anyhow::Result<usize> {
    let table = std::fs::read_to_string("/proc/self/smaps")?;
    // A mapping's line has its range first, those about it a name that ends in a colon.
    let (mut inside, mut own) = (false, 0);
    for line in table.lines() {
        let first = line.split(' ').next().unwrap_or_default();
        if !first.ends_with(':') {
            inside = line.contains(name);
        } else if inside && first == "Pss:" {
            own += line.split_whitespace().nth(1).context("a number")?.parse::<usize>()?;
        }
    }
    let mut all = [own];
    comm.allreduce_in_place(&mut all, ReduceOp::Sum)?;
    Ok(all[0])
}

/// 20.8 MB, as Cobre's opening tree and case data take: in all, and not for each rank.
fn region_of_20_8_mb_is_there_once(comm: Communicator) -> Outcome {
    const LEN: usize = 2_600_000;
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let mut region = comm.region::<f64>(LEN)?;
    region.as_mut_slice().fill(1.5);
    let shared = region.publish()?;
    // Every rank has all of it in its tables.
    ensure!(shared.iter().sum::<f64>() == 1.5 * LEN as f64);
    comm.barrier()?;
    let (all, once) = (share_of_all(&comm, "memfd:intranode")?, LEN * size_of::<f64>() / 1024);
    comm.barrier()?;
    drop(shared);
    ensure!((once..once + once / 20).contains(&all), "{all} kB in all ranks together, of {once} kB");
    Ok(())
}

/// Open descriptors, mappings, and kB of memory of this process.
fn holdings() -> anyhow::Result<[usize; 3]> {
    // The watcher opens those of its peers' processes when some time has passed.
    let of_a_process = |entry: &std::fs::DirEntry| {
        std::fs::read_link(entry.path()).is_ok_and(|target| target.ends_with("anon_inode:[pidfd]"))
    };
    let all: Result<Vec<_>, _> = std::fs::read_dir("/proc/self/fd")?.collect();
    let descriptors = all?.iter().filter(|entry| !of_a_process(entry)).count();
    let mappings = std::fs::read_to_string("/proc/self/maps")?.lines().count();
    Ok([descriptors, mappings, own_number("status", "VmRSS:")?])
}

fn region_made_and_dropped_1000_times(comm: Communicator) -> Outcome {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let turn = |turn: u64| {
        let mut region = comm.region::<u64>(10_000)?;
        region.distribute()?;
        region.as_mut_slice().fill(turn);
        let shared = region.publish()?;
        ensure!(shared.iter().all(|value| *value == turn));
        let mut region = shared.reclaim()?;
        let mut exchange = comm.exchange::<u64>(&vec![10; comm.size()])?;
        exchange.own().fill(turn);
        ensure!(exchange.share()?.iter().all(|value| *value == turn));
        region.as_mut_slice().fill(0);
        if turn.is_multiple_of(10) {
            still_works(&comm.split(comm.rank() % 2, 0)?)?;
        }
        Ok(())
    };
    (0..50).try_for_each(turn)?;
    comm.barrier()?;
    let before = holdings()?;
    (50..1050).try_for_each(turn)?;
    comm.barrier()?;
    let after = holdings()?;
    let [descriptors, mappings, memory] =
        std::array::from_fn(|kind| after[kind] as isize - before[kind] as isize);
    ensure!(descriptors == 0, "{descriptors} more descriptors");
    // The allocator's own may change by one or two.
    ensure!(mappings <= 2, "{mappings} more mappings");
    ensure!(memory < 1024, "{memory} kB more memory");
    Ok(())
}

/// How a forked child ends for which all went as it should.
const AS_EXPECTED: i32 = 42;

fn region_in_a_forked_child(comm: Communicator) -> Outcome {
    let mut region = comm.region::<u8>(100)?;
    region.as_mut_slice().fill(3);
    let shared = region.publish()?;
    // SAFETY: the child calls the library, which gives up before it allocates or locks, and ends at once.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let refused = matches!(comm.region::<u8>(1).map(drop), Err(Error::Forked { .. }))
                && matches!(comm.split_local().map(drop), Err(Error::Forked { .. }))
                && shared.pages().is_err()
                && matches!(
                    shared.reclaim().map(drop),
                    Err(Error::Forked { .. } | Error::AllocationFailed { .. })
                );
            // SAFETY: ends the child, without running what belongs to the parent.
            unsafe { nix::libc::_exit(if refused { AS_EXPECTED } else { 1 }) }
        }
    };
    ensure_matches!(waitpid(child, None)?, WaitStatus::Exited(_, AS_EXPECTED));
    ensure!(shared.iter().all(|value| *value == 3));
    still_works(&comm)
}

/// In a child process that has a job of its own: a store into a published region through a pointer.
fn region_stray_store_is_a_fault(comm: Communicator) -> Outcome {
    let shared = comm.region::<u8>(100)?.publish()?;
    let place = shared.as_ptr().cast_mut();
    if let Some(child) = start_stray()? {
        use std::os::unix::process::ExitStatusExt;
        ensure!(child.signal() == Some(nix::libc::SIGSEGV), "it ended with {child:?}");
    } else {
        // SAFETY: none: this is the mistake. The process ends by it.
        unsafe { place.write_volatile(1) };
        anyhow::bail!("the store was not noticed");
    }
    still_works(&comm)
}

/// Starts this rank's program again, alone in a job of its own; `None` in that process.
fn start_stray() -> anyhow::Result<Option<std::process::ExitStatus>> {
    const STRAY: &str = "CONFORMANCE_STRAY";
    if std::env::var_os(STRAY).is_some() {
        return Ok(None);
    }
    let name = format!("/conformance-stray-{}", std::process::id());
    let status = std::process::Command::new(std::env::current_exe()?)
        .env(STRAY, "1")
        .env("INTRANODE_NAME", name)
        .env("INTRANODE_RANK", "0")
        .env("INTRANODE_SIZE", "1")
        .status()?;
    Ok(Some(status))
}

/// What is shown with other means than a joined communicator.
pub(crate) fn trials() -> Vec<Trial> {
    // Elsewhere memory always has a name.
    if !cfg!(target_os = "linux") {
        return Vec::new();
    }
    let sizes = [1, 2, 4];
    let trial = |size: usize| {
        let run = move || falls_back(size).map_err(|error| format!("{error:#}").into());
        Trial::test(format!("processes::{size}::region_by_name_where_one_rank_needs_it"), run)
    };
    sizes.into_iter().map(trial).collect()
}

/// The last rank can not open what has no name, so all fall back to memory that has one.
fn falls_back(size: usize) -> Outcome {
    let mut job = Job::new(size, WAITS[0]);
    for rank in 0..size {
        job.start_with(rank, NAMED, |command| {
            if rank == size - 1 {
                command.env("INTRANODE_MEMORY", "named");
            }
        })?;
    }
    job.finish(&vec![0; size])
}

/// The role in [`falls_back`].
pub(crate) const ROLE: (&str, fn() -> Outcome) = (NAMED, use_named);
const NAMED: &str = "region_by_name_where_one_rank_needs_it";

fn use_named() -> Outcome {
    let comm = Communicator::from_env()?;
    for turn in 0..20 {
        let mut region = comm.region::<u32>(100_000)?;
        let maps = std::fs::read_to_string("/proc/self/maps")?;
        ensure!(!maps.contains("/memfd:intranode"), "it has no name: {maps}");
        region.distribute()?;
        region.as_mut_slice().fill(turn);
        let shared = region.publish()?;
        ensure!(shared.iter().all(|value| *value == turn));
    }
    still_works(&comm)
}
