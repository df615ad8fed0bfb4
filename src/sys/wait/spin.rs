//! How long to spin on a word before sleeping.
//!
//! Waking a sleeper costs a system call and some 25 µs until the other core has switched to it, a hundred times a
//! cache-line transfer, and more on virtual machines that give up idle processors. So with a processor for every rank it
//! spins for up to 4 ms, which covers the imbalance of evenly shared work. After 50 µs, about the cost of a sleep and a
//! wake-up, it calls sched_yield between polls: the rank may have other threads.
//!
//! If the job is oversubscribed, a spinning rank may keep the awaited rank from running. Then it calls sched_yield up to
//! 16 times, since a switch costs less than a sleep and a wake-up. A rank that waits for one write, and not for all ranks,
//! polls for about the time of a switch after each of them, and yields less often: the write is often on its way from another
//! processor, and a rank that yields just before it arrives needs two more switches to find it. A rank that waits for an answer to its
//! message also polls before it yields, while [that pays](super::before_yield).

use std::time::{Duration, Instant};

use super::before_yield::BeforeYield;
use super::progress;
use crate::tuning::{
    POLLS_AFTER_YIELD, POLLS_BEFORE_CLOCK, POLLS_BEFORE_YIELD, POLLS_BEFORE_YIELD_ON_INTEL, POLLS_PER_CLOCK,
    SPIN, SPIN_WITHOUT_YIELD, YIELDS, YIELDS_FOR_WRITE, YIELDS_OF_ONE,
};

/// What a rank does before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpinPolicy {
    /// How long to spin, if every rank has a processor.
    spin: Duration,
    /// The number of calls to sched_yield, if the job is oversubscribed.
    yields: u32,
    /// The polls before the first of them, if the awaited rank is on another processor.
    polls: u32,
}

impl SpinPolicy {
    /// Sleeps at once.
    pub(crate) const NONE: SpinPolicy = SpinPolicy { spin: Duration::ZERO, yields: 0, polls: 0 };

    /// The policy for `ranks` ranks on `processors` processors.
    pub(crate) fn new(ranks: usize, processors: usize) -> Self {
        if ranks <= processors {
            SpinPolicy { spin: SPIN, ..SpinPolicy::NONE }
        } else {
            SpinPolicy { spin: Duration::ZERO, yields: YIELDS, polls: POLLS_BEFORE_YIELD }
        }
    }

    /// The same on Intel's processors, or on others.
    pub(crate) fn on_intel(self, is_intel: bool) -> Self {
        let polls = if is_intel { self.polls.min(POLLS_BEFORE_YIELD_ON_INTEL) } else { self.polls };
        SpinPolicy { polls, ..self }
    }

    /// The same, unless the configuration sets the time to spin.
    pub(crate) fn chosen(spin: Option<Duration>, ranks: usize, processors: usize) -> Self {
        spin.map_or(SpinPolicy::new(ranks, processors), |spin| SpinPolicy { spin, ..SpinPolicy::NONE })
    }

    /// The same for a wait that is over after so long.
    pub(crate) fn within(self, timeout: Option<Duration>) -> Self {
        match timeout {
            Some(timeout) if timeout.is_zero() => SpinPolicy::NONE,
            Some(timeout) => SpinPolicy { spin: self.spin.min(timeout), ..self },
            None => self,
        }
    }

    /// Whether a rank calls sched_yield before it sleeps: the job is oversubscribed.
    #[inline]
    pub(crate) fn yields(self) -> bool {
        self.yields > 0
    }

    /// Whether a rank polls for so long, at least, before it sleeps, and so seldom sleeps.
    #[cfg(target_os = "linux")]
    pub(crate) fn spins_for(self, least: Duration) -> bool {
        !self.yields() && self.spin >= least
    }

    /// Calls `poll` until it returns something, which this returns, or the first part of the policy's time is over: that which
    /// reads no clock and does not yield. `co_located`: the awaited rank runs on this processor.
    #[inline(always)]
    pub(crate) fn spin_briefly<R>(self, co_located: bool, mut poll: impl FnMut() -> Option<R>) -> Option<R> {
        let first = poll();
        if first.is_some() {
            return first;
        }
        let polls = match self.yields() {
            true if co_located => 0,
            true => self.polls,
            false if self.spin.is_zero() => 0,
            false => POLLS_BEFORE_CLOCK,
        };
        for _ in 0..polls {
            let found = poll();
            if found.is_some() {
                return found;
            }
            core::hint::spin_loop();
        }
        None
    }

    /// The rest: calls `poll` until it returns `true` or the policy's time is over.
    #[cold]
    pub(crate) fn spin_long(self, poll: impl FnMut() -> bool) {
        if self.yields() { Self::spin_yielding(self.yields, 1, poll) } else { self.spin_timed(poll) }
    }

