//! The end of a communicator: in order, by a time-out, by leaving early, by abort, by panic, by misuse.

use std::panic::{catch_unwind, panic_any};
use std::sync::Barrier;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use intranode::{Communicator, Config, Error, Operation, ReduceOp};
use libtest_mimic::Trial;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::time::ClockId;
use nix::unistd::{ForkResult, fork};

use crate::board::Board;
use crate::job::{Job, WAITS};
use crate::model::ensure_same;
use crate::scenario::{Outcome, Scenario, ensure_matches, row, seed, still_works};
use crate::threads::DELIBERATE;

const TIMEOUT: Duration = Duration::from_secs(2);

pub(crate) fn rows() -> Vec<Scenario> {
    const SEVERAL: &[usize] = &[2, 4, 8];
    vec![
        row!(one_rank_does_not_come_to_the_barrier).ranks(&[2, 4]).timeout(TIMEOUT),
        row!(two_ranks_do_not_come_to_a_large_allreduce).ranks(&[4]).timeout(TIMEOUT),
        row!(slow_progress_is_no_time_out).ranks(&[4]).timeout(Duration::from_secs(3)),
        row!(a_rank_leaves_straight_after_the_last_collective).ranks(SEVERAL),
        row!(a_rank_that_calls_more_is_told_who_has_left).ranks(SEVERAL),
        row!(abort_7)
            .ranks(&[1, 2, 4, 8])
            .processes_only()
            .ends(|rank, size| if rank == size - 1 { 7 } else { 0 }),
        row!(an_abort_is_never_a_success)
            .ranks(&[1, 2])
            .processes_only()
            .ends(|rank, size| i32::from(rank == size - 1)),
        row!(a_panic_names_its_rank).ranks(SEVERAL).ends(|rank, size| if rank == size - 1 { 101 } else { 0 }),
        row!(a_panic_that_is_caught_has_no_effect).ranks(&[1, 2, 4, 8]),
        row!(two_threads_of_a_rank_call_at_once).ranks(SEVERAL),
        row!(a_forked_child_is_no_rank),
    ]
}

/// The processor time of this thread.
fn processor_time() -> anyhow::Result<Duration> {
    let time = nix::time::clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID)?;
    Ok(Duration::from(time))
}

/// The ranks in `late` do not call until all others have an error.
fn stay_away(
    comm: &Communicator,
    late: &[usize],
    operation: Operation,
    call: impl Fn() -> Result<(), Error>,
) -> Outcome {
    let board = Board::new(comm)?;
    // Not earlier: the rank that has waited longest ends the wait of all.
    let common = Instant::now();
    comm.barrier()?;
    if late.contains(&comm.rank()) {
        board.wait_until(|bytes| {
            bytes.iter().enumerate().all(|(rank, byte)| late.contains(&rank) || *byte == 1)
        })?;
    }
    let (start, before) = (Instant::now(), processor_time()?);
    let calls = [call(), call()];
    let (took, used) = (start.elapsed(), processor_time()? - before);
    board.post(1)?;

    let on_time = common.elapsed() >= TIMEOUT && took < TIMEOUT + Duration::from_secs(1);
    ensure!(late.contains(&comm.rank()) || on_time, "it took {took:?}");
    ensure!(used < TIMEOUT / 10, "waiting took {used:?} of a processor");
    // The late ranks get the same error, and so do ranks that call again.
    for result in calls {
        let error = result.err().context("no error")?;
        ensure!(error.is_fatal());
        ensure!(error.operation() == operation);
        ensure_matches!(error, Error::TimedOut { late: named, .. } if **named == *late);
        let text = error.to_string();
        ensure!(late.iter().all(|rank| text.contains(&rank.to_string())) && text.contains("2s"), "{text}");
    }
    Ok(())
}

fn one_rank_does_not_come_to_the_barrier(comm: Communicator) -> Outcome {
    stay_away(&comm, &[comm.size() - 1], Operation::Barrier, || comm.barrier())
}

