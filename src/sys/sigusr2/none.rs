//! Where there is no watcher that could answer.

use std::io;

/// Does nothing.
pub(crate) fn install() -> io::Result<()> {
    Ok(())
}
