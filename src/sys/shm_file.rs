//! The named shared-memory file through which the ranks of a job join.
//!
//! Rank 0 creates the file without its name (O_TMPFILE), locks, signs and fills it, and links it to its name last.
//!
//! ```text
//!   rank 0:   new file ─ lock ─ sign ─ allocate ─ map ─ initialise ─ link ─ close ┄┄ all have joined ─ unlink
//!   others:   no such name ┄┄ (stale: signed, not locked) ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ open ─ signed? locked? ─ validate ─ map
//! ```
//!
//! The lock is an open file description lock, which rank 0's mapping keeps alive. So a signed and locked file belongs to a
//! live job. A signed file without a lock is stale: the next rank 0 of that name removes it, and other ranks wait for the
//! new one. A file without a [signature] belongs to another program, and is never changed.

mod draft;
mod file;
mod identity;
mod link;
mod lock;
mod names;
mod open;
pub(crate) mod orphans;
mod region_file;
mod signature;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

pub(crate) use self::draft::CreateMode;
use self::draft::Draft;
pub(crate) use self::file::{Unusable, allocate};
pub(crate) use self::identity::Identity;
pub(crate) use self::link::Link;
use self::lock::Holder;
pub(crate) use self::names::{MAX_NAME, is_name, name_rule};
pub(crate) use self::open::{OpenError, open};
pub(crate) use self::region_file::RegionFile;
use self::signature::preamble;
pub(crate) use self::signature::{IsSegment, Signature};
use super::memory::headroom::{self, Headroom};
use super::memory::mapping::Mapping;
use super::memory::rlimit;
use crate::codes::Codes;

/// Attempts at a name that other processes keep taking or removing, and the pause between two: a second in all.
const ATTEMPTS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// A segment that this process has created.
#[derive(Debug)]
pub(crate) struct Created {
    /// The name. Dropped before the mapping, which holds the lock: without the lock, another job may take the name.
    pub(crate) link: Link,
    /// The segment, and with it the lock.
    pub(crate) mapping: Mapping,
    /// Whether a stale file of this name was removed.
    pub(crate) reclaimed: bool,
}

/// Why a segment could not be created.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    /// A live job has the name; the first bytes of its segment.
    #[error("a live job has this name")]
    Live { preamble: Vec<u8> },
    /// Other processes kept taking and removing the name, or hold a lock on the stale file.
    #[error("others hold {}, or keep taking and removing it", path.display())]
    Contended { path: PathBuf },
    /// A file without a signature, which is not removed.
    #[error("{} is a file of another program; use another name, or remove it", path.display())]
    Foreign { path: PathBuf },
    /// A limit forbids it. Nothing was allocated.
    #[error("{requested} bytes are more than the {} that {} leaves", headroom.bytes, headroom.limit)]
    Memory { requested: usize, headroom: Headroom },
    /// The file system is full.
    #[error("no room for {requested} bytes in {}: {source}", directory.display())]
    NoSpace { requested: usize, directory: PathBuf, source: io::Error },
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// A segment to create.
#[derive(Clone, Copy)]
pub(crate) struct CreateRequest<'a> {
    /// The job's name.
    pub(crate) name: &'a str,
    /// In bytes.
    pub(crate) len: usize,
    /// The first bytes of the file, which `is_segment` recognises.
    pub(crate) signature: &'a [u8],
    pub(crate) is_segment: IsSegment,
}

/// Creates a segment and gives it its name.
///
/// `init` fills it behind the signature. It runs once for each [`CreateMode`] that is tried, on memory that is zero except
/// for the signature.
///
/// A live job of this name is an error; a stale file is removed.
pub(crate) fn create(request: CreateRequest<'_>, init: impl FnMut(&Mapping)) -> Result<Created, CreateError> {
    create_in(Path::new(file::DIRECTORY), request, init, CreateMode::ALL)
}

