//! The ranks from their start to the end of the last one.

use std::collections::BTreeSet;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, killpg, raise};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};
use nix::unistd::Pid;

use crate::guard::Guard;
use crate::signals::{Event, Signals};

/// How long the other ranks may take to notice a failure, say so, and end by themselves.
const GRACE: Duration = Duration::from_secs(1);

/// Dropped early, after an error of the launcher, it ends the ranks through its guard.
pub(crate) struct Watch {
    /// By rank; none once it has ended.
    ranks: Vec<Option<Child>>,
    guard: Guard,
    kill_after: Duration,
    first_failure: Option<Failure>,
    /// What was sent to the ranks: deaths by these are no news.
    sent: BTreeSet<Signal>,
    next_step: Option<Step>,
}

/// What happens to the ranks that are left after a failure, and when.
#[derive(Clone, Copy)]
enum Step {
    Ask(Instant),
    Kill(Instant),
}

impl Step {
    fn due(self) -> Instant {
        match self {
            Step::Ask(due) | Step::Kill(due) => due,
        }
    }
}

impl Watch {
    pub(crate) fn new(guard: Guard, kill_after: Duration) -> Self {
        Self {
            ranks: Vec::new(),
            guard,
            kill_after,
            first_failure: None,
            sent: BTreeSet::new(),
            next_step: None,
        }
    }

    /// Adds the next rank.
    pub(crate) fn add(&mut self, child: Child) -> Result<()> {
        let pid = pid_of(&child);
        self.ranks.push(Some(child));
        self.guard.watch(pid)
    }

    /// Passes signals on, ends the rest when one rank fails, and returns the first failure.
    pub(crate) fn until_all_ended(mut self, signals: &Signals) -> Result<Option<Failure>> {
        while self.ranks.iter().any(Option::is_some) {
            match signals.next(self.next_step.map(Step::due))? {
                Some(Event::Child(first)) => self.collect(first)?,
                Some(Event::PassOn(signal)) => self.pass_on(signal),
                None => {}
            }
            self.take_step();
        }
        Ok(self.first_failure)
    }

    /// Collects every rank that has ended; `first` ended before the others, so it is looked at first.
    fn collect(&mut self, first: Pid) -> Result<()> {
        let is_first = |child: &Option<Child>| child.as_ref().is_some_and(|child| pid_of(child) == first);
        let first = self.ranks.iter().position(is_first);
        for rank in first.into_iter().chain(0..self.ranks.len()) {
            let Some(child) = &self.ranks[rank] else {
                continue;
            };
            let pid = pid_of(child);
            if !has_ended(pid)? {
                continue;
            }
            // The rank's process is not collected yet, so its process group is still its own. What the rank
            // has left running ends with it, and holds neither the job's output nor its memory.
            let _ = killpg(pid, Signal::SIGKILL);
            self.guard.forget(pid);
            if let Some(mut child) = self.ranks[rank].take() {
                let status = child.wait().with_context(|| format!("cannot learn how rank {rank} ended"))?;
                self.note_end(rank, status);
            }
        }
        Ok(())
    }

    fn note_end(&mut self, rank: usize, status: ExitStatus) {
        if status.success() {
            return;
        }
        match &self.first_failure {
            None => self.next_step = Some(Step::Ask(Instant::now() + GRACE)),
            Some(earlier) if earlier.may_react_to(status, &self.sent) => {}
            Some(_) => return,
        }
        self.first_failure = Some(Failure { rank, status });
    }

    fn take_step(&mut self) {
        let now = Instant::now();
        match self.next_step {
            Some(Step::Ask(due)) if due <= now => {
                self.signal_all(Signal::SIGTERM);
                // A stopped process would not see it.
                self.signal_all(Signal::SIGCONT);
                self.next_step = Some(Step::Kill(now + self.kill_after));
            }
            Some(Step::Kill(due)) if due <= now => {
                self.signal_all(Signal::SIGKILL);
                self.next_step = None;
            }
            _ => {}
        }
    }

    fn pass_on(&mut self, signal: Signal) {
        self.signal_all(signal);
        if signal == Signal::SIGTSTP {
            // The shell that sent it waits until the launcher stops too.
            let _ = raise(Signal::SIGSTOP);
        }
    }

    fn signal_all(&mut self, signal: Signal) {
        self.sent.insert(signal);
        for child in self.ranks.iter().flatten() {
            // It can only fail for a group that has just ended, or for a process that has changed its user.
            let _ = killpg(pid_of(child), signal);
        }
    }
}

/// The rank whose end decides the job's status.
pub(crate) struct Failure {
    rank: usize,
    status: ExitStatus,
}

impl Failure {
    /// Whether this was a rank's answer to a death that the system completed later.
    ///
    /// The library tells of a death before the dead rank's memory is given back, which takes long for much
    /// memory, so a rank that exits with an error can be gone first. Nobody answers an error by such a signal,
    /// except by SIGABRT (a panic that aborts).
    fn may_react_to(&self, later: ExitStatus, sent: &BTreeSet<Signal>) -> bool {
        let died = later.signal().is_some_and(|number| {
            number != Signal::SIGABRT as i32 && !sent.iter().any(|&signal| signal as i32 == number)
        });
        died && self.status.code().is_some()
    }

    pub(crate) fn rank(&self) -> u32 {
        self.rank as u32
    }

    /// Whether a panic ends a process so: by an exit, or by an abort.
    pub(crate) fn may_be_a_panic(&self) -> bool {
        self.status.signal().is_none_or(|signal| signal == Signal::SIGABRT as i32)
    }

    /// As a shell gives it: the program's own, or 128 and the signal.
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

/// Without collecting it.
fn has_ended(pid: Pid) -> Result<bool> {
    match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT) {
        Ok(WaitStatus::StillAlive) => Ok(false),
        // EINVAL: it has ended, by a signal without a name.
        Ok(_) | Err(Errno::EINVAL) => Ok(true),
        Err(error) => Err(error).context("cannot ask for the end of a rank"),
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}
