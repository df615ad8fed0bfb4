//! The measurement of a collective: times per call.
//!
//! In one repetition a rank writes a new payload, synchronises, calls (several times, if one call is too short for the
//! clock), reads the clock, synchronises again, checks the result, and exchanges the times. Only the calls are timed. A repetition's time is that
//! of the slowest rank. Between the calls of a repetition one value of each page changes, which costs little. A large call is
//! a repetition of its own, so that its whole payload is new. Calls that [have a common
//! start](super::collective::Collective::has_common_start) are timed one by one, each after a barrier.
//!
//! That is [`Buffers::Renewed`]. [`Buffers::Unchanged`], as in the OSU benchmarks, the payload is written once, before the first
//! repetition; each repetition begins with a call that is not timed, after the check of the one before has read the results.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use intranode::Communicator;

use super::collective::{Calls, Collective, PAGE};
use super::payload::Buffers;

/// The calls of one repetition take at least this long, unless they are [`MAX_CALLS`]: the clock costs some hundredths of a
/// microsecond.
const LONG_ENOUGH: Duration = Duration::from_millis(1);
const MAX_CALLS: u64 = 1000;

/// A call of at least this many bytes is large.
const LARGE: usize = 256 << 10;

/// With fewer repetitions the median is unreliable; more do not improve it.
const MIN_REPETITIONS: u64 = 5;
const MAX_REPETITIONS: u64 = 10_000;

pub(crate) struct Budget {
    pub(crate) time: Duration,
    pub(crate) repetitions: Option<u32>,
}

/// The time per call in microseconds, by repetition; the same on every rank.
pub(crate) fn measure(
    collective: &mut dyn Collective,
    bytes: usize,
    buffers: Buffers,
    comm: &Communicator,
    budget: &Budget,
) -> Result<Vec<f64>> {
    let alone = collective.took().is_some();
    let mut calls_so_far = 0;
    let mut repeat = |calls: u64| {
        let first = calls_so_far + 1;
        calls_so_far += calls;
        match buffers {
            Buffers::Renewed => repetition(collective, comm, first, calls),
            Buffers::Unchanged => unchanged(collective, comm, first == 1, calls),
        }
    };
    // The first repetitions touch the buffers, warm up, and determine how many calls fit into the budget. All ranks have the
    // same times, so they choose the same number of calls.
    repeat(1)?;
    let mut calls = 1;
    let mut whole;
    loop {
        let begin = Instant::now();
        let each = repeat(calls)?;
        whole = begin.elapsed();
        if bytes >= LARGE || alone || calls == MAX_CALLS || each * calls as f64 >= LONG_ENOUGH.as_secs_f64() {
            break;
        }
        calls = (2 * calls).min(MAX_CALLS);
    }
    let repetitions = agree(comm, budget, whole)?;
    (0..repetitions).map(|_| Ok(repeat(calls)? * 1e6)).collect()
}

/// The number of repetitions that fit into the budget. Rank 0 decides: by their own clocks the ranks would stop at
/// different times.
fn agree(comm: &Communicator, budget: &Budget, whole: Duration) -> Result<u64> {
    let fitting = (budget.time.as_secs_f64() / whole.as_secs_f64()) as u64;
    let fitting = fitting.clamp(MIN_REPETITIONS, MAX_REPETITIONS);
    let mut agreed = [budget.repetitions.map_or(fitting, u64::from)];
    comm.broadcast(&mut agreed, 0)?;
    Ok(agreed[0])
}

/// The slowest rank's time per call, in seconds, of the calls from `first` on.
fn repetition(collective: &mut dyn Collective, comm: &Communicator, first: u64, calls: u64) -> Result<f64> {
    collective.prepare(first, 1);
    let renew = |collective: &mut dyn Collective, call| {
        if call > 0 {
            collective.prepare(first + call, PAGE);
        }
    };
    timed(collective, comm, Calls { first, last: first + calls - 1 }, calls, renew)
}

/// The same for calls that all have the payload of the first.
fn unchanged(collective: &mut dyn Collective, comm: &Communicator, is_first: bool, calls: u64) -> Result<f64> {
    if is_first {
        collective.prepare(1, 1);
    } else {
        collective.call(comm)?;
    }
    timed(collective, comm, Calls { first: 1, last: 1 }, calls, |_, _| ())
}

