//! The files of a job that its ranks had no time to remove.

use std::thread;
use std::time::{Duration, Instant};

use intranode::job::cleanup;

/// How long ranks that were killed may take to let go of their memory.
const PATIENCE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(1);

/// Removes what the job's processes have left that have ended. What is not provably theirs stays, whatever its name.
pub(crate) fn remove(name: &str) {
    for leftover in cleanup::find(&[name.to_owned()]).unwrap_or_default() {
        // There is nobody to tell; `intranode clean` tells.
        let _ = leftover.remove();
    }
}

/// The same after those that are ending have ended.
pub(crate) fn remove_at_last(name: &str) {
    let deadline = Instant::now() + PATIENCE;
    while cleanup::in_use(&[name.to_owned()]).unwrap_or(false) && Instant::now() < deadline {
        thread::sleep(PAUSE);
    }
    remove(name);
}
