//! The failure of a rank, which decides the job's status.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use nix::sys::signal::Signal;

pub(crate) struct Failure {
    rank: u32,
    status: ExitStatus,
}

impl Failure {
    pub(crate) fn new(rank: u32, status: ExitStatus) -> Self {
        Self { rank, status }
    }

    /// Whether this may be a rank's reaction to the death of another rank.
    ///
    /// The library reports a death before the kernel has freed the dead rank's memory, which can take long. So a rank that
    /// exits because of that error can end first. It exits with a status or by SIGABRT (a panic that aborts), not by another
    /// signal. `sent`: the signals that the launcher has sent to the ranks after this failure.
    pub(crate) fn may_react_to(&self, later: ExitStatus, sent: &BTreeSet<Signal>) -> bool {
        let died = later.signal().is_some_and(|number| {
            number != Signal::SIGABRT as i32 && !sent.iter().any(|&signal| signal as i32 == number)
        });
        died && self.status.code().is_some()
    }

    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    /// Whether a panic may have ended the process: by exit or abort.
    pub(crate) fn may_be_a_panic(&self) -> bool {
        self.status.signal().is_none_or(|signal| signal == Signal::SIGABRT as i32)
    }

    /// As in a shell: the program's own status, or 128 plus the signal.
    pub(crate) fn status(&self) -> u8 {
        let status = self.status.code().or_else(|| self.status.signal().map(|signal| 128 + signal));
        status.and_then(|status| u8::try_from(status).ok()).unwrap_or(u8::MAX)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "rank {} failed first: ", self.rank)?;
        match (self.status.code(), self.status.signal()) {
            (Some(code), _) => write!(formatter, "it exited with status {code}")?,
            (None, Some(number)) => {
                write!(formatter, "it was ended by signal {number}")?;
                if let Ok(signal) = Signal::try_from(number) {
                    write!(formatter, " ({signal})")?;
                }
            }
            (None, None) => write!(formatter, "{}", self.status)?,
        }
        if self.status.core_dumped() { write!(formatter, ", core dumped") } else { Ok(()) }
    }
}
