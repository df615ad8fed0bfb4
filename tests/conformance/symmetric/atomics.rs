//! Cases 37 to 43: atomics.

use anyhow::ensure;
use intranode::{AtomInt, Communicator};

use super::turns;
use crate::scenario::{Outcome, Scenario, row};

pub(crate) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(case_37_add),
        row!(case_38_fetch_add_returns_every_value_once),
        row!(case_39_and_or_xor),
        row!(case_40_a_failed_compare_swap_changes_nothing),
        row!(case_41_floats),
        row!(case_42_min_max),
        row!(case_43_put_beside_an_atomic),
    ];
    rows.into_iter().map(|row| row.ranks(&[2, 4])).collect()
}

/// Each rank adds its number plus one, a thousand times, from two threads.
fn case_37_add(comm: Communicator) -> Outcome {
    fn of<T: AtomInt + Send + Sync>(comm: &Communicator, number: impl Fn(u64) -> T) -> Outcome {
        const TIMES: u64 = 500;
        let object = comm.symmetric::<T>(2)?;
        let remote = object.at(comm.size() - 1)?;
        let own = number(comm.rank() as u64 + 1);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| (0..TIMES).for_each(|_| remote.add(1, own)));
            }
        });
        comm.barrier()?;
        let n = comm.size() as u64;
        let expected = number(2 * TIMES * n * (n + 1) / 2);
        ensure!(remote.load(1) == expected, "{:?} in place of {expected:?}", remote.load(1));
        ensure!(remote.load(0) == number(0), "what is beside it has changed");
        comm.barrier()?;
        // It wraps around.
        if comm.rank() == 0 {
            remote.add(0, number(u64::MAX));
            remote.add(0, number(1));
            ensure!(remote.load(0) == number(0), "{:?}", remote.load(0));
        }
        Ok(())
    }
    of(&comm, |number| number as i32)?;
    of(&comm, |number| number as u32)?;
    of(&comm, |number| number as i64)?;
    of(&comm, |number| number)?;
    of(&comm, |number| number as isize)?;
    of(&comm, |number| number as usize)
}

fn case_38_fetch_add_returns_every_value_once(comm: Communicator) -> Outcome {
    let (times, size) = (turns(25_000) as usize, comm.size());
    let (counter, seen) = (comm.symmetric::<usize>(1)?, comm.symmetric::<u32>(times * size)?);
    let tickets = counter.at(0)?;
    comm.barrier()?;
    let mut last = None;
    for _ in 0..times {
        let ticket = tickets.fetch_add(0, 1);
        ensure!(Some(ticket) > last, "{ticket} after {last:?}");
        last = Some(ticket);
        let before = seen.at(0)?.fetch_add(ticket, 1);
        ensure!(before == 0, "{ticket} was returned twice");
    }
    comm.barrier()?;
    ensure!(tickets.load(0) == times * size);
    let mut all = vec![0; times * size];
    seen.at(0)?.get(0, &mut all);
    ensure!(all.iter().all(|times| *times == 1));
    comm.barrier()?;
    Ok(())
}

fn case_39_and_or_xor(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    // A byte for each rank.
    let (own, all) = (0xFFu64 << (8 * rank), (0..size).fold(0, |all, rank| all | 0xFFu64 << (8 * rank)));
    let object = comm.symmetric::<u64>(3)?;
    let remote = object.at(0)?;
    if rank == 0 {
        remote.put(0, &[u64::MAX, 0, 0]);
    }
    comm.barrier()?;
    for bit in 0..8 {
        let bit = 1 << (8 * rank + bit);
        ensure!(remote.fetch_and(0, !bit) & bit != 0);
        ensure!(remote.fetch_or(1, bit) & bit == 0);
        ensure!(remote.fetch_xor(2, bit) & bit == 0);
    }
    comm.barrier()?;
    ensure!((remote.load(0), remote.load(1), remote.load(2)) == (!all, all, all));
    comm.barrier()?;
    ensure!(remote.fetch_xor(2, own) & own == own);
    comm.barrier()?;
    ensure!(remote.load(2) == 0);

    let signed = comm.symmetric::<i32>(1)?;
    if rank == 0 {
        let remote = signed.at(size - 1)?;
        remote.store(0, -1);
        ensure!(
            (remote.fetch_and(0, -2), remote.fetch_xor(0, -1), remote.fetch_or(0, i32::MIN)) == (-1, -2, 1)
        );
        ensure!(remote.load(0) == i32::MIN + 1);
    }
    Ok(())
}

fn case_40_a_failed_compare_swap_changes_nothing(comm: Communicator) -> Outcome {
    let (rank, size) = (comm.rank(), comm.size());
    let object = comm.symmetric::<i64>(4)?;
    let remote = object.at(size - 1)?;
    if rank == 0 {
        remote.store(0, -5);
    }
    comm.barrier()?;
    ensure!(remote.compare_swap(0, 5, rank as i64) == Err(-5) && remote.load(0) == -5);
    // One rank is the first, and the others are told which.
    let own = rank as i64 + 1;
    let first = remote.compare_swap(1, 0, own).err().unwrap_or(own);
    comm.barrier()?;
    ensure!(first == remote.load(1) && (1..=size as i64).contains(&first), "{first}");
    // It never fails without a reason: no rank but this one changes its own element.
    for turn in 0..turns(10_000) as i64 {
        ensure!(object.at(rank)?.compare_swap(2, turn, turn + 1) == Ok(turn));
    }
    // A counter without an add.
    for _ in 0..1000 {
        remote.fetch_update(3, |value| value + 3);
    }
    comm.barrier()?;
    ensure!(remote.load(3) == 3000 * size as i64, "{}", remote.load(3));
    comm.barrier()?;
    Ok(())
}