fn two_ranks_do_not_come_to_a_large_allreduce(comm: Communicator) -> Outcome {
    let call = || comm.allreduce_in_place(&mut vec![1.0; 100_000], ReduceOp::Sum);
    stay_away(&comm, &[0, 2], Operation::Allreduce, call)
}

fn slow_progress_is_no_time_out(comm: Communicator) -> Outcome {
    // Each rank arrives within the time-out after the one before it, but the last more than the time-out after the first.
    std::thread::sleep(comm.rank() as u32 * Duration::from_millis(1400));
    Ok(comm.barrier()?)
}

/// The last collective of a job, of any kind and size.
fn last_collective(comm: &Communicator, kind: u64) -> Outcome {
    let (rank, size) = (comm.rank() as u64, comm.size());
    let len = [1, 13, 3000, 50_000][(kind / 4 % 4) as usize];
    match kind % 4 {
        0 => comm.barrier()?,
        1 => {
            let mut sum = vec![rank; len];
            comm.allreduce_in_place(&mut sum, ReduceOp::Max)?;
            ensure_same(&sum, &vec![size as u64 - 1; len])?;
        }
        2 => {
            let mut all = vec![u64::MAX; len * size];
            comm.allgather(&vec![rank; len], &mut all)?;
            ensure!(all.iter().enumerate().all(|(index, value)| *value == (index / len) as u64));
        }
        _ => {
            let mut buffer = vec![rank; len];
            comm.broadcast(&mut buffer, size - 1)?;
            ensure_same(&buffer, &vec![size as u64 - 1; len])?;
        }
    }
    Ok(())
}

fn a_rank_leaves_straight_after_the_last_collective(comm: Communicator) -> Outcome {
    last_collective(&comm, seed())?;
    Ok(comm.leave()?)
}

fn a_rank_that_calls_more_is_told_who_has_left(comm: Communicator) -> Outcome {
    let leaver = comm.size() / 2;
    let board = Board::new(&comm)?;
    comm.barrier()?;
    if comm.rank() == leaver {
        comm.leave()?;
        return board.post(1);
    }
    if comm.rank() == 0 {
        // When it leaves, some ranks are inside the call, and others call later.
        board.wait_until(|bytes| bytes[leaver] == 1)?;
    }
    for _ in 0..2 {
        let error = comm.barrier().expect_err("a rank is missing");
        ensure_matches!(error, Error::RankLeft { rank, .. } if *rank == leaver);
        ensure!(error.is_fatal());
        ensure!(error.to_string().contains(&format!("rank {leaver} has left")), "{error}");
    }
    // No rank leaves before all have called: that would be another cause.
    board.post(1)?;
    board.wait_until(|bytes| bytes.iter().all(|byte| *byte == 1))
}

fn abort_7(comm: Communicator) -> Outcome {
    let aborter = comm.size() - 1;
    if comm.rank() == aborter {
        comm.abort(7);
    }
    for result in [comm.barrier(), comm.broadcast(&mut [1.0; 100], 0)] {
        ensure_matches!(result, Err(Error::Aborted { rank, code: 7, .. }) if *rank == aborter);
        ensure!(result.expect_err("aborted").to_string().contains("code 7"));
    }
    Ok(())
}

fn an_abort_is_never_a_success(comm: Communicator) -> Outcome {
    // The 8 bits that the system keeps are 0.
    const CODE: i32 = 256;
    if comm.rank() == comm.size() - 1 {
        comm.abort(CODE);
    }
    ensure_matches!(comm.barrier(), Err(Error::Aborted { code: CODE, .. }));
    Ok(())
}

fn a_panic_names_its_rank(comm: Communicator) -> Outcome {
    let panicking = comm.size() - 1;
    comm.barrier()?;
    if comm.rank() == panicking {
        panic_any(DELIBERATE);
    }
    let error = comm.barrier().expect_err("a rank has panicked");
    ensure_matches!(error, Error::Poisoned { rank, .. } if *rank == panicking);
    let text = error.to_string();
    ensure!(text.contains(&format!("rank {panicking}")) && text.contains("panicked"), "{text}");
    Ok(())
}

