//! How long to look at a word before sleeping on it.
//!
//! Waking a sleeper costs a system call here and some 25 µs until another core has switched to it, a hundred
//! times a cache-line transfer, and more where an idle processor is given to somebody else. So with a processor for every
//! rank it pays to look for a while: for four milliseconds, which bridges the differences between ranks that share their
//! work evenly, and is nothing beside a wait that is long. A rank that has looked for the time of a sleep and a wake-up
//! goes on to look, but lets other threads on its processor go first: ranks may have some of their own.
//!
//! With fewer processors, looking keeps the very rank from running that is waited for: then the processor is given away
//! instead, a few times, since a switch costs less than a sleep and a wake-up.

use std::time::{Duration, Instant};

/// What a rank does before it sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SpinPolicy {
    /// How long to look, where every rank has a processor.
    spin: Duration,
    /// How often to give the processor away, where not.
    yields: u32,
}

/// So many looks come before the first look at the clock.
const QUICK: u32 = 200;

/// So many looks, about as long as a switch takes, come before a processor is given away for what happens on another.
const ELSEWHERE: u32 = 100;

/// How long to look where every rank has a processor.
const SPIN: Duration = Duration::from_millis(4);

/// For so long nobody else is let go first.
const EAGER: Duration = Duration::from_micros(50);

/// So many looks come between two looks at the clock.
const BATCH: u32 = 50;

impl SpinPolicy {
    /// Sleeps at once.
    #[cfg(target_os = "linux")]
    pub(crate) const NONE: SpinPolicy = SpinPolicy { spin: Duration::ZERO, yields: 0 };

    /// The policy for so many ranks on so many processors.
    pub(crate) fn new(ranks: usize, processors: usize) -> Self {
        if ranks <= processors {
            SpinPolicy { spin: SPIN, yields: 0 }
        } else {
            SpinPolicy { spin: Duration::ZERO, yields: 16 }
        }
    }

    /// The same, unless somebody who knows better has said how long to look.
    pub(crate) fn chosen(spin: Option<Duration>, ranks: usize, processors: usize) -> Self {
        spin.map_or(SpinPolicy::new(ranks, processors), |spin| SpinPolicy { spin, yields: 0 })
    }

    /// Whether a rank gives its processor away before it sleeps.
    #[inline]
    pub(crate) fn gives_away(self) -> bool {
        self.yields > 0
    }

    /// Calls `look` until it gives `true` or the patience is over. `beside`: what is waited for happens on this very
    /// processor.
    #[inline]
    pub(crate) fn spin(self, beside: bool, mut look: impl FnMut() -> bool) {
        if look() {
            return;
        }
        let looks = match self.gives_away() {
            true if beside => 0,
            true => ELSEWHERE,
            false if self.spin.is_zero() => 0,
            false => QUICK,
        };
        for _ in 0..looks {
            if look() {
                return;
            }
            core::hint::spin_loop();
        }
        if self.gives_away() { self.yield_until(look) } else { self.spin_by_the_clock(look) }
    }

    #[cold]
    fn spin_by_the_clock(self, mut look: impl FnMut() -> bool) {
        let start = Instant::now();
        loop {
            let elapsed = start.elapsed();
            if elapsed >= self.spin {
                return;
            }
            if elapsed >= EAGER {
                std::thread::yield_now();
            }
            for _ in 0..BATCH {
                if look() {
                    return;
                }
                core::hint::spin_loop();
            }
        }
    }

    #[cold]
    fn yield_until(self, mut look: impl FnMut() -> bool) {
        for _ in 0..self.yields {
            std::thread::yield_now();
            if look() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(policy: SpinPolicy) -> u32 {
        let mut looks = 0;
        policy.spin(true, || {
            looks += 1;
            false
        });
        looks
    }

    #[test]
    fn who_has_a_processor_looks_for_longer_than_who_has_not() {
        assert!(looks(SpinPolicy::new(2, 2)) > QUICK);
        assert_eq!(looks(SpinPolicy::new(3, 2)), 1 + 16);
    }

    #[test]
    fn who_shares_a_processor_looks_before_giving_it_away_for_somebody_elsewhere() {
        let mut looks = 0;
        SpinPolicy::new(3, 2).spin(false, || {
            looks += 1;
            false
        });
        assert_eq!(looks, 1 + ELSEWHERE + 16);
    }

    #[test]
    fn a_choice_counts_whatever_the_processors() {
        assert_eq!(looks(SpinPolicy::chosen(Some(Duration::ZERO), 2, 2)), 1);
        assert!(looks(SpinPolicy::chosen(Some(Duration::from_micros(1)), 3, 2)) > QUICK);
        assert_eq!(SpinPolicy::chosen(None, 3, 2), SpinPolicy::new(3, 2));
    }
}
