//! Operations on files: create, open, link, remove, allocate.

use std::ffi::CString;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

#[cfg(target_os = "linux")]
use std::os::fd::AsRawFd;

use super::names;
use crate::sys::descriptors::beyond_standard;
use crate::sys::file_size::without_sigxfsz;
use crate::sys::kept_file::KeptFile;
use crate::sys::process;

/// The directory of all names. Other systems than Linux cannot lock shared-memory objects, so that a stale one could not be
/// recognised: there it is a directory of ordinary files.
#[cfg(target_os = "linux")]
pub(super) const DIRECTORY: &str = "/dev/shm";
#[cfg(not(target_os = "linux"))]
pub(super) const DIRECTORY: &str = "/tmp";

/// For the owner only.
const MODE: u32 = 0o600;

/// Why a name cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Unusable {
    #[error("the name must be {}", names::name_rule())]
    Name,
    #[error("{} belongs to user {uid}", path.display())]
    Foreign { path: PathBuf, uid: u32 },
    #[error("{} is not a regular file", path.display())]
    NotRegular { path: PathBuf },
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

impl Unusable {
    pub(super) fn io(path: &Path) -> impl Fn(io::Error) -> Unusable {
        move |source| Unusable::Io { path: path.to_owned(), source }
    }

    /// The system's error, if it is one.
    pub(crate) fn into_source(self) -> Option<io::Error> {
        match self {
            Unusable::Io { source, .. } => Some(source),
            _ => None,
        }
    }

    /// The system's error, or the errno that fits.
    pub(crate) fn into_io(self) -> io::Error {
        match self {
            Unusable::Io { source, .. } => source,
            Unusable::Name => io::Error::from_raw_os_error(libc::EINVAL),
            Unusable::Foreign { .. } => io::Error::from_raw_os_error(libc::EACCES),
            Unusable::NotRegular { .. } => io::Error::from_raw_os_error(libc::EEXIST),
        }
    }
}

/// The path of a job's name, which begins with '/' like any POSIX shared-memory name.
pub(super) fn path(directory: &Path, job: &str) -> Result<PathBuf, Unusable> {
    if names::is_name(job) { Ok(path_of(directory, job)) } else { Err(Unusable::Name) }
}

/// The path of a name that was derived from a job's.
pub(super) fn path_of(directory: &Path, name: &str) -> PathBuf {
    directory.join(name.trim_start_matches('/'))
}

/// A new unlinked file. It is deleted when it is closed unless it is linked.
#[cfg(target_os = "linux")]
pub(super) fn create_tmpfile(directory: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .mode(MODE)
        .custom_flags(libc::O_TMPFILE)
        .open(directory)
        .and_then(beyond_standard)
}

