//! Where there is no watcher yet: the death of a rank is noticed by the time-out of the others.

use std::io;
use std::sync::Arc;

use super::Detection;
use crate::protocol::watch;
use crate::segment::mapped::MappedSegment;

/// Whom a watcher would tell.
#[expect(dead_code, reason = "nothing is told here")]
pub(crate) trait Listener: watch::Listener + Send + 'static {
    fn observes(&self) -> bool {
        false
    }
    fn tick(&self) {}
    fn asked(&self) {}
}

/// Watches nobody.
pub(crate) struct Watcher;

impl Watcher {
    /// Tells nothing.
    pub(crate) fn start(
        _world: &Arc<MappedSegment>,
        _rank: usize,
        _listener: impl Listener,
        _detection: Detection,
    ) -> io::Result<Self> {
        Ok(Watcher)
    }
}
