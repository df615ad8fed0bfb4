//! Wrong arguments of rooted calls, alltoall, scans and reduce_scatter: as in `errors.rs`.

use intranode::{Communicator, Error, Operation, ReduceOp};

use crate::errors::{BEFORE, CallSummary, wrong_on_one_or_all, wrong_size};
use crate::scenario::{Outcome, Scenario, row};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(rooted_calls_with_a_root_that_does_not_exist),
        row!(rooted_calls_with_a_buffer_on_the_wrong_rank),
        row!(rooted_calls_with_a_root_s_buffer_of_the_wrong_length),
        row!(gatherv_and_scatterv_with_wrong_counts),
        row!(gatherv_and_scatterv_with_wrong_places),
        row!(gatherv_with_overlapping_blocks).ranks(&[2, 3, 4, 8]),
        row!(alltoall_with_wrong_lengths),
        row!(alltoallv_with_wrong_tables),
        row!(alltoallv_with_overlapping_blocks).ranks(&[2, 3, 4, 8]),
        row!(scans_with_wrong_lengths),
        row!(reduce_scatter_with_wrong_lengths),
        row!(bitwise_reductions_of_floats),
    ]
}

/// The calls with a root. Each has one block of `LEN` elements a rank, at a root.
const ROOTED: [Operation; 5] =
    [Operation::Reduce, Operation::Gather, Operation::Gatherv, Operation::Scatter, Operation::Scatterv];

const LEN: usize = 300;

/// How a call with a root is made.
#[derive(Clone, Copy)]
struct Rooted {
    operation: Operation,
    root: usize,
    /// Whether this rank passes the buffer of the root, and its length.
    given: bool,
    whole: usize,
}

impl Rooted {
    fn right(comm: &Communicator, operation: Operation) -> Self {
        let whole = if operation == Operation::Reduce { LEN } else { LEN * comm.size() };
        Rooted { operation, root: 0, given: comm.rank() == 0, whole }
    }

    fn call(self, comm: &Communicator) -> CallSummary {
        let Rooted { operation, root, given, whole } = self;
        let counts = vec![LEN; comm.size()];
        let displs: Vec<usize> = (0..comm.size()).map(|rank| rank * LEN).collect();
        let (own, send, mut all) = ([1.0; LEN], vec![2.0; whole], vec![BEFORE; whole]);
        let mut block = vec![BEFORE; LEN];
        let (send, recv) = (given.then_some(&send[..]), given.then_some(&mut all[..]));
        match operation {
            Operation::Reduce => (comm.reduce(&own, recv, ReduceOp::Sum, root), all),
            Operation::Gather => (comm.gather(&own, recv, root), all),
            Operation::Gatherv => (comm.gatherv(&own, recv, &counts, &displs, root), all),
            Operation::Scatter => (comm.scatter(send, &mut block, root), block),
            Operation::Scatterv => (comm.scatterv(send, &counts, &displs, &mut block, root), block),
            other => unreachable!("{other} has no root"),
        }
    }
}

fn rooted_calls_with_a_root_that_does_not_exist(comm: Communicator) -> Outcome {
    let size = comm.size();
    for operation in ROOTED {
        for bad in [size, usize::MAX] {
            let right = Rooted::right(&comm, operation);
            let call = |wrong| Rooted { root: if wrong { bad } else { 0 }, ..right }.call(&comm);
            let own = |error: &Error| {
                matches!(error, Error::InvalidRoot { operation: o, root, size: s }
                    if *o == operation && *root == bad && *s == size)
                    && error.to_string().contains(operation.as_str())
            };
            wrong_on_one_or_all(&comm, operation, call, own)?;
        }
    }
    Ok(())
}

fn rooted_calls_with_a_buffer_on_the_wrong_rank(comm: Communicator) -> Outcome {
    for operation in ROOTED {
        let right = Rooted::right(&comm, operation);
        let call = |wrong| Rooted { given: right.given != wrong, ..right }.call(&comm);
        let own = |error: &Error| {
            let text = if right.given {
                "root 0, and passed buffers as the others do"
            } else {
                "not root 0, and passed buffers as the root does"
            };
            matches!(error, Error::RootBuffer { root: 0, given, .. } if *given != right.given)
                && error.to_string().contains(text)
        };
        wrong_on_one_or_all(&comm, operation, call, own)?;
    }
    Ok(())
}

