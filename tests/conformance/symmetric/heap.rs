//! The heap of symmetric objects.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use intranode::bytemuck::Pod;
use intranode::{Communicator, Error, Operation, Own, Placement, Symmetric, SymmetricOptions};

use crate::holdings::holdings;
use crate::scenario::{Outcome, Scenario, ensure_matches, row, seed, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(case_01_len_0),
        row!(case_02_fresh_memory_is_zero),
        row!(case_03_dirty_free_allocate_zero),
        row!(case_04_alignment_1_to_8_mib),
        row!(case_04_alignments_that_are_not_possible),
        row!(case_05_1000_random_allocations_do_not_overlap),
        row!(case_06_growth_keeps_old_handles_valid),
        row!(case_07_resize_keeps_the_prefix),
        row!(case_07_resize_keeps_the_alignment),
        row!(case_08_lengths_differ),
        row!(case_09_types_differ),
        row!(case_10_alignments_and_options_differ),
        row!(case_11_one_allocates_another_is_in_a_barrier),
        row!(case_12_half_of_all_numbers),
        row!(case_15_drops_in_reverse_order),
        row!(case_15_many_drops_at_once),
        row!(case_16_one_keeps_its_handle),
        row!(case_17_free_of_different_objects),
        row!(case_18_the_communicator_is_dropped_first),
        row!(case_19_10_000_cycles_reuse_one_block),
        row!(case_19_10_000_cycles_keep_memory_flat).processes_only(),
        row!(empty_segments_are_given_back).processes_only(),
        row!(many_objects_in_few_segments).processes_only(),
        row!(objects_of_a_split_communicator),
        row!(one_mapping_in_a_process),
        row!(placed_in_every_way),
    ]
}

/// Where the own instance begins.
fn address<T: Pod>(own: &Symmetric<T, Own>) -> usize {
    own.as_ptr().addr()
}

/// Whether every element of every instance is zero. Returns the object.
fn all_zero(comm: &Communicator, object: Symmetric<u8>, len: usize) -> anyhow::Result<Symmetric<u8>> {
    let all = object.into_read()?;
    for rank in 0..comm.size() {
        ensure!(all.of(rank).len() == len);
        let wrong = all.of(rank).iter().position(|byte| *byte != 0);
        ensure!(wrong.is_none(), "of {len} bytes of rank {rank}, the first that is not zero is {wrong:?}");
    }
    Ok(all.open()?)
}

fn case_01_len_0(comm: Communicator) -> Outcome {
    let object = comm.symmetric::<f64>(0)?;
    ensure!(object.is_empty());
    let own = object.into_own()?;
    ensure!(own.is_empty());
    let all = own.open()?.into_read()?;
    ensure!((0..comm.size()).all(|rank| all.of(rank).is_empty()));
    let longer = all.open()?.resize(3)?;
    ensure!(longer.len() == 3);
    longer.resize(0)?.free()?;
    // An element that takes no memory.
    let nothing = comm.symmetric::<()>(1000)?.into_own()?;
    ensure!(nothing.len() == 1000);
    still_works(&comm)
}

fn case_02_fresh_memory_is_zero(comm: Communicator) -> Outcome {
    let mut kept = Vec::new();
    for len in [1, 127, 128, 129, 4096, 100_000, 3_000_000] {
        kept.push(all_zero(&comm, comm.symmetric(len)?, len)?);
    }
    still_works(&comm)
}

fn case_03_dirty_free_allocate_zero(comm: Communicator) -> Outcome {
    let (mut addresses, mut reused) = (BTreeSet::new(), 0);
    for (turn, len) in
        [5000, 300, 5000, 4990, 200_000, 199_999, 1, 250_000, 129].into_iter().cycle().take(60).enumerate()
    {
        let mut own = all_zero(&comm, comm.symmetric(len)?, len)?.into_own()?;
        reused += usize::from(!addresses.insert(address(&own)));
        own.fill(0xEE);
        let object = own.open()?;
        // Either way the next object has its memory.
        if turn % 2 == 0 {
            object.free()?;
        }
    }
    ensure!(reused > 30, "only {reused} of 60 had memory that was used before");
    still_works(&comm)
}

