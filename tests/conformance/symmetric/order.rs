//! Cases 31 to 36: order. On x86-64, whose stores and loads stay in order, these show little beyond the models of
//! loom-tests: that the compiler keeps the order too. Even case 32 passes there without a fence in `quiet`, if the calls are not
//! inlined. What the fences do by themselves is tested in src/segment/contract.rs.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use anyhow::ensure;
use intranode::{Communicator, Signal, Symmetric, Until};

use super::sleeper::spin;
use super::turns;
use crate::scenario::{Outcome, Scenario, row};

pub(crate) fn rows() -> Vec<Scenario> {
    const SIZES: &[usize] = &[2, 4];
    vec![
        row!(case_31_put_fence_store_and_wait_get).ranks(SIZES),
        // As if each rank had a processor, whose stores need no fence then: that of `quiet` is the only one.
        row!(case_32_store_quiet_load_both_ways).ranks(SIZES).spin(Duration::ZERO),
        // There are no three ranks among two.
        row!(case_33_chain_of_three_ranks).ranks(&[3, 4]),
        row!(case_34_a_later_fetch_add_returns_more).ranks(SIZES),
        row!(case_35_gets_in_order).ranks(SIZES),
        row!(case_36_a_barrier_completes_puts).ranks(SIZES),
    ]
}