#[cfg(not(target_os = "linux"))]
pub(super) fn create_tmpfile(_directory: &Path) -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Links an unlinked file, if the name is free.
#[cfg(target_os = "linux")]
pub(super) fn link(file: &File, path: &Path) -> io::Result<()> {
    let target = CString::new(path.as_os_str().as_bytes())?;
    let link = |source: &CString, flags| {
        let (source, target) = (source.as_ptr(), target.as_ptr());
        // An empty source path means the descriptor itself.
        // SAFETY: I7: both paths end in NUL and outlive the call.
        let result = unsafe { libc::linkat(file.as_raw_fd(), source, libc::AT_FDCWD, target, flags) };
        if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    };
    let descriptor = CString::new(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    match link(&descriptor, libc::AT_SYMLINK_FOLLOW) {
        // Without /proc. AT_EMPTY_PATH needs CAP_DAC_READ_SEARCH, or Linux 6.10.
        Err(error) if error.kind() == io::ErrorKind::NotFound => link(&CString::default(), libc::AT_EMPTY_PATH),
        result => result,
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn link(_file: &File, _path: &Path) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// A new, empty file under a name that must be free.
pub(super) fn create_excl(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(MODE)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)
}

/// Opens the file of this name, if there is one. It must be a regular file of this user.
pub(super) fn open_existing(path: &Path) -> Result<Option<KeptFile>, Unusable> {
    // O_NONBLOCK: opening a fifo or a device must not block.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let open = || OpenOptions::new().read(true).write(true).custom_flags(flags).open(path);
    let file = match KeptFile::not_in_children(|| open().and_then(beyond_standard)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            // Prefer the more specific error.
            if let Ok(metadata) = fs::symlink_metadata(path) {
                check(path, &metadata)?;
            }
            return Err(Unusable::Io { path: path.to_owned(), source });
        }
    };
    check(path, &file.open().and_then(File::metadata).map_err(Unusable::io(path))?)?;
    Ok(Some(file))
}

pub(super) fn check(path: &Path, metadata: &Metadata) -> Result<(), Unusable> {
    let user = process::user();
    if !metadata.is_file() {
        Err(Unusable::NotRegular { path: path.to_owned() })
    } else if metadata.uid() != user {
        Err(Unusable::Foreign { path: path.to_owned(), uid: metadata.uid() })
    } else {
        Ok(())
    }
}

/// The free bytes of a directory's file system. None: it has no limit, or does not report it.
pub(super) fn free_space(directory: &Path) -> Option<u64> {
    let path = CString::new(directory.as_os_str().as_bytes()).ok()?;
    let mut statistics = MaybeUninit::<libc::statvfs>::uninit();
    // SAFETY: I7: the path ends in NUL; the call writes the whole structure, or fails.
    if unsafe { libc::statvfs(path.as_ptr(), statistics.as_mut_ptr()) } != 0 {
        return None;
    }
    // SAFETY: I7: the call has succeeded.
    let statistics = unsafe { statistics.assume_init() };
    // A tmpfs without a limit reports zero blocks.
    #[allow(clippy::unnecessary_cast, reason = "the types differ between systems")]
    let (all, free, size) =
        (statistics.f_blocks as u64, statistics.f_bavail as u64, statistics.f_frsize as u64);
    (all > 0).then(|| free.saturating_mul(size))
}

/// Allocates a range of a file. A store into a hole would raise SIGBUS when the memory is exhausted.
pub(crate) fn allocate(file: &File, range: Range<usize>) -> io::Result<()> {
    without_sigxfsz(|| fill(file, range))
}

#[cfg(target_os = "linux")]
fn fill(file: &File, range: Range<usize>) -> io::Result<()> {
    in_steps(range.len(), |offset, size| {
        let too_large = |_| io::Error::from_raw_os_error(libc::EFBIG);
        let (offset, size) =
            ((range.start + offset).try_into().map_err(too_large)?, size.try_into().map_err(too_large)?);
        // SAFETY: I7: the descriptor is open; no memory is involved.
        match unsafe { libc::posix_fallocate(file.as_raw_fd(), offset, size) } {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    })
}

/// Allocates in steps. Some kernels undo a step that a signal interrupts: steps shrink until they fit between two signals.
#[cfg(target_os = "linux")]
pub(super) fn in_steps(len: usize, mut allocate: impl FnMut(usize, usize) -> io::Result<()>) -> io::Result<()> {
    const LARGEST: usize = 16 << 20;
    const SMALLEST: usize = 64 << 10;
    let (mut done, mut step) = (0, LARGEST);
    while done < len {
        let size = step.min(len - done);
        match allocate(done, size) {
            Ok(()) => (done, step) = (done + size, (2 * step).min(LARGEST)),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => step = (step / 2).max(SMALLEST),
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes zeros.
#[cfg(not(target_os = "linux"))]
fn fill(file: &File, range: Range<usize>) -> io::Result<()> {
    use std::os::unix::fs::FileExt;
    let zeros = vec![0; 1 << 20];
    let mut done = range.start;
    while done < range.end {
        let size = zeros.len().min(range.end - done);
        file.write_all_at(&zeros[..size], done as u64)?;
        done += size;
    }
    Ok(())
}