/// Only the root can be wrong, so the others call rightly.
fn rooted_calls_with_a_root_s_buffer_of_the_wrong_length(comm: Communicator) -> Outcome {
    for operation in ROOTED {
        let right = Rooted::right(&comm, operation);
        let (error, written) = Rooted { whole: right.whole - 1, ..right }.call(&comm);
        let error = error.expect_err("the root's buffer is too short");
        let expected = match comm.rank() {
            0 => wrong_size(operation, right.whole, right.whole - 1)(&error),
            _ => matches!(error, Error::Refused { rank: 0, .. }),
        };
        anyhow::ensure!(expected && !error.is_fatal(), "{operation}: {error:?}");
        anyhow::ensure!(written.iter().all(|value| *value == BEFORE), "{operation}: something was written");
        crate::scenario::still_works(&comm)?;
    }
    Ok(())
}

/// A gatherv and a scatterv at root 0 with these arguments.
fn gatherv(comm: &Communicator, send: usize, counts: &[usize], displs: &[usize], recv: usize) -> CallSummary {
    let mut all = vec![BEFORE; recv];
    let given = (comm.rank() == 0).then_some(&mut all[..]);
    (comm.gatherv(&vec![1.0; send], given, counts, displs, 0), all)
}

fn scatterv(comm: &Communicator, send: usize, counts: &[usize], displs: &[usize], recv: usize) -> CallSummary {
    let (all, mut own) = (vec![1.0; send], vec![BEFORE; recv]);
    let given = (comm.rank() == 0).then_some(&all[..]);
    (comm.scatterv(given, counts, displs, &mut own, 0), own)
}

fn places(size: usize) -> Vec<usize> {
    (0..size).map(|rank| rank * LEN).collect()
}

fn gatherv_and_scatterv_with_wrong_counts(comm: Communicator) -> Outcome {
    let (size, displs) = (comm.size(), places(comm.size()));
    for length in [size - 1, size + 1] {
        let counts = |wrong| vec![LEN; if wrong { length } else { size }];
        let call = |wrong| gatherv(&comm, LEN, &counts(wrong), &displs, LEN * size);
        wrong_on_one_or_all(&comm, Operation::Gatherv, call, wrong_size(Operation::Gatherv, size, length))?;
        let call = |wrong| scatterv(&comm, LEN * size, &counts(wrong), &displs, LEN);
        wrong_on_one_or_all(&comm, Operation::Scatterv, call, wrong_size(Operation::Scatterv, size, length))?;
    }
    let counts = vec![LEN; size];
    let own = |wrong| LEN - usize::from(wrong);
    let call = |wrong| gatherv(&comm, own(wrong), &counts, &displs, LEN * size);
    wrong_on_one_or_all(&comm, Operation::Gatherv, call, wrong_size(Operation::Gatherv, LEN, LEN - 1))?;
    let call = |wrong| scatterv(&comm, LEN * size, &counts, &displs, own(wrong));
    wrong_on_one_or_all(&comm, Operation::Scatterv, call, wrong_size(Operation::Scatterv, LEN, LEN - 1))
}

/// Of the root's displacements; those of other ranks do not matter. Counts that overflow are refused by the root too.
fn gatherv_and_scatterv_with_wrong_places(comm: Communicator) -> Outcome {
    let size = comm.size();
    let mut past_the_end = places(size);
    past_the_end[size - 1] += 1;
    let mut overflow = places(size);
    overflow[0] = usize::MAX;
    let mut huge = vec![LEN; size];
    huge[size - 1] = usize::MAX / 4;
    let (counts, short) = (vec![LEN; size], places(size - 1));
    for (counts, displs) in
        [(&counts, &past_the_end), (&counts, &overflow), (&counts, &short), (&huge, &places(size))]
    {
        if size == 1 && counts[0] != LEN {
            continue; // It is the rank's own count.
        }
        let own = |rank: usize| counts[rank].min(LEN);
        let results = [
            (Operation::Gatherv, gatherv(&comm, own(comm.rank()), counts, displs, LEN * size)),
            (Operation::Scatterv, scatterv(&comm, LEN * size, counts, displs, own(comm.rank()))),
        ];
        for (operation, (result, written)) in results {
            let error = result.expect_err("the places are wrong");
            let refused_itself = counts[comm.rank()] != own(comm.rank());
            let expected = match comm.rank() {
                rank if rank == 0 || refused_itself => matches!(error, Error::InvalidBufferSize { .. }),
                _ => matches!(error, Error::Refused { rank: 0, .. }),
            };
            anyhow::ensure!(expected && error.operation() == operation, "{operation}: {error:?}");
            anyhow::ensure!(written.iter().all(|value| *value == BEFORE), "{operation}: something was written");
        }
        crate::scenario::still_works(&comm)?;
    }
    Ok(())
}

