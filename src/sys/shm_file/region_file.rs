//! The named file of a region or a further communicator's segment, where memfds are not available.
//!
//! As for the job's own segment, the file is locked, signed and allocated before it gets its name, which is removed when
//! all ranks have mapped it. The signature is behind the data, in a page of its own that is never mapped.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::draft::{CreateMode, Draft};
use super::file::{self, Unusable};
use super::identity::Identity;
use super::link::Link;
use super::lock;
use super::names::{self, Kind};
use super::signature::{IsSegment, Signature, Trailer};
use crate::sys::kept_file::KeptFile;
use crate::sys::memory::pages::page_size;

/// The number of names to try: other programs, or an earlier job of this name, may have files under them.
const ATTEMPTS: usize = 1000;

/// A file that is not published yet.
pub(crate) struct RegionFile<'a> {
    draft: Draft,
    job: &'a str,
}

impl<'a> RegionFile<'a> {
    /// A file for `len` bytes, none of them allocated.
    pub(crate) fn new(job: &'a str, len: usize, mode: CreateMode) -> io::Result<Self> {
        let at = trailer_at(len)?;
        let trailer = Trailer { at, pid: std::process::id(), job: job.to_owned() };
        let draft = Draft::new(Path::new(file::DIRECTORY), job, mode, &trailer.encode(), at)?;
        Ok(RegionFile { draft, job })
    }

    /// The length of a file for `len` bytes.
    pub(crate) fn file_len(len: usize) -> io::Result<u64> {
        Ok(trailer_at(len)? + Trailer::LEN as u64)
    }

    pub(crate) fn file(&self) -> io::Result<&File> {
        self.draft.file()
    }

    /// The free bytes of the file system; `None` without a limit.
    pub(crate) fn free_space() -> Option<u64> {
        file::free_space(Path::new(file::DIRECTORY))
    }

    /// Gives the file the name with the first of `numbers` whose name is free, until the link is dropped.
    pub(crate) fn publish(mut self, mut numbers: impl FnMut() -> u64) -> io::Result<(Link, u64)> {
        let mut last = io::Error::from_raw_os_error(libc::EEXIST);
        for _ in 0..ATTEMPTS {
            let number = numbers();
            match self.draft.publish(&path(self.job, number)) {
                Ok(()) => return Ok((self.draft.close(), number)),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
                Err(error) => return Err(error),
            }
        }
        Err(last)
    }

    /// Opens the file of this number; `None` if its identity or length differs.
    pub(crate) fn open(job: &str, number: u64, identity: Identity, len: usize) -> io::Result<Option<KeptFile>> {
        let Some(kept) = file::open_existing(&path(job, number)).map_err(Unusable::into_io)? else {
            return Ok(None);
        };
        let file = kept.open()?;
        let matches = Identity::of(file)? == identity && file.metadata()?.len() == Self::file_len(len)?;
        Ok(matches.then_some(kept))
    }
}

fn path(job: &str, number: u64) -> PathBuf {
    file::path_of(Path::new(file::DIRECTORY), &names::region(job, number))
}

/// The offset of the signature: the first page behind `len` bytes.
fn trailer_at(len: usize) -> io::Result<u64> {
    let too_large = || io::Error::from_raw_os_error(libc::EFBIG);
    let at = len.checked_next_multiple_of(page_size()).ok_or_else(too_large)?;
    let end = at.checked_add(Trailer::LEN).ok_or_else(too_large)?;
    if isize::try_from(end).is_ok() { Ok(at as u64) } else { Err(too_large()) }
}

/// Removes the regions and drafts that dead processes of a job have left, but not its segment. Returns whether there were
/// any.
pub(super) fn remove_orphans(directory: &Path, job: &str, is_segment: IsSegment) -> bool {
    // Collected first, so that the directory's descriptor is closed: RLIMIT_NOFILE may be low.
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let kind = |entry: &fs::DirEntry| names::kind(job, entry.file_name().to_str()?);
    let files: Vec<_> = entries.filter_map(|entry| Some((entry.path(), kind(&entry)?))).collect();
    // A file that cannot be removed does not affect this job.
    let removed = files.iter().filter(|(path, kind)| remove(path, *kind, job, is_segment).unwrap_or(false));
    removed.count() > 0
}

/// Removes a file if its signature is the job's and it is not locked. Returns whether it was removed.
fn remove(path: &Path, kind: Kind, job: &str, is_segment: IsSegment) -> io::Result<bool> {
    if kind == Kind::Segment {
        return Ok(false);
    }
    let Some(kept) = file::open_existing(path).map_err(Unusable::into_io)? else { return Ok(false) };
    let file = kept.open()?;
    let is_ours = match Signature::of(file, is_segment)? {
        Some(Signature::Region(trailer)) => trailer.job == job,
        // Under the name of a region it is the segment of another job, whose name this is.
        Some(Signature::Segment(_)) => kind == Kind::Draft,
        None => false,
    };
    // The files of live processes are locked.
    Ok(is_ours && lock::reclaim(file)? && Identity::of(file)?.remove(path)?)
}
