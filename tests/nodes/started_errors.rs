//! Rows of calls that are started and fail: the ranks call different things, are wrong, leave, or do not go on.

use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use intranode::{Communicator, Error, Hierarchical, NodeMap, Operation, Pending, ReduceOp, Source};

use crate::rows::{FEWER, over, same_mismatch, same_mismatches};
use crate::scenario::{Outcome, Scenario, ensure_matches, row};
use crate::started_rows::{only_test, still_works};

const TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(nodes_that_start_different_calls).ranks(FEWER),
        row!(nodes_start_what_others_wait_in).ranks(&[2, 3, 4, 8]),
        row!(nodes_start_with_wrong_arguments).ranks(FEWER),
        row!(nodes_that_leave_what_they_have_started).ranks(FEWER),
        row!(nodes_name_a_rank_that_does_not_go_on).ranks(&[3, 4]).timeout(TIMEOUT),
        row!(nodes_that_compute_longer_than_others_wait).ranks(&[4]).timeout(TIMEOUT),
    ]
}

/// What a rank starts.
type Started = fn(&Hierarchical, usize) -> Result<(), Error>;
type StartedFlat = fn(&Communicator, usize) -> Result<(), Error>;

macro_rules! calls {
    ($all:ident) => {
        [
            |$all, _| $all.start_barrier()?.wait(),
            |$all, len| $all.start_allreduce(vec![1.0; len], ReduceOp::Sum)?.wait().map(drop),
            |$all, len| $all.start_allreduce(vec![1.0; len], ReduceOp::Max)?.wait().map(drop),
            |$all, len| $all.start_allreduce(vec![1u32; len], ReduceOp::Sum)?.wait().map(drop),
            |$all, len| $all.start_broadcast(vec![1.0; len], 0)?.wait().map(drop),
            |$all, len| $all.allreduce_in_place(&mut vec![1.0; len], ReduceOp::Sum),
            |$all, _| $all.barrier(),
        ]
    };
}

const CALLS: [Started; 7] = calls!(nodes);
const FLAT: [StartedFlat; 7] = calls!(comm);

fn nodes_that_start_different_calls(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        for odd in [0, comm.size() - 1, comm.size() / 2] {
            let is_odd = comm.rank() == odd;
            same_mismatches(is_odd, (4, 0), |call, len| {
                same_mismatch(FLAT[call](comm, len), CALLS[call](nodes, len))
            })?;
            // Another root.
            let root = usize::from(is_odd);
            let flat = comm.start_broadcast(vec![0; 3], root)?.wait().map(drop);
            same_mismatch(flat, nodes.start_broadcast(vec![0; 3], root)?.wait().map(drop))?;
        }
        still_works(nodes)
    })
}

/// Some ranks start a call, and others wait in one of the same name, or in another: one rank, and all ranks of a node.
fn nodes_start_what_others_wait_in(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        let groups = [0..1, size - 1..size, nodes.map().ranks_of(0), size / 2..size];
        for starting in groups.into_iter().filter(|group| group.len() < size) {
            for (started, waiting) in [(0, 6), (1, 5), (1, 6), (4, 5)] {
                let call = if starting.contains(&rank) { started } else { waiting };
                for len in [1, 300] {
                    same_mismatch(FLAT[call](comm, len), CALLS[call](nodes, len))
                        .with_context(|| format!("ranks {starting:?} start {started}, others {waiting}"))?;
                }
                still_works(nodes)?;
            }
            // The error waits for its call, where another one has completed that.
            let pending = match starting.contains(&rank) {
                true => Some(nodes.start_allreduce(vec![1.0], ReduceOp::Sum)?),
                false => None,
            };
            let first = nodes.barrier();
            match pending {
                Some(pending) => {
                    first?;
                    ensure_matches!(pending.wait(), Err(Error::Mismatch { .. }));
                }
                None => {
                    ensure_matches!(first, Err(Error::Mismatch { .. }));
                    nodes.barrier()?;
                }
            }
            still_works(nodes)?;
        }
        Ok(())
    })
}

fn nodes_start_with_wrong_arguments(comm: Communicator) -> Outcome {
    over(&comm, |comm, nodes| {
        let (rank, size) = (comm.rank(), comm.size());
        let (counts, displs) = (vec![1; size], (0..size).collect::<Vec<_>>());
        for wrong in [0, size - 1] {
            let is_wrong = rank == wrong;
            let results = [
                nodes
                    .start_broadcast(vec![0u8; 2], if is_wrong { size } else { 0 })
                    .and_then(Pending::wait)
                    .map(drop),
                nodes
                    .start_allreduce(vec![1.0], if is_wrong { ReduceOp::BitAnd } else { ReduceOp::Sum })
                    .and_then(Pending::wait)
                    .map(drop),
                nodes
                    .start_allgatherv(&[1u8], vec![0; size - usize::from(is_wrong)], &counts, &displs)
                    .and_then(Pending::wait)
                    .map(drop),
                nodes
                    .start_allgatherv(&[1u8][usize::from(is_wrong)..], vec![0; size], &counts, &displs)
                    .and_then(Pending::wait)
                    .map(drop),
            ];
            for (index, result) in results.into_iter().enumerate() {
                match (is_wrong, index) {
                    (true, 0) => ensure_matches!(result, Err(Error::InvalidRoot { root, .. }) if *root == size),
                    (true, 1) => ensure_matches!(result, Err(Error::InvalidReduction { .. })),
                    (true, _) => ensure_matches!(result, Err(Error::InvalidBufferSize { .. })),
                    (false, _) => ensure_matches!(result, Err(Error::Refused { rank, .. }) if *rank == wrong),
                }
            }
            // What is refused while another call is under way waits for that.
            let before = nodes.start_allreduce(vec![rank; 700], ReduceOp::Max)?;
            let refused = nodes.start_broadcast(vec![0u8; 2], if is_wrong { size } else { 0 });
            ensure!(refused.is_err() == is_wrong);
            ensure!(before.wait()? == vec![size - 1; 700]);
            if let Ok(refused) = refused {
                ensure_matches!(refused.wait(), Err(Error::Refused { rank, .. }) if *rank == wrong);
            }
        }
        still_works(nodes)
    })
}

