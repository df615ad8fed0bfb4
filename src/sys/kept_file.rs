//! Files that stay open, beside what a program does with descriptors that it does not know.

use std::fs::File;
use std::io;
use std::mem;

use crate::sys::shm_file::Identity;

/// A file that stays open. Programs close descriptors that they do not know; what has its number then is theirs, and stays as it is.
#[derive(Debug)]
pub(crate) struct KeptFile {
    file: Option<File>,
    identity: Identity,
}

impl KeptFile {
    pub(crate) fn new(file: File) -> io::Result<Self> {
        let identity = Identity::of(&file)?;
        Ok(KeptFile { file: Some(file), identity })
    }

    /// The file, if its descriptor still is the one that was opened.
    pub(crate) fn get(&self) -> Option<&File> {
        self.file.as_ref().filter(|file| Identity::of(file).is_ok_and(|found| found == self.identity))
    }
}

impl Drop for KeptFile {
    fn drop(&mut self) {
        if self.get().is_none() {
            mem::forget(self.file.take());
        }
    }
}
