//! Systems without a watcher, which would write the report.

use std::io;

/// Does nothing.
pub(crate) fn install() -> io::Result<()> {
    Ok(())
}
