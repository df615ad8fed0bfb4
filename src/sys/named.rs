//! The named control segment: how the ranks of a job meet.
//!
//! Rank 0 makes the file without a name, locks it, allocates, initialises, and only then gives it its name:
//!
//! ```text
//!   rank 0:   nameless file ─ lock ─ allocate ─ map ─ initialise ─ link ─ close ┄┄ all have joined ─ unlink
//!   others:   no such name ┄┄ (stale: not locked) ┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄┄ open ─ locked? ─ validate ─ map
//! ```
//!
//! The lock is held by rank 0's mapping. So a locked file is a live job, and one that is not locked is what a dead job
//! has left: the next rank 0 of that name removes it, the others wait for the next one.

mod file;
pub(crate) mod leftovers;
mod lock;
mod part;
#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

pub(crate) use self::file::{Identity, Unusable, allocate};
use self::lock::Holder;
pub(crate) use self::part::{PREFIX, Part};
use super::fork::ForkGuard;
use super::mapping::Mapping;
use super::memory;

/// How many of a segment's first bytes can be seen before it is mapped.
pub(crate) const PREAMBLE: usize = 256;

/// How many of them are the magic number, which is written last.
const MAGIC: usize = 8;

/// How often a name is tried that others keep taking or removing, and the pause between: a second in all.
const ATTEMPTS: u32 = 1000;
const PAUSE: Duration = Duration::from_millis(1);

/// The pauses of a rank that waits for a name to appear.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

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
    /// The name was taken and given up again all the time.
    #[error("others kept taking and removing {}", path.display())]
    Contended { path: PathBuf },
    /// A file that no job has left, and that is not removed therefore.
    #[error("{} is a file of another program; use another name, or remove it", path.display())]
    Foreign { path: PathBuf },
    /// The control group's limit forbids it. Nothing was allocated.
    #[error("{requested} bytes are more than the {available} that the memory limit leaves")]
    Memory { requested: usize, available: u64 },
    /// The file system has no room.
    #[error("no room for {requested} bytes in {}: {source}", directory.display())]
    NoSpace { requested: usize, directory: PathBuf, source: io::Error },
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// Makes the segment of a name.
///
/// `init` writes the header. It may run twice, each time on zeroed memory, where the system forbids the first way. In
/// the second way the others may see the segment half-made: the magic number is written last, and who joins reads it
/// again, with Acquire, after mapping.
///
/// A live job under this name is an error; what a dead one has left is removed.
///
/// `ours` tells by the first bytes of a file whether a job has made it.
pub(crate) fn create(
    name: &str,
    len: usize,
    ours: impl Fn(&[u8]) -> bool,
    init: impl FnMut(&Mapping),
) -> Result<Created, CreateError> {
    create_in(Path::new(file::DIRECTORY), name, len, ours, init, Way::Nameless)
}

/// Two ways to make a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Without a name at first. Where this fails, the other way is tried.
    Nameless,
    /// Under its name from the beginning.
    Exclusive,
}

fn create_in(
    directory: &Path,
    name: &str,
    len: usize,
    ours: impl Fn(&[u8]) -> bool,
    mut init: impl FnMut(&Mapping),
    way: Way,
) -> Result<Created, CreateError> {
    let path = file::path(directory, name)?;
    if let Some(available) = memory::available().filter(|available| *available < len as u64) {
        return Err(CreateError::Memory { requested: len, available });
    }
    let mut reclaimed = clear(&path, &ours)?;
    part::sweep(directory, &path);
    if way == Way::Nameless
        && let Some(created) = create_nameless(directory, &path, len, &ours, &mut init, &mut reclaimed)?
    {
        return Ok(created);
    }
    create_exclusive(&path, len, &ours, &mut init, &mut reclaimed)
}

