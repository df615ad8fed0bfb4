//! Cases 54 to 57: the lock.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, panic_any};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use fastrand::Rng;
use intranode::{Communicator, Error, Operation, Until};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{ForkResult, fork};

use super::sleeper::{await_asleep, thread};
use super::turns;
use crate::scenario::{Outcome, Scenario, ensure_matches, row, seed, still_works};
use crate::threads::DELIBERATE;

pub(crate) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(case_54_critical_sections),
        row!(case_55_first_come_first_served),
        row!(case_56_try_lock_while_it_is_held),
        row!(case_57_asked_for_twice),
    ];
    let leaves = row!(a_rank_leaves_with_the_lock);
    let panics = row!(a_hook_panics_in_the_queue).interrupt(panics_if_told).timeout(Duration::from_secs(10));
    let forked = row!(case_29_a_forked_child_does_not_unlock).processes_only();
    rows.into_iter().chain([leaves, panics, forked]).map(|row| row.ranks(&[2, 4])).collect()
}

/// 10,000 in all. In each, what only one rank at a time may do: elements are read, and written one after the other.
fn case_54_critical_sections(comm: Communicator) -> Outcome {
    const LEN: usize = 20;
    let times = turns(10_000) / comm.size() as u64;
    let lock = comm.lock()?;
    let (counter, inside) = (comm.symmetric::<u64>(LEN)?, comm.symmetric::<u32>(1)?);
    // Not on the rank that has the lock's tail.
    let (counter, inside) = (counter.at(comm.size() - 1)?, inside.at(comm.size() - 1)?);
    for turn in 0..times {
        let guard = match turn % 3 {
            0 => loop {
                if let Some(guard) = lock.try_lock()? {
                    break guard;
                }
                std::thread::yield_now();
            },
            _ => lock.lock()?,
        };
        ensure!(inside.swap(0, 1) == 0, "two ranks have the lock in turn {turn}");
        let mut values = [0; LEN];
        counter.get(0, &mut values);
        ensure!(values == [values[0]; LEN], "in turn {turn}: {values:?}");
        counter.put(0, &[values[0] + 1; LEN]);
        ensure!(inside.swap(0, 0) == 1);
        drop(guard);
    }
    comm.barrier()?;
    let mut values = [0; LEN];
    counter.get(0, &mut values);
    ensure!(values == [times * comm.size() as u64; LEN], "{values:?}");
    comm.barrier()?;
    Ok(())
}

/// A rank holds the lock while the others ask for it, each after the one before sleeps in the queue.
fn case_55_first_come_first_served(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let lock = comm.lock()?;
    // On each rank: whether it is its turn to ask; by rank, who got it as which.
    let (turn, threads) = (comm.symmetric::<u32>(1)?, comm.symmetric::<i32>(2)?);
    let (next, places) = (comm.symmetric::<u32>(1)?, comm.symmetric::<u32>(size)?);
    let mut random = Rng::with_seed(seed());
    for _ in 0..20 {
        let mut order: Vec<usize> = (0..size).collect();
        random.shuffle(&mut order);
        let (holder, queue) = order.split_first().context("there is a rank")?;
        if rank == *holder {
            let guard = lock.lock()?;
            for asks in queue {
                turn.at(*asks)?.store(0, 1);
                turn.wait_until(0, Until::Eq(2))?;
                turn.at(rank)?.store(0, 0);
                let mut sleeper = [0; 2];
                threads.at(*asks)?.get(0, &mut sleeper);
                await_asleep(sleeper)?;
            }
            drop(guard);
        } else {
            turn.wait_until(0, Until::Eq(1))?;
            turn.at(rank)?.store(0, 0);
            threads.at(rank)?.put(0, &thread());
            turn.at(*holder)?.store(0, 2);
            let _guard = lock.lock()?;
            let place = next.at(0)?.load(0);
            next.at(0)?.store(0, place + 1);
            places.at(0)?.store(rank, place);
        }
        comm.barrier()?;
        for (place, asked) in queue.iter().enumerate() {
            let got = places.at(0)?.load(*asked) as usize;
            ensure!(
                got == place,
                "rank {asked} asked as {place}, and got the lock as {got}; the order was {order:?}"
            );
        }
        comm.barrier()?;
        if rank == 0 {
            next.at(0)?.store(0, 0);
        }
        comm.barrier()?;
    }
    Ok(())
}