fn case_04_alignment_1_to_8_mib(comm: Communicator) -> Outcome {
    let (mut kept, mut distances) = (Vec::new(), Vec::new());
    for bits in 0..=23 {
        let options = SymmetricOptions::new().alignment(1 << bits);
        // An object before it, so that its natural place is not aligned.
        kept.push(comm.symmetric::<u8>(1)?.into_read()?);
        let all = comm.symmetric_with::<u8>(100, &options)?.into_read()?;
        let addresses: Vec<usize> = (0..comm.size()).map(|rank| all.of(rank).as_ptr().addr()).collect();
        for (rank, address) in addresses.iter().enumerate() {
            ensure!(address.is_multiple_of(1 << bits), "2^{bits} on rank {rank}: {address:#x}");
        }
        // The same distance between any two ranks: so the offset in each rank's part is the same.
        let distance = addresses[1] - addresses[0];
        ensure!(addresses.windows(2).all(|pair| pair[1] - pair[0] == distance), "{addresses:x?}");
        distances.push(distance);
        kept.push(all);
    }
    // And on every rank.
    let mut all = vec![0; distances.len() * comm.size()];
    comm.allgather(&distances, &mut all)?;
    ensure!(all.chunks(distances.len()).all(|theirs| theirs == distances), "{all:?}");
    still_works(&comm)
}

fn case_04_alignments_that_are_not_possible(comm: Communicator) -> Outcome {
    let last = comm.rank() == comm.size() - 1;
    for alignment in [0, 3, 48, SymmetricOptions::MAX_ALIGNMENT * 2, usize::MAX] {
        let options = SymmetricOptions::new().alignment(if last { alignment } else { 64 });
        let result = comm.symmetric_with::<u8>(10, &options).map(drop);
        if last {
            ensure_matches!(result, Err(Error::InvalidAlignment { alignment: found, .. }) if *found == alignment);
        } else {
            ensure_matches!(result, Err(Error::Refused { rank, .. }) if *rank == comm.size() - 1);
        }
        ensure!(!result.unwrap_err().is_fatal());
    }
    still_works(&comm)
}

fn case_05_1000_random_allocations_do_not_overlap(comm: Communicator) -> Outcome {
    let mut random = fastrand::Rng::with_seed(seed());
    let mut live: Vec<(u32, Symmetric<u32, Own>)> = Vec::new();
    for number in 0..1000 {
        let len = match random.u32(0..10) {
            0 => 0,
            1..6 => random.usize(1..100),
            6..9 => random.usize(100..5000),
            _ => random.usize(5000..60_000),
        };
        let options = SymmetricOptions::new().alignment(1 << random.u32(0..14));
        let mut own = comm.symmetric_with::<u32>(len, &options)?.into_own()?;
        ensure!(own.iter().all(|value| *value == 0), "object {number} is not zero");
        own.fill(number);
        let range = own.as_ptr_range();
        let overlaps = |other: &&(u32, Symmetric<u32, Own>)| {
            let other = other.1.as_ptr_range();
            len > 0 && other.start < range.end && range.start < other.end
        };
        let other = live.iter().find(overlaps).map(|(other, _)| *other);
        ensure!(other.is_none(), "object {number} overlaps with {other:?}");
        live.push((number, own));
        while random.u32(0..100) < 45 && !live.is_empty() {
            let (number, own) = live.swap_remove(random.usize(..live.len()));
            ensure!(own.iter().all(|value| *value == number), "object {number} has changed");
            if random.bool() {
                own.open()?.free()?;
            }
        }
    }
    for (number, own) in live {
        ensure!(own.iter().all(|value| *value == number), "object {number} has changed");
    }
    still_works(&comm)
}

fn case_06_growth_keeps_old_handles_valid(comm: Communicator) -> Outcome {
    let mut kept: Vec<(usize, usize, Symmetric<u8, Own>)> = Vec::new();
    for step in 0..9 {
        let len = 1000 << step;
        let mut own = comm.symmetric::<u8>(len)?.into_own()?;
        own.fill(step as u8 + 1);
        kept.push((address(&own), len, own));
        for (byte, (place, len, own)) in (1..).zip(&kept) {
            ensure!(address(own) == *place && own.len() == *len, "object {byte} has moved");
            ensure!(own.iter().all(|value| *value == byte), "object {byte} has changed");
        }
    }
    // Other ranks see them too.
    for (byte, (_, _, own)) in (1..).zip(kept) {
        let all = own.open()?.into_read()?;
        ensure!((0..comm.size()).all(|rank| all.of(rank).iter().all(|value| *value == byte)));
    }
    still_works(&comm)
}