/// None: this way is not available here.
fn create_nameless(
    directory: &Path,
    path: &Path,
    len: usize,
    ours: &impl Fn(&[u8]) -> bool,
    init: &mut impl FnMut(&Mapping),
    reclaimed: &mut bool,
) -> Result<Option<Created>, CreateError> {
    let Ok(file) = file::nameless(directory) else { return Ok(None) };
    if !lock::claim(&file).map_err(Unusable::io(path))? {
        return Ok(None);
    }
    let mapping = fill(&file, path, len, init)?;
    let mut link = Link::new(&file, path)?;
    for _ in 0..ATTEMPTS {
        match file::link(&file, path) {
            Ok(()) => {
                link.keep(file);
                return Ok(Some(Created { link, mapping, reclaimed: *reclaimed }));
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => *reclaimed |= clear(path, ours)?,
            Err(_) => return Ok(None),
        }
    }
    Err(CreateError::Contended { path: path.to_owned() })
}

fn create_exclusive(
    path: &Path,
    len: usize,
    ours: &impl Fn(&[u8]) -> bool,
    init: &mut impl FnMut(&Mapping),
    reclaimed: &mut bool,
) -> Result<Created, CreateError> {
    for _ in 0..ATTEMPTS {
        let file = match file::exclusive(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                *reclaimed |= clear(path, ours)?;
                continue;
            }
            Err(error) => return Err(Unusable::io(path)(error).into()),
        };
        let mut link = Link::new(&file, path)?;
        if link.claim(&file).map_err(Unusable::io(path))? {
            let mapping = fill(&file, path, len, init)?;
            link.keep(file);
            return Ok(Created { link, mapping, reclaimed: *reclaimed });
        }
    }
    Err(CreateError::Contended { path: path.to_owned() })
}

/// Allocates, maps and initialises.
fn fill(file: &File, path: &Path, len: usize, init: &mut impl FnMut(&Mapping)) -> Result<Mapping, CreateError> {
    file::allocate(file, 0..len).map_err(|source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            let directory = path.parent().unwrap_or(path).to_owned();
            CreateError::NoSpace { requested: len, directory, source }
        }
        _ => Unusable::io(path)(source).into(),
    })?;
    let mapping = Mapping::of(file, len).map_err(Unusable::io(path))?;
    init(&mapping);
    Ok(mapping)
}

/// Removes what a dead job has left under a name. True: there was something.
fn clear(path: &Path, ours: &impl Fn(&[u8]) -> bool) -> Result<bool, CreateError> {
    for _ in 0..ATTEMPTS {
        let Some(file) = file::existing(path)? else { return Ok(false) };
        let io = Unusable::io(path);
        if lock::reclaim(&file).map_err(&io)? {
            let bytes = preamble(&file).map_err(&io)?;
            if !made_by_a_job(&bytes, ours) {
                return Err(CreateError::Foreign { path: path.to_owned() });
            }
            if remove(path, &file).map_err(&io)? {
                return Ok(true);
            }
        } else if lock::holder(&file).map_err(&io)? == Holder::Job {
            return Err(CreateError::Live { preamble: preamble(&file).map_err(&io)? });
        } else {
            thread::sleep(PAUSE);
        }
    }
    Err(CreateError::Contended { path: path.to_owned() })
}

/// Removes a file, which must be locked, by its name. False: the name is not this file's any more, since whoever had
/// the lock before has removed it, and may have put another in its place.
fn remove(path: &Path, file: &File) -> io::Result<bool> {
    let there = Identity::at(path)? == Some(Identity::of(file)?);
    if there {
        fs::remove_file(path)?;
    }
    Ok(there)
}

/// Whether a job has made the file that begins with these bytes. One that was killed before it wrote its magic number
/// has left zeros there, or nothing.
fn made_by_a_job(bytes: &[u8], ours: &impl Fn(&[u8]) -> bool) -> bool {
    bytes.iter().take(MAGIC).all(|byte| *byte == 0) || ours(bytes)
}

/// The first bytes of a segment; fewer if it is shorter.
fn preamble(file: &File) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; PREAMBLE];
    let mut len = 0;
    while len < PREAMBLE {
        match file.read_at(&mut bytes[len..], len as u64) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

/// The name of a segment that this process has made. Removed on drop, unless it was before.
#[derive(Debug)]
pub(crate) struct Link {
    path: PathBuf,
    identity: Identity,
    guard: ForkGuard,
    linked: bool,
    /// Elsewhere a mapping does not keep the lock.
    #[cfg(not(target_os = "linux"))]
    lock: Option<File>,
}

impl Link {
    fn new(file: &File, path: &Path) -> Result<Self, Unusable> {
        let io = Unusable::io(path);
        Ok(Link {
            path: path.to_owned(),
            identity: Identity::of(file).map_err(&io)?,
            guard: ForkGuard::new().map_err(&io)?,
            linked: false,
            #[cfg(not(target_os = "linux"))]
            lock: None,
        })
    }

    fn keep(&mut self, file: File) {
        self.linked = true;
        #[cfg(target_os = "linux")]
        drop(file);
        #[cfg(not(target_os = "linux"))]
        {
            self.lock = Some(file);
        }
    }

    /// Locks a new file that has its name already. False: it is lost. Until it is locked, another rank 0 may take it
    /// for a stale one and remove it.
    fn claim(&mut self, file: &File) -> io::Result<bool> {
        self.linked = lock::claim(file)? && self.is_there()?;
        Ok(self.linked)
    }

    /// Whether the name still refers to this segment.
    fn is_there(&self) -> io::Result<bool> {
        Ok(Identity::at(&self.path)? == Some(self.identity))
    }

    /// Frees the name, for another job to use. The segment lives on for those who have mapped it.
    ///
    /// Must come before the mapping is dropped: without the lock, another job may take the name at any moment.
    pub(crate) fn unlink(&mut self) -> io::Result<()> {
        let linked = std::mem::replace(&mut self.linked, false);
        if linked && !self.guard.forked() && self.is_there()? { fs::remove_file(&self.path) } else { Ok(()) }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // There is nobody to tell; the next job of this name removes what is left.
        let _ = self.unlink();
    }
}

/// What the first bytes of a live segment say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It can be joined.
    Ready,
    /// It is not finished yet.
    HalfMade,
}

