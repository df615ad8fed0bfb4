//! The named control segment: how the ranks of a job meet.
//!
//! Rank 0 makes the file where nobody finds it: it locks it, signs it, fills it, and only then gives it its name.
//!
//! ```text
//!   rank 0:   new file ─ lock ─ sign ─ allocate ─ map ─ initialise ─ link ─ close ┄┄ all have joined ─ unlink
//!   others:   no such name ┄┄ (stale: signed, not locked) ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ open ─ signed? locked? ─ validate ─ map
//! ```
//!
//! The lock is held by rank 0's mapping. So a signed file that is locked is a live job, and one that is not is what a
//! dead job has left: the next rank 0 of that name removes it, the others wait for the next one. A file without a
//! [signature] is another program's, and stays as it is.

mod draft;
mod file;
mod link;
mod lock;
mod names;
mod open;
pub(crate) mod orphans;
mod part;
mod signature;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

pub(crate) use self::draft::CreateMode;
use self::draft::Draft;
pub(crate) use self::file::{Identity, Unusable, allocate};
pub(crate) use self::link::Link;
use self::lock::Holder;
pub(crate) use self::names::{MAX_NAME, is_name, name_rule};
pub(crate) use self::open::{OpenError, open};
pub(crate) use self::part::Part;
use self::signature::preamble;
pub(crate) use self::signature::{IsSegment, Signature};
use super::memory::headroom::{self, Headroom};
use super::memory::mapping::Mapping;
use super::memory::rlimit;
use crate::codes::Codes;

/// How often a name is tried that others keep taking or removing, and the pause between: a second in all.
const ATTEMPTS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// A segment that this process has made.
#[derive(Debug)]
pub(crate) struct Created {
    /// Its name. Before the mapping, so that it goes first: the name belongs to whoever holds the lock.
    pub(crate) link: Link,
    /// The segment, and with it the lock.
    pub(crate) mapping: Mapping,
    /// Whether what a dead job had left under this name was removed.
    pub(crate) reclaimed: bool,
}

/// Why a segment could not be made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CreateError {
    /// A live job has the name; the first bytes of its segment.
    #[error("a live job has this name")]
    Live { preamble: Vec<u8> },
    /// The name was taken and given up again all the time, or what is left under it is locked, as no job locks it.
    #[error("others hold {}, or keep taking and removing it", path.display())]
    Contended { path: PathBuf },
    /// A file that no job has left, and that is not removed therefore.
    #[error("{} is a file of another program; use another name, or remove it", path.display())]
    Foreign { path: PathBuf },
    /// A limit forbids it. Nothing was allocated.
    #[error("{requested} bytes are more than the {} that {} leaves", left.bytes, left.limit)]
    Memory { requested: usize, left: Headroom },
    /// The file system has no room.
    #[error("no room for {requested} bytes in {}: {source}", directory.display())]
    NoSpace { requested: usize, directory: PathBuf, source: io::Error },
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// A segment that is to be made.
#[derive(Clone, Copy)]
pub(crate) struct CreateRequest<'a> {
    /// The job's name.
    pub(crate) name: &'a str,
    /// In bytes.
    pub(crate) len: usize,
    /// What it begins with, by which `is_segment` tells it from other programs' files.
    pub(crate) signature: &'a [u8],
    pub(crate) is_segment: IsSegment,
}

/// Makes the segment of a name.
///
/// `init` fills it, from the signature on. It may run twice, each time on memory that is zero but for the signature,
/// where the system forbids the first [`CreateMode`].
///
/// A live job under this name is an error; what a dead one has left is removed.
pub(crate) fn create(wanted: CreateRequest<'_>, init: impl FnMut(&Mapping)) -> Result<Created, CreateError> {
    create_in(Path::new(file::DIRECTORY), wanted, init, CreateMode::ALL)
}

