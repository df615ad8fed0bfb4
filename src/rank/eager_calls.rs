//! Whether short data are staged with their counts, before it is known if those of all ranks are short.
//!
//! That was in vain if they are not. Calls tend to be as the last ones were, so after two in a row in which some rank had more nobody stages
//! any, until all would have been short again. All ranks know that of each call, hence decide the same.

use std::sync::atomic::{AtomicU8, Ordering};

/// After as many calls in a row in which some rank has more, nothing is staged.
const LONG: u8 = 2;

#[derive(Debug, Default)]
pub(crate) struct EagerCalls {
    /// How many calls in a row had more, up to [`LONG`].
    long: AtomicU8,
}

impl EagerCalls {
    #[inline]
    pub(crate) fn stage(&self) -> bool {
        self.long.load(Ordering::Relaxed) < LONG
    }

    /// A call has ended in which some rank had more, or none had.
    #[inline]
    pub(crate) fn had(&self, more: bool) {
        let before = self.long.load(Ordering::Relaxed);
        let long = if more { LONG.min(before + 1) } else { 0 };
        if long != before {
            self.long.store(long, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_staged_after_two_calls_that_had_more() {
        let calls = EagerCalls::default();
        let staged = [true, false, true, true, true, false, true].map(|more| {
            calls.had(more);
            calls.stage()
        });
        assert_eq!(staged, [true, true, true, false, false, true, true]);
    }
}
