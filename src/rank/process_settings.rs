//! Settings of the process, from its environment: the same for all its jobs.

use crate::liveness::Detection;
use crate::sys::file_size::write_stderr;

/// Read once when a job is joined.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProcessSettings {
    /// Whether to write to standard error what was chosen, and what has no effect.
    pub(crate) debug: bool,
    /// Whether regions without a chosen placement are interleaved over the NUMA nodes.
    pub(crate) interleave: bool,
    /// Whether regions use named files even where memfds are possible.
    pub(crate) named_memory: bool,
    /// Whether large blocks of symmetric objects are read where they lie; `None`: as long as that pays.
    pub(crate) in_place: Option<bool>,
    /// Whether operations of the program's own are compared by what they do.
    pub(crate) check: bool,
    /// How the deaths of other ranks are detected.
    pub(crate) detection: Detection,
}

impl ProcessSettings {
    /// Writes to standard error, if `debug` is set.
    pub(crate) fn debug(&self, text: &str) {
        if self.debug {
            write_stderr(&format!("intranode: {text}\n"));
        }
    }
}
