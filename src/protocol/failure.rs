//! Why a communicator has ended, and what a call reports that has failed.

use super::{Call, Killed};
use crate::codes::{Codes, codes};

/// Why a communicator was poisoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// What happened.
    pub kind: CauseKind,
    /// To which rank.
    pub rank: usize,
    /// A number whose meaning depends on the kind: the round, or an exit code.
    pub detail: u32,
}

codes! {
    /// What can poison a communicator.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum CauseKind: u8 {
        /// The rank did not arrive in time at round `detail`.
        TimedOut = 1,
        /// The rank left after it had completed round `detail`.
        Left = 2,
        /// The rank asked all ranks to end with exit code `detail`.
        Aborted = 3,
        /// The rank's thread panicked.
        Panicked = 4,
        /// Two threads of the rank called at the same time.
        ConcurrentUse = 5,
        /// The rank tried to join as one of `detail` ranks, which is not what this segment was made for.
        WrongSize = 6,
        /// The rank's process has died.
        Died = 7,
        /// The rank held a lock for too long, or asked for it and did not link itself into its queue.
        LockTimedOut = 8,
        /// The rank's program did not want to wait any longer.
        Interrupted = 9,
    }
}

impl Cause {
    /// `kind` in the upper 8 bits, then 24 bits of rank, then the detail. Never 0.
    pub fn pack(self) -> u64 {
        let rank = (self.rank as u64) & 0xFF_FFFF;
        (self.kind as u64) << 56 | rank << 32 | u64::from(self.detail)
    }

    /// The cause in a packed word; `None` for what no rank can have written.
    pub fn unpack(word: u64) -> Option<Self> {
        let kind = CauseKind::from_code((word >> 56) as u8)?;
        let rank = (word >> 32 & 0xFF_FFFF) as usize;
        Some(Cause { kind, rank, detail: word as u32 })
    }
}

/// Why a call did not do what it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The first rank that refused its own arguments. All ranks have consumed the same round.
    Refused(usize),
    /// What each rank called, since it was not the same. All ranks have consumed the same round.
    Mismatch(Vec<Call>),
    /// The communicator has ended; `None` if the cause is unreadable.
    Dead(Option<Cause>),
    /// A test has ended this rank.
    Killed,
}

impl From<Killed> for Failure {
    fn from(Killed: Killed) -> Self {
        Failure::Killed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cause_survives_packing() {
        for kind in CauseKind::ALL.iter().copied() {
            for (rank, detail) in [(0, 0), (1, u32::MAX), (0xFF_FFFF, 7)] {
                let cause = Cause { kind, rank, detail };
                assert_eq!(Cause::unpack(cause.pack()), Some(cause));
                assert_ne!(cause.pack(), 0);
            }
        }
        assert_eq!(Cause::unpack(0), None);
        assert_eq!(Cause::unpack(u64::MAX), None);
    }
}