    /// The same for what any one rank may write, on whichever processor.
    #[inline]
    pub(crate) fn spin_for_write(self, mut poll: impl FnMut() -> bool) {
        if self.spin_briefly(true, || poll().then_some(())).is_none() {
            self.spin_long_for_write(poll);
        }
    }

    /// The rest of that, behind [`spin_briefly`](Self::spin_briefly).
    #[cold]
    pub(crate) fn spin_long_for_write(self, poll: impl FnMut() -> bool) {
        if self.yields() {
            Self::spin_yielding(YIELDS_FOR_WRITE, POLLS_AFTER_YIELD, poll);
        } else {
            self.spin_timed(poll);
        }
    }

    /// The same in an oversubscribed job for an answer, while nothing else is looked at: [a while](BeforeYield), and few yields.
    #[inline]
    pub(crate) fn spin_directly(self, before: &mut BeforeYield, mut poll: impl FnMut() -> bool) {
        if !before.poll(&mut poll) {
            Self::spin_yielding(YIELDS_OF_ONE, POLLS_AFTER_YIELD, poll);
        }
    }

    #[cold]
    fn spin_timed(self, mut poll: impl FnMut() -> bool) {
        let start = Instant::now();
        loop {
            let elapsed = start.elapsed();
            if elapsed >= self.spin {
                return;
            }
            progress::go_on();
            if elapsed >= SPIN_WITHOUT_YIELD {
                std::thread::yield_now();
            }
            for _ in 0..POLLS_PER_CLOCK {
                if poll() {
                    return;
                }
                core::hint::spin_loop();
            }
        }
    }

    /// Yields, and polls so often after each time.
    #[cold]
    fn spin_yielding(yields: u32, polls: u32, mut poll: impl FnMut() -> bool) {
        for _ in 0..yields {
            progress::go_on();
            std::thread::yield_now();
            if poll() {
                return;
            }
            for _ in 1..polls {
                core::hint::spin_loop();
                if poll() {
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polls(policy: SpinPolicy, co_located: bool) -> u32 {
        let mut polls = 0;
        let nothing: Option<()> = policy.spin_briefly(co_located, || {
            polls += 1;
            None
        });
        assert_eq!(nothing, None);
        policy.spin_long(|| {
            polls += 1;
            false
        });
        polls
    }

    #[test]
    fn a_job_with_enough_processors_spins_longer_than_an_oversubscribed_one() {
        assert!(polls(SpinPolicy::new(2, 2), true) > POLLS_BEFORE_CLOCK);
        assert_eq!(polls(SpinPolicy::new(3, 2), true), 1 + YIELDS);
    }

    #[test]
    fn an_oversubscribed_rank_polls_before_it_yields_unless_co_located() {
        let on_intel = |is_intel| SpinPolicy::new(3, 2).on_intel(is_intel);
        assert_eq!(polls(on_intel(false), false), 1 + POLLS_BEFORE_YIELD + YIELDS);
        assert_eq!(polls(on_intel(true), false), 1 + POLLS_BEFORE_YIELD_ON_INTEL + YIELDS);
        assert_eq!(polls(on_intel(true), true), 1 + YIELDS);
    }

    #[test]
    fn an_oversubscribed_rank_polls_after_each_yield_for_a_write() {
        let polls_for_write = |policy: SpinPolicy| {
            let mut polls = 0;
            policy.spin_for_write(|| {
                polls += 1;
                false
            });
            polls
        };
        assert_eq!(polls_for_write(SpinPolicy::new(3, 2)), 1 + YIELDS_FOR_WRITE * POLLS_AFTER_YIELD);
        assert_eq!(polls_for_write(SpinPolicy::NONE), 1);
    }

    #[test]
    fn an_oversubscribed_rank_polls_before_it_yields_a_few_times_for_an_answer() {
        let mut polls = 0;
        SpinPolicy::new(3, 2).spin_directly(&mut BeforeYield::default(), || {
            polls += 1;
            false
        });
        assert_eq!(polls, POLLS_BEFORE_YIELD + YIELDS_OF_ONE * POLLS_AFTER_YIELD);
        polls = 0;
        let mut never = BeforeYield::NEVER;
        SpinPolicy::new(3, 2).spin_directly(&mut never, || {
            polls += 1;
            false
        });
        assert_eq!(polls, YIELDS_OF_ONE * POLLS_AFTER_YIELD);
    }

    #[test]
    fn a_configured_time_overrides_the_number_of_processors() {
        assert_eq!(polls(SpinPolicy::chosen(Some(Duration::ZERO), 2, 2), true), 1);
        assert!(polls(SpinPolicy::chosen(Some(Duration::from_micros(1)), 3, 2), true) > POLLS_BEFORE_CLOCK);
        assert_eq!(SpinPolicy::chosen(None, 3, 2), SpinPolicy::new(3, 2));
    }
}
