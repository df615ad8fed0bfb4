//! A further part of a job's memory under a name of its own, where memory without a name can not be had.
//!
//! As with the job's own segment, the name appears when the memory is there, is locked and signed, and goes when all have
//! it. The file is longer than the memory by its signature, which is in a page of its own and never mapped.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::draft::{CreateMode, Draft};
use super::file::{self, Identity, Unusable};
use super::link::Link;
use super::lock;
use super::names::{self, Kind};
use super::signature::{IsSegment, Signature, Trailer};
use crate::sys::memory::pages::page_size;

/// How many names are tried: those before are other programs' files, or those of another job of the same name.
const ATTEMPTS: usize = 1000;

/// A part that is being made.
pub(crate) struct Part<'a> {
    draft: Draft,
    job: &'a str,
}

impl<'a> Part<'a> {
    /// Room for `len` bytes, none of them allocated.
    pub(crate) fn new(job: &'a str, len: usize, way: CreateMode) -> io::Result<Self> {
        let at = trailer_at(len)?;
        let trailer = Trailer { at, pid: std::process::id(), job: job.to_owned() };
        let draft = Draft::new(Path::new(file::DIRECTORY), job, way, &trailer.encode(), at)?;
        Ok(Part { draft, job })
    }

    /// How long the file of a part of `len` bytes is.
    pub(crate) fn file_len(len: usize) -> io::Result<u64> {
        Ok(trailer_at(len)? + Trailer::LEN as u64)
    }

    pub(crate) fn file(&self) -> &File {
        self.draft.file()
    }

    /// How much the file can grow; `None` if it does not say.
    pub(crate) fn room() -> Option<u64> {
        file::room(Path::new(file::DIRECTORY))
    }

    /// Lets others find it by its number, for as long as the link is there. It gets the first of these numbers whose name
    /// is free; what has one of the other names stays as it is.
    pub(crate) fn show(mut self, mut numbers: impl FnMut() -> u64) -> io::Result<(Link, u64)> {
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

    /// The file of this number, identity and length, which a live job has shown; `None` if what is there is another.
    pub(crate) fn find(job: &str, number: u64, identity: Identity, len: usize) -> io::Result<Option<File>> {
        let Some(file) = file::existing(&path(job, number)).map_err(Unusable::into_io)? else {
            return Ok(None);
        };
        let is_it = Identity::of(&file)? == identity && file.metadata()?.len() == Self::file_len(len)?;
        Ok(is_it.then_some(file))
    }
}

fn path(job: &str, number: u64) -> PathBuf {
    file::path_of(Path::new(file::DIRECTORY), &names::part(job, number))
}

/// Where a part of `len` bytes has its signature: at the first page behind them.
fn trailer_at(len: usize) -> io::Result<u64> {
    let too_large = || io::Error::from_raw_os_error(libc::EFBIG);
    let at = len.checked_next_multiple_of(page_size()).ok_or_else(too_large)?;
    let end = at.checked_add(Trailer::LEN).ok_or_else(too_large)?;
    if isize::try_from(end).is_ok() { Ok(at as u64) } else { Err(too_large()) }
}

/// Removes what dead processes have left of jobs of this name, beside a segment under the name itself: parts, and what
/// was still being made. True: there was something.
pub(super) fn sweep(directory: &Path, job: &str, is_segment: IsSegment) -> bool {
    // All names first: then the directory is closed, where descriptors are few.
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let kind = |entry: &fs::DirEntry| names::kind(job, entry.file_name().to_str()?);
    let found: Vec<_> = entries.filter_map(|entry| Some((entry.path(), kind(&entry)?))).collect();
    // What can not be removed does no harm to this job.
    let removed = found.iter().filter(|(path, kind)| remove(path, *kind, job, is_segment).unwrap_or(false));
    removed.count() > 0
}

/// Removes what has this name, if it proves to be the job's and nobody has it. False: it is still there.
fn remove(path: &Path, kind: Kind, job: &str, is_segment: IsSegment) -> io::Result<bool> {
    if kind == Kind::Segment {
        return Ok(false);
    }
    let Some(file) = file::existing(path).map_err(Unusable::into_io)? else { return Ok(false) };
    let is_ours = match Signature::of(&file, is_segment)? {
        Some(Signature::Part(trailer)) => trailer.job == job,
        // Under the name of a part it is the segment of a job that has this name.
        Some(Signature::Segment(_)) => kind == Kind::Draft,
        None => false,
    };
    // What a live process has is locked.
    Ok(is_ours && lock::reclaim(&file)? && Identity::of(&file)?.remove(path)?)
}
