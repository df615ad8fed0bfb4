//! Progress: a rank that waits for something else goes on with the calls that it has started. In each row the last rank waits for
//! that before it does what the others wait for.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use intranode::{Communicator, Config, Hierarchical, NodeMap, Pending, ReduceOp, Until};

use crate::scenario::{Outcome, Scenario, row, still_works};

/// Without progress the rows end by this.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What one wait after the other exceeds.
const SHORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Elements of several rounds.
const LONG: usize = 300_000;

pub(crate) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(progress_while_a_rank_waits_in_another_communicator),
        row!(progress_while_a_rank_waits_for_its_symmetric_memory),
        row!(progress_while_a_rank_waits_for_a_lock),
        #[cfg(target_os = "linux")]
        row!(progress_while_a_rank_waits_for_a_message),
        row!(progress_while_a_rank_joins_another_job),
        row!(progress_while_a_rank_waits_for_another_node),
        row!(progress_of_several_communicators),
        row!(progress_of_what_is_forgotten),
        row!(progress_of_what_another_thread_waits_for),
        row!(progress_beside_a_call_of_another_thread),
    ];
    let late = row!(a_call_is_not_late_while_its_rank_waits_for_something_else).timeout(SHORT_TIMEOUT);
    rows.map(|row| row.timeout(TIMEOUT)).into_iter().chain([late]).map(|row| row.ranks(&[2, 4])).collect()
}

fn start(comm: &Communicator) -> anyhow::Result<Pending<'_, Vec<u64>>> {
    Ok(comm.start_allreduce(vec![comm.rank() as u64 + 1; LONG], ReduceOp::Sum)?)
}

fn finish(comm: &Communicator, pending: Pending<'_, Vec<u64>>) -> Outcome {
    let size = comm.size() as u64;
    ensure!(pending.wait()? == vec![size * (size + 1) / 2; LONG]);
    Ok(())
}

/// Starts a call, which the last rank completes before it does `last`, and the others while they do `others`.
fn before(comm: &Communicator, last: impl FnOnce() -> Outcome, others: impl FnOnce() -> Outcome) -> Outcome {
    let pending = start(comm)?;
    if comm.rank() == comm.size() - 1 {
        finish(comm, pending)?;
        return last();
    }
    others()?;
    finish(comm, pending)
}

fn progress_while_a_rank_waits_in_another_communicator(comm: Communicator) -> Outcome {
    let other = comm.split(0, comm.rank())?;
    let barrier = || Ok(other.barrier()?);
    before(&comm, barrier, barrier)?;
    // Also of the parent in the child, and for longer than a rank spins.
    before(&other, || Ok(comm.barrier()?), || Ok(comm.barrier()?))?;
    before(
        &comm,
        || {
            thread::sleep(Duration::from_millis(20));
            Ok(other.barrier()?)
        },
        barrier,
    )?;
    still_works(&comm)
}

fn progress_while_a_rank_waits_for_its_symmetric_memory(comm: Communicator) -> Outcome {
    let flags = comm.symmetric::<u64>(1)?;
    let tell = || {
        for rank in 0..comm.size() - 1 {
            flags.at(rank)?.store(0, 1);
        }
        Ok(())
    };
    before(&comm, tell, || flags.wait_until(0, Until::Eq(1)).map(drop).map_err(Into::into))?;
    still_works(&comm)
}

fn progress_while_a_rank_waits_for_a_lock(comm: Communicator) -> Outcome {
    let lock = comm.lock()?;
    let guard = (comm.rank() == comm.size() - 1).then(|| lock.lock()).transpose()?;
    comm.barrier()?;
    let unlock = || {
        drop(guard);
        Ok(())
    };
    before(&comm, unlock, || lock.lock().map(drop).map_err(Into::into))?;
    still_works(&comm)
}

#[cfg(target_os = "linux")]
fn progress_while_a_rank_waits_for_a_message(comm: Communicator) -> Outcome {
    let mut messages = comm.messages()?;
    let (last, pending) = (comm.size() - 1, start(&comm)?);
    if comm.rank() == last {
        finish(&comm, pending)?;
        (0..last).try_for_each(|rank| messages.send(&[7u64], rank, 3))?;
        return still_works(&comm);
    }
    let mut received = [0u64];
    messages.recv(&mut received, last, 3)?;
    ensure!(received == [7]);
    finish(&comm, pending)?;
    still_works(&comm)
}

