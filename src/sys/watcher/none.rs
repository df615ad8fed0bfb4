//! Where there is no watcher yet: the death of a rank is noticed by the time-out of the others.

use std::io;
use std::sync::Arc;

use super::world::World;

/// Watches nobody.
pub(crate) struct Watcher;

impl Watcher {
    /// Calls `died` never.
    pub(crate) fn start(
        _world: &Arc<World>,
        _rank: usize,
        _died: impl Fn(usize) + Send + 'static,
    ) -> io::Result<Self> {
        Ok(Watcher)
    }
}
