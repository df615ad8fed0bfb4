//! Cases 44 to 46, 51, 52 and 63: what a rank waits for, and signals.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use anyhow::ensure;
use intranode::Until::{Eq, Ge, Gt, Le, Lt, Ne};
use intranode::{Atom, Communicator, Error, Operation, Signal, Until};

use super::turns;
use crate::scenario::{Outcome, Scenario, ensure_matches, row, still_works};

pub(crate) fn rows() -> Vec<Scenario> {
    let rows = [
        row!(case_44_six_comparisons),
        row!(case_45_any_some_all),
        row!(case_46_ring_of_signals),
        row!(case_51_a_time_out_and_then_further).timeout(TIMEOUT),
        row!(case_51_the_others_do_not_wait_as_long).timeout(TIMEOUT),
        row!(case_52_two_threads_of_a_rank_wait).spin(Duration::ZERO),
        row!(case_52_two_threads_of_a_rank_wait_for_the_same).spin(Duration::ZERO),
        row!(case_63_signals_of_another_communicator),
    ];
    rows.into_iter().map(|row| row.ranks(&[2, 4])).collect()
}

/// For each comparison: a value that it does not hold for, and one that it does.
fn case_44_six_comparisons(comm: Communicator) -> Outcome {
    fn of<T: Atom + Debug>(comm: &Communicator, cases: &[(Until<T>, T, T)]) -> Outcome {
        let next = (comm.rank() + 1) % comm.size();
        let object = comm.symmetric::<T>(cases.len())?;
        let seen = comm.symmetric::<u32>(cases.len())?;
        for (index, (_, wrong, _)) in cases.iter().enumerate() {
            object.at(next)?.store(index, *wrong);
        }
        comm.barrier()?;
        for (index, (until, wrong, right)) in cases.iter().enumerate() {
            ensure!(!until.holds(*wrong) && until.holds(*right));
            ensure!(object.test(index, *until)?.is_none(), "{until:?} holds for {wrong:?}");
            // The next rank has looked before it is changed.
            seen.at((comm.rank() + comm.size() - 1) % comm.size())?.store(index, 1);
            seen.wait_until(index, Eq(1))?;
            object.at(next)?.store(index, *right);
            let value = object.wait_until(index, *until)?;
            ensure!(value == *right, "{until:?} returns {value:?}");
            ensure!(object.test(index, *until)?.is_some_and(|value| value == *right));
        }
        comm.barrier()?;
        Ok(())
    }
    /// Around a number, without one that is `least` or `most`.
    macro_rules! around {
        ($number:expr, $less:expr, $more:expr) => {
            &[
                (Eq($number), $less, $number),
                (Ne($number), $number, $more),
                (Gt($number), $number, $more),
                (Ge($number), $less, $number),
                (Lt($number), $number, $less),
                (Le($number), $more, $number),
            ]
        };
    }
    of::<i32>(&comm, around!(0, -1, 1))?;
    of::<i64>(&comm, around!(i64::MIN + 1, i64::MIN, i64::MAX))?;
    of::<isize>(&comm, around!(-5, isize::MIN, 3))?;
    // What would be negative as a signed number is greater here.
    of::<u32>(&comm, around!(1 << 31, 1, u32::MAX))?;
    of::<u64>(&comm, around!(1 << 63, 1, u64::MAX))?;
    of::<usize>(&comm, around!(7, 0, usize::MAX))?;
    of::<f32>(&comm, around!(0.0, -0.5, f32::INFINITY))?;
    of::<f64>(&comm, around!(-1.0, f64::NEG_INFINITY, -0.5))?;
    // A NaN is neither equal to anything nor less nor greater.
    of::<f64>(&comm, &[(Eq(1.0), f64::NAN, 1.0), (Ge(0.0), f64::NAN, 0.0), (Lt(0.0), f64::NAN, -1.0)])
}

