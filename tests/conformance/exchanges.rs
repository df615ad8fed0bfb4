//! Zero-copy collectives.

use anyhow::ensure;
use intranode::{Communicator, Error, Operation};

use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(exchange_of_blocks_of_any_length),
        row!(exchange_as_a_broadcast_of_8_mb),
        row!(exchange_whose_readers_are_slow),
        row!(exchange_with_wrong_or_different_counts),
        row!(exchange_out_of_step),
        row!(exchange_sharing_different_ones),
    ];
    rows.into_iter().map(|row| row.ranks(&[1, 2, 4])).collect()
}

fn exchange_of_blocks_of_any_length(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    for counts in [
        (0..size).collect::<Vec<_>>(),
        (1..=size).collect(),
        vec![1000; size],
        vec![0; size],
        (0..size).map(|rank| if rank % 2 == 0 { 100_003 } else { 1 }).collect(),
    ] {
        let mut exchange = comm.exchange::<u64>(&counts)?;
        ensure!(exchange.len() == counts.iter().sum::<usize>());
        let owners: Vec<_> = (0..size).flat_map(|rank| vec![rank; counts[rank]]).collect();
        for turn in 0..if exchange.len() > 10_000 { 5 } else { 300 } {
            ensure!(exchange.own().len() == counts[rank]);
            let before = if turn < 2 { 0 } else { 1000 * (turn - 2) + rank as u64 };
            ensure!(exchange.own().iter().all(|value| *value == before), "turn {turn}");
            exchange.own().fill(1000 * turn + rank as u64);
            let all = exchange.share()?;
            let expected = owners.iter().map(|owner| 1000 * turn + *owner as u64);
            ensure!(
                all.iter().copied().eq(expected),
                "turn {turn} of {counts:?}: {:?}",
                &all[..all.len().min(9)]
            );
        }
    }
    Ok(())
}

fn exchange_as_a_broadcast_of_8_mb(comm: Communicator) -> Outcome {
    const LEN: usize = 1 << 20;
    let root = comm.size() - 1;
    let mut counts = vec![0; comm.size()];
    counts[root] = LEN;
    let mut exchange = comm.exchange::<f64>(&counts)?;
    for turn in 0..5 {
        exchange.own().iter_mut().enumerate().for_each(|(index, value)| *value = (turn * LEN + index) as f64);
        let all = exchange.share()?;
        ensure!(all.iter().enumerate().all(|(index, value)| *value == (turn * LEN + index) as f64));
    }
    Ok(())
}

/// A slow rank reads the last turn's values after the others have written the next ones.
fn exchange_whose_readers_are_slow(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let mut exchange = comm.exchange::<usize>(&vec![512; size])?;
    for turn in 0..200 {
        exchange.own().fill(turn);
        let all = exchange.share()?;
        for _ in 0..if turn % size == rank { 3 } else { 1 } {
            ensure!(all.iter().all(|value| *value == turn), "in turn {turn}");
            std::thread::yield_now();
        }
    }
    Ok(())
}

fn exchange_with_wrong_or_different_counts(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let counts = vec![1; if rank == 0 { size + 1 } else { size }];
    let result = comm.exchange::<u8>(&counts).map(drop);
    if rank == 0 {
        let (expected, actual) = (size, size + 1);
        ensure_matches!(result, Err(Error::InvalidBufferSize { operation: Operation::Exchange, .. }));
        let text = result.err().map(|error| error.to_string()).unwrap_or_default();
        ensure!(text.contains(&expected.to_string()) && text.contains(&actual.to_string()), "{text}");
    } else {
        ensure_matches!(result, Err(Error::Refused { rank: 0, .. }));
    }
    if size > 1 {
        let result = comm.exchange::<u8>(&vec![rank; size]).map(drop);
        ensure_matches!(result, Err(Error::Mismatch { .. }));
        // The same total.
        let mut counts = vec![1; size];
        if rank == size - 1 {
            (counts[0], counts[1]) = (2, 0);
        }
        ensure_matches!(comm.exchange::<u8>(&counts).map(drop), Err(Error::Mismatch { .. }));
    }
    // The sum of the counts overflows.
    let counts: Vec<_> = (0..size).map(|rank| if rank == 0 { usize::MAX } else { 1 }).collect();
    ensure_matches!(comm.exchange::<u64>(&counts).map(drop), Err(Error::AllocationFailed { .. }));
    still_works(&comm)
}

fn exchange_sharing_different_ones(comm: Communicator) -> Outcome {
    if comm.size() == 1 {
        return Ok(());
    }
    let counts = vec![1; comm.size()];
    let (mut one, mut other) = (comm.exchange::<u64>(&counts)?, comm.exchange::<u64>(&counts)?);
    let result = if comm.rank() == 0 { one.share() } else { other.share() };
    ensure_matches!(result.map(drop), Err(Error::Mismatch { .. }));
    still_works(&comm)
}

fn exchange_out_of_step(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let mut exchange = comm.exchange::<usize>(&vec![1; size])?;
    for turn in 0..10 {
        exchange.own().fill(turn);
        if size > 1 {
            let result = if rank == 1 { comm.barrier() } else { exchange.share().map(drop) };
            ensure_matches!(result, Err(Error::Mismatch { .. }));
        }
        // The turn has not ended: the block still holds what this rank has written.
        ensure!(exchange.own() == [turn]);
        exchange.own().fill(turn + 100);
        ensure!(exchange.share()?.iter().all(|value| *value == turn + 100));
    }
    Ok(())
}
