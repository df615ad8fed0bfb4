//! Opening the segment that another process has created.

use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Instant;

use super::file::{self, Unusable};
use super::lock::{self, Holder};
use super::signature::{IsSegment, preamble};
use crate::sys::memory::headroom::Headroom;
use crate::sys::memory::mapping::Mapping;
use crate::sys::memory::rlimit;
use crate::sys::wait::progress;
use crate::tuning::{OPEN_FIRST_PAUSE, OPEN_LONGEST_PAUSE};

/// What the last attempt found under the name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LastSeen {
    Nothing,
    Stale,
}

/// Why a segment could not be opened.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenError<E> {
    /// No live segment before the deadline.
    #[error("{}: {}", path.display(), match last {
        LastSeen::Nothing => "no such segment has appeared",
        LastSeen::Stale => "only what a job that has ended left behind is there",
    })]
    TimedOut { path: PathBuf, last: LastSeen },
    /// The program did not want to wait any longer.
    #[error("{}: no such segment had appeared when this rank was interrupted", path.display())]
    Interrupted { path: PathBuf },
    /// A file without a signature.
    #[error("{} is a file of another program; use another name, or remove it", path.display())]
    Foreign { path: PathBuf },
    /// A limit forbids to map it.
    #[error("{requested} bytes are more than the {} that {} leaves", headroom.bytes, headroom.limit)]
    Memory { requested: usize, headroom: Headroom },
    /// `validate` has refused it.
    #[error("the segment was refused")]
    Rejected(E),
    #[error(transparent)]
    Unusable(#[from] Unusable),
}

/// Waits until there is a live segment of a name, and maps it.
///
/// `validate` receives the segment's first bytes, at most [`PREAMBLE`](super::signature::PREAMBLE), and its length.
pub(crate) fn open<E>(
    name: &str,
    is_segment: IsSegment,
    mut validate: impl FnMut(&[u8], u64) -> Result<(), E>,
    deadline: Option<Instant>,
    interrupt: Option<fn() -> bool>,
) -> Result<Mapping, OpenError<E>> {
    let path = file::path(Path::new(file::DIRECTORY), name)?;
    let mut pause = OPEN_FIRST_PAUSE;
    loop {
        let last = match try_open(&path, is_segment, &mut validate)? {
            Ok(mapping) => return Ok(mapping),
            Err(last) => last,
        };
        let remaining = deadline.map_or(pause, |deadline| deadline.saturating_duration_since(Instant::now()));
        if remaining.is_zero() {
            return Err(OpenError::TimedOut { path, last });
        }
        progress::go_on();
        thread::sleep(pause.min(remaining));
        if interrupt.is_some_and(|is_interrupted| is_interrupted()) {
            return Err(OpenError::Interrupted { path });
        }
        pause = (2 * pause).min(OPEN_LONGEST_PAUSE);
    }
}

/// One attempt: the segment, or what the name refers to instead.
fn try_open<E>(
    path: &Path,
    is_segment: IsSegment,
    validate: &mut impl FnMut(&[u8], u64) -> Result<(), E>,
) -> Result<Result<Mapping, LastSeen>, OpenError<E>> {
    let io = Unusable::io(path);
    let Some(kept) = file::open_existing(path)? else { return Ok(Err(LastSeen::Nothing)) };
    let file = kept.open().map_err(&io)?;
    let live = lock::holder(file).map_err(&io)? == Holder::Job;
    let bytes = preamble(file).map_err(&io)?;
    if !live {
        // The next rank 0 removes a stale segment, and nothing else.
        return if is_segment(&bytes) {
            Ok(Err(LastSeen::Stale))
        } else {
            Err(OpenError::Foreign { path: path.to_owned() })
        };
    }
    let len = file.metadata().map_err(&io)?.len();
    validate(&bytes, len).map_err(OpenError::Rejected)?;
    let len = usize::try_from(len).map_err(|_| io(io::Error::from_raw_os_error(libc::EFBIG)))?;
    if let Some(headroom) = rlimit::refuses(len as u64, 0) {
        return Err(OpenError::Memory { requested: len, headroom });
    }
    Ok(Ok(Mapping::of(file, len).map_err(&io)?))
}
