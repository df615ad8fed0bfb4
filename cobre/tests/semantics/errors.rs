//! Wrong arguments on one rank or on all, and a rank that is missing.

use std::time::{Duration, Instant};

use anyhow::ensure;
use cobre_comm::{CommError, Communicator, ReduceOp, prefix_displs};
use intranode_cobre::ShmBackend;

use crate::{Outcome, Row, SEVERAL, USUAL, ensure_matches, rows};

/// How long a rank is waited for that does not come.
const TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn rows() -> Vec<Row> {
    let mut all = rows![USUAL;
        allreduce_of_nothing,
        allreduce_recv_too_short_on_all_ranks,
        allgatherv_wrong_tables_and_buffers,
        broadcast_from_a_root_that_is_none,
    ]
    .to_vec();
    all.extend(rows![SEVERAL;
        allreduce_of_nothing_on_one_rank,
        allreduce_recv_too_short_on_one_rank,
        allgatherv_blocks_overlap_on_one_rank,
        broadcast_from_a_root_that_is_none_on_one_rank,
        different_collectives,
        a_rank_that_leaves_while_others_go_on,
    ]);
    all.extend(rows![SEVERAL; a_rank_that_does_not_come].map(|row| Row { timeout: TIMEOUT, ..row }));
    all
}

/// On rank 1 the result of `wrong`, which has to be its own; on the others that of `right`, which has to
/// be a failure that names rank 1. Then everything works again.
fn only_rank_1(
    comm: &ShmBackend,
    wrong: impl FnOnce() -> Result<(), CommError>,
    right: impl FnOnce() -> Result<(), CommError>,
    own: impl FnOnce(&CommError) -> bool,
) -> Outcome {
    let result = if comm.rank() == 1 { wrong() } else { right() };
    match result {
        Ok(()) => anyhow::bail!("rank {} was told nothing", comm.rank()),
        Err(error) if comm.rank() == 1 => ensure!(own(&error), "{error:?}"),
        Err(error) => {
            ensure_matches!(error, CommError::CollectiveFailed { mpi_error_code: 0, message, .. }
                if message.contains("rank 1"));
        }
    }
    works(comm)
}

fn works(comm: &ShmBackend) -> Outcome {
    let mut sum = [0];
    comm.allreduce(&[1], &mut sum, ReduceOp::Sum)?;
    ensure!(sum == [comm.size()]);
    Ok(())
}

fn allreduce_of_nothing(comm: &ShmBackend) -> Outcome {
    ensure_matches!(
        comm.allreduce::<f64>(&[], &mut [], ReduceOp::Sum),
        Err(CommError::InvalidBufferSize { operation: "allreduce", expected: 1, actual: 0 })
    );
    works(comm)
}

fn allreduce_of_nothing_on_one_rank(comm: &ShmBackend) -> Outcome {
    only_rank_1(
        comm,
        || comm.allreduce::<f64>(&[], &mut [], ReduceOp::Sum),
        || comm.allreduce(&[1.0], &mut [0.0], ReduceOp::Sum),
        |error| matches!(error, CommError::InvalidBufferSize { expected: 1, actual: 0, .. }),
    )
}

fn allreduce_recv_too_short_on_all_ranks(comm: &ShmBackend) -> Outcome {
    ensure_matches!(
        comm.allreduce(&[1.0; 4], &mut [0.0; 3], ReduceOp::Sum),
        Err(CommError::InvalidBufferSize { operation: "allreduce", expected: 4, actual: 3 })
    );
    works(comm)
}

fn allreduce_recv_too_short_on_one_rank(comm: &ShmBackend) -> Outcome {
    only_rank_1(
        comm,
        || comm.allreduce(&[1.0; 4], &mut [0.0; 3], ReduceOp::Sum),
        || comm.allreduce(&[1.0; 4], &mut [0.0; 4], ReduceOp::Sum),
        |error| matches!(error, CommError::InvalidBufferSize { expected: 4, actual: 3, .. }),
    )
}

