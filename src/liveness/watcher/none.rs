//! Systems without a watcher: a rank's death is noticed by the time-out of the others.

use std::io;
use std::sync::Arc;

use super::Detection;
use crate::protocol::watch;
use crate::segment::mapped::MappedSegment;

/// As on Linux; never called.
#[expect(dead_code, reason = "there is no watcher to call it")]
pub(crate) trait Listener: watch::Listener + Send + 'static {
    fn needs_ticks(&self) -> bool {
        false
    }
    fn tick(&self) {}
    fn report_requested(&self) {}
}

/// Does nothing.
pub(crate) struct Watcher;

impl Watcher {
    /// Always succeeds.
    pub(crate) fn start(
        _mapped: &Arc<MappedSegment>,
        _rank: usize,
        _listener: impl Listener,
        _detection: Detection,
    ) -> io::Result<Self> {
        Ok(Watcher)
    }
}