/// What a rank that joins has seen last under the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastSeen {
    Nothing,
    Stale,
    HalfMade,
}

/// Why a segment could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError<E> {
    /// No live segment in time.
    #[error("{}: {}", path.display(), match last {
        LastSeen::Nothing => "no such segment has appeared",
        LastSeen::Stale => "only what a job that has ended left behind is there",
        LastSeen::HalfMade => "the segment was never finished",
    })]
    TimedOut { path: PathBuf, last: LastSeen },
    /// A file that no job has left.
    #[error("{} is a file of another program; use another name, or remove it", path.display())]
    Foreign { path: PathBuf },
    /// The segment is not what was expected.
    #[error("the segment was refused")]
    Rejected(E),
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// Maps the segment of a name as soon as there is a live one.
///
/// `ours` tells by the first bytes of a file whether a job has made it. `validate` is given the segment's first bytes,
/// at most [`PREAMBLE`], and its length.
pub(crate) fn open<E>(
    name: &str,
    ours: impl Fn(&[u8]) -> bool,
    validate: impl FnMut(&[u8], u64) -> Result<Verdict, E>,
    deadline: Option<Instant>,
) -> Result<Mapping, OpenError<E>> {
    open_in(Path::new(file::DIRECTORY), name, ours, validate, deadline)
}

fn open_in<E>(
    directory: &Path,
    name: &str,
    ours: impl Fn(&[u8]) -> bool,
    mut validate: impl FnMut(&[u8], u64) -> Result<Verdict, E>,
    deadline: Option<Instant>,
) -> Result<Mapping, OpenError<E>> {
    let path = file::path(directory, name)?;
    let mut pause = FIRST_PAUSE;
    loop {
        let last = match look(&path, &ours, &mut validate)? {
            Ok(mapping) => return Ok(mapping),
            Err(last) => last,
        };
        let left = deadline.map_or(pause, |deadline| deadline.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Err(OpenError::TimedOut { path, last });
        }
        thread::sleep(pause.min(left));
        pause = (2 * pause).min(LONGEST_PAUSE);
    }
}

/// One look at the name: the segment, or what is there instead.
fn look<E>(
    path: &Path,
    ours: &impl Fn(&[u8]) -> bool,
    validate: &mut impl FnMut(&[u8], u64) -> Result<Verdict, E>,
) -> Result<Result<Mapping, LastSeen>, OpenError<E>> {
    let io = Unusable::io(path);
    let Some(file) = file::existing(path)? else { return Ok(Err(LastSeen::Nothing)) };
    let live = lock::holder(&file).map_err(&io)? == Holder::Job;
    let bytes = preamble(&file).map_err(&io)?;
    if !live {
        // The next rank 0 removes what a job has left, and nothing else.
        return if made_by_a_job(&bytes, ours) {
            Ok(Err(LastSeen::Stale))
        } else {
            Err(OpenError::Foreign { path: path.to_owned() })
        };
    }
    // The length last: it is that of the finished segment if the bytes are.
    let len = file.metadata().map_err(&io)?.len();
    match validate(&bytes, len).map_err(OpenError::Rejected)? {
        Verdict::HalfMade => Ok(Err(LastSeen::HalfMade)),
        Verdict::Ready => {
            let len = usize::try_from(len).map_err(|_| io(io::Error::from_raw_os_error(libc::EFBIG)))?;
            Ok(Ok(Mapping::of(&file, len).map_err(&io)?))
        }
    }
}
