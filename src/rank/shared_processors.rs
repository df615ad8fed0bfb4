//! What follows from where the ranks may run.

use crate::rank::groups::Groups;

/// How the ranks of a communicator share processors and caches.
#[derive(Clone)]
pub(crate) struct SharedProcessors {
    /// The groups of a hierarchical barrier.
    pub(crate) groups: Option<Groups>,
    /// Whether there are more ranks than processors.
    pub(crate) oversubscribed: bool,
    /// By rank: whether it is bound to the one processor that this rank is bound to.
    pub(crate) co_located: Box<[bool]>,
}
