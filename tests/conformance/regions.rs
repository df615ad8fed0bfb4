//! The rows of shared regions.

use anyhow::ensure;
use intranode::{Blocks, Communicator, Error, Operation, Placement, ReduceOp, RegionOptions};

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
    rows.into_iter().map(|row| row.ranks(&[1, 2, 4])).collect()
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
    // The rank's own column of ten rows, from the last to the first, except the first row, which has no owner.
    let own: Vec<_> = (1..10).rev().map(|row| row * size + rank).map(|index| index..index + 1).collect();
    region.set_ownership(own)?;
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
    region.set_ownership([
        rank..rank + 1,
        size + rank..size + rank + 1,
        2 * size + rank..2 * size + rank + 1,
    ])?;
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
    // Other ranks may own it next, with its values.
    region.set_ownership((rank == size - 1).then_some(0..3 * size))?;
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
    // Not in the order of their creation.
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
    for placement in [Placement::Leader, Placement::Distributed, Placement::Interleaved] {
        let options = RegionOptions::new().placement(placement);
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
            Err(Error::AllocationFailed { requested_bytes, reason, .. }) => {
                ensure!(requested_bytes == expected, "{requested_bytes}: {reason}");
                ensure!(!reason.is_empty());
            }
            other => anyhow::bail!("{:?}", other.map(drop)),
        }
        still_works(comm)
    }
    asks::<u8>(&comm, usize::MAX / 2)?;
    asks::<f64>(&comm, usize::MAX)?;
    // More memory than any machine has, without overflow.
    ensure_matches!(comm.region::<u8>(1 << 55).map(drop), Err(Error::AllocationFailed { .. }));
    still_works(&comm)
}

fn region_parts_that_overlap_or_reach_too_far(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let mut region = comm.region::<u8>(size)?;
    let before = region.parts().to_vec();
    // Every rank requests the first element: all get the error, whichever rank is the second.
    let result = region.set_ownership([0..1, 0..size.min(2)]);
    ensure_matches!(result, Err(Error::OverlappingBlocks { operation: Operation::SetOwnership, .. }));
    ensure!(!result.unwrap_err().is_fatal() && region.parts() == before);
    let last = size - 1;
    let result = region.set_ownership(Some(if rank == last { 0..size + 1 } else { rank..rank + 1 }));
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
    let result = region.set_ownership(Some(1..0));
    ensure_matches!(result, Err(Error::InvalidRange { operation: Operation::SetOwnership, start: 1, end: 0 }));
    ensure!(region.parts() == before);
    // Empty ones count for nothing, however many they are.
    region.set_ownership(vec![0..0; size + 1])?;
    ensure!(region.parts().is_empty());
    region.distribute()?;
    region.as_mut_slice().fill(rank as u8);
    let shared = region.publish()?;
    ensure!(shared.iter().enumerate().all(|(index, value)| usize::from(*value) == index));
    Ok(())
}

/// A rank that makes another call instead of publish or reclaim: all get an error, and no rank reads or writes.
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
