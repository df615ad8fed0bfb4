//! Data of puts that were given up, once its peer reads it no more: dropping it runs code of the program's.
//!
//! That code may panic, so it runs where the endpoint can be used again. It may also use the endpoint, if tasks share it, or hold the last
//! share: so it must not run while the endpoint is locked.

use crate::endpoint::calls::Kept;

#[derive(Default)]
pub(super) struct Over {
    list: Vec<Kept>,
    /// Whether somebody else takes it, and drops it.
    #[cfg(feature = "tokio")]
    is_taken: bool,
}

impl Over {
    pub(super) fn add(&mut self, kept: impl IntoIterator<Item = Kept>) {
        self.list.extend(kept);
    }

    /// Drops what there is, unless somebody else does. To be called last: it may panic.
    #[inline]
    pub(super) fn drop_now(&mut self) {
        #[cfg(feature = "tokio")]
        if self.is_taken {
            return;
        }
        if !self.list.is_empty() {
            drop(core::mem::take(&mut self.list));
        }
    }

    /// From now on it is [taken](Over::take).
    #[cfg(feature = "tokio")]
    pub(super) fn is_taken_from_now_on(&mut self) {
        self.is_taken = true;
    }

    /// What there is, to be dropped without a lock.
    #[cfg(feature = "tokio")]
    #[must_use]
    pub(super) fn take(&mut self) -> Vec<Kept> {
        core::mem::take(&mut self.list)
    }
}
