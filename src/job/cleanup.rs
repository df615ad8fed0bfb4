//! What jobs that were killed have left behind: for `intranode clean`.

use std::io;
use std::time::SystemTime;

use crate::segment::layout::Layout;
pub use crate::sys::shm_file::orphans::Removal;
use crate::sys::shm_file::{Signature, Unusable, orphans};

/// A name, and the memory under it, that provably belongs to nobody.
#[derive(Clone, Debug)]
pub struct Leftover(orphans::Orphan);

/// All of them that belong to this user; with names, only what jobs of these have left.
///
/// # Errors
/// When the names can not be listed.
pub fn find(names: &[String]) -> io::Result<Vec<Leftover>> {
    Ok(orphans::find(names, Layout::is_segment)?.into_iter().map(Leftover).collect())
}

/// Whether a live process has something of the jobs of these names, or is removing it: what [`find`] leaves out.
///
/// # Errors
/// When the names can not be listed.
pub fn in_use(names: &[String]) -> io::Result<bool> {
    orphans::in_use(names, Layout::is_segment)
}

impl Leftover {
    /// The name, as a job gives it.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// The process that made it, by its own number, if it says so.
    pub fn maker(&self) -> Option<u32> {
        match &self.0.signature {
            Signature::Segment(preamble) => Layout::holder(preamble),
            Signature::Region(trailer) => Some(trailer.pid),
        }
    }

    /// How much memory it takes.
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// When it was made, as far as that is known.
    pub fn made(&self) -> Option<SystemTime> {
        self.0.modified
    }

    /// Removes it, if it is still what was found, and is still nobody's.
    ///
    /// # Errors
    /// When the system does not allow it.
    pub fn remove(&self) -> io::Result<Removal> {
        self.0.remove().map_err(Unusable::into_io)
    }
}