fn case_31_put_fence_store_and_wait_get(comm: Communicator) -> Outcome {
    const LEN: usize = 40;
    let (rank, size) = (comm.rank(), comm.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let (data, flags, taken) =
        (comm.symmetric::<u64>(LEN)?, comm.symmetric::<u64>(1)?, comm.symmetric::<u64>(1)?);
    let (to, flag) = (data.at(next)?, flags.at(next)?);
    let (here, back) = (data.at(rank)?, taken.at(previous)?);
    for turn in 1..=turns(20_000 / size as u64) {
        to.put(0, &[turn; LEN]);
        comm.fence();
        if turn % 2 == 0 {
            flag.store(0, turn)
        } else {
            flag.put(0, &[turn])
        };
        flags.wait_until(0, Until::Ge(turn))?;
        let mut seen = [0; LEN];
        here.get(0, &mut seen);
        ensure!(seen == [turn; LEN], "in turn {turn}: {seen:?}");
        // Only now the previous rank may write again.
        back.store(0, turn);
        taken.wait_until(0, Until::Ge(turn))?;
    }
    // A rank that left now would end the waits of those that have not finished.
    comm.barrier()?;
    Ok(())
}

/// Waits, without the library's waits and without a barrier, until another rank has come to the same turn: both go on within
/// some nanoseconds of each other.
fn meet(ready: &Symmetric<u64>, (own, other): (usize, usize), turn: u64) -> Outcome {
    // Acquire and Release are not needed: the turns have cells of their own.
    ready.at(other)?.atomics()[0].store(turn, Relaxed);
    let here: &AtomicU64 = &ready.at(own)?.atomics()[0];
    let mut polls = 0;
    while here.load(Relaxed) < turn {
        polls += 1;
        if polls % 1000 == 0 { std::thread::yield_now() } else { std::hint::spin_loop() }
    }
    Ok(())
}

fn case_32_store_quiet_load_both_ways(comm: Communicator) -> Outcome {
    store_buffering(&comm, turns(20_000 / comm.size() as u64))
}

/// Of two ranks that store, call quiet, and load what the other stores, at least one sees it.
pub(super) fn store_buffering(comm: &Communicator, turns: u64) -> Outcome {
    let turns = turns as usize;
    let (rank, other) = (comm.rank(), comm.rank() ^ 1);
    let (flags, seen) = (comm.symmetric::<u32>(turns)?, comm.symmetric::<u32>(turns)?);
    let ready = comm.symmetric::<u64>(1)?;
    let (there, here, log) = (flags.at(other)?, flags.at(rank)?, seen.at(rank)?);
    for turn in 0..turns {
        meet(&ready, (rank, other), turn as u64 + 1)?;
        // In some turns exactly at the same moment.
        spin((turn * (3 + 2 * (rank % 2)) % 31) as u64);
        there.store(turn, 1);
        comm.quiet()?;
        let value = here.load(turn);
        log.store(turn, value);
    }
    comm.barrier()?;
    let (mut own, mut others) = (vec![0; turns], vec![0; turns]);
    log.get(0, &mut own);
    seen.at(other)?.get(0, &mut others);
    let neither = (0..turns).filter(|turn| own[*turn] + others[*turn] == 0).count();
    ensure!(neither == 0, "in {neither} of {turns} turns neither rank saw the other's store");
    comm.barrier()?;
    Ok(())
}

/// What a rank has put is seen by a third one, which knows of it from a second one only.
fn case_33_chain_of_three_ranks(comm: Communicator) -> Outcome {
    let turns = turns(3_000) as usize;
    let (rank, size) = (comm.rank(), comm.size());
    // Each turn has elements of its own, so no rank waits for the last turn's end.
    let data = comm.symmetric::<[u32; 5]>(turns)?;
    let (first, second) = (comm.symmetric::<u32>(turns)?, comm.symmetric::<u64>(turns)?);
    for turn in 0..turns {
        let [a, b, c] = [0, 1, 2].map(|role| (turn + role) % size);
        let (one, atomic) = (turn as u32 + 1, turn % 2 == 1);
        if rank == a {
            data.at(c)?.put(turn, &[[one; 5]]);
            comm.fence();
            first.at(b)?.store(turn, one);
        } else if rank == b && atomic {
            // The chain goes through an atomic, which the second rank neither waits for nor loads otherwise.
            while first.at(b)?.compare_swap(turn, one, 0).is_err() {
                std::thread::yield_now();
            }
            second.at(c)?.fetch_add(turn, 1);
        } else if rank == b {
            first.wait_until(turn, Until::Eq(one))?;
            second.put_signal(c, turn, &[], &second, turn, Signal::Set(1))?;
        } else if rank == c {
            second.wait_until(turn, Until::Eq(1))?;
            let seen = data.at(c)?.load(turn);
            ensure!(seen == [one; 5], "in turn {turn}: {seen:?}");
        }
    }
    comm.barrier()?;
    Ok(())
}

/// The guarantee of OpenSHMEM that NVSHMEM does not give.
fn case_34_a_later_fetch_add_returns_more(comm: Communicator) -> Outcome {
    let turns = turns(50_000);
    let object = comm.symmetric::<u64>(1)?;
    let x = object.at(0)?;
    comm.barrier()?;
    for turn in 0..turns {
        let a = x.fetch_add(0, 1);
        let b = x.fetch_add(0, 1);
        ensure!(b > a, "in turn {turn}: {a}, then {b}");
    }
    comm.barrier()?;
    ensure!(x.load(0) == 2 * turns * comm.size() as u64, "{}", x.load(0));
    Ok(())
}

/// Rank 0 writes one element and then the other; the others read them the other way round, by get and by load.
fn case_35_gets_in_order(comm: Communicator) -> Outcome {
    // On lines of their own.
    const FIRST: usize = 0;
    const SECOND: usize = 64;
    let turns = turns(50_000);
    let (object, done) = (comm.symmetric::<u64>(SECOND + 1)?, comm.symmetric::<u32>(1)?);
    let remote = object.at(0)?;
    comm.barrier()?;
    if comm.rank() == 0 {
        for turn in 1..=turns {
            remote.store(FIRST, turn);
            remote.store(SECOND, turn);
        }
        for rank in 1..comm.size() {
            done.at(rank)?.store(0, 1);
        }
    } else {
        let mut by_get = false;
        while done.test(0, Until::Eq(1))?.is_none() {
            by_get = !by_get;
            let (mut second, mut first) = ([0], [0]);
            if by_get {
                remote.get(SECOND, &mut second);
                remote.get(FIRST, &mut first);
            } else {
                second = [remote.load(SECOND)];
                first = [remote.load(FIRST)];
            }
            ensure!(first >= second, "{first:?} was read after {second:?}");
        }
        ensure!((remote.load(SECOND), remote.load(FIRST)) == (turns, turns));
    }
    comm.barrier()?;
    Ok(())
}

fn case_36_a_barrier_completes_puts(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    // One put by vectors, and one of a single element.
    const LEN: usize = 70;
    let object = comm.symmetric::<u32>(LEN * size)?;
    for turn in 0..turns(500) as u32 {
        for target in 0..size {
            let remote = object.at(target)?;
            remote.put(rank * LEN, &[turn; LEN - 1]);
            remote.put_strided(rank * LEN + LEN - 1, 1, &[turn]);
        }
        comm.barrier()?;
        let mut seen = vec![u32::MAX; LEN * size];
        object.at(rank)?.get(0, &mut seen);
        ensure!(seen.iter().all(|value| *value == turn), "in turn {turn}: {seen:?}");
        comm.barrier()?;
    }
    Ok(())
}
