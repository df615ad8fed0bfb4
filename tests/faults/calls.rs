//! Row 22: ranks that call different collectives.

use anyhow::{Result, ensure};
use intranode::{Communicator, Error, ReduceOp};
use libtest_mimic::Completion;

use super::job::Job;
use super::{Program, Test, rank};

pub(crate) const TESTS: &[Test] = &[("row_22_all_get_the_same_error_with_all_calls", all_get_the_same_error)];

pub(crate) const PROGRAMS: &[Program] = &[("calls something else", calls_something_else)];

const LENGTHS: [usize; 3] = [1, 8 << 10, 8 << 20];

/// Two calls as the error lists them, and a function that makes the one or the other.
type Difference = (&'static str, &'static str, fn(&Communicator, usize, bool) -> Result<(), Error>);

const DIFFERENCES: &[Difference] = &[
    (
        "barrier",
        "allgather(",
        |comm, len, other| {
            if other { allgather::<u8>(comm, len) } else { comm.barrier() }
        },
    ),
    ("allreduce(Sum, {} × u8)", "allgather({} × u8)", |comm, len, other| {
        if other { allgather::<u8>(comm, len) } else { reduce(comm, len, ReduceOp::Sum) }
    }),
    ("allgather({} × u8)", "allgather({} × i8)", |comm, len, other| {
        if other { allgather::<i8>(comm, len) } else { allgather::<u8>(comm, len) }
    }),
    ("allreduce(Sum, {} × u8)", "allreduce(Max, {} × u8)", |comm, len, other| {
        reduce(comm, len, if other { ReduceOp::Max } else { ReduceOp::Sum })
    }),
    ("allreduce(Sum, {} × u8)", "allreduce(Sum, {+1} × u8)", |comm, len, other| {
        reduce(comm, len + usize::from(other), ReduceOp::Sum)
    }),
    ("broadcast({} × u8, root 0)", "broadcast({} × u8, root 2)", |comm, len, other| {
        comm.broadcast(&mut vec![1u8; len], if other { 2 } else { 0 })
    }),
];

fn allgather<T: intranode::bytemuck::Pod>(comm: &Communicator, len: usize) -> Result<(), Error> {
    comm.allgather(&vec![T::zeroed(); len], &mut vec![T::zeroed(); len * comm.size()])
}

fn reduce(comm: &Communicator, len: usize, op: ReduceOp) -> Result<(), Error> {
    comm.allreduce_in_place(&mut vec![1u8; len], op)
}

fn all_get_the_same_error() -> Result<Completion> {
    let mut job = Job::joined(3, "calls something else")?;
    for (usual, other, _) in DIFFERENCES {
        for len in LENGTHS {
            let errors: Vec<String> = (0..3).map(|rank| job.line(rank)).collect::<Result<_>>()?;
            ensure!(errors.iter().all(|text| *text == errors[0]), "not the same: {errors:?}");
            let with_len =
                |call: &str| call.replace("{}", &len.to_string()).replace("{+1}", &(len + 1).to_string());
            for (rank, call) in [(0, usual), (1, other), (2, usual)] {
                let called = format!("rank {rank} called {}", with_len(call));
                ensure!(errors[0].contains(&called), "no {called:?} in {:?}", errors[0]);
            }
        }
    }
    (0..3).try_for_each(|rank| job.await_line(rank, "works"))?;
    job.finish(&[])?;
    Ok(Completion::Completed)
}

fn calls_something_else() -> Result<()> {
    let comm = rank::join()?;
    for (_, _, call) in DIFFERENCES {
        for len in LENGTHS {
            let error = call(&comm, len, comm.rank() == 1).expect_err("they differ");
            ensure!(matches!(error, Error::Mismatch { .. }) && !error.is_fatal(), "{error}");
            rank::send(&error.to_string())?;
        }
    }
    rank::ensure_works(&comm, 10)?;
    rank::send("works")?;
    rank::receive()?;
    Ok(())
}