fn case_07_resize_keeps_the_prefix(comm: Communicator) -> Outcome {
    let value = |index: usize| (comm.rank() * 1_000_000 + index) as u64 + 1;
    let mut object = comm.symmetric::<u64>(100)?;
    let mut before = 100;
    for len in [100, 200, 50, 50_000, 49_999, 1, 0, 10, 100_000] {
        let mut own = object.into_own()?;
        ensure!(own.len() == before);
        own.iter_mut().enumerate().for_each(|(index, slot)| *slot = value(index));

        let own = own.open()?.resize(len)?.into_own()?;
        ensure!(own.len() == len);
        let kept = before.min(len);
        let right = |(index, found): (usize, &u64)| *found == if index < kept { value(index) } else { 0 };
        let wrong = own.iter().enumerate().find(|(index, found)| !right((*index, found)));
        ensure!(wrong.is_none(), "from {before} to {len}: {wrong:?}");
        object = own.open()?;
        before = len;
    }
    still_works(&comm)
}

fn case_07_resize_keeps_the_alignment(comm: Communicator) -> Outcome {
    let options = SymmetricOptions::new().alignment(1 << 16);
    let mut object = comm.symmetric_with::<u8>(10, &options)?;
    let mut kept = Vec::new();
    for len in [20, 100_000, 5, 1_000_000] {
        kept.push(comm.symmetric::<u8>(1)?);
        let own = object.resize(len)?.into_own()?;
        ensure!(address(&own).is_multiple_of(1 << 16), "{len} at {:#x}", address(&own));
        object = own.open()?;
    }
    // Different lengths are a mismatch, and every rank has dropped the object.
    let result = object.resize(10 + comm.rank()).map(drop);
    ensure_matches!(result, Err(Error::Mismatch { operation: Operation::ResizeSymmetric, .. }));
    still_works(&comm)
}

/// All ranks have got a mismatch whose text names these calls, and can go on.
fn mismatch(comm: &Communicator, result: Result<(), Error>, calls: &[&str]) -> Outcome {
    ensure_matches!(result, Err(Error::Mismatch { .. }));
    let error = result.unwrap_err();
    let text = error.to_string();
    ensure!(calls.iter().all(|call| text.contains(call)), "{text}");
    ensure!(!error.is_fatal());
    all_zero(comm, comm.symmetric(1000)?, 1000)?.free()?;
    still_works(comm)
}

fn case_08_lengths_differ(comm: Communicator) -> Outcome {
    let last = comm.rank() == comm.size() - 1;
    let result = comm.symmetric::<f64>(if last { 11 } else { 10 }).map(drop);
    mismatch(&comm, result, &["rank 0 called symmetric(10 × f64, aligned to 8)", "symmetric(11 × f64"])
}

fn case_09_types_differ(comm: Communicator) -> Outcome {
    let last = comm.rank() == comm.size() - 1;
    let result = if last { comm.symmetric::<f32>(10).map(drop) } else { comm.symmetric::<u32>(10).map(drop) };
    mismatch(&comm, result, &["symmetric(10 × u32, aligned to 4)", "symmetric(10 × f32, aligned to 4)"])?;
    // Of one size, with another alignment.
    let result =
        if last { comm.symmetric::<[u8; 8]>(10).map(drop) } else { comm.symmetric::<[u32; 2]>(10).map(drop) };
    mismatch(&comm, result, &["8 bytes aligned to 1", "8 bytes aligned to 4"])
}

fn case_10_alignments_and_options_differ(comm: Communicator) -> Outcome {
    let last = comm.rank() == comm.size() - 1;
    let options = SymmetricOptions::new().alignment(if last { 8192 } else { 64 });
    let result = comm.symmetric_with::<u8>(10, &options).map(drop);
    mismatch(&comm, result, &["aligned to 64", "aligned to 8192"])?;
    let options = SymmetricOptions::new().huge_pages(last);
    mismatch(&comm, comm.symmetric_with::<u8>(10, &options).map(drop), &["symmetric(10 × u8"])?;
    let placement = if last { Placement::Leader } else { Placement::Distributed };
    let options = SymmetricOptions::new().placement(placement);
    mismatch(&comm, comm.symmetric_with::<u8>(10, &options).map(drop), &["symmetric(10 × u8"])
}

