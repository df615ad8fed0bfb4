//! A name of a file that this process has made.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::file::Identity;
use crate::sys::memory::fork::ForkGuard;

/// Removes the name on drop, unless it was removed before, or is another file's by now.
#[derive(Debug)]
pub(crate) struct Link {
    /// `None` as long as the file does not have it, and afterwards.
    path: Option<PathBuf>,
    identity: Identity,
    guard: ForkGuard,
    /// Elsewhere a mapping does not keep the lock.
    #[cfg(not(target_os = "linux"))]
    lock: Option<File>,
}

impl Link {
    /// Of a file that has no such name yet. All that can fail comes before the file has one.
    pub(super) fn new(file: &File) -> io::Result<Self> {
        Ok(Link {
            path: None,
            identity: Identity::of(file)?,
            guard: ForkGuard::new()?,
            #[cfg(not(target_os = "linux"))]
            lock: None,
        })
    }

    /// The file has this name now.
    pub(super) fn is_at(&mut self, path: &Path) {
        self.path = Some(path.to_owned());
    }

    /// Where the file has its name.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The file need not be open any more: its mapping holds the lock, or else this does.
    pub(super) fn close(&mut self, file: File) {
        #[cfg(target_os = "linux")]
        drop(file);
        #[cfg(not(target_os = "linux"))]
        {
            self.lock = Some(file);
        }
    }

    /// Frees the name, for another job to use. The file lives on for those who have mapped it.
    ///
    /// Must come before the mapping is dropped: without the lock, another job may take the name at any moment.
    pub(crate) fn unlink(&mut self) -> io::Result<()> {
        match self.path.take() {
            Some(path) if !self.guard.forked() => self.identity.remove(&path).map(drop),
            _ => Ok(()),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // There is nobody to tell; the next job of this name removes what is left.
        let _ = self.unlink();
    }
}