fn nodes_that_leave_what_they_have_started(comm: Communicator) -> Outcome {
    let size = comm.size();
    let nodes = size.min(2);
    for leaving in [0, size - 1] {
        for drops in [false, true] {
            let nodes = Hierarchical::simulated(comm.split_local()?, &NodeMap::even(size, nodes)?)?;
            nodes.barrier()?;
            // It has gone when the others test: its calls cannot be complete without its tests.
            let first = nodes.start_allreduce(vec![1u64; 9000], ReduceOp::Sum)?;
            let second = nodes.start_barrier()?;
            if comm.rank() == leaving {
                drop((first, second));
                if drops {
                    drop(nodes)
                } else {
                    nodes.leave()?
                }
                comm.barrier()?;
            } else {
                comm.barrier()?;
                let first = first.wait().map(|sums| sums.len());
                ensure_matches!(first, Err(Error::RankLeft { rank, operation: Operation::StartAllreduce, .. }) if *rank == leaving);
                ensure_matches!(second.wait(), Err(Error::RankLeft { rank, operation: Operation::StartBarrier, .. }) if *rank == leaving);
                // So is every further call.
                let again = nodes.start_barrier()?.wait();
                ensure_matches!(again, Err(Error::RankLeft { rank, .. }) if *rank == leaving);
                ensure_matches!(nodes.barrier(), Err(Error::RankLeft { rank, .. }) if *rank == leaving);
            }
            comm.barrier()?;
        }
    }
    Ok(())
}

/// A rank starts a call, and does not go on before the others have given it up: they name it, or its node.
fn nodes_name_a_rank_that_does_not_go_on(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let mut messages = comm.messages()?;
    for (lazy, tests) in [(0, true), (0, false), (size - 1, true), (size - 1, false)] {
        let nodes = Hierarchical::simulated(comm.split_local()?, &NodeMap::even(size, 2)?)?;
        let of_node = nodes.map().ranks_of(nodes.map().node_of(lazy));
        let mut pending = nodes.start_allreduce(vec![1u64; 9000], ReduceOp::Sum)?;
        if rank == lazy {
            for _ in 1..size {
                while messages.try_probe(Source::Any, 1)?.is_none() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                messages.recv_vec::<u8>(Source::Any, 1)?;
            }
            // The communicator has ended, whichever rank is named here.
            ensure!(pending.wait().is_err_and(|error| error.is_fatal()));
        } else {
            let start = Instant::now();
            if tests {
                only_test(&mut pending)?;
            }
            let error = pending.wait().err().context("no error")?;
            messages.send(&[1u8], lazy, 1)?;
            ensure!(start.elapsed() < TIMEOUT * 3, "it took {:?}", start.elapsed());
            ensure!(error.is_fatal() && error.operation() == Operation::StartAllreduce, "{error}");
            match &error {
                Error::TimedOut { late, .. } => ensure!(**late == [lazy], "{error}"),
                Error::NodeLate(late) => {
                    ensure!(late.ranks == of_node && !of_node.contains(&rank), "{error}");
                }
                _ => bail!("{error}"),
            }
        }
        comm.barrier()?;
    }
    Ok(())
}

/// A rank that comes back from its work in time, again and again, is not given up, however long the call takes in all. That is mostly
/// longer than the time-out: in one test a rank may go on by several steps.
fn nodes_that_compute_longer_than_others_wait(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    // In several chunks, so that there are many steps.
    let nodes = Hierarchical::simulated(comm, &NodeMap::even(size, 2)?)?.chain(0, 64);
    for busy in [0, 1, size - 1] {
        let first = nodes.start_allreduce(vec![rank; 20], ReduceOp::Sum)?;
        let mut second = nodes.start_barrier()?;
        if rank == busy {
            while !second.test() {
                std::thread::sleep(TIMEOUT / 5); // its work
            }
        } else if rank == (busy + 1) % size {
            only_test(&mut second)?;
        }
        ensure!(first.wait()? == vec![size * (size - 1) / 2; 20]);
        second.wait()?;
    }
    still_works(&nodes)
}
