//! The name of a file that this process has created.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use super::identity::Identity;
use crate::sys::kept_file::KeptFile;
use crate::sys::memory::fork::ForkGuard;

/// Removes the name on drop, unless it was removed before or names another file by now.
#[derive(Debug)]
pub(crate) struct Link {
    /// `None` before the file is linked, and after it is unlinked.
    path: Option<PathBuf>,
    identity: Identity,
    guard: ForkGuard,
    /// On Linux the mapping keeps the lock.
    #[cfg(not(target_os = "linux"))]
    lock: Option<KeptFile>,
}

impl Link {
    /// Made before the file is linked, so that nothing can fail afterwards.
    pub(super) fn new(file: &File) -> io::Result<Self> {
        Ok(Link {
            path: None,
            identity: Identity::of(file)?,
            guard: ForkGuard::new()?,
            #[cfg(not(target_os = "linux"))]
            lock: None,
        })
    }

    /// The file was linked to this path.
    pub(super) fn set_path(&mut self, path: &Path) {
        self.path = Some(path.to_owned());
    }

    /// The path, while the file is linked.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Closes the file where its mapping keeps the lock; else keeps it open.
    pub(super) fn close(&mut self, file: KeptFile) {
        #[cfg(target_os = "linux")]
        drop(file);
        #[cfg(not(target_os = "linux"))]
        {
            self.lock = Some(file);
        }
    }

    /// Frees the name for another job. The file lives on in the processes that have mapped it.
    ///
    /// Called before the mapping is dropped: without the lock, another job may take the name at any moment.
    pub(crate) fn unlink(&mut self) -> io::Result<()> {
        match self.path.take() {
            Some(path) if !self.guard.forked() => self.identity.remove(&path).map(drop),
            _ => Ok(()),
        }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // A file that stays behind is removed by the next job of this name.
        let _ = self.unlink();
    }
}