/// Set, swap and compare_swap keep and compare the bits, also those of numbers that are equal to none, or to another one.
fn case_41_floats(comm: Communicator) -> Outcome {
    // A signalling NaN with a payload: a move through a floating-point register may change it.
    const NAN_64: u64 = 0x7FF0_0000_DEAD_BEEF;
    const NAN_32: u32 = 0xFF80_1234;
    let next = (comm.rank() + 1) % comm.size();
    let (doubles, floats) = (comm.symmetric::<f64>(3)?, comm.symmetric::<f32>(3)?);
    let (double, float) = (doubles.at(next)?, floats.at(next)?);
    double.set(0, f64::from_bits(NAN_64));
    float.set(0, f32::from_bits(NAN_32));
    comm.barrier()?;
    ensure!(doubles.at(comm.rank())?.load(0).to_bits() == NAN_64);
    ensure!(floats.at(comm.rank())?.load(0).to_bits() == NAN_32);
    comm.barrier()?;
    // A NaN is not equal to itself, but its bits are.
    ensure!(double.compare_swap(0, f64::from_bits(NAN_64), 1.5).map(f64::to_bits) == Ok(NAN_64));
    ensure!(float.compare_swap(0, f32::NAN, 1.5).map_err(f32::to_bits) == Err(NAN_32));
    ensure!(double.swap(0, -0.0) == 1.5 && float.swap(0, -0.0).to_bits() == NAN_32);
    // The zeros are equal, and their bits are not.
    ensure!(double.compare_swap(0, 0.0, 1.0).map_err(f64::to_bits) == Err((-0.0f64).to_bits()));
    ensure!(float.compare_swap(0, -0.0, 1.0).map(f32::to_bits) == Ok((-0.0f32).to_bits()));
    comm.barrier()?;
    for _ in 0..1000 {
        doubles.at(0)?.fetch_update(1, |sum| sum + 0.25);
        floats.at(0)?.fetch_update(1, |sum| sum + 0.25);
    }
    comm.barrier()?;
    let expected = 250.0 * comm.size() as f64;
    ensure!(doubles.at(0)?.load(1) == expected && f64::from(floats.at(0)?.load(1)) == expected);
    comm.barrier()?;
    Ok(())
}

fn case_42_min_max(comm: Communicator) -> Outcome {
    let rank = comm.rank() as i64;
    let (signed, unsigned) = (comm.symmetric::<i64>(2)?, comm.symmetric::<u64>(2)?);
    let (signed, unsigned) = (signed.at(0)?, unsigned.at(0)?);
    if rank == 0 {
        unsigned.put(0, &[u64::MAX, 0]);
    }
    comm.barrier()?;
    for number in 0..1000 {
        let mut last = i64::MAX;
        for seen in [signed.fetch_min(0, -rank * 1000 - number), signed.load(0)] {
            ensure!(seen <= last, "the least was {last}, and then {seen}");
            last = seen;
        }
        signed.fetch_max(1, rank * 1000 + number);
        // As a signed number each of these is negative.
        unsigned.fetch_min(0, u64::MAX - (rank * 1000 + number) as u64);
        unsigned.fetch_max(1, (1 << 63) + (rank * 1000 + number) as u64);
    }
    comm.barrier()?;
    let most = (comm.size() as i64 - 1) * 1000 + 999;
    ensure!((signed.load(0), signed.load(1)) == (-most, most));
    ensure!((unsigned.load(0), unsigned.load(1)) == (u64::MAX - most as u64, (1 << 63) + most as u64));
    comm.barrier()?;
    Ok(())
}

/// Rank 0 puts, the others swap: an element is always one of the values, also where the put is done by vectors.
fn case_43_put_beside_an_atomic(comm: Communicator) -> Outcome {
    const LEN: usize = 64;
    let (rank, size) = (comm.rank() as u64, comm.size() as u64);
    let value = |rank: u64| (rank + 1) * 0x0101_0101_0101_0101;
    let known = |seen: u64| seen == 0 || (0..size).any(|rank| seen == value(rank));
    let object = comm.symmetric::<u64>(LEN)?;
    let remote = object.at(comm.size() - 1)?;
    comm.barrier()?;
    for turn in 0..turns(5_000) {
        let index = turn as usize % LEN;
        if rank == 0 {
            remote.put(0, &[value(0); LEN]);
            let mut seen = [0; LEN];
            remote.get(0, &mut seen);
            ensure!(seen.iter().all(|seen| known(*seen)), "in turn {turn}: {seen:x?}");
        } else {
            let seen = [remote.swap(index, value(rank)), remote.load(index)];
            ensure!(seen.iter().all(|seen| known(*seen)), "in turn {turn}: {seen:x?}");
        }
    }
    comm.barrier()?;
    Ok(())
}
