//! Bytes that all ranks of a job see, one for each rank, without the library: a file.

use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use anyhow::Context;
use intranode::Communicator;
use tempfile::NamedTempFile;

use crate::scenario::Outcome;

/// A byte for each rank. A single byte is never seen half-written.
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
        // Everybody has it open before the name goes.
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

    /// Waits until `done` holds for the bytes. A driver ends a rank for which it never does.
    pub(crate) fn wait_until(&self, done: impl Fn(&[u8]) -> bool) -> Outcome {
        while !done(&self.read()?) {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }
}