/// The slowest rank's time per call, in seconds, of `count` calls with `renew` before each. Those of the payload are `calls`.
fn timed(
    collective: &mut dyn Collective,
    comm: &Communicator,
    calls: Calls,
    count: u64,
    renew: impl Fn(&mut dyn Collective, u64),
) -> Result<f64> {
    let has_common_start = collective.has_common_start();
    comm.barrier()?;
    let mut begin = Instant::now();
    let mut together = Duration::ZERO;
    for call in 0..count {
        renew(collective, call);
        if has_common_start {
            comm.barrier()?;
            begin = Instant::now();
            collective.call(comm)?;
            together += begin.elapsed();
        } else {
            collective.call(comm)?;
        }
    }
    let time = if has_common_start { together } else { begin.elapsed() };
    let time = collective.took().unwrap_or(time);
    let mine = time.as_secs_f64() / count as f64;
    // On a processor that ranks share, the check would be in the time of those that have not learnt yet that the call has ended.
    comm.barrier()?;
    ensure!(collective.is_right(calls), "the result of call {} is wrong", calls.last);
    let mut times = vec![0.0; comm.size()];
    comm.allgather(&[mine], &mut times)?;
    Ok(times.into_iter().fold(0.0, f64::max))
}

#[cfg(test)]
mod tests {
    use super::*;
    use intranode::Error;

    const BUDGET: Budget = Budget { time: Duration::ZERO, repetitions: Some(7) };

    /// An operation that does nothing. Its result is right until call `wrong`.
    struct Nothing {
        wrong: u64,
    }

    impl Collective for Nothing {
        fn prepare(&mut self, _number: u64, _step: usize) {}

        fn call(&mut self, _comm: &Communicator) -> Result<(), Error> {
            Ok(())
        }

        fn is_right(&self, calls: Calls) -> bool {
            calls.last < self.wrong
        }
    }

    #[test]
    fn all_ranks_see_the_same_times() {
        let measured = |comm: Communicator| {
            measure(&mut Nothing { wrong: u64::MAX }, 0, Buffers::Renewed, &comm, &BUDGET).unwrap()
        };
        let times = intranode::threads(3, measured).unwrap();
        assert_eq!(times[0].len(), 7);
        assert!(times.iter().all(|others| *others == times[0]));
    }

    /// Counts how often its payload is written.
    #[derive(Default)]
    struct Counted {
        written: u32,
        calls: u32,
    }

    impl Collective for Counted {
        fn prepare(&mut self, number: u64, step: usize) {
            assert_eq!((number, step), (1, 1));
            self.written += 1;
        }

        fn call(&mut self, _comm: &Communicator) -> Result<(), Error> {
            self.calls += 1;
            Ok(())
        }

        fn is_right(&self, calls: Calls) -> bool {
            (calls.first, calls.last) == (1, 1)
        }
    }

    #[test]
    fn an_unchanged_payload_is_written_once() {
        let counted = intranode::threads(2, |comm| {
            let mut counted = Counted::default();
            measure(&mut counted, LARGE, Buffers::Unchanged, &comm, &BUDGET).unwrap();
            counted
        });
        for Counted { written, calls } in counted.unwrap() {
            // Each repetition but the first has a call that is not timed; two repetitions warm up.
            assert_eq!((written, calls), (1, 2 * (7 + 2) - 1));
        }
    }

    #[test]
    fn a_wrong_result_on_one_rank_is_an_error_on_all() {
        let measured = |comm: Communicator| {
            let wrong = if comm.rank() == 1 { 4 } else { u64::MAX };
            measure(&mut Nothing { wrong }, 0, Buffers::Renewed, &comm, &BUDGET).unwrap_err().to_string()
        };
        let errors = intranode::threads(3, measured).unwrap();
        let is_reported =
            |error: &str| error.starts_with("the result of call ") && error.ends_with(" is wrong");
        assert!(is_reported(&errors[1]), "{errors:?}");
    }
}