fn create_in(
    directory: &Path,
    wanted: CreateRequest<'_>,
    mut init: impl FnMut(&Mapping),
    ways: &[CreateMode],
) -> Result<Created, CreateError> {
    let path = file::path(directory, wanted.name)?;
    let requested = wanted.len;
    let too_large = headroom::min_headroom().filter(|left| left.bytes < requested as u64);
    if let Some(left) = too_large.or_else(|| rlimit::refuses(requested as u64, 0)) {
        return Err(CreateError::Memory { requested, left });
    }
    let mut reclaimed = clear(&path, wanted.is_segment)?;
    reclaimed |= part::sweep(directory, wanted.name, wanted.is_segment);
    let mut last = io::Error::from_raw_os_error(libc::ENOSYS);
    for way in ways {
        match make(&path, wanted, &mut init, *way) {
            Ok(made) => return Ok(Created { reclaimed: reclaimed | made.reclaimed, ..made }),
            Err(Failure::Step(error)) => last = error,
            Err(Failure::Final(error)) => return Err(error),
        }
    }
    Err(not_filled(&path, wanted.len)(last))
}

/// Why a file was not made in one of the ways.
enum Failure {
    /// A step is not possible here. There may be another way.
    Step(io::Error),
    /// The other way would end like this too.
    Final(CreateError),
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Failure::Step(error)
    }
}

impl From<CreateError> for Failure {
    fn from(error: CreateError) -> Self {
        Failure::Final(error)
    }
}

fn make(
    path: &Path,
    wanted: CreateRequest<'_>,
    init: &mut impl FnMut(&Mapping),
    way: CreateMode,
) -> Result<Created, Failure> {
    let directory = path.parent().unwrap_or(path);
    let mut draft = Draft::new(directory, wanted.name, way, wanted.signature, 0)?;
    let mapping = fill(draft.file(), path, wanted.len, init)?;
    let mut reclaimed = false;
    for _ in 0..ATTEMPTS {
        match draft.publish(path) {
            Ok(()) => return Ok(Created { link: draft.close(), mapping, reclaimed }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                reclaimed |= clear(path, wanted.is_segment)?;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Err(CreateError::Contended { path: path.to_owned() }.into())
}

/// Allocates, maps and initialises.
fn fill(
    file: &std::fs::File,
    path: &Path,
    len: usize,
    init: &mut impl FnMut(&Mapping),
) -> Result<Mapping, CreateError> {
    allocate(file, 0..len).map_err(not_filled(path, len))?;
    let mapping = Mapping::of(file, len).map_err(Unusable::io(path))?;
    init(&mapping);
    Ok(mapping)
}

/// What an error of the system means that a file of this length has met.
fn not_filled(path: &Path, len: usize) -> impl Fn(io::Error) -> CreateError {
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            let directory = path.parent().unwrap_or(path).to_owned();
            CreateError::NoSpace { requested: len, directory, source }
        }
        _ => match rlimit::file_size().filter(|_| source.raw_os_error() == Some(libc::EFBIG)) {
            Some(left) => CreateError::Memory { requested: len, left },
            None => Unusable::io(path)(source).into(),
        },
    }
}

/// Removes what a dead job has left under a name. True: there was something. Whatever else is there is an error, and
/// stays.
fn clear(path: &Path, is_segment: IsSegment) -> Result<bool, CreateError> {
    for _ in 0..ATTEMPTS {
        let Some(file) = file::existing(path)? else { return Ok(false) };
        let io = Unusable::io(path);
        let bytes = preamble(&file).map_err(&io)?;
        let holder = lock::holder(&file).map_err(&io)?;
        if holder == Holder::Job {
            return Err(CreateError::Live { preamble: bytes });
        }
        if !is_segment(&bytes) {
            return Err(CreateError::Foreign { path: path.to_owned() });
        }
        if lock::reclaim(&file).map_err(&io)? {
            let identity = Identity::of(&file).map_err(&io)?;
            if identity.remove(path).map_err(&io)? {
                return Ok(true);
            }
        } else {
            thread::sleep(PAUSE);
        }
    }
    Err(CreateError::Contended { path: path.to_owned() })
}