fn create_in(
    directory: &Path,
    request: CreateRequest<'_>,
    mut init: impl FnMut(&Mapping),
    modes: &[CreateMode],
) -> Result<Created, CreateError> {
    let path = file::path(directory, request.name)?;
    let requested = request.len;
    let too_large = headroom::min_headroom().filter(|headroom| headroom.bytes < requested as u64);
    if let Some(headroom) = too_large.or_else(|| rlimit::refuses(requested as u64, 0)) {
        return Err(CreateError::Memory { requested, headroom });
    }
    let mut reclaimed = remove_stale(&path, request.is_segment)?;
    reclaimed |= region_file::remove_orphans(directory, request.name, request.is_segment);
    let mut last = io::Error::from_raw_os_error(libc::ENOSYS);
    for mode in modes {
        match create_with(&path, request, &mut init, *mode) {
            Ok(created) => return Ok(Created { reclaimed: reclaimed | created.reclaimed, ..created }),
            Err(Failure::Mode(error)) => last = error,
            Err(Failure::Final(error)) => return Err(error),
        }
    }
    Err(not_filled(&path, request.len)(last))
}

/// Why a file was not created in one of the modes.
enum Failure {
    /// The mode may not be supported. Another one may be.
    Mode(io::Error),
    /// Another mode would fail in the same way.
    Final(CreateError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Mode(error)
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Self {
        Failure::Final(error)
    }
}

fn create_with(
    path: &Path,
    request: CreateRequest<'_>,
    init: &mut impl FnMut(&Mapping),
    mode: CreateMode,
) -> Result<Created, Failure> {
    let directory = path.parent().unwrap_or(path);
    let mut draft = Draft::new(directory, request.name, mode, request.signature, 0)?;
    let mapping = fill(draft.file()?, path, request, init)?;
    let mut reclaimed = false;
    for _ in 0..ATTEMPTS {
        match draft.publish(path) {
            Ok(()) => return Ok(Created { link: draft.close(), mapping, reclaimed }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                reclaimed |= remove_stale(path, request.is_segment)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(CreateError::Contended { path: path.to_owned() }.into())
}

/// Allocates what is behind the signature, which is never missing; maps, and initialises.
fn fill(
    file: &std::fs::File,
    path: &Path,
    CreateRequest { len, signature, .. }: CreateRequest<'_>,
    init: &mut impl FnMut(&Mapping),
) -> Result<Mapping, CreateError> {
    allocate(file, signature.len()..len).map_err(not_filled(path, len))?;
    let mapping = Mapping::of(file, len).map_err(Unusable::io(path))?;
    init(&mapping);
    Ok(mapping)
}

/// Classifies an error of growing a file to this length.
fn not_filled(path: &Path, len: usize) -> impl Fn(io::Error) -> CreateError {
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            let directory = path.parent().unwrap_or(path).to_owned();
            CreateError::NoSpace { requested: len, directory, source }
        }
        _ => match rlimit::file_size().filter(|_| source.raw_os_error() == Some(libc::EFBIG)) {
            Some(headroom) => CreateError::Memory { requested: len, headroom },
            None => Unusable::io(path)(source).into(),
        },
    }
}

/// Removes what a dead job has left under this name, if it is that. Any other file stays.
pub(crate) fn remove_leftover(name: &str, is_segment: IsSegment) {
    if let Ok(path) = file::path(Path::new(file::DIRECTORY), name) {
        // An error leaves it to `intranode clean`.
        let _ = remove_stale(&path, is_segment);
    }
}

/// Removes the stale file of a dead job, and returns whether there was one. Any other file is an error, and stays.
fn remove_stale(path: &Path, is_segment: IsSegment) -> Result<bool, CreateError> {
    for _ in 0..ATTEMPTS {
        let Some(kept) = file::open_existing(path)? else { return Ok(false) };
        let io = Unusable::io(path);
        let file = kept.open().map_err(&io)?;
        let bytes = preamble(file).map_err(&io)?;
        let holder = lock::holder(file).map_err(&io)?;
        if holder == Holder::Job {
            return Err(CreateError::Live { preamble: bytes });
        }
        if !is_segment(&bytes) {
            return Err(CreateError::Foreign { path: path.to_owned() });
        }
        if lock::reclaim(file).map_err(&io)? {
            let identity = Identity::of(file).map_err(&io)?;
            if identity.remove(path).map_err(&io)? {
                return Ok(true);
            }
        } else {
            thread::sleep(PAUSE);
        }
    }
    Err(CreateError::Contended { path: path.to_owned() })
}
