//! A file that is being made. Nobody finds it under the name that it is to have before it is finished.

use std::fs::{self, File};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::file;
use super::link::Link;
use super::{lock, names};
use crate::codes::codes;
use crate::sys::file_size::without_signal;

/// How often a private name is tried that is taken: it is chosen at random.
const ATTEMPTS: u32 = 10;

codes! {
    /// Two ways to make a file, in the order in which they are tried.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum CreateMode: u8 {
        /// Without a name at first.
        Tmpfile,
        /// Under a private name at first. It needs less of the system.
        Excl,
    }
}

/// A new file, which this process has locked and signed. It vanishes unless it is published.
///
/// | way | until it is published | what a kill leaves |
/// | --- | --- | --- |
/// | [`CreateMode::Tmpfile`] | it has no name | nothing |
/// | [`CreateMode::Excl`] | it has a private name, of the job's and a random number | that file, which proves itself; an empty one if its maker was killed before it signed |
pub(super) struct Draft {
    /// The private name. Before the file, so that it goes first: without the lock, it is nobody's.
    private: Option<Link>,
    public: Link,
    file: File,
}

impl Draft {
    /// An empty file but for its signature, which is written at this place. It is locked before it is signed, so who
    /// finds a signature and no lock knows that the maker has ended.
    pub(super) fn new(
        directory: &Path,
        job: &str,
        way: CreateMode,
        signature: &[u8],
        at: u64,
    ) -> io::Result<Self> {
        let (file, private) = match way {
            CreateMode::Tmpfile => (file::nameless(directory)?, None),
            CreateMode::Excl => {
                let (file, link) = private(directory, job)?;
                (file, Some(link))
            }
        };
        let public = Link::new(&file)?;
        let draft = Draft { private, public, file };
        if !lock::claim(&draft.file)? {
            return Err(io::Error::from_raw_os_error(libc::EWOULDBLOCK));
        }
        without_signal(|| draft.file.write_all_at(signature, at))?;
        Ok(draft)
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Gives the finished file its name, if that is free.
    pub(super) fn publish(&mut self, path: &Path) -> io::Result<()> {
        match self.private.as_ref().and_then(Link::path) {
            None => file::link(&self.file, path)?,
            Some(private) => fs::hard_link(private, path)?,
        }
        self.public.is_at(path);
        Ok(())
    }

    /// Closes the file, which is mapped. It has no other name any more than that under which it was published.
    pub(super) fn close(self) -> Link {
        let Draft { private, mut public, file } = self;
        drop(private);
        public.close(file);
        public
    }
}

/// A new, empty file under a name that nobody else looks for.
fn private(directory: &Path, job: &str) -> io::Result<(File, Link)> {
    let mut last = io::Error::from_raw_os_error(libc::EEXIST);
    for _ in 0..ATTEMPTS {
        let name = names::draft(job, RandomState::new().hash_one(0));
        let path = file::path_of(directory, &name);
        match file::exclusive(&path) {
            Ok(file) => {
                // Just made, so it can be no other.
                let no_link = |_: &io::Error| drop(fs::remove_file(&path));
                let mut link = Link::new(&file).inspect_err(no_link)?;
                link.is_at(&path);
                return Ok((file, link));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}
