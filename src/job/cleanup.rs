//! Shared memory that killed jobs have left behind: for `intranode clean`.

use std::io;
use std::time::SystemTime;

use crate::segment::layout::Layout;
pub use crate::sys::shm_file::orphans::Removal;
use crate::sys::shm_file::{Signature, Unusable, orphans};

/// A name and its memory that provably belong to no live process.
///
/// ```
/// use intranode::job::cleanup::{self, Removal};
///
/// // Empty: no job of this name has run.
/// let name = format!("/example-leftover-{}", std::process::id());
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

/// The leftovers of this user's jobs. If `names` is not empty, only those of jobs with these names. Example: [`Leftover`].
///
/// # Errors
/// When the names cannot be listed.
pub fn find(names: &[String]) -> io::Result<Vec<Leftover>> {
    Ok(orphans::find(names, Layout::is_segment)?.into_iter().map(Leftover).collect())
}

/// Whether a live process uses memory of jobs with these names, or is removing it: [`find`] omits such memory. Example:
/// [`Leftover`].
///
/// # Errors
/// When the names cannot be listed.
pub fn in_use(names: &[String]) -> io::Result<bool> {
    orphans::in_use(names, Layout::is_segment)
}

impl Leftover {
    /// The name of the shared memory, with its `/`. Example: [`Leftover`].
    pub fn name(&self) -> String {
        self.0.name()
    }

    /// The process that created it, by its id in its own PID namespace; `None` if that cannot be read. Example:
    /// [`Leftover`].
    pub fn maker(&self) -> Option<u32> {
        match &self.0.signature {
            Signature::Segment(preamble) => Layout::holder(preamble),
            Signature::Region(trailer) => Some(trailer.pid),
        }
    }

    /// The memory that it occupies, in bytes. Example: [`Leftover`].
    pub fn bytes(&self) -> u64 {
        self.0.bytes
    }

    /// The time of its creation; `None` if the system does not provide it. Example: [`Leftover`].
    pub fn made(&self) -> Option<SystemTime> {
        self.0.modified
    }

    /// Removes it, unless the name has been reused or now belongs to a live process. Example: [`Leftover`].
    ///
    /// # Errors
    /// If the system refuses.
    pub fn remove(&self) -> io::Result<Removal> {
        self.0.remove().map_err(Unusable::into_io)
    }
}