fn case_56_try_lock_while_it_is_held(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let lock = comm.lock()?;
    for holder in 0..2 * size {
        let holder = holder % size;
        let guard = if rank == holder { Some(lock.try_lock()?.context("nobody has it")?) } else { None };
        comm.barrier()?;
        if rank != holder {
            ensure!((0..100).all(|_| matches!(lock.try_lock(), Ok(None))), "it is held by rank {holder}");
        }
        comm.barrier()?;
        drop(guard);
        // It is free again, and `try_lock` has left nothing behind: each can ask.
        drop(lock.lock()?);
        comm.barrier()?;
    }
    Ok(())
}

/// By the thread that has the lock, and by another thread of its rank.
fn case_57_asked_for_twice(comm: Communicator) -> Outcome {
    let (lock, other) = (comm.lock()?, comm.lock()?);
    let twice = || {
        for result in [lock.lock().map(drop), lock.try_lock().map(drop)] {
            ensure_matches!(result, Err(Error::WouldDeadlock { operation: Operation::LockAcquire }));
            ensure!(!result.unwrap_err().is_fatal());
        }
        Ok(())
    };
    let guard = lock.lock()?;
    twice()?;
    std::thread::scope(|scope| scope.spawn(twice).join().map_err(|_| anyhow::anyhow!("it panicked"))?)?;
    // Another lock is another matter, also while this one is held.
    drop(other.lock()?);
    drop(guard);
    drop(lock.lock()?);
    drop(lock.try_lock()?);
    still_works(&comm)
}

/// Who only tries it is told, too, and does not try for ever.
fn a_rank_leaves_with_the_lock(comm: Communicator) -> Outcome {
    let lock = comm.lock()?;
    let other = comm.lock()?;
    if comm.rank() == 0 {
        std::mem::forget(lock.lock()?);
    }
    comm.barrier()?;
    if comm.rank() == 0 {
        return Ok(());
    }
    let start = Instant::now();
    let error = loop {
        match lock.try_lock() {
            Ok(guard) => ensure!(guard.is_none() && start.elapsed() < Duration::from_secs(60)),
            Err(error) => break error,
        }
        std::thread::yield_now();
    };
    ensure_matches!(error, Error::RankLeft { operation: Operation::LockAcquire, rank: 0, .. });
    // This rank does not wait for it.
    ensure_matches!(lock.try_lock(), Err(Error::RankLeft { .. }));
    if comm.size() == 2 {
        ensure!(other.try_lock()?.is_some(), "what nobody has can be had");
        drop(other.lock()?);
    }
    Ok(())
}

thread_local! {
    static TOLD: Cell<bool> = const { Cell::new(false) };
}

fn panics_if_told() -> bool {
    if TOLD.take() {
        panic_any(DELIBERATE);
    }
    false
}

/// A rank cannot leave the queue, and this one has no guard to hand the lock on. So those behind it are told at once.
fn a_hook_panics_in_the_queue(comm: Communicator) -> Outcome {
    let lock = comm.lock()?;
    if comm.rank() == 0 {
        // It is never handed on.
        std::mem::forget(lock.lock()?);
    }
    comm.barrier()?;
    match comm.rank() {
        0 => {}
        1 => {
            TOLD.set(true);
            let asks = AssertUnwindSafe(|| lock.lock().map(drop));
            ensure!(catch_unwind(asks).is_err(), "the hook has not panicked");
        }
        _ => ensure_matches!(lock.lock().map(drop), Err(Error::Poisoned { rank: 1, .. })),
    }
    ensure_matches!(comm.barrier(), Err(Error::Poisoned { rank: 1, .. }));
    Ok(())
}

/// The exit status of a forked child after success.
const AS_EXPECTED: i32 = 42;

/// The child has a copy of the guard.
fn case_29_a_forked_child_does_not_unlock(comm: Communicator) -> Outcome {
    let lock = comm.lock()?;
    let guard = if comm.rank() == 0 { Some(lock.lock()?) } else { None };
    comm.barrier()?;
    // SAFETY: the child calls the library, which returns before it allocates or locks, and ends at once.
    let child = match unsafe { fork() }? {
        ForkResult::Parent { child } => child,
        ForkResult::Child => {
            drop(guard);
            // SAFETY: ends the child, without running the parent's exit handlers.
            unsafe { nix::libc::_exit(AS_EXPECTED) }
        }
    };
    ensure_matches!(waitpid(child, None)?, WaitStatus::Exited(_, AS_EXPECTED));
    comm.barrier()?;
    ensure!(guard.is_some() || lock.try_lock()?.is_none());
    comm.barrier()?;
    drop(guard);
    drop(lock.lock()?);
    still_works(&comm)
}