fn allgatherv_wrong_tables_and_buffers(comm: &ShmBackend) -> Outcome {
    let size = comm.size();
    let ones = vec![1; size];
    let displs = prefix_displs(&ones);
    let mut past = displs.clone();
    past[size - 1] = size;
    let mut huge = displs.clone();
    huge[size - 1] = usize::MAX;
    let mut recv = vec![7; size];
    for (send, room, counts, displs, expected, actual) in [
        (1, size - 1, &ones[..], &displs[..], size, size - 1),
        (1, size, &ones[1..], &displs[..], size, size - 1),
        (1, size, &ones[..], &displs[1..], size, size - 1),
        (2, size, &ones[..], &displs[..], 1, 2),
        (1, size, &ones[..], &past[..], size + 1, size),
        (1, size, &ones[..], &huge[..], usize::MAX, size),
    ] {
        match comm.allgatherv(&[1, 1][..send], &mut recv[..room], counts, displs) {
            Err(CommError::InvalidBufferSize { operation: "allgatherv", expected: e, actual: a }) => {
                ensure!((e, a) == (expected, actual), "{e} and {a}, not {expected} and {actual}");
            }
            other => anyhow::bail!("{other:?}"),
        }
        ensure!(recv.iter().all(|value| *value == 7), "something was written");
    }
    works(comm)
}

fn allgatherv_blocks_overlap_on_one_rank(comm: &ShmBackend) -> Outcome {
    let size = comm.size();
    let counts = vec![2; size];
    let gather = |displs: Vec<usize>| comm.allgatherv(&[1, 1], &mut vec![0; 2 * size], &counts, &displs);
    only_rank_1(
        comm,
        || gather((0..size).collect()),
        || gather(prefix_displs(&counts)),
        |error| matches!(error, CommError::CollectiveFailed { message, .. } if message.contains("overlap")),
    )
}

fn broadcast_from_a_root_that_is_none(comm: &ShmBackend) -> Outcome {
    match comm.broadcast(&mut [1.0], 5) {
        Err(CommError::InvalidRoot { root: 5, size }) => ensure!(size == comm.size()),
        other => anyhow::bail!("{other:?}"),
    }
    works(comm)
}

fn broadcast_from_a_root_that_is_none_on_one_rank(comm: &ShmBackend) -> Outcome {
    only_rank_1(
        comm,
        || comm.broadcast(&mut [1.0], 5),
        || comm.broadcast(&mut [1.0], 0),
        |error| matches!(error, CommError::InvalidRoot { root: 5, .. }),
    )
}

fn different_collectives(comm: &ShmBackend) -> Outcome {
    let result = match comm.rank() {
        0 => comm.barrier(),
        _ => comm.broadcast(&mut [1.0], 0),
    };
    ensure_matches!(result, Err(CommError::CollectiveFailed { mpi_error_code: 0, message, .. })
        if message.contains("rank 0 called barrier") && message.contains("rank 1 called broadcast"));
    works(comm)
}

fn a_rank_that_leaves_while_others_go_on(comm: &ShmBackend) -> Outcome {
    if comm.rank() > 0 {
        ensure_matches!(
            comm.barrier(),
            Err(CommError::CollectiveFailed { operation: "barrier", mpi_error_code: 0, message })
            if message.contains("rank 0 has left")
        );
    }
    Ok(())
}

fn a_rank_that_does_not_come(comm: &ShmBackend) -> Outcome {
    // First: the call that is timed begins on no rank before this.
    let started = Instant::now();
    comm.barrier()?;
    if comm.rank() == 0 {
        // The others are told by the time-out and this rank by its next call, which comes after it: the
        // only way to be late is to be late.
        std::thread::sleep(TIMEOUT + Duration::from_secs(2));
    }
    let result = comm.barrier();
    ensure_matches!(
        result,
        Err(CommError::CollectiveFailed { operation: "barrier", mpi_error_code: 0, message })
        // Other nodes see only which node is late.
        if message.contains("rank 0") || message.contains("node 0 (ranks 0 to ")
    );
    if comm.rank() > 0 {
        let waited = started.elapsed();
        ensure!(waited >= TIMEOUT && waited < TIMEOUT + Duration::from_secs(1), "after {waited:?}");
    }
    Ok(())
}
