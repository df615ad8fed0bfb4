//! Collectives that are started, and tested or waited for later.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use intranode::protocol::Staging;
use intranode::protocol::call::INLINE;
use intranode::{Communicator, Error, Operation, Pending, ReduceOp};

use crate::board::Board;
use crate::errors::wrong_on_one_or_all;
use crate::model::{ensure_same, reduced, values};
use crate::scenario::{Outcome, Scenario, ensure_matches, row, seed, staging, still_works};

const TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn rows() -> Vec<Scenario> {
    const SEVERAL: &[usize] = &[2, 3, 4, 8];
    vec![
        row!(started_calls_of_every_length),
        row!(started_calls_around_the_inline_and_the_chunk_size).ranks(&[2, 4]),
        row!(started_calls_through_tiny_staging).staging(64),
        row!(started_reductions_of_other_types),
        row!(started_calls_complete_in_their_order),
        row!(a_test_completes_without_a_wait),
        row!(a_started_barrier_waits_for_all).ranks(SEVERAL),
        row!(a_blocking_call_completes_what_was_started),
        row!(what_is_dropped_or_forgotten_is_completed_by_the_next_call),
        row!(a_started_and_a_blocking_call_are_a_mismatch).ranks(SEVERAL),
        row!(wrong_arguments_of_started_calls),
        row!(a_rank_that_does_not_go_on_is_named_by_who_waits).ranks(&[2, 4]).timeout(TIMEOUT),
        row!(a_rank_that_does_not_go_on_is_named_by_who_tests).ranks(&[2, 4]).timeout(TIMEOUT),
        row!(a_rank_leaves_what_it_has_started).ranks(SEVERAL),
        row!(started_calls_mixed_many_times),
    ]
}

/// How a rank completes a call: not all in the same way.
pub(crate) fn complete<R>(comm: &Communicator, turn: usize, mut pending: Pending<'_, R>) -> anyhow::Result<R> {
    match (comm.rank() + turn) % 3 {
        0 => {}
        1 => {
            pending.test();
        }
        _ => {
            let start = Instant::now();
            while !pending.test() {
                ensure!(start.elapsed() < Duration::from_secs(100), "no progress");
            }
        }
    }
    Ok(pending.wait()?)
}

/// Each call once, with `len` elements a rank.
fn each(comm: &Communicator, turn: usize, len: usize) -> Outcome {
    let (rank, size, root) = (comm.rank(), comm.size(), turn % comm.size());
    let own: Vec<f64> = values(seed(), rank, len);

    let sums = complete(comm, turn, comm.start_allreduce(own.clone(), ReduceOp::Sum)?)?;
    ensure_same(&sums, &reduced(ReduceOp::Sum, seed(), size, len))?;

    let data = complete(comm, turn + 1, comm.start_broadcast(own.clone(), root)?)?;
    ensure_same(&data, &values(seed(), root, len))?;

    // Blocks of different lengths, in the order of the ranks' opposite, with gaps.
    let counts: Vec<usize> = (0..size).map(|rank| (len + rank) * usize::from(rank % 3 != 1)).collect();
    let displs: Vec<usize> = (0..size).map(|rank| (size - 1 - rank) * (len + size + 1)).collect();
    let send: Vec<f64> = values(!seed(), rank, counts[rank]);
    let before = vec![-1.5; size * (len + size + 1)];
    let pending = comm.start_allgatherv(&send, before.clone(), &counts, &displs)?;
    let recv = complete(comm, turn + 2, pending)?;
    let mut expected = before;
    for from in 0..size {
        let block: Vec<f64> = values(!seed(), from, counts[from]);
        expected[displs[from]..displs[from] + counts[from]].copy_from_slice(&block);
    }
    ensure_same(&recv, &expected)?;
    complete(comm, turn, comm.start_barrier()?)
}

fn every(comm: &Communicator, lengths: impl IntoIterator<Item = usize>) -> Outcome {
    for (turn, len) in lengths.into_iter().enumerate() {
        each(comm, turn, len).with_context(|| format!("{len} elements"))?;
    }
    Ok(())
}

fn started_calls_of_every_length(comm: Communicator) -> Outcome {
    every(&comm, [0, 1, 12, 13, 100, 2048, 5000, 70_000, 300_000])
}

fn started_calls_around_the_inline_and_the_chunk_size(comm: Communicator) -> Outcome {
    let Staging { chunk, folded, .. } = staging(&comm);
    let around = [INLINE, 16 << 10, chunk, folded, 3 * folded];
    every(&comm, around.into_iter().flat_map(|bytes| bytes / 8 - 1..=bytes / 8 + 1))
}

fn started_calls_through_tiny_staging(comm: Communicator) -> Outcome {
    every(&comm, [1, 8, 13, 65, 333])
}

