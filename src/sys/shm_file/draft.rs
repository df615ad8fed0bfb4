//! A file that is not published yet: it gets its name when it is complete.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::file;
use super::link::Link;
use super::{lock, names};
use crate::codes::codes;
use crate::sys::descriptors::beyond_standard;
use crate::sys::file_size::without_sigxfsz;
use crate::sys::kept_file::KeptFile;
use crate::sys::random;

/// Attempts at a private name, which contains a random number.
const ATTEMPTS: u32 = 10;

codes! {
    /// How a file is created, in the order of preference.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub(crate) enum CreateMode: u8 {
        /// O_TMPFILE: unlinked, until linkat gives it a name.
        Tmpfile,
        /// O_EXCL under a private name, from which it is hard-linked. For systems without O_TMPFILE or linkat.
        Excl,
    }
}

/// A new file, which this process has locked and signed. It is removed unless it is published.
///
/// | mode | name until it is published | left behind by a kill |
/// | --- | --- | --- |
/// | [`CreateMode::Tmpfile`] | none | nothing |
/// | [`CreateMode::Excl`] | `{job}_new_{random number}` | the signed file; an empty one if its creator was killed before signing |
pub(super) struct Draft {
    /// The private name. Dropped before the file, which holds the lock.
    private: Option<Link>,
    public: Link,
    file: KeptFile,
}

impl Draft {
    /// A file with nothing but its signature, at offset `at`. It is locked before it is signed, so a signature without a
    /// lock means that the creator has ended.
    pub(super) fn new(
        directory: &Path,
        job: &str,
        mode: CreateMode,
        signature: &[u8],
        at: u64,
    ) -> io::Result<Self> {
        let (file, private) = match mode {
            CreateMode::Tmpfile => (KeptFile::not_in_children(|| file::create_tmpfile(directory))?, None),
            CreateMode::Excl => {
                let (file, link) = create_private(directory, job)?;
                (file, Some(link))
            }
        };
        let public = Link::new(file.open()?)?;
        let draft = Draft { private, public, file };
        let file = draft.file()?;
        if !lock::claim(file)? {
            return Err(io::Error::from_raw_os_error(libc::EWOULDBLOCK));
        }
        without_sigxfsz(|| file.write_all_at(signature, at))?;
        Ok(draft)
    }

    pub(super) fn file(&self) -> io::Result<&File> {
        self.file.open()
    }

    /// Gives the complete file its name, if that is free.
    pub(super) fn publish(&mut self, path: &Path) -> io::Result<()> {
        match self.private.as_ref().and_then(Link::path) {
            None => file::link(self.file()?, path)?,
            Some(private) => fs::hard_link(private, path)?,
        }
        self.public.set_path(path);
        Ok(())
    }

    /// Closes the file, which is mapped, and removes its private name.
    pub(super) fn close(self) -> Link {
        let Draft { private, mut public, file } = self;
        drop(private);
        public.close(file);
        public
    }
}

/// Creates an empty file under a private name.
fn create_private(directory: &Path, job: &str) -> io::Result<(KeptFile, Link)> {
    let mut last = io::Error::from_raw_os_error(libc::EEXIST);
    for _ in 0..ATTEMPTS {
        let name = names::draft(job, random::number());
        let path = file::path_of(directory, &name);
        // The file was just created with O_EXCL, so the name is still its own.
        let remove = |_: &io::Error| drop(fs::remove_file(&path));
        let create = || beyond_standard(file::create_excl(&path)?).inspect_err(remove);
        match KeptFile::not_in_children(create) {
            Ok(file) => {
                let mut link = file.open().and_then(Link::new).inspect_err(remove)?;
                link.set_path(&path);
                return Ok((file, link));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}