fn gatherv_with_overlapping_blocks(comm: Communicator) -> Outcome {
    let mut displs = places(comm.size());
    displs[1] -= 1;
    let (result, written) = gatherv(&comm, LEN, &vec![LEN; comm.size()], &displs, LEN * comm.size());
    let error = result.expect_err("two blocks overlap");
    let expected = match comm.rank() {
        0 => matches!(error, Error::OverlappingBlocks { operation: Operation::Gatherv, first: 0, second: 1 }),
        _ => matches!(error, Error::Refused { rank: 0, .. }),
    };
    anyhow::ensure!(expected && written.iter().all(|value| *value == BEFORE), "{error:?}");
    crate::scenario::still_works(&comm)
}

fn alltoall_with_wrong_lengths(comm: Communicator) -> Outcome {
    let whole = 4 * comm.size();
    for length in [0, whole - 1, whole + 1] {
        let call = |wrong| {
            let mut recv = vec![BEFORE; if wrong { length } else { whole }];
            (comm.alltoall(&vec![1.0; whole], &mut recv), recv)
        };
        wrong_on_one_or_all(&comm, Operation::Alltoall, call, wrong_size(Operation::Alltoall, whole, length))?;
    }
    if comm.size() > 1 {
        let call = |wrong| {
            let len = whole + usize::from(wrong);
            let mut recv = vec![BEFORE; len];
            (comm.alltoall(&vec![1.0; len], &mut recv), recv)
        };
        wrong_on_one_or_all(
            &comm,
            Operation::Alltoall,
            call,
            wrong_size(Operation::Alltoall, whole, whole + 1),
        )?;
    }
    Ok(())
}

fn alltoallv(comm: &Communicator, tables: [&[usize]; 4]) -> CallSummary {
    let mut recv = vec![BEFORE; LEN * comm.size()];
    let send = vec![1.0; LEN * comm.size()];
    (comm.alltoallv(&send, tables[0], tables[1], &mut recv, tables[2], tables[3]), recv)
}

fn alltoallv_with_wrong_tables(comm: Communicator) -> Outcome {
    let (operation, size) = (Operation::Alltoallv, comm.size());
    let (counts, displs) = (vec![LEN; size], places(size));
    let right: [&[usize]; 4] = [&counts, &displs, &counts, &displs];
    let long = vec![0; size + 1];
    let mut end = displs.clone();
    end[size - 1] += 5;
    for table in 0..4 {
        let with = |replaced: &[usize]| {
            let mut tables: [&[usize]; 4] = [&counts, &displs, &counts, &displs];
            tables[table] = replaced;
            alltoallv(&comm, tables)
        };
        let call = |wrong| if wrong { with(&long) } else { alltoallv(&comm, right) };
        wrong_on_one_or_all(&comm, operation, call, wrong_size(operation, size, size + 1))?;
        if table % 2 == 1 {
            let call = |wrong| if wrong { with(&end) } else { alltoallv(&comm, right) };
            wrong_on_one_or_all(&comm, operation, call, wrong_size(operation, size * LEN + 5, size * LEN))?;
        }
    }
    Ok(())
}