fn a_panic_that_is_caught_has_no_effect(comm: Communicator) -> Outcome {
    let caught = catch_unwind(|| {
        let _kept = &comm;
        panic_any(DELIBERATE)
    });
    ensure!(caught.is_err());
    still_works(&comm)
}

fn two_threads_of_a_rank_call_at_once(comm: Communicator) -> Outcome {
    let board = Board::new(&comm)?;
    if comm.rank() > 0 {
        // The first of the two threads must be waiting when the second calls.
        board.wait_until(|bytes| bytes[0] == 1)?;
        ensure_matches!(comm.barrier(), Err(Error::Poisoned { rank: 0, reason, .. }) if reason.contains("threads"));
        return Ok(());
    }
    let together = Barrier::new(2);
    let call = || {
        together.wait();
        comm.barrier().expect_err("two at once")
    };
    let (one, other) = std::thread::scope(|scope| {
        let one = scope.spawn(call);
        let other = call();
        (one.join().expect("no panic"), other)
    });
    let (second, first) = if matches!(one, Error::ConcurrentUse { .. }) { (one, other) } else { (other, one) };
    ensure_matches!(second, Error::ConcurrentUse { operation: Operation::Barrier });
    ensure_matches!(first, Error::Poisoned { rank: 0, .. });
    ensure!(first.is_fatal() && second.is_fatal());
    board.post(1)
}

/// The exit status of a forked child after success: unlike any accidental one.
const REFUSED: i32 = 42;

fn a_forked_child_is_no_rank(comm: Communicator) -> Outcome {
    comm.barrier()?;
    let mut data = [1.0; 4];
    // SAFETY: the child calls the library, which returns before it allocates or locks, and ends at once.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            let results = [
                (Operation::Barrier, comm.barrier()),
                (Operation::Broadcast, comm.broadcast(&mut data, 0)),
                (Operation::Allreduce, comm.allreduce_in_place(&mut data, ReduceOp::Sum)),
                (Operation::State, comm.state().map(drop)),
                (Operation::Leave, comm.leave()),
            ];
            let refused = |(called, result): &(Operation, Result<(), Error>)| matches!(result, Err(Error::Forked { operation }) if operation == called);
            let refused = results.iter().all(refused);
            // SAFETY: ends the child, without running the parent's exit handlers.
            unsafe { nix::libc::_exit(if refused { REFUSED } else { 1 }) }
        }
    };
    ensure_matches!(waitpid(child, None)?, WaitStatus::Exited(_, REFUSED));
    still_works(&comm)
}

/// Many jobs, each of which ends directly after a collective.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for size in [2, 4, 8] {
        let name = format!("threads::{size}::all_leave_straight_after_the_last_collective_1_000_times");
        trials.push(Trial::test(name, move || {
            (0..1000)
                .try_for_each(|kind| leave_as_threads(size, kind))
                .map_err(|error| format!("{error:#}").into())
        }));
        for wait in WAITS.iter().copied() {
            let name = format!(
                "processes::{}::{size}::all_leave_straight_after_the_last_collective_20_times",
                wait.name()
            );
            trials.push(Trial::test(name, move || {
                let job = |_| {
                    let mut job = Job::new(size, wait);
                    job.start_all("a_rank_leaves_straight_after_the_last_collective")?;
                    job.finish(&vec![0; size])
                };
                (0..20).try_for_each(job).map_err(|error| format!("{error:#}").into())
            }));
        }
    }
    trials
}

fn leave_as_threads(size: usize, kind: u64) -> Outcome {
    let config = Config::new("/threads", 0, size);
    for (rank, result) in
        intranode::threads_with(&config, |comm| last_collective(&comm, kind))?.into_iter().enumerate()
    {
        result.with_context(|| format!("rank {rank}, kind {kind}"))?;
    }
    Ok(())
}
