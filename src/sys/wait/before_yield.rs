//! How often to poll before sched_yield in an oversubscribed job, for what one rank may write.
//!
//! If that rank runs now, on another processor, its write often comes sooner than a switch takes, and both go on without one. If it does
//! not run, or takes longer, the polls are in vain. It tends to be as it was the last time, so after polls in vain several times in a row some
//! waits yield at once: one, then 3, then always [7](WAITS_WITHOUT_POLLS).

use crate::tuning::{POLLS_BEFORE_YIELD, WAITS_WITHOUT_POLLS};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct BeforeYield {
    /// How many waits are still to yield at once.
    left: u32,
    /// How many are after the next polls in vain.
    next: u32,
}

impl BeforeYield {
    /// For a rank that shares this one's only processor: it runs, and writes, only after a yield. Some billion waits poll nothing.
    pub(crate) const NEVER: BeforeYield = BeforeYield { left: u32::MAX, next: WAITS_WITHOUT_POLLS };

    /// Calls `poll`, as often as it may pay, until it returns `true`. Returns whether it has.
    #[inline]
    pub(super) fn poll(&mut self, mut poll: impl FnMut() -> bool) -> bool {
        if self.left > 0 {
            self.left -= 1;
            return false;
        }
        for _ in 0..POLLS_BEFORE_YIELD {
            core::hint::spin_loop();
            if poll() {
                self.next = 0;
                return true;
            }
        }
        self.left = self.next;
        self.next = (2 * self.next + 1).min(WAITS_WITHOUT_POLLS);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a wait polls for a while, of `waits` waits that find something if they do so, or not.
    fn polled(before: &mut BeforeYield, waits: u32, finds: bool) -> Vec<bool> {
        let wait = |_| {
            let mut polls = 0;
            let found = before.poll(|| {
                polls += 1;
                finds && polls == POLLS_BEFORE_YIELD
            });
            assert_eq!(found, polls > 0 && finds);
            assert!(polls == 0 || polls == POLLS_BEFORE_YIELD);
            polls > 0
        };
        (0..waits).map(wait).collect()
    }

    #[test]
    fn waits_poll_less_and_less_often_while_that_is_in_vain() {
        let mut before = BeforeYield::default();
        let first = polled(&mut before, 10, false);
        assert_eq!(first, [true, true, false, true, false, false, false, true, false, false]);
        let (waits, long) = (1000, 1 + WAITS_WITHOUT_POLLS);
        let polls = polled(&mut before, waits, false).iter().filter(|polled| **polled).count();
        assert!((waits / long - 1..=waits / long + 3).contains(&(polls as u32)), "{polls} of {waits}");
    }

    #[test]
    fn waits_poll_again_once_that_has_found_something() {
        let mut before = BeforeYield::default();
        polled(&mut before, 1000, false);
        let again = polled(&mut before, WAITS_WITHOUT_POLLS + 1, true);
        assert!(again.contains(&true));
        assert!(polled(&mut before, 100, true).iter().all(|polled| *polled));
        // Once in vain is no reason to stop.
        assert_eq!(polled(&mut before, 3, false), [true, true, false]);
    }
}
