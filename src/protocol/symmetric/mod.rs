//! Symmetric memory: cells that every rank reads and writes at any time, in the order that OpenSHMEM and NVSHMEM promise.
//!
//! | file | question that it answers |
//! | --- | --- |
//! | [`platform`] | what does it need from the machine beyond words? |
//! | [`access`] | which ordering has each access? |
//! | [`bell`] | how does a rank sleep until any of its cells has changed? |
//! | [`lock`] | how do ranks take turns? |
//! | [`phase`] | when may an object be read and written by plain loads and stores? |

pub mod access;
pub mod bell;
pub mod lock;
pub mod phase;
#[expect(unsafe_code, reason = "declares the traits whose implementations promise something")]
pub mod platform;

use super::{Cause, CauseKind, Failure, Killed, Segment, membership};

pub use platform::{AtomicCell, Cell, Fetch, IntegerCell, SymmetricPlatform};

/// One rank's access to symmetric memory. Unlike a [`Member`](super::Member), several threads of a rank may have one.
pub struct OneSided<'s, P: SymmetricPlatform> {
    pub(super) platform: &'s P,
    pub(super) segment: &'s Segment<'s, P>,
    pub(super) rank: usize,
}

impl<P: SymmetricPlatform> Clone for OneSided<'_, P> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<P: SymmetricPlatform> Copy for OneSided<'_, P> {}

impl<'s, P: SymmetricPlatform> OneSided<'s, P> {
    /// That of `rank`.
    ///
    /// # Panics
    /// When the segment has no bell for this rank.
    #[inline]
    pub fn new(platform: &'s P, segment: &'s Segment<'s, P>, rank: usize) -> Self {
        assert!(rank < segment.bells.len());
        OneSided { platform, segment, rank }
    }

    /// The platform that it is on.
    #[inline(always)]
    pub fn platform(&self) -> &'s P {
        self.platform
    }

    /// What a rank reports that has met poison.
    #[cold]
    fn failure(self) -> Failure {
        membership::failure(self.platform, self.segment)
    }

    /// Ends the communicator, unless it has ended before, if the program of this rank does not want to wait any longer. Whether that
    /// is so.
    ///
    /// # Errors
    /// Only when a test stops this rank.
    pub(super) fn end_if_interrupted(&self) -> Result<bool, Killed> {
        let interrupted = self.platform.is_interrupted();
        if interrupted {
            self.poison(self.interrupted())?;
        }
        Ok(interrupted)
    }

    /// The cause where the program of this rank does not want to wait any longer.
    pub(super) fn interrupted(&self) -> Cause {
        Cause { kind: CauseKind::Interrupted, rank: self.rank, detail: 0 }
    }

    /// Ends the communicator for every rank, unless it has ended before.
    #[cold]
    fn poison(&self, cause: Cause) -> Result<(), Killed> {
        membership::poison(self.platform, self.segment, cause)
    }
}
