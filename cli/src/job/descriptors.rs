//! The limit on open files. The launcher has one or two open for each rank, so it raises its own; the ranks get the user's.

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

const LIMIT: Resource = Resource::RLIMIT_NOFILE;

/// Raises this process's limit as far as the system lets it. Returns the limit before, for [`restore`]; `None` if it is as before.
pub(crate) fn raise() -> Option<u64> {
    let (soft, hard) = getrlimit(LIMIT).ok()?;
    // If it is refused, the start of the rank that is one too many fails, and says so.
    (soft < hard && setrlimit(LIMIT, hard, hard).is_ok()).then_some(soft)
}

/// Runs in a rank before exec, which preserves the limit.
pub(crate) fn restore(soft: u64) -> Result<()> {
    let (_, hard) = getrlimit(LIMIT).context("cannot read the limit on open files")?;
    setrlimit(LIMIT, soft, hard).context("cannot set the limit on open files")
}
