//! A further part of a job's memory under a name of its own, where memory without a name can not be had.
//!
//! As with the job's own segment, the name appears when the memory is there, is locked, and goes when all have it. What
//! is under it until then is zeros: a dead job's part looks like a segment that was never finished, and is removed like
//! one.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::file::{self, Identity, Unusable};
use super::{CreateError, Link, Way, clear, lock};
use crate::layout::Layout;

/// What stands between the name of a job and the number of its part.
pub(crate) const PREFIX: &str = "_region_";

/// Removes the parts that dead jobs of this name have left: their makers were killed while they had names.
pub(super) fn sweep(directory: &Path, job: &Path) {
    let Some(job) = job.file_name().and_then(|name| name.to_str()) else { return };
    let is_part = |name: &str| {
        let number = name.strip_prefix(job).and_then(|rest| rest.strip_prefix(PREFIX));
        number.is_some_and(|number| number.parse::<u64>().is_ok())
    };
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(is_part) {
            // A part of a live job is locked. One that can not be removed does no harm to this job.
            let _ = clear(&entry.path(), &Layout::is_segment);
        }
    }
}

/// A part that is being made.
pub(crate) struct Part {
    file: File,
    path: PathBuf,
    link: Link,
    named: bool,
}

impl Part {
    /// An empty file that will have this name.
    pub(crate) fn new(name: &str, way: Way) -> Result<Self, CreateError> {
        let path = file::path(Path::new(file::DIRECTORY), name)?;
        clear(&path, &Layout::is_segment)?;
        let named = way == Way::Exclusive;
        let io = || Unusable::io(&path);
        let file = if named { file::exclusive(&path) } else { file::nameless(Path::new(file::DIRECTORY)) };
        let file = file.map_err(io())?;
        let mut link = Link::new(&file, &path)?;
        let claimed = if named { link.claim(&file) } else { lock::claim(&file) };
        if !claimed.map_err(io())? {
            return Err(CreateError::Contended { path });
        }
        Ok(Part { file, path, link, named })
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// How much the file can grow; `None` if it does not say.
    pub(crate) fn room() -> Option<u64> {
        file::room(Path::new(file::DIRECTORY))
    }

    /// Lets others find it by its name, for as long as the link is there.
    pub(crate) fn show(self) -> Result<Link, CreateError> {
        let Part { file, path, mut link, named } = self;
        if !named {
            file::link(&file, &path).map_err(Unusable::io(&path))?;
        }
        link.keep(file);
        Ok(link)
    }

    /// The file of this name and identity, which a live job has shown.
    pub(crate) fn find(name: &str, identity: Identity) -> Result<File, Unusable> {
        let path = file::path(Path::new(file::DIRECTORY), name)?;
        let gone = || Unusable::io(&path)(io::Error::from(io::ErrorKind::NotFound));
        let file = file::existing(&path)?.ok_or_else(gone)?;
        if Identity::of(&file).map_err(Unusable::io(&path))? == identity { Ok(file) } else { Err(gone()) }
    }
}