/// The last rank makes the segment that the others wait for.
fn progress_while_a_rank_joins_another_job(comm: Communicator) -> Outcome {
    let mut job = [fastrand::u64(..)];
    comm.broadcast(&mut job, 0)?;
    let (rank, size) = (comm.size() - 1 - comm.rank(), comm.size());
    let join = || {
        let config = Config::new(format!("/conformance-{:x}", job[0]), rank, size).join_timeout(TIMEOUT);
        Ok(config.join()?.barrier()?)
    };
    before(&comm, join, join)?;
    still_works(&comm)
}

fn progress_while_a_rank_waits_for_another_node(comm: Communicator) -> Outcome {
    let other = comm.split(0, comm.rank())?;
    let nodes = NodeMap::even(comm.size(), 2)?;
    let all = Hierarchical::simulated(comm, &nodes)?;
    let barrier = || Ok(all.barrier()?);
    before(&other, barrier, barrier)?;
    let barrier = || Ok(all.start_barrier()?.wait()?);
    before(&other, barrier, barrier)?;
    still_works(&other)
}

fn progress_of_several_communicators(comm: Communicator) -> Outcome {
    let [one, two, three] =
        [comm.split(0, comm.rank())?, comm.split(0, comm.rank())?, comm.split(0, comm.rank())?];
    let pending = [start(&one)?, start(&two)?, start(&two)?, start(&three)?];
    let comms = [&one, &two, &two, &three];
    if comm.rank() == comm.size() - 1 {
        comms.iter().zip(pending).rev().try_for_each(|(comm, pending)| finish(comm, pending))?;
        comm.barrier()?;
    } else {
        comm.barrier()?;
        comms.iter().zip(pending).try_for_each(|(comm, pending)| finish(comm, pending))?;
    }
    still_works(&comm)
}

fn progress_of_what_is_forgotten(comm: Communicator) -> Outcome {
    let other = comm.split(0, comm.rank())?;
    let pending = start(&comm)?;
    if comm.rank() == comm.size() - 1 {
        finish(&comm, pending)?;
    } else {
        std::mem::forget(pending);
    }
    other.barrier()?;
    still_works(&comm)
}

/// A thread that has tested a call goes on with it, whichever has started it.
fn progress_of_what_another_thread_waits_for(comm: Communicator) -> Outcome {
    let other = comm.split(0, comm.rank())?;
    let mut pending = start(&comm)?;
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            if comm.rank() < comm.size() - 1 && pending.test() {
                return other.barrier().map_err(Into::into);
            }
            if comm.rank() == comm.size() - 1 {
                finish(&comm, pending)?;
                return other.barrier().map_err(Into::into);
            }
            other.barrier()?;
            finish(&comm, pending)
        });
        waiting.join().ok().context("it has panicked")?
    })?;
    still_works(&comm)
}

/// The time-out is that of each wait. A rank may start a call much later than others that do not wait for it yet.
fn a_call_is_not_late_while_its_rank_waits_for_something_else(comm: Communicator) -> Outcome {
    let other = comm.split(0, comm.rank())?;
    let is_last = comm.rank() == comm.size() - 1;
    let early = if is_last { None } else { Some(start(&comm)?) };
    let begun = Instant::now();
    let mut is_over = [0];
    while is_over == [0] {
        if is_last {
            thread::sleep(SHORT_TIMEOUT / 5);
            is_over = [u8::from(begun.elapsed() > 2 * SHORT_TIMEOUT)];
        }
        other.broadcast(&mut is_over, comm.size() - 1)?;
    }
    finish(&comm, early.map_or_else(|| start(&comm), Ok)?)?;
    still_works(&comm)
}

/// A call of another thread comes while this one goes on: that is no concurrent use.
fn progress_beside_a_call_of_another_thread(comm: Communicator) -> Outcome {
    let other = comm.split(0, comm.rank())?;
    for turn in 0..200 {
        let pending = comm.start_allreduce(vec![turn; 20_000], ReduceOp::Max)?;
        thread::scope(|scope| {
            let calling = scope.spawn(|| comm.barrier());
            other.barrier()?;
            calling.join().ok().context("it has panicked")?.context("beside the progress of a call")
        })?;
        ensure!(pending.wait()? == vec![turn; 20_000]);
    }
    still_works(&comm)
}
