//! The removal of files that a job's ranks have left.

use std::thread;
use std::time::{Duration, Instant};

use intranode::job::cleanup;

/// How long killed ranks may take to unmap their memory.
const TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Removes the leftovers of the job's ended processes. A file that is not provably the job's stays, whatever its name.
pub(crate) fn remove(name: &str) {
    for leftover in cleanup::find(&[name.to_owned()]).unwrap_or_default() {
        // `intranode clean` reports the error.
        let _ = leftover.remove();
    }
}

/// The same, after waiting for processes that are ending.
pub(crate) fn remove_when_unused(name: &str) {
    let deadline = Instant::now() + TIMEOUT;
    while cleanup::in_use(&[name.to_owned()]).unwrap_or(false) && Instant::now() < deadline {
        thread::sleep(POLL_INTERVAL);
    }
    remove(name);
}
