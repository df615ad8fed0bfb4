//! Prefetches for write. What a rank writes next, others have read: each line needs an RFO, which the next call would wait for.

use super::staging::Senders;
use super::{Member, Payload, Platform};
use crate::copy::cpu;
use crate::tuning::{
    PREFETCH_FOR_WRITE_BYTES, PREFETCH_FOR_WRITE_BYTES_ON_INTEL, PREFETCH_WHILE_WAITING_BYTES_ON_INTEL,
};

/// What a rank does behind a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// It reads what others have written, or all others read what it has written.
    Reads,
    /// Nothing, while a root reads what this rank has written.
    Waits,
    /// Others have written, but not this rank, or it writes as much in few rounds only.
    HasNotWritten,
}

impl Then {
    /// `receives`: it reads something, or folds it; or all others read what it has written.
    #[inline]
    pub(crate) fn of(writes: bool, receives: bool) -> Self {
        match (writes, receives) {
            (true, true) => Then::Reads,
            (true, false) => Then::Waits,
            (false, _) => Then::HasNotWritten,
        }
    }

    /// How much of `staged` bytes is prefetched. `None`: nothing at all, since that would take longer than it saves.
    #[inline]
    fn prefetched(self, staged: usize, is_intel: bool) -> Option<usize> {
        let most = if is_intel { PREFETCH_FOR_WRITE_BYTES_ON_INTEL } else { PREFETCH_FOR_WRITE_BYTES };
        match self {
            Then::Waits if is_intel => Some(staged.min(PREFETCH_WHILE_WAITING_BYTES_ON_INTEL)),
            _ if staged > most => None,
            Then::HasNotWritten if staged > PREFETCH_FOR_WRITE_BYTES => Some(0),
            // A root may be another rank next: what is short does not rotate.
            Then::Reads | Then::Waits | Then::HasNotWritten => Some(staged),
        }
    }
}

impl<P: Platform> Member<'_, P> {
    /// Prefetches for write the lines that this rank's next call will write, which others have just read. To be called after
    /// a round, before something else is done. The next call is taken to be like this one, in which these ranks have written to
    /// staging, and the longest chunk has `staged` bytes.
    #[inline]
    pub(super) fn prefetch_next_round(&self, (staged, senders): (usize, Senders), then: Then) {
        let Some(prefetched) = then.prefetched(staged, cpu::is_intel()) else { return };
        self.prefetch_next_slot();
        if prefetched > 0 {
            self.next_buffer().prefetch_for_write(self.offset(staged, senders), prefetched);
        }
    }

    /// The same where the next call is taken to need no staging.
    #[inline]
    pub(super) fn prefetch_next_slot(&self) {
        let state = &self.slots[self.rank][self.next_parity()].state;
        self.platform.prefetch_for_write(state);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_that_only_waits_prefetches_most() {
        const USUAL: usize = PREFETCH_FOR_WRITE_BYTES;
        const ON_INTEL: usize = PREFETCH_FOR_WRITE_BYTES_ON_INTEL;
        let lens = [USUAL, USUAL + 1, ON_INTEL, ON_INTEL + 1, 1 << 20];
        let on_intel = |then: Then| lens.map(|staged| then.prefetched(staged, true));
        let few = [Some(USUAL), Some(USUAL + 1), Some(ON_INTEL)];
        assert_eq!(on_intel(Then::Reads), [few[0], few[1], few[2], None, None]);
        assert_eq!(on_intel(Then::HasNotWritten), [few[0], Some(0), Some(0), None, None]);
        assert_eq!(on_intel(Then::Waits)[..3], few);
        assert_eq!(on_intel(Then::Waits)[3..], [ON_INTEL + 1, PREFETCH_WHILE_WAITING_BYTES_ON_INTEL].map(Some));
        for then in [Then::Reads, Then::Waits, Then::HasNotWritten] {
            assert_eq!(lens.map(|staged| then.prefetched(staged, false)), [few[0], None, None, None, None]);
        }
    }

    #[test]
    fn a_rank_that_writes_and_receives_nothing_waits() {
        use Then::{HasNotWritten, Reads, Waits};
        let all = [(true, true), (true, false), (false, true), (false, false)];
        assert_eq!(
            all.map(|(writes, receives)| Then::of(writes, receives)),
            [Reads, Waits, HasNotWritten, HasNotWritten]
        );
    }
}
