//! The files of a job that its ranks had no time to remove.

use std::thread;
use std::time::{Duration, Instant};

use intranode::job::cleanup;

/// How long killed ranks may take to unmap their memory.
const TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(1);

/// Removes what ended processes of the job have left. A file that is not provably the job's stays, whatever its name.
pub(crate) fn remove(name: &str) {
    for leftover in cleanup::find(&[name.to_owned()]).unwrap_or_default() {
        // An error is not reported here; `intranode clean` reports it.
        let _ = leftover.remove();
    }
}

/// Does so when the processes that are just ending have ended.
pub(crate) fn remove_when_unused(name: &str) {
    let deadline = Instant::now() + TIMEOUT;
    while cleanup::in_use(&[name.to_owned()]).unwrap_or(false) && Instant::now() < deadline {
        thread::sleep(POLL_INTERVAL);
    }
    remove(name);
}
