//! Which file it is, whatever its name.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Identifies a file, whose name may refer to another one later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

impl Identity {
    pub(crate) fn of(file: &File) -> io::Result<Self> {
        Ok(Self::from(&file.metadata()?))
    }

    /// The identity of the file that has this name now.
    fn at(path: &Path) -> io::Result<Option<Self>> {
        match fs::symlink_metadata(path) {
            Ok(metadata) => Ok(Some(Self::from(&metadata))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Removes the name of this file, which is open or mapped, so that its inode cannot be reused. Returns false if the name
    /// is gone or refers to another file.
    ///
    /// No system call compares and removes in one step. A program that replaces the file between the two calls loses its
    /// own; programs that use this library never do.
    pub(super) fn remove(self, path: &Path) -> io::Result<bool> {
        let is_same = Self::at(path)? == Some(self);
        if is_same {
            fs::remove_file(path)?;
        }
        Ok(is_same)
    }

    fn from(metadata: &Metadata) -> Self {
        Identity { device: metadata.dev(), inode: metadata.ino() }
    }
}