fn started_reductions_of_other_types(comm: Communicator) -> Outcome {
    for len in [1, 97, 20_001] {
        let own: Vec<u8> = values(seed(), comm.rank(), len);
        let product = comm.start_allreduce(own, ReduceOp::Prod)?.wait()?;
        ensure_same(&product, &reduced(ReduceOp::Prod, seed(), comm.size(), len))?;
        // What is sent for these is not what they are.
        let flags = (0..len).map(|index| index % comm.size() == comm.rank()).collect();
        let any: Vec<bool> = comm.start_allreduce(flags, ReduceOp::LogicalOr)?.wait()?;
        ensure!(any == vec![true; len]);
        let pairs = (0..len).map(|index| ((index + comm.rank()) as f64, comm.rank())).collect();
        let least = comm.start_allreduce(pairs, ReduceOp::MinLoc)?.wait()?;
        ensure!(least == (0..len).map(|index| (index as f64, 0)).collect::<Vec<_>>());
    }
    Ok(())
}

fn started_calls_complete_in_their_order(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    for len in [1, 100, 70_000] {
        let first = comm.start_allreduce(vec![rank; len], ReduceOp::Sum)?;
        let second = comm.start_broadcast(vec![rank; len], size - 1)?;
        let mut third = comm.start_barrier()?;
        let fourth = comm.start_allreduce(vec![rank; len], ReduceOp::Max)?;
        // The last first, on some ranks.
        if rank % 2 == 0 {
            ensure!(fourth.wait()? == vec![size - 1; len]);
            ensure!(third.test(), "what was started before is complete");
        } else {
            third.wait()?;
            ensure!(fourth.wait()? == vec![size - 1; len]);
        }
        ensure!(second.wait()? == vec![size - 1; len]);
        ensure!(first.wait()? == vec![size * (size - 1) / 2; len]);
    }
    Ok(())
}

fn a_test_completes_without_a_wait(comm: Communicator) -> Outcome {
    let board = Board::new(&comm)?;
    let mut pending = comm.start_allreduce(vec![comm.rank() + 1], ReduceOp::Max)?;
    // A round takes no more than that all have arrived: the start was this rank's part.
    board.post(1)?;
    board.wait_until(|bytes| bytes.iter().all(|byte| *byte == 1))?;
    ensure!(pending.test(), "all ranks have arrived");
    ensure!(pending.test(), "it stays complete");
    ensure!(pending.wait()? == [comm.size()]);
    Ok(())
}

fn a_started_barrier_waits_for_all(comm: Communicator) -> Outcome {
    let (board, last) = (Board::new(&comm)?, comm.rank() == comm.size() - 1);
    if last {
        // Not before the others have tested theirs.
        board.wait_until(|bytes| bytes.iter().filter(|byte| **byte == 1).count() == comm.size() - 1)?;
        return Ok(comm.start_barrier()?.wait()?);
    }
    let mut pending = comm.start_barrier()?;
    for _ in 0..100 {
        ensure!(!pending.test(), "a rank has not come");
    }
    board.post(1)?;
    Ok(pending.wait()?)
}

fn a_blocking_call_completes_what_was_started(comm: Communicator) -> Outcome {
    for len in [1, 100, 70_000] {
        let mut first = comm.start_allreduce(vec![1u64; len], ReduceOp::Sum)?;
        let mut second = comm.start_barrier()?;
        still_works(&comm)?;
        ensure!(first.test() && second.test(), "they are complete");
        second.wait()?;
        ensure!(first.wait()? == vec![comm.size() as u64; len]);
    }
    Ok(())
}

fn what_is_dropped_or_forgotten_is_completed_by_the_next_call(comm: Communicator) -> Outcome {
    for turn in 0..comm.size() {
        let pending = comm.start_allreduce(vec![1u64; 70_000], ReduceOp::Sum)?;
        if comm.rank() == turn {
            std::mem::forget(pending);
        } else if comm.rank() == (turn + 1) % comm.size() {
            drop(pending);
        } else {
            ensure!(pending.wait()? == vec![comm.size() as u64; 70_000]);
        }
        still_works(&comm)?;
    }
    Ok(())
}

fn a_started_and_a_blocking_call_are_a_mismatch(comm: Communicator) -> Outcome {
    for odd in 0..comm.size() {
        let result = match comm.rank() == odd {
            true => comm.start_barrier()?.wait(),
            false => comm.barrier(),
        };
        let error = result.err().context("no error")?;
        ensure!(!error.is_fatal() && error.to_string().contains(&format!("rank {odd} called start_barrier")));
        still_works(&comm)?;
        // The error waits for its call where another one has completed that.
        let pending =
            (comm.rank() == odd).then(|| comm.start_allreduce(vec![1.0], ReduceOp::Sum)).transpose()?;
        let first = comm.barrier();
        match pending {
            Some(pending) => {
                first?;
                ensure_matches!(pending.wait(), Err(Error::Mismatch { .. }));
            }
            None => {
                ensure_matches!(first, Err(Error::Mismatch { .. }));
                comm.barrier()?;
            }
        }
        still_works(&comm)?;
    }
    Ok(())
}