fn alltoallv_with_overlapping_blocks(comm: Communicator) -> Outcome {
    let (counts, displs) = (vec![LEN; comm.size()], places(comm.size()));
    let mut overlapping = displs.clone();
    overlapping[1] -= 1;
    let call = |wrong| {
        let recv_displs = if wrong { &overlapping } else { &displs };
        alltoallv(&comm, [&counts, &displs, &counts, recv_displs])
    };
    let own = |error: &Error| matches!(error, Error::OverlappingBlocks { first: 0, second: 1, .. });
    wrong_on_one_or_all(&comm, Operation::Alltoallv, call, own)
}

fn scans_with_wrong_lengths(comm: Communicator) -> Outcome {
    for operation in [Operation::Scan, Operation::Exscan] {
        let call = |wrong| {
            let mut recv = vec![BEFORE; if wrong { 3 } else { 4 }];
            let result = match operation {
                Operation::Scan => comm.scan(&[1.0; 4], &mut recv, ReduceOp::Sum),
                _ => comm.exscan(&[1.0; 4], &mut recv, ReduceOp::Sum),
            };
            (result, recv)
        };
        wrong_on_one_or_all(&comm, operation, call, wrong_size(operation, 4, 3))?;
    }
    Ok(())
}

fn reduce_scatter_with_wrong_lengths(comm: Communicator) -> Outcome {
    let (size, counts) = (comm.size(), vec![LEN; comm.size()]);
    let call = |send: usize, recv: usize, counts: &[usize]| {
        let mut own = vec![BEFORE; recv];
        (comm.reduce_scatter(&vec![1.0; send], &mut own, counts, ReduceOp::Sum), own)
    };
    let operation = Operation::ReduceScatter;
    let whole = LEN * size;
    let wrong_send = |wrong| call(whole + usize::from(wrong), LEN, &counts);
    wrong_on_one_or_all(&comm, operation, wrong_send, wrong_size(operation, whole, whole + 1))?;
    let wrong_recv = |wrong| call(whole, LEN - usize::from(wrong), &counts);
    wrong_on_one_or_all(&comm, operation, wrong_recv, wrong_size(operation, LEN, LEN - 1))?;
    let long = vec![LEN; size + 1];
    let wrong_counts = |wrong| call(whole, LEN, if wrong { &long } else { &counts });
    wrong_on_one_or_all(&comm, operation, wrong_counts, wrong_size(operation, size, size + 1))?;
    let mut huge = counts.clone();
    huge[0] = usize::MAX;
    let too_many = |wrong| call(whole, LEN, if wrong { &huge } else { &counts });
    wrong_on_one_or_all(&comm, operation, too_many, wrong_size(operation, usize::MAX, whole))?;

    let operation = Operation::ReduceScatterBlock;
    let block = |wrong| {
        let mut own = vec![BEFORE; LEN];
        let send = vec![1.0; whole + usize::from(wrong)];
        (comm.reduce_scatter_block(&send, &mut own, ReduceOp::Sum), own)
    };
    wrong_on_one_or_all(&comm, operation, block, wrong_size(operation, whole, whole + 1))
}

fn bitwise_reductions_of_floats(comm: Communicator) -> Outcome {
    let operations = [
        Operation::Reduce,
        Operation::Scan,
        Operation::Exscan,
        Operation::ReduceScatter,
        Operation::ReduceScatterBlock,
    ];
    for operation in operations {
        let call = |wrong| {
            let op = if wrong { ReduceOp::BitXor } else { ReduceOp::Sum };
            let (send, mut recv) = (vec![1.0; comm.size()], vec![BEFORE; comm.size()]);
            let counts = vec![1; comm.size()];
            let given = (comm.rank() == 0).then_some(&mut recv[..]);
            let result = match operation {
                Operation::Reduce => comm.reduce(&send, given, op, 0),
                Operation::Scan => comm.scan(&send, &mut recv, op),
                Operation::Exscan => comm.exscan(&send, &mut recv, op),
                Operation::ReduceScatter => comm.reduce_scatter(&send, &mut recv[..1], &counts, op),
                _ => comm.reduce_scatter_block(&send, &mut recv[..1], op),
            };
            (result, recv)
        };
        let own = |error: &Error| {
            matches!(error, Error::InvalidReduction { operation: o, .. } if *o == operation)
                && error.to_string().contains("f64")
        };
        wrong_on_one_or_all(&comm, operation, call, own)?;
    }
    Ok(())
}
