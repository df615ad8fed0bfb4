//! The end of symmetric objects: in any order, on each rank by itself.

use anyhow::ensure;
use intranode::{Communicator, Error, Operation, SymmetricOptions};

use crate::holdings::Holdings;
use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};
use crate::symmetric::heap::address;

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(case_15_drops_in_reverse_order),
        row!(case_15_many_drops_at_once),
        row!(case_16_one_keeps_its_handle),
        row!(case_17_free_of_different_objects),
        row!(case_18_the_communicator_is_dropped_first),
        row!(case_19_10_000_cycles_reuse_one_block),
        row!(case_19_10_000_cycles_keep_memory_flat).processes_only(),
    ]
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
    let before = Holdings::now()?;
    (1000..11_000).try_for_each(|number| turn(number).map(drop))?;
    comm.barrier()?;
    before.ensure_no_more()
}
