//! Finding the segment of a job that another process has made.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use super::file::{self, Unusable};
use super::lock::{self, Holder};
use super::signature::{IsSegment, preamble};
use crate::sys::memory::headroom::Headroom;
use crate::sys::memory::mapping::Mapping;
use crate::sys::memory::rlimit;

/// The pauses of a rank that waits for a name to appear.
const FIRST_PAUSE: Duration = Duration::from_micros(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// What a rank that joins has seen last under the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastSeen {
    Nothing,
    Stale,
}

/// Why a segment could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError<E> {
    /// No live segment in time.
    #[error("{}: {}", path.display(), match last {
        LastSeen::Nothing => "no such segment has appeared",
        LastSeen::Stale => "only what a job that has ended left behind is there",
    })]
    TimedOut { path: PathBuf, last: LastSeen },
    /// A file that no job has left.
    #[error("{} is a file of another program; use another name, or remove it", path.display())]
    Foreign { path: PathBuf },
    /// A limit forbids to map it.
    #[error("{requested} bytes are more than the {} that {} leaves", left.bytes, left.limit)]
    Memory { requested: usize, left: Headroom },
    /// The segment is not what was expected.
    #[error("the segment was refused")]
    Rejected(E),
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// Maps the segment of a name as soon as there is a live one.
///
/// `validate` is given the segment's first bytes, at most [`PREAMBLE`](super::signature::PREAMBLE), and its length.
pub(crate) fn open<E>(
    name: &str,
    is_segment: IsSegment,
    mut validate: impl FnMut(&[u8], u64) -> Result<(), E>,
    deadline: Option<Instant>,
) -> Result<Mapping, OpenError<E>> {
    let path = file::path(Path::new(file::DIRECTORY), name)?;
    let mut pause = FIRST_PAUSE;
    loop {
        let last = match look(&path, is_segment, &mut validate)? {
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
    is_segment: IsSegment,
    validate: &mut impl FnMut(&[u8], u64) -> Result<(), E>,
) -> Result<Result<Mapping, LastSeen>, OpenError<E>> {
    let io = Unusable::io(path);
    let Some(file) = file::existing(path)? else { return Ok(Err(LastSeen::Nothing)) };
    let live = lock::holder(&file).map_err(&io)? == Holder::Job;
    let bytes = preamble(&file).map_err(&io)?;
    if !live {
        // The next rank 0 removes what a job has left, and nothing else.
        return if is_segment(&bytes) {
            Ok(Err(LastSeen::Stale))
        } else {
            Err(OpenError::Foreign { path: path.to_owned() })
        };
    }
    let len = file.metadata().map_err(&io)?.len();
    validate(&bytes, len).map_err(OpenError::Rejected)?;
    let len = usize::try_from(len).map_err(|_| io(io::Error::from_raw_os_error(libc::EFBIG)))?;
    if let Some(left) = rlimit::refuses(len as u64, 0) {
        return Err(OpenError::Memory { requested: len, left });
    }
    Ok(Ok(Mapping::of(&file, len).map_err(&io)?))
}