fn wrong_arguments_of_started_calls(comm: Communicator) -> Outcome {
    let unchanged = |result| (result, Vec::new());
    let root = |wrong: bool| if wrong { comm.size() } else { 0 };
    let call =
        |wrong| unchanged(comm.start_broadcast(vec![1.0], root(wrong)).and_then(Pending::wait).map(drop));
    let own = |error: &Error| matches!(error, Error::InvalidRoot { .. });
    wrong_on_one_or_all(&comm, Operation::StartBroadcast, call, own)?;

    let op = |wrong| if wrong { ReduceOp::BitOr } else { ReduceOp::Sum };
    let call = |wrong| unchanged(comm.start_allreduce(vec![1.0], op(wrong)).and_then(Pending::wait).map(drop));
    let own = |error: &Error| matches!(error, Error::InvalidReduction { .. });
    wrong_on_one_or_all(&comm, Operation::StartAllreduce, call, own)?;

    let (counts, displs) = (vec![1; comm.size()], (0..comm.size()).collect::<Vec<_>>());
    let call = |wrong| {
        let recv = vec![0.0; comm.size() - usize::from(wrong)];
        unchanged(comm.start_allgatherv(&[1.0], recv, &counts, &displs).and_then(Pending::wait).map(drop))
    };
    let own = |error: &Error| matches!(error, Error::InvalidBufferSize { .. });
    wrong_on_one_or_all(&comm, Operation::StartAllgatherv, call, own)
}

/// The last rank starts a call of several rounds, and makes no further call until the others have given it up.
fn does_not_go_on(
    comm: &Communicator,
    complete: impl Fn(Pending<'_, Vec<u64>>) -> Result<Vec<u64>, Error>,
) -> Outcome {
    let (board, lazy) = (Board::new(comm)?, comm.size() - 1);
    let start_call = || comm.start_allreduce(vec![1u64; 300_000], ReduceOp::Sum);
    if comm.rank() == lazy {
        // Before the others, so it does not get beyond its first round.
        let pending = start_call()?;
        board.post(2)?;
        board.wait_until(|bytes| bytes.iter().filter(|byte| **byte == 1).count() == lazy)?;
        ensure_matches!(pending.wait(), Err(Error::TimedOut { .. }));
        return Ok(());
    }
    board.wait_until(|bytes| bytes[lazy] == 2)?;
    let pending = start_call()?;
    let start = Instant::now();
    let error = complete(pending).err().context("no error")?;
    board.post(1)?;
    ensure!(start.elapsed() < TIMEOUT * 3, "it took {:?}", start.elapsed());
    ensure!(error.is_fatal() && error.operation() == Operation::StartAllreduce, "{error}");
    ensure_matches!(error, Error::TimedOut { late, .. } if **late == [lazy]);
    Ok(())
}

fn a_rank_that_does_not_go_on_is_named_by_who_waits(comm: Communicator) -> Outcome {
    does_not_go_on(&comm, |pending| pending.wait())
}

fn a_rank_that_does_not_go_on_is_named_by_who_tests(comm: Communicator) -> Outcome {
    does_not_go_on(&comm, |mut pending| {
        while !pending.test() {}
        pending.wait()
    })
}

/// A call is complete once all have arrived at its last round, and one that a rank has not begun names the rank that has left.
fn a_rank_leaves_what_it_has_started(comm: Communicator) -> Outcome {
    let last = comm.size() - 1;
    let board = Board::new(&comm)?;
    let start = || -> Result<_, Error> {
        Ok((comm.start_barrier()?, comm.start_allreduce(vec![1u64; 300_000], ReduceOp::Sum)?))
    };
    if comm.rank() == last {
        // Before the others, so its second call waits for the first, and does not arrive at any round.
        let _started = start()?;
        board.post(1)?;
        board.wait_until(|bytes| bytes.iter().all(|byte| *byte == 1))?;
        return Ok(());
    }
    board.wait_until(|bytes| bytes[last] == 1)?;
    let (first, second) = start()?;
    board.post(1)?;
    first.wait()?;
    let sums = second.wait().map(|sums| sums.len());
    ensure_matches!(sums, Err(Error::RankLeft { rank, .. }) if *rank == last);
    Ok(())
}

/// Started and blocking calls right after one another, so that words and buffers are used again at once.
fn started_calls_mixed_many_times(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    for turn in 0..100 {
        let len = [1, 40, 13, 3000][turn % 4];
        let own: Vec<f64> = values(seed(), rank, len);
        let pending = comm.start_allreduce(own.clone(), ReduceOp::Sum)?;
        if turn % 5 == 0 {
            comm.barrier()?;
        }
        let sums = complete(&comm, turn, pending)?;
        ensure_same(&sums, &reduced(ReduceOp::Sum, seed(), size, len))?;
        let mut blocking = own;
        comm.allreduce_in_place(&mut blocking, ReduceOp::Sum)?;
        ensure_same(&sums, &blocking)?;
        each(&comm, turn, len)?;
    }
    Ok(())
}
