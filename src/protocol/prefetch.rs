//! Prefetches for write. What a rank writes next, others have read: each line needs an RFO, which the next call would wait for.

use super::{Member, Payload, Platform};
use crate::copy::cpu;
use crate::tuning::{PREFETCH_BY_FOLDER, PREFETCH_BY_READER, PREFETCH_BY_WAITER_ON_INTEL, PrefetchForWrite};

/// What a rank does behind a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It reads what others have written, or others read what it has written.
    Reads,
    /// It folds what others have written.
    Folds,
    /// Nothing, while a root reads what this rank has written.
    Waits,
    /// Others have written, but not this rank, or it writes as much in few rounds only.
    HasNotWritten,
}

impl Then {
    /// Of a block of a transfer.
    #[inline]
    pub(crate) fn of(writes: bool, receives: bool) -> Self {
        match (writes, receives) {
            (true, true) => Then::Reads,
            (true, false) => Then::Waits,
            (false, _) => Then::HasNotWritten,
        }
    }

    /// Of a reduction in which this rank folds this number of contributions.
    #[inline]
    pub(super) fn in_fold(writes: bool, terms: usize) -> Self {
        match (writes, terms) {
            (false, _) => Then::HasNotWritten,
            (true, 0) => Then::Waits,
            (true, _) => Then::Folds,
        }
    }

    /// How much of `staged` bytes is prefetched. `None`: nothing at all, since that would take longer than it saves.
    #[inline]
    fn prefetched(self, staged: usize, is_intel: bool) -> Option<usize> {
        let all = |by: PrefetchForWrite| {
            let most = if is_intel { by.on_intel } else { by.usual };
            (staged <= most).then_some(staged)
        };
        match self {
            Then::Waits if is_intel => Some(staged.min(PREFETCH_BY_WAITER_ON_INTEL)),
            Then::Reads | Then::Waits => all(PREFETCH_BY_READER),
            Then::Folds => all(PREFETCH_BY_FOLDER),
            // A root may be another rank next: what is short does not rotate.
            Then::HasNotWritten => {
                all(PREFETCH_BY_READER).map(|staged| if staged > PREFETCH_BY_READER.usual { 0 } else { staged })
            }
        }
    }
}

impl<P: Platform> Member<'_, P> {
    /// Prefetches for write the lines that this rank's next call will write, which others have just read. To be called after
    /// a round, before something else is done. The next call is taken to be like this one, in which this number of ranks has written to
    /// staging, and the longest chunk has `staged` bytes.
    #[inline]
    pub(super) fn prefetch_next_round(&self, (staged, senders): (usize, usize), then: Then) {
        let Some(prefetched) = then.prefetched(staged, cpu::is_intel()) else { return };
        self.prefetch_next_slot();
        if prefetched > 0 {
            self.next_buffer().prefetch_for_write(self.offset(staged, senders), prefetched);
        }
    }

    /// The same where the next call is taken to need no staging.
    #[inline]
    pub(super) fn prefetch_next_slot(&self) {
        let state = &self.segment.slots[self.rank][self.next_parity()].state;
        self.platform.prefetch_for_write(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_only_waits_prefetches_most() {
        let [reader, folder] = [PREFETCH_BY_READER, PREFETCH_BY_FOLDER].map(|by| by.on_intel);
        let on_intel = |then: Then| {
            [0, reader, reader + 1, folder, folder + 1, 1 << 20].map(|staged| then.prefetched(staged, true))
        };
        let (some, none) = (Some(0), None);
        assert_eq!(on_intel(Then::HasNotWritten), [some, some, none, none, none, none]);
        assert_eq!(Then::HasNotWritten.prefetched(512, true), Some(512));
        assert_eq!(on_intel(Then::Reads), [some, Some(reader), none, none, none, none]);
        let folded = [some, Some(reader), Some(reader + 1), Some(folder)];
        assert_eq!(on_intel(Then::Folds), [folded[0], folded[1], folded[2], folded[3], none, none]);
        assert_eq!(on_intel(Then::Waits)[..4], folded);
        assert_eq!(on_intel(Then::Waits)[4..], [folder + 1, PREFETCH_BY_WAITER_ON_INTEL].map(Some));
        let usual = PREFETCH_BY_READER.usual;
        for then in [Then::Reads, Then::Folds, Then::Waits, Then::HasNotWritten] {
            assert_eq!([usual, usual + 1].map(|staged| then.prefetched(staged, false)), [Some(usual), none]);
        }
    }

    #[test]
    fn a_rank_that_writes_and_receives_nothing_waits() {
        use Then::{Folds, HasNotWritten, Reads, Waits};
        let all = [(true, true), (true, false), (false, true), (false, false)];
        assert_eq!(
            all.map(|(writes, receives)| Then::of(writes, receives)),
            [Reads, Waits, HasNotWritten, HasNotWritten]
        );
        let folds = all.map(|(writes, folds)| Then::in_fold(writes, usize::from(folds)));
        assert_eq!(folds, [Folds, Waits, HasNotWritten, HasNotWritten]);
    }
}
