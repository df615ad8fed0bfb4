//! Wrong arguments: the rank gets its own error, the others get `Refused`, and the next call succeeds.

use anyhow::{Context, ensure};
use intranode::{Communicator, Error, Operation, ReduceOp};

use crate::model::{elements, ensure_same};
use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(allreduce_receive_buffer_too_short),
        row!(allgatherv_receive_buffer_too_small),
        row!(allgatherv_counts_of_the_wrong_length),
        row!(allgatherv_displacements_of_the_wrong_length),
        row!(allgatherv_send_buffer_unlike_its_count),
        row!(allgatherv_displacement_past_the_end),
        row!(allgatherv_overflow_in_counts),
        row!(allgatherv_overflow_in_displacements),
        row!(allgatherv_overlapping_blocks).ranks(&[2, 3, 4, 8]),
        row!(allgather_receive_buffer_of_the_wrong_length),
        row!(broadcast_root_5_of_2).ranks(&[2]),
        row!(broadcast_root_that_does_not_exist),
        row!(refusing_for_reasons_of_ones_own),
    ]
}

/// The result of a call, and the receive buffer after it.
pub(crate) type CallSummary = (Result<(), Error>, Vec<f64>);

pub(crate) const BEFORE: f64 = -1.5;

/// Calls with wrong arguments on one rank after the other, then on all. `expected` recognises the rank's own error.
pub(crate) fn wrong_on_one_or_all(
    comm: &Communicator,
    operation: Operation,
    call: impl Fn(bool) -> CallSummary,
    expected: impl Fn(&Error) -> bool,
) -> Outcome {
    for wrong in (0..comm.size()).map(Some).chain([None]) {
        one_wrong_call(comm, operation, wrong, &call, &expected)
            .with_context(|| format!("wrong on rank {wrong:?}; None: on all"))?;
        still_works(comm)?;
    }
    Ok(())
}

fn one_wrong_call(
    comm: &Communicator,
    operation: Operation,
    wrong: Option<usize>,
    call: impl Fn(bool) -> CallSummary,
    expected: impl Fn(&Error) -> bool,
) -> Outcome {
    let mine = wrong.is_none_or(|rank| rank == comm.rank());
    let (result, recv) = call(mine);
    let error = result.err().context("no error")?;
    ensure!(!error.is_fatal(), "fatal: {error}");
    ensure!(error.operation() == operation, "another operation: {error:?}");
    if mine {
        ensure!(expected(&error), "this rank's own error is {error:?}");
        ensure_same(&recv, &vec![BEFORE; recv.len()]).context("something was written")
    } else {
        ensure_matches!(error, Error::Refused { rank, .. } if Some(*rank) == wrong);
        let text = error.to_string();
        let named = format!("rank {}", wrong.context("one rank is wrong")?);
        ensure!(text.contains(&named) && text.contains(operation.as_str()), "{text}");
        Ok(())
    }
}

pub(crate) fn wrong_size(operation: Operation, expected: usize, actual: usize) -> impl Fn(&Error) -> bool {
    move |error| {
        let numbers = [expected.to_string(), actual.to_string()];
        let told = numbers.iter().all(|number| error.to_string().contains(number));
        told && matches!(
            error,
            Error::InvalidBufferSize { operation: o, expected: e, actual: a }
                if *o == operation && *e == expected && *a == actual
        )
    }
}

fn allreduce_receive_buffer_too_short(comm: Communicator) -> Outcome {
    let call = |wrong| {
        let mut recv = vec![BEFORE; if wrong { 3 } else { 4 }];
        (comm.allreduce(&[1.0, 2.0, 3.0, 4.0], &mut recv, ReduceOp::Sum), recv)
    };
    wrong_on_one_or_all(&comm, Operation::Allreduce, call, wrong_size(Operation::Allreduce, 4, 3))
}

/// An allgatherv of blocks of `counts` elements.
fn gather(comm: &Communicator, len: usize, counts: &[usize], displs: &[usize], recv_len: usize) -> CallSummary {
    let mut recv = vec![BEFORE; recv_len];
    (comm.allgatherv(&elements(comm.rank(), len), &mut recv, counts, displs), recv)
}

/// The length of each block below.
const LENGTH: usize = 1000;

fn places(comm: &Communicator) -> Vec<usize> {
    (0..comm.size()).map(|rank| rank * LENGTH).collect()
}

fn wrong_gather(
    comm: &Communicator,
    call: impl Fn(bool) -> CallSummary,
    expected: impl Fn(&Error) -> bool,
) -> Outcome {
    wrong_on_one_or_all(comm, Operation::Allgatherv, call, expected)
}

fn allgatherv_receive_buffer_too_small(comm: Communicator) -> Outcome {
    let (counts, displs, end) = (vec![LENGTH; comm.size()], places(&comm), comm.size() * LENGTH);
    let call = |wrong| gather(&comm, LENGTH, &counts, &displs, end - usize::from(wrong));
    wrong_gather(&comm, call, wrong_size(Operation::Allgatherv, end, end - 1))
}

fn allgatherv_counts_of_the_wrong_length(comm: Communicator) -> Outcome {
    let (size, displs) = (comm.size(), places(&comm));
    for length in [size - 1, size + 1] {
        let call = |wrong| {
            let counts = vec![LENGTH; if wrong { length } else { size }];
            gather(&comm, LENGTH, &counts, &displs, size * LENGTH)
        };
        wrong_gather(&comm, call, wrong_size(Operation::Allgatherv, size, length))?;
    }
    Ok(())
}

