//! What jobs that were killed have left behind: for `intranode clean`.

use std::io;
use std::time::SystemTime;

use crate::segment::layout::Layout;
pub use crate::sys::shm_file::orphans::Removal;
use crate::sys::shm_file::{Signature, Unusable, orphans};

/// A name, and the memory under it, that provably belongs to no live process.
///
/// ```
/// use intranode::job::cleanup::{self, Removal};
///
/// // What a job of this name has left: nothing, since there was none.
/// let name = format!("/example-nobody-{}", std::process::id());
/// for leftover in cleanup::find(&[name.clone()])? {
///     println!("{}: {} bytes of process {:?}", leftover.name(), leftover.bytes(), leftover.maker());
///     println!("made {:?}", leftover.made());
///     assert_ne!(leftover.remove()?, Removal::Gone);
/// }
/// assert!(!cleanup::in_use(&[name])?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Leftover(orphans::Orphan);

/// All that jobs of this user have left; with names, only what jobs of these names have left. Example: [`Leftover`].
///
/// # Errors
/// When the names cannot be listed.
pub fn find(names: &[String]) -> io::Result<Vec<Leftover>> {
    Ok(orphans::find(names, Layout::is_segment)?.into_iter().map(Leftover).collect())
}

/// Whether a live process has something of the jobs of these names, or is removing it: what [`find`] leaves out. Example:
/// [`Leftover`].
///
/// # Errors
/// When the names cannot be listed.
pub fn in_use(names: &[String]) -> io::Result<bool> {
    orphans::in_use(names, Layout::is_segment)
}

impl Leftover {
    /// The name, as a job gives it. Example: [`Leftover`].
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// The process that made it, by the number that it has itself; `None` if that cannot be read. Example: [`Leftover`].
    pub fn maker(&self) -> Option<u32> {
        match &self.0.signature {
            Signature::Segment(preamble) => Layout::holder(preamble),
            Signature::Region(trailer) => Some(trailer.pid),
        }
    }

    /// How much memory it takes, in bytes. Example: [`Leftover`].
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// When it was made; `None` if the system does not tell. Example: [`Leftover`].
    pub fn made(&self) -> Option<SystemTime> {
        self.0.modified
    }

    /// Removes it, if it is still what was found, and still belongs to no live process. Example: [`Leftover`].
    ///
    /// # Errors
    /// When the system does not allow it.
    pub fn remove(&self) -> io::Result<Removal> {
        self.0.remove().map_err(Unusable::into_io)
    }
}
