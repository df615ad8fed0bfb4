//! What is in symmetric objects, where they lie, and what `resize` keeps.

use std::collections::BTreeSet;

use anyhow::ensure;
use intranode::bytemuck::Pod;
use intranode::{Communicator, Error, Operation, Own, Symmetric, SymmetricOptions};

use crate::scenario::{Outcome, Scenario, ensure_matches, row, seed, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(case_01_len_0),
        row!(case_02_fresh_memory_is_zero),
        row!(case_03_dirty_free_allocate_zero),
        row!(case_03_an_element_larger_than_a_stack),
        row!(case_04_alignment_1_to_8_mib),
        row!(case_05_1000_random_allocations_do_not_overlap),
        row!(case_06_growth_keeps_old_handles_valid),
        row!(case_07_resize_keeps_the_prefix),
        row!(case_07_resize_keeps_the_alignment),
    ]
}

/// Where the own instance begins.
pub(super) fn address<T: Pod>(own: &Symmetric<T, Own>) -> usize {
    own.as_ptr().addr()
}

/// Whether every element of every instance is zero. Returns the object.
pub(super) fn all_zero(
    comm: &Communicator,
    object: Symmetric<u8>,
    len: usize,
) -> anyhow::Result<Symmetric<u8>> {
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

fn case_03_an_element_larger_than_a_stack(comm: Communicator) -> Outcome {
    // 8 MiB.
    type Element = [[[u8; 4096]; 1024]; 2];
    let mut own = comm.symmetric::<Element>(1)?.into_own()?;
    own[0].as_flattened_mut().as_flattened_mut().fill(0xEE);
    // Both have its memory.
    let mut own = own.open()?.resize(0)?.resize(1)?.into_own()?;
    for turn in 0..2 {
        let bytes = own[0].as_flattened_mut().as_flattened_mut();
        ensure!(bytes.iter().all(|byte| *byte == 0), "in turn {turn}");
        bytes.fill(0xEE);
        own.open()?.free()?;
        own = comm.symmetric::<Element>(1)?.into_own()?;
    }
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