fn allgatherv_displacements_of_the_wrong_length(comm: Communicator) -> Outcome {
    let (size, counts) = (comm.size(), vec![LENGTH; comm.size()]);
    for length in [size - 1, size + 1] {
        let call = |wrong| {
            let displs: Vec<usize> = (0..if wrong { length } else { size }).map(|rank| rank * LENGTH).collect();
            gather(&comm, LENGTH, &counts, &displs, size * LENGTH)
        };
        wrong_gather(&comm, call, wrong_size(Operation::Allgatherv, size, length))?;
    }
    Ok(())
}

fn allgatherv_send_buffer_unlike_its_count(comm: Communicator) -> Outcome {
    let (counts, displs) = (vec![LENGTH; comm.size()], places(&comm));
    for length in [0, LENGTH - 1, LENGTH + 1] {
        let call =
            |wrong| gather(&comm, if wrong { length } else { LENGTH }, &counts, &displs, comm.size() * LENGTH);
        wrong_gather(&comm, call, wrong_size(Operation::Allgatherv, LENGTH, length))?;
    }
    Ok(())
}

fn allgatherv_displacement_past_the_end(comm: Communicator) -> Outcome {
    let (counts, end) = (vec![LENGTH; comm.size()], comm.size() * LENGTH);
    let call = |wrong| {
        let mut displs = places(&comm);
        displs[comm.size() - 1] += usize::from(wrong) * 5;
        gather(&comm, LENGTH, &counts, &displs, end)
    };
    wrong_gather(&comm, call, wrong_size(Operation::Allgatherv, end + 5, end))
}

fn allgatherv_overflow_in_counts(comm: Communicator) -> Outcome {
    let (size, rank, displs) = (comm.size(), comm.rank(), places(&comm));
    for huge in [usize::MAX, usize::MAX / 8 + 1, usize::MAX - LENGTH] {
        let call = |wrong| {
            let mut counts = vec![LENGTH; size];
            if wrong {
                // Changes another rank's count, so that this rank's send buffer fits; with one rank its own.
                counts[(rank + 1) % size] = huge;
            }
            gather(&comm, LENGTH, &counts, &displs, size * LENGTH)
        };
        let expected =
            |error: &Error| matches!(error, Error::InvalidBufferSize { expected, .. } if *expected >= LENGTH);
        wrong_gather(&comm, call, expected)?;
    }
    Ok(())
}

fn allgatherv_overflow_in_displacements(comm: Communicator) -> Outcome {
    let (counts, end) = (vec![LENGTH; comm.size()], comm.size() * LENGTH);
    for huge in [usize::MAX, usize::MAX - LENGTH + 1] {
        let call = |wrong| {
            let mut displs = places(&comm);
            if wrong {
                displs[0] = huge;
            }
            gather(&comm, LENGTH, &counts, &displs, end)
        };
        wrong_gather(&comm, call, wrong_size(Operation::Allgatherv, usize::MAX, end))?;
    }
    Ok(())
}

fn allgatherv_overlapping_blocks(comm: Communicator) -> Outcome {
    let counts = vec![LENGTH; comm.size()];
    let call = |wrong| {
        let mut displs = places(&comm);
        displs[1] -= usize::from(wrong);
        gather(&comm, LENGTH, &counts, &displs, comm.size() * LENGTH)
    };
    let expected = |error: &Error| matches!(error, Error::OverlappingBlocks { first: 0, second: 1, .. });
    wrong_gather(&comm, call, expected)
}

fn allgather_receive_buffer_of_the_wrong_length(comm: Communicator) -> Outcome {
    let expected = comm.size() * 4;
    for length in [0, expected - 1, expected + 1] {
        let call = |wrong| {
            let mut recv = vec![BEFORE; if wrong { length } else { expected }];
            (comm.allgather(&[1.0; 4], &mut recv), recv)
        };
        let own = wrong_size(Operation::Allgather, expected, length);
        wrong_on_one_or_all(&comm, Operation::Allgather, call, own)?;
    }
    Ok(())
}

fn broadcast_root_5_of_2(comm: Communicator) -> Outcome {
    let error = comm.broadcast(&mut [1.0; 10], 5).expect_err("there is no such root");
    ensure_matches!(error, Error::InvalidRoot { operation: Operation::Broadcast, root: 5, size: 2 });
    ensure!(error.to_string().contains('5') && error.to_string().contains('2'), "{error}");
    still_works(&comm)
}

fn broadcast_root_that_does_not_exist(comm: Communicator) -> Outcome {
    let size = comm.size();
    for bad in [size, size + 3, usize::MAX] {
        let call = |wrong| {
            let mut buffer = vec![BEFORE; 10];
            (comm.broadcast(&mut buffer, if wrong { bad } else { 0 }), buffer)
        };
        let own = |error: &Error| matches!(error, Error::InvalidRoot { root, size: s, .. } if *root == bad && *s == size);
        wrong_on_one_or_all(&comm, Operation::Broadcast, call, own)?;
    }
    Ok(())
}

fn refusing_for_reasons_of_ones_own(comm: Communicator) -> Outcome {
    for refuser in 0..comm.size() {
        if comm.rank() == refuser {
            comm.refuse_call(Operation::Barrier)?;
        } else {
            ensure_matches!(comm.barrier(), Err(Error::Refused { rank, .. }) if *rank == refuser);
        }
        still_works(&comm)?;
    }
    Ok(())
}
