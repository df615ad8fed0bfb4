//! A file with one byte for each rank, which all ranks of a job read: communication without the library.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::Context;
use intranode::Communicator;
use tempfile::NamedTempFile;

use crate::scenario::Outcome;

/// A byte for each rank. Accesses to a single byte are atomic.
pub(crate) struct Board {
    file: File,
    rank: usize,
    size: usize,
}

impl Board {
    /// A board for all ranks of `comm`. Collective.
    pub(crate) fn new(comm: &Communicator) -> anyhow::Result<Self> {
        let (rank, size) = (comm.rank(), comm.size());
        let mut path = [0u8; 1024];
        let named = if rank == 0 {
            let named = NamedTempFile::new()?;
            named.as_file().set_len(size as u64)?;
            let bytes = named.path().as_os_str().as_bytes();
            path[..bytes.len()].copy_from_slice(bytes);
            Some(named)
        } else {
            None
        };
        comm.broadcast(&mut path, 0)?;
        let length = path.iter().position(|byte| *byte == 0).context("a path ends")?;
        let file = File::options().read(true).write(true).open(OsStr::from_bytes(&path[..length]))?;
        // All ranks have opened it before the name is removed.
        comm.barrier()?;
        drop(named);
        Ok(Board { file, rank, size })
    }

    /// Writes this rank's byte.
    pub(crate) fn post(&self, byte: u8) -> Outcome {
        Ok(self.file.write_all_at(&[byte], self.rank as u64)?)
    }

    /// All bytes, by rank.
    pub(crate) fn read(&self) -> anyhow::Result<Vec<u8>> {
        let mut bytes = vec![0; self.size];
        self.file.read_exact_at(&mut bytes, 0)?;
        Ok(bytes)
    }

    /// Waits until `done` holds for the bytes. The driver ends a rank that waits too long.
    pub(crate) fn wait_until(&self, done: impl Fn(&[u8]) -> bool) -> Outcome {
        while !done(&self.read()?) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}
