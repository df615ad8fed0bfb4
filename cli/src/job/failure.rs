//! The end of a rank that decides the job's status.

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

    /// Whether this may be a rank's reaction to a death that the system completed later.
    ///
    /// The library reports a death before the dead rank's memory is freed, which takes long for much memory. So a rank
    /// that exits with an error can be gone first. A rank does not react to an error by ending with a signal, except
    /// SIGABRT (a panic that aborts). `sent` are the signals that the launcher sent to the ranks.
    pub(crate) fn may_react_to(&self, later: ExitStatus, sent: &BTreeSet<Signal>) -> bool {
        let died = later.signal().is_some_and(|number| {
            number != Signal::SIGABRT as i32 && !sent.iter().any(|&signal| signal as i32 == number)
        });
        died && self.status.code().is_some()
    }

    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    /// Whether a panic can have ended the process: by an exit, or by an abort.
    pub(crate) fn may_be_a_panic(&self) -> bool {
        self.status.signal().is_none_or(|signal| signal == Signal::SIGABRT as i32)
    }

    /// As in a shell: the program's own status, or 128 and the signal.
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