fn case_11_one_allocates_another_is_in_a_barrier(comm: Communicator) -> Outcome {
    let last = comm.rank() == comm.size() - 1;
    let result = if last { comm.symmetric::<u16>(7).map(drop) } else { comm.barrier() };
    mismatch(&comm, result, &["rank 0 called barrier", "called symmetric(7 × u16"])
}

fn case_12_half_of_all_numbers(comm: Communicator) -> Outcome {
    fn fails<T: Pod>(comm: &Communicator, len: usize) -> Outcome {
        match comm.symmetric::<T>(len) {
            Err(Error::AllocationFailed { operation: Operation::Symmetric, requested_bytes, reason }) => {
                let bytes = len.saturating_mul(size_of::<T>()).saturating_mul(comm.size());
                ensure!(requested_bytes == bytes, "{requested_bytes} and not {bytes}: {reason}");
            }
            other => anyhow::bail!("{len}: {:?}", other.map(drop)),
        }
        still_works(comm)
    }
    let before = comm.symmetric::<u8>(100)?.into_own()?;
    fails::<u8>(&comm, usize::MAX / 2)?;
    fails::<f64>(&comm, usize::MAX / 2)?;
    fails::<u8>(&comm, usize::MAX)?;
    // More memory than any machine has, without overflow.
    fails::<u8>(&comm, 1 << 50)?;
    let object = comm.symmetric::<u64>(10)?;
    ensure_matches!(
        object.resize(usize::MAX / 2).map(drop),
        Err(Error::AllocationFailed { operation: Operation::ResizeSymmetric, .. })
    );
    // Nothing has changed: the next object follows the first.
    let after = comm.symmetric::<u8>(100)?.into_own()?;
    ensure!(address(&after) == address(&before) + 128, "{:#x} {:#x}", address(&after), address(&before));
    Ok(())
}

/// Three objects, dropped by the ranks in different orders. Returns where they were.
fn drop_in_other_orders(comm: &Communicator, len: usize) -> anyhow::Result<Vec<usize>> {
    let mut objects = Vec::new();
    for number in 0..3 {
        let mut own = comm.symmetric::<u8>(len)?.into_own()?;
        own.fill(number + 1);
        objects.push(own);
    }
    let places = objects.iter().map(address).collect();
    if comm.rank() % 2 == 1 {
        objects.reverse();
    }
    objects.into_iter().for_each(drop);
    Ok(places)
}

fn case_15_drops_in_reverse_order(comm: Communicator) -> Outcome {
    let first = drop_in_other_orders(&comm, 5000)?;
    for _ in 0..20 {
        ensure!(
            drop_in_other_orders(&comm, 5000)? == first,
            "the memory of what was dropped is not used again"
        );
    }
    // All of it at once, as one block.
    let own = comm.symmetric::<u8>(15_000)?.into_own()?;
    ensure!(address(&own) == first[0]);
    ensure!(own.iter().all(|value| *value == 0));
    still_works(&comm)
}

fn case_15_many_drops_at_once(comm: Communicator) -> Outcome {
    let mut first = None;
    // All fit into the first segment.
    for count in [11, 12, 200, 400, 3] {
        let mut objects = Vec::new();
        for _ in 0..count {
            objects.push(comm.symmetric::<u8>(1)?.into_own()?);
        }
        let first = *first.get_or_insert(address(&objects[0]));
        ensure!(address(&objects[0]) == first, "what was dropped is not used again");
        if comm.rank() == 0 {
            objects.reverse();
        }
        // The last rank drops fewer before the next call, so the lists of the ranks have different lengths.
        let kept = if comm.rank() == comm.size() - 1 { objects.split_off(count / 2) } else { Vec::new() };
        drop(objects);
        comm.symmetric::<u8>(0)?.free()?;
        drop(kept);
    }
    still_works(&comm)
}

