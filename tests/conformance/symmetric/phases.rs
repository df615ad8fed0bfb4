//! The phases of symmetric objects.

use std::panic::catch_unwind;

use anyhow::ensure;
use intranode::{Communicator, Error, Operation};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    vec![
        row!(case_30_own_and_read_exact),
        row!(case_30_phases_out_of_step),
        row!(case_30_phases_of_different_objects),
        row!(case_30_read_of_a_rank_that_does_not_exist).processes_only(),
        row!(case_29_collective_calls_in_a_forked_child).processes_only(),
    ]
}

/// The value of an element in a turn: different in every turn, for every rank and index.
fn value(turn: usize, rank: usize, index: usize) -> u64 {
    (turn * 1_000_003 + rank * 10_007 + index) as u64
}

fn case_30_own_and_read_exact(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    for len in [1, 7, 1000, 70_000] {
        let turns = if len > 1000 { 5 } else { 100 };
        let mut object = comm.symmetric::<u64>(len)?;
        for turn in 1..=turns {
            let mut own = object.into_own()?;
            ensure!(own.len() == len);
            for (index, slot) in own.iter_mut().enumerate() {
                let before = if turn == 1 { 0 } else { value(turn - 1, rank, index) };
                ensure!(*slot == before, "in turn {turn}, {index} is {slot} and not {before}");
                *slot = value(turn, rank, index);
            }
            let all = own.open()?.into_read()?;
            for other in 0..size {
                let values = all.of(other);
                ensure!(values.len() == len);
                let right = |(index, found): (usize, &u64)| *found == value(turn, other, index);
                ensure!(values.iter().enumerate().all(right), "in turn {turn}, of rank {other}");
            }
            object = all.open()?;
        }
        object.free()?;
    }
    still_works(&comm)
}

fn case_30_phases_out_of_step(comm: Communicator) -> Outcome {
    let last = comm.rank() == comm.size() - 1;
    let object = comm.symmetric::<u32>(10)?;
    let result = if last { object.into_read().map(drop) } else { object.into_own().map(drop) };
    ensure_matches!(result, Err(Error::Mismatch { .. }));
    let text = result.unwrap_err().to_string();
    ensure!(text.contains("into_own(10 × u32, object 0)"), "{text}");
    ensure!(text.contains("into_read(10 × u32, object 0)"), "{text}");

    let own = comm.symmetric::<u32>(10)?.into_own()?;
    let result = if last { comm.barrier() } else { own.open().map(drop) };
    ensure_matches!(result, Err(Error::Mismatch { .. }));
    still_works(&comm)
}

fn case_30_phases_of_different_objects(comm: Communicator) -> Outcome {
    let (one, other) = (comm.symmetric::<u32>(10)?, comm.symmetric::<u32>(10)?);
    let result = if comm.rank() == 0 { one.into_read() } else { other.into_read() };
    ensure_matches!(result.map(drop), Err(Error::Mismatch { operation: Operation::ReadPhase, .. }));
    still_works(&comm)
}

fn case_30_read_of_a_rank_that_does_not_exist(comm: Communicator) -> Outcome {
    let all = comm.symmetric::<u32>(10)?.into_read()?;
    let panic = catch_unwind(|| all.of(comm.size()).len()).expect_err("there is no such rank");
    let text = panic.downcast_ref::<String>().cloned().unwrap_or_default();
    ensure!(text.contains("is not one of"), "{text}");
    // A caught panic has no effect.
    all.open()?;
    still_works(&comm)
}

/// The exit status of a forked child after success.
const AS_EXPECTED: i32 = 42;

fn case_29_collective_calls_in_a_forked_child(comm: Communicator) -> Outcome {
    let (one, other) = (comm.symmetric::<u8>(100)?, comm.symmetric::<u8>(100)?);
    let mut own = comm.symmetric::<u8>(100)?.into_own()?;
    own.fill(3);
    // SAFETY: the child calls the library, which returns before it allocates or locks, and ends at once.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let forked = |result: Result<(), Error>| matches!(result, Err(Error::Forked { .. }));
            let refused = forked(comm.symmetric::<u8>(1).map(drop))
                && forked(one.into_own().map(drop))
                && forked(other.free())
                && forked(own.open().map(drop));
            // SAFETY: ends the child, without running the parent's exit handlers.
            unsafe { nix::libc::_exit(if refused { AS_EXPECTED } else { 1 }) }
        }
    };
    ensure_matches!(waitpid(child, None)?, WaitStatus::Exited(_, AS_EXPECTED));
    ensure!(own.iter().all(|value| *value == 3));
    // What the child has dropped is not dropped here.
    let all = one.into_read()?;
    ensure!((0..comm.size()).all(|rank| all.of(rank).iter().all(|value| *value == 0)));
    still_works(&comm)
}
