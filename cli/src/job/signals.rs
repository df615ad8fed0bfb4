//! Signals as events of one loop.
//!
//! They are blocked and read from a descriptor, without handlers. So no disposition changes: a signal that was ignored when
//! the launcher started (`nohup`, a shell's background jobs) stays ignored in the ranks.

use std::io::{IsTerminal, stdout};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::unistd::Pid;

/// The signals that the launcher forwards to the ranks.
const PASSED_ON: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGUSR1,
    Signal::SIGUSR2,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

pub(crate) enum Event {
    /// A rank has ended or stopped. The kernel merges pending signals of this kind into one, with the first one's process.
    Child(Pid),
    PassOn(Signal),
}

pub(crate) struct Signals(SignalFd);

impl Signals {
    /// Blocks them in this thread and in the threads and processes that it starts from now on.
    pub(crate) fn block() -> Result<Self> {
        // If SIGCHLD was ignored at the start, the system discards the status of an ended rank. A handler changes that. It
        // never runs, since the signal is blocked.
        signal_hook::flag::register(Signal::SIGCHLD as i32, Arc::new(AtomicBool::new(false)))
            .context("cannot install a handler for SIGCHLD")?;
        blocked().thread_block().context("cannot block signals")?;
        let descriptor = SignalFd::with_flags(&awaited(), SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)
            .context("cannot receive signals")?;
        Ok(Self(descriptor))
    }

    /// The next signal, or none until `deadline`.
    pub(crate) fn next(&self, deadline: Option<Instant>) -> Result<Option<Event>> {
        loop {
            if let Some(signal) = self.0.read_signal().context("cannot read a signal")? {
                let kind = Signal::try_from(signal.ssi_signo as i32).context("an unknown signal")?;
                return Ok(Some(match kind {
                    Signal::SIGCHLD => Event::Child(Pid::from_raw(signal.ssi_pid as i32)),
                    other => Event::PassOn(other),
                }));
            }
            let mut descriptors = [PollFd::new(self.0.as_fd(), PollFlags::POLLIN)];
            match poll(&mut descriptors, until(deadline)) {
                Ok(0) => return Ok(None),
                Ok(_) | Err(Errno::EINTR) => {}
                Err(error) => return Err(error).context("cannot wait for a signal"),
            }
        }
    }
}

/// Runs in a rank before exec, which preserves blocked signals.
pub(crate) fn unblock() -> Result<()> {
    // A rank's process group is in the background of the terminal, also when the launcher's is not. With `stty tostop` the rank
    // would be stopped when it writes. With this signal blocked, it writes.
    if stdout().is_terminal() {
        let stop: SigSet = [Signal::SIGTTOU].into_iter().collect();
        stop.thread_block().context("cannot block signals")?;
    }
    blocked().thread_unblock().context("cannot unblock signals")
}

/// Also that of a file which grows too long: the error of the call says it.
fn blocked() -> SigSet {
    let mut signals = awaited();
    signals.add(Signal::SIGXFSZ);
    signals
}

fn awaited() -> SigSet {
    PASSED_ON.into_iter().chain([Signal::SIGCHLD]).collect()
}

/// Rounded up: after a poll that ends too early the loop would spin until the deadline.
fn until(deadline: Option<Instant>) -> PollTimeout {
    deadline.map_or(PollTimeout::NONE, |deadline| {
        let left = deadline.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    })
}