fn case_16_one_keeps_its_handle(comm: Communicator) -> Outcome {
    for keeper in 0..comm.size() {
        let mut own = comm.symmetric::<u8>(3000)?.into_own()?;
        own.fill(keeper as u8 + 1);
        let place = address(&own);
        let kept = (comm.rank() == keeper).then_some(own);
        for _ in 0..3 {
            let mut other = comm.symmetric::<u8>(3000)?.into_own()?;
            ensure!(address(&other) != place, "the memory is used again while rank {keeper} has it");
            other.fill(0xEE);
        }
        ensure!(kept.as_ref().is_none_or(|own| own.iter().all(|value| usize::from(*value) == keeper + 1)));
        drop(kept);
        let again = comm.symmetric::<u8>(3000)?.into_own()?;
        ensure!(address(&again) == place, "the memory is not used again");
    }
    still_works(&comm)
}

fn case_17_free_of_different_objects(comm: Communicator) -> Outcome {
    let (one, other) = (comm.symmetric::<u64>(10)?, comm.symmetric::<u64>(10)?);
    let (first, second) = if comm.rank() == 0 { (one, other) } else { (other, one) };
    let result = first.free();
    ensure_matches!(result, Err(Error::Mismatch { operation: Operation::FreeSymmetric, .. }));
    let text = result.unwrap_err().to_string();
    ensure!(text.contains("rank 0 called free(10 × u64, object 0)"), "{text}");
    ensure!(text.contains("rank 1 called free(10 × u64, object 1)"), "{text}");
    drop(second);
    // Both are free then.
    let own = comm.symmetric::<u8>(256)?.into_own()?;
    ensure!(own.iter().all(|value| *value == 0));
    still_works(&comm)
}

fn case_18_the_communicator_is_dropped_first(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let mut own = comm.symmetric::<u16>(5000)?.into_own()?;
    own.fill(rank as u16 + 1);
    let all = own.open()?.into_read()?;
    let mut own = comm.symmetric::<u16>(100)?.into_own()?;
    let open = comm.symmetric::<u16>(100)?;
    if rank % 2 == 1 {
        return Ok(());
    }
    drop(comm);
    own.fill(7);
    ensure!(own.iter().all(|value| *value == 7) && open.len() == 100);
    for other in 0..size {
        ensure!(all.of(other).iter().all(|value| usize::from(*value) == other + 1));
    }
    // A rank has left.
    ensure_matches!(own.open().map(drop), Err(Error::RankLeft { .. }));
    ensure_matches!(open.free(), Err(Error::RankLeft { .. }));
    ensure!(all.of(size - 1).iter().all(|value| usize::from(*value) == size));
    Ok(())
}

fn cycle(comm: &Communicator, turn: usize) -> anyhow::Result<usize> {
    let mut own = comm.symmetric::<u64>(1000 + turn % 7)?.into_own()?;
    ensure!(own.iter().all(|value| *value == 0), "in turn {turn} it is not zero");
    own.fill(turn as u64 + 1);
    let place = address(&own);
    if turn.is_multiple_of(3) {
        own.open()?.free()?;
    }
    Ok(place)
}

fn case_19_10_000_cycles_reuse_one_block(comm: Communicator) -> Outcome {
    let first = cycle(&comm, 0)?;
    for turn in 1..10_000 {
        ensure!(cycle(&comm, turn)? == first, "in turn {turn} it has moved");
    }
    still_works(&comm)
}

fn case_19_10_000_cycles_keep_memory_flat(comm: Communicator) -> Outcome {
    if !cfg!(target_os = "linux") {
        return Ok(());
    }
    let turn = |turn: usize| {
        let place = cycle(&comm, turn)?;
        // Sometimes a segment of its own, which is given back.
        if turn.is_multiple_of(500) {
            let options = SymmetricOptions::new().alignment(1 << 14);
            comm.symmetric_with::<u8>(200_000, &options)?;
        }
        Ok::<_, anyhow::Error>(place)
    };
    (0..1000).try_for_each(|number| turn(number).map(drop))?;
    comm.barrier()?;
    let before = holdings()?;
    (1000..11_000).try_for_each(|number| turn(number).map(drop))?;
    comm.barrier()?;
    let after = holdings()?;
    let [descriptors, mappings, memory] =
        std::array::from_fn(|kind| after[kind] as isize - before[kind] as isize);
    ensure!(descriptors == 0, "{descriptors} more descriptors");
    // The allocator's mappings may change by one or two.
    ensure!(mappings <= 2, "{mappings} more mappings");
    ensure!(memory < 1024, "{memory} kB more memory");
    Ok(())
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

fn placed_in_every_way(comm: Communicator) -> Outcome {
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