fn case_45_any_some_all(comm: Communicator) -> Outcome {
    const LEN: usize = 70;
    let (rank, next) = (comm.rank(), (comm.rank() + 1) % comm.size());
    let object = comm.symmetric::<i64>(LEN)?;
    let to = object.at(next)?;
    let all: Vec<(usize, Until<i64>)> = (0..LEN).map(|index| (index, Ne(0))).collect();
    // Nothing is waited for.
    ensure!(object.wait_any(&[])?.is_none() && object.wait_some(&[])?.is_empty());
    object.wait_all(&[])?;
    ensure!(object.test_any(&[])?.is_none() && object.test_some(&[])?.is_empty() && object.test_all(&[])?);
    // Nothing is there yet.
    ensure!(object.test_any(&all)?.is_none() && object.test_some(&all)?.is_empty() && !object.test_all(&all)?);
    comm.barrier()?;

    to.store(60, -4);
    ensure!(object.wait_any(&all)? == Some((60, -4)));
    // The place is that in the list, not the index.
    ensure!(object.wait_any(&[(3, Gt(0)), (60, Lt(0))])? == Some((1, -4)));
    ensure!(object.wait_some(&all)? == [60] && object.test_some(&all)? == [60]);
    comm.barrier()?;

    // The same element twice in the list. Then one after the other, each as soon as the last has been noticed.
    to.store(0, 1);
    comm.barrier()?;
    ensure!(object.wait_some(&[(0, Gt(0)), (5, Gt(0)), (0, Ne(0))])? == [0, 2]);
    to.store(1, 1);
    let mut missing: Vec<_> = vec![(0, Ge(1)), (1, Ge(1))];
    while !missing.is_empty() {
        let there = object.wait_some(&missing)?;
        ensure!(!there.is_empty());
        missing = missing
            .into_iter()
            .enumerate()
            .filter(|(place, _)| !there.contains(place))
            .map(|(_, it)| it)
            .collect();
    }
    comm.barrier()?;

    // From the last to the first, so that each waits for nearly all.
    for index in (0..LEN).rev() {
        to.store(index, rank as i64 + 5);
    }
    object.wait_all(&all)?;
    let others: Vec<_> = (0..LEN).map(|index| (index, Ge(5))).collect();
    object.wait_all(&others)?;
    ensure!(object.test_all(&others)? && object.test_some(&others)?.len() == LEN);
    // An element that has been as it should is not waited for again.
    comm.barrier()?;
    let signals = comm.symmetric::<u32>(2)?;
    signals.at(next)?.store(0, 1);
    let sender = std::thread::scope(|scope| {
        let waiter = scope.spawn(|| signals.wait_all(&[(0, Eq(1)), (1, Eq(1))]));
        signals.wait_until(0, Eq(1))?;
        signals.at(next)?.store(1, 1);
        waiter.join().map_err(|_| anyhow::anyhow!("it panicked"))?.map_err(anyhow::Error::from)
    });
    sender?;
    still_works(&comm)
}

fn case_46_ring_of_signals(comm: Communicator) -> Outcome {
    const LEN: usize = 50;
    let (rank, size) = (comm.rank(), comm.size());
    let (next, previous) = ((rank + 1) % size, (rank + size - 1) % size);
    let data = comm.symmetric::<u16>(2 * LEN)?;
    let (set, added, empty) =
        (comm.symmetric::<u64>(1)?, comm.symmetric::<i32>(2)?, comm.symmetric::<usize>(3)?);
    let value = |rank: usize, turn: u64| (turn * 8 + rank as u64) as u16;
    for turn in 1..=turns(2_000) {
        // Into alternate halves: the next rank has read this one before it sent its own signal of the last turn but one.
        let half = turn as usize % 2 * LEN;
        data.put_signal(next, half, &[value(rank, turn); LEN], &set, 0, Signal::Set(turn))?;
        data.put_signal(next, 0, &[], &added, 1, Signal::Add(-2))?;
        data.put_signal(next, 2 * LEN, &[], &empty, 2, Signal::Add(1))?;
        set.wait_until(0, Ge(turn))?;
        let mut seen = [0; LEN];
        data.at(rank)?.get(half, &mut seen);
        ensure!(seen == [value(previous, turn); LEN], "in turn {turn}: {seen:?}");
        added.wait_until(1, Le(-2 * turn as i32))?;
        empty.wait_until(2, Ge(turn as usize))?;
        // All ranks are in the same turn or the next: see above.
        comm.barrier()?;
    }
    let total = turns(2_000);
    ensure!(set.test(0, Eq(total))?.is_some() && added.test(0, Eq(0))?.is_some());
    ensure!(empty.test_all(&[(0, Eq(0)), (1, Eq(0)), (2, Eq(total as usize))])?);
    comm.barrier()?;
    Ok(())
}

/// The communicator's: longer than a busy machine keeps a rank from a processor.
const TIMEOUT: Duration = Duration::from_secs(2);

