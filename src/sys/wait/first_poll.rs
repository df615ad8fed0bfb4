//! When a receiver that waits for an answer polls first.
//!
//! A processor that polls a line between another one's read of it and its write makes it shared, so that the other one needs an RFO.
//! So the receiver waits first, for as long as the answers lately took: a bit less after each that was there, and some more after one
//! that was not. A pause of the processor's would be too coarse: on an EPYC it takes 25 ns, as a line between near cores.

use std::hint::black_box;

use crate::tuning::{FIRST_POLL_STEP_PARTS, FIRST_POLL_STEPS, FIRST_POLL_STEPS_BACK};

/// How long that is, in parts of a step.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct FirstPoll(u32);

impl FirstPoll {
    /// Waits before the first poll. Returns whether it did.
    #[inline(always)]
    pub(crate) fn wait(self) -> bool {
        let steps = self.0 / FIRST_POLL_STEP_PARTS;
        for step in 0..steps {
            // Through memory: some 1.5 ns.
            black_box(step);
        }
        steps > 0
    }

    /// What was waited for was there at the first poll, or later.
    #[inline(always)]
    pub(crate) fn found(&mut self, at_first: bool) {
        self.0 = if at_first {
            self.0 - self.0.div_ceil(8 * FIRST_POLL_STEP_PARTS)
        } else {
            (self.0 + FIRST_POLL_STEPS_BACK * FIRST_POLL_STEP_PARTS)
                .min(FIRST_POLL_STEPS * FIRST_POLL_STEP_PARTS)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_seldom_too_early_and_not_late_by_much() {
        for answer in [0, 1, 20, 60, 120] {
            let mut first = FirstPoll::default();
            let mut early = 0;
            for turn in 0..2000 {
                let waited = first.0 / FIRST_POLL_STEP_PARTS;
                assert!(turn < 1000 || waited < answer + 2 * FIRST_POLL_STEPS_BACK);
                early += u32::from(turn >= 1000 && waited < answer);
                first.found(waited >= answer);
            }
            assert!(early <= 1000 / 5, "{early} of 1000 with an answer after {answer} steps");
        }
    }
}
