//! Communicators that were split from another.

use std::time::Duration;

use anyhow::ensure;
use intranode::{Communicator, Error, ReduceOp};

use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(split_local_has_the_same_rank_and_size),
        row!(split_local_works_when_its_parent_is_gone),
        row!(split_local_can_be_dropped_before_its_parent),
        row!(split_by_color_and_key),
        row!(split_again_and_again),
        row!(split_while_parent_and_child_are_used_in_turns),
        row!(split_groups_have_regions_of_their_own),
        row!(split_out_of_step),
        row!(split_leaving_one_is_not_leaving_the_other),
    ];
    let mut rows: Vec<_> = rows.into_iter().map(|row| row.ranks(&[1, 2, 4])).collect();
    let ends = |rank, size| if rank == size - 1 { 9 } else { 0 };
    rows.push(row!(split_abort_ends_parents_and_children).ranks(&[2, 4]).processes_only().ends(ends));
    let timeout = Duration::from_secs(1);
    rows.push(row!(split_time_out_is_the_group_s_alone).ranks(&[2, 4]).timeout(timeout));
    rows
}

fn split_local_has_the_same_rank_and_size(comm: Communicator) -> Outcome {
    let local = comm.split_local()?;
    ensure!((local.rank(), local.size()) == (comm.rank(), comm.size()));
    still_works(&local)?;
    still_works(&comm)
}

fn split_local_works_when_its_parent_is_gone(comm: Communicator) -> Outcome {
    let local = comm.split_local()?;
    drop(comm);
    for _ in 0..100 {
        still_works(&local)?;
    }
    let again = local.split_local()?;
    drop(local);
    still_works(&again)
}

fn split_local_can_be_dropped_before_its_parent(comm: Communicator) -> Outcome {
    drop(comm.split_local()?);
    still_works(&comm)?;
    comm.split_local()?.leave()?;
    still_works(&comm)
}

fn split_by_color_and_key(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    // Even and odd ranks, each in descending order.
    let half = comm.split(rank % 2, size - rank)?;
    let mates: Vec<usize> = (0..size).rev().filter(|other| other % 2 == rank % 2).collect();
    ensure!(half.size() == mates.len() && mates[half.rank()] == rank);
    let mut all = vec![usize::MAX; half.size()];
    half.allgather(&[rank], &mut all)?;
    ensure!(all == mates, "{all:?}, not {mates:?}");
    // Larger than the inline size, and than a chunk.
    let mut data = vec![if half.rank() == 0 { rank as u64 } else { u64::MAX }; 500_000];
    half.broadcast(&mut data, 0)?;
    ensure!(data.iter().all(|value| *value == mates[0] as u64));
    // With equal keys the order does not change.
    let all = comm.split(usize::MAX, 7)?;
    ensure!((all.rank(), all.size()) == (rank, size));
    let alone = comm.split(rank, 0)?;
    ensure!((alone.rank(), alone.size()) == (0, 1));
    still_works(&alone)?;
    still_works(&all)
}

fn split_again_and_again(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let reversed = comm.split(0, size - 1 - rank)?;
    let pair = reversed.split(reversed.rank() / 2, 0)?;
    let mut ranks = vec![0; pair.size()];
    pair.allgather(&[rank], &mut ranks)?;
    ensure!(ranks.is_sorted_by(|a, b| a > b), "{ranks:?}");
    drop(reversed);
    let last = pair.split_local()?;
    drop((comm, pair));
    let mut sum = [rank];
    last.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
    ensure!(sum[0] == ranks.iter().sum::<usize>(), "{sum:?} of {ranks:?}");
    Ok(())
}

fn split_while_parent_and_child_are_used_in_turns(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let half = comm.split(rank % 2, rank)?;
    let mates = (0..size).filter(|other| other % 2 == rank % 2);
    let (of_half, of_all): (usize, usize) = (mates.map(|mate| mate + 1).sum(), (1..=size).sum());
    for turn in 0..2000 {
        // Each group makes other calls, and another number of them.
        for comm in [&half, &half, &comm].into_iter().cycle().skip(rank % 2).take(3) {
            let mut sum = [(rank + 1) * (turn + 1)];
            comm.allreduce_in_place(&mut sum, ReduceOp::Sum)?;
            let expected = if std::ptr::eq(comm, &half) { of_half } else { of_all };
            ensure!(sum[0] == expected * (turn + 1), "in turn {turn}: {sum:?}");
        }
    }
    Ok(())
}

fn split_groups_have_regions_of_their_own(comm: Communicator) -> Outcome {
    let rank = comm.rank();
    let half = comm.split(rank % 2, rank)?;
    let mut own = half.region::<usize>(1000)?;
    let mut common = comm.region::<usize>(1000)?;
    ensure!(own.is_leader() == (half.rank() == 0));
    own.as_mut_slice().fill(rank);
    common.as_mut_slice().fill(100);
    let (common, own) = (common.publish()?, own.publish()?);
    drop((comm, half));
    ensure!(common.iter().all(|value| *value == 100));
    ensure!(own.iter().all(|value| *value == rank % 2));
    Ok(())
}

fn split_out_of_step(comm: Communicator) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let result = if comm.rank() == 1 { comm.barrier() } else { comm.split(0, 0).map(drop) };
    let error = result.err();
    ensure_matches!(error, Some(Error::Mismatch { .. }));
    still_works(&comm)
}

fn split_leaving_one_is_not_leaving_the_other(comm: Communicator) -> Outcome {
    let local = comm.split_local()?;
    if comm.size() == 1 {
        return Ok(());
    }
    if comm.rank() == 1 {
        drop(local);
    } else {
        ensure_matches!(local.barrier(), Err(Error::RankLeft { rank: 1, .. }));
    }
    still_works(&comm)
}

fn split_abort_ends_parents_and_children(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let half = comm.split(rank % 2, 0)?;
    let local = comm.split_local()?;
    if rank == size - 1 {
        half.abort(9);
    }
    // Also communicators on which the rank has made no call.
    for comm in [&comm, &local] {
        ensure_matches!(comm.barrier(), Err(Error::Aborted { code: 9, rank: by, .. }) if *by == size - 1);
    }
    Ok(())
}

/// A rank that does not enter its group's barrier: the group ends, and its parent can be used further.
fn split_time_out_is_the_group_s_alone(comm: Communicator) -> Outcome {
    let local = comm.split_local()?;
    if comm.rank() == 1 {
        while !matches!(local.state(), Ok(state) if state.ended) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let result = local.barrier();
    ensure_matches!(result, Err(Error::TimedOut { late, .. }) if **late == [1]);
    still_works(&comm)
}