fn case_51_a_time_out_and_then_further(comm: Communicator) -> Outcome {
    let object = comm.symmetric::<i32>(4)?;
    // As long as all ranks wait for nothing.
    let start = Instant::now();
    ensure!(object.wait_timeout(1, Ne(0), Duration::from_millis(30))?.is_none());
    let waited = start.elapsed();
    ensure!(waited >= Duration::from_millis(30), "only {waited:?}");
    ensure!(object.wait_timeout(1, Ne(0), Duration::ZERO)?.is_none());
    ensure!(object.wait_timeout(1, Eq(0), Duration::ZERO)? == Some(0), "the value wins over the time-out");

    // Three threads wait at once.
    let start = Instant::now();
    let errors = std::thread::scope(|scope| {
        let waits = [
            scope.spawn(|| object.wait_until(1, Gt(5)).map(drop)),
            scope.spawn(|| object.wait_any(&[(2, Lt(0)), (3, Ne(0))]).map(drop)),
            scope.spawn(|| object.wait_all(&[(2, Eq(0)), (3, Ne(0))])),
        ];
        waits.map(|wait| wait.join().expect("it does not panic"))
    });
    let waited = start.elapsed();
    ensure!(waited >= TIMEOUT, "only {waited:?}");
    for (result, (index, condition)) in errors.into_iter().zip([(1, "Gt(5)"), (2, "Lt(0)"), (3, "Ne(0)")]) {
        let Err(error) = result else { anyhow::bail!("no error") };
        ensure!(!error.is_fatal());
        let text = error.to_string();
        for part in
            [format!("on rank {}", comm.rank()), format!("element {index}"), condition.into(), "it is 0".into()]
        {
            ensure!(text.contains(&part), "no {part:?} in {text:?}");
        }
        ensure_matches!(error, Error::WaitTimedOut(_));
    }
    // All of it can be used further, by ranks that wait no longer.
    comm.barrier()?;
    object.at((comm.rank() + 1) % comm.size())?.store(1, 6);
    ensure!(object.wait_timeout(1, Gt(5), Duration::MAX)? == Some(6));
    still_works(&comm)
}

/// Rank 0 is late in their barrier, which ends the communicator, and with it the wait.
fn case_51_the_others_do_not_wait_as_long(comm: Communicator) -> Outcome {
    let object = comm.symmetric::<u32>(1)?;
    let (operation, result) = match comm.rank() {
        0 => (Operation::Wait, object.wait_timeout(0, Ne(0), Duration::from_secs(60)).map(drop)),
        _ => (Operation::Barrier, comm.barrier()),
    };
    ensure_matches!(
        result,
        Err(Error::TimedOut { operation: failed, late, .. }) if *failed == operation && **late == [0]
    );
    Ok(())
}

/// Each waits for an element of its own. They share the rank's bell.
fn case_52_two_threads_of_a_rank_wait(comm: Communicator) -> Outcome {
    threads_wait(&comm, [0, 5])
}

fn case_52_two_threads_of_a_rank_wait_for_the_same(comm: Communicator) -> Outcome {
    threads_wait(&comm, [3, 3])
}

fn threads_wait(comm: &Communicator, elements: [usize; 2]) -> Outcome {
    let turns = turns(2_000);
    let (next, previous) = ((comm.rank() + 1) % comm.size(), (comm.rank() + comm.size() - 1) % comm.size());
    let (object, seen) = (comm.symmetric::<u64>(6)?, comm.symmetric::<u64>(1)?);
    let wait = |element: usize| {
        for turn in 1..=turns {
            object.wait_until(element, Ge(turn))?;
            seen.at(previous)?.fetch_add(0, 1);
        }
        Ok::<(), Error>(())
    };
    std::thread::scope(|scope| {
        let waiters = elements.map(|element| scope.spawn(move || wait(element)));
        for turn in 1..=turns {
            for element in elements {
                object.at(next)?.store(element, turn);
            }
            // Both threads of the next rank have seen it.
            seen.wait_until(0, Ge(2 * turn))?;
        }
        for waiter in waiters {
            waiter.join().map_err(|_| anyhow::anyhow!("it panicked"))??;
        }
        // A rank that left now would end the waits of those that have not finished.
        Ok(comm.barrier()?)
    })
}

fn case_63_signals_of_another_communicator(comm: Communicator) -> Outcome {
    let other = comm.split_local()?;
    let (data, own) = (comm.symmetric::<u64>(2)?, comm.symmetric::<u64>(1)?);
    let foreign = other.symmetric::<u64>(1)?;
    for rank in 0..comm.size() {
        for result in [
            data.put_signal(rank, 0, &[1, 2], &foreign, 0, Signal::Set(1)),
            data.put_signal(rank, 0, &[], &foreign, 0, Signal::Add(1)),
            foreign.put_signal(rank, 0, &[1], &own, 0, Signal::Add(1)),
        ] {
            ensure_matches!(result, Err(Error::ForeignHandle { .. }));
            ensure!(!result.unwrap_err().is_fatal());
        }
    }
    comm.barrier()?;
    ensure!(
        data.test_all(&[(0, Eq(0)), (1, Eq(0))])?
            && own.test(0, Eq(0))?.is_some()
            && foreign.test(0, Eq(0))?.is_some()
    );
    data.put_signal(comm.rank(), 0, &[1, 2], &own, 0, Signal::Add(1))?;
    ensure!(own.wait_until(0, Ge(1))? == 1);
    still_works(&other)?;
    still_works(&comm)
}
