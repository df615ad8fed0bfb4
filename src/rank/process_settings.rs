//! What a process was told by its environment beyond what makes it a rank: the same for all its jobs.

use crate::liveness::Detection;
use crate::sys::file_size::write_stderr;

/// Read once when a job is joined, and handed down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessSettings {
    /// Whether to say on standard error how things are done, and what has no effect.
    pub(crate) debug: bool,
    /// Whether regions whose placement is not chosen are spread over the NUMA nodes.
    pub(crate) interleave: bool,
    /// Whether memory has a name where that without would be possible.
    pub(crate) named_memory: bool,
    /// How the deaths of other ranks are noticed.
    pub(crate) detection: Detection,
}

impl ProcessSettings {
    /// Says on standard error what helps to understand, where that was asked for.
    pub(crate) fn debug(&self, text: &str) {
        if self.debug {
            write_stderr(&format!("intranode: {text}\n"));
        }
    }
}
