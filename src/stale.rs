//! What jobs that were killed have left behind: for `intranode clean`.

use std::io;
use std::time::SystemTime;

use crate::layout::Layout;
use crate::sys::named::leftovers;
pub use crate::sys::named::leftovers::Removal;

/// A name, and the memory under it, that provably belongs to nobody.
#[derive(Clone, Debug)]
pub struct Leftover(leftovers::Leftover);

/// All of them that belong to this user; with names, only what jobs of these have left.
///
/// # Errors
/// When the names can not be listed.
pub fn find(names: &[String]) -> io::Result<Vec<Leftover>> {
    Ok(leftovers::find(names, Layout::is_segment)?.into_iter().map(Leftover).collect())
}

impl Leftover {
    /// The name, as a job gives it.
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// The process that made it, by its own number, if it says so.
    pub fn maker(&self) -> Option<u32> {
        Layout::holder(&self.0.preamble)
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
        self.0.remove().map_err(io::Error::other)
    }
}
