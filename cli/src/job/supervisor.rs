//! The supervision of the ranks, until the last has ended.

use std::collections::BTreeSet;
use std::process::{Child, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill, killpg, raise};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::{Pid, getpgid};

use super::failure::Failure;
use super::guard::Guard;
use super::signals::{Event, Signals};

/// How long the other ranks may take to get an error, report it, and end by themselves.
const GRACE: Duration = Duration::from_secs(1);

/// If it is dropped after an error of the launcher, the guard ends the ranks.
pub(crate) struct Supervisor {
    /// By rank; None if it has ended.
    ranks: Vec<Option<Child>>,
    guard: Guard,
    kill_after: Duration,
    first_failure: Option<Failure>,
    /// The signals that were sent to the ranks since the first failure: a death by one of them is not a separate failure.
    sent: BTreeSet<Signal>,
    next_step: Option<Step>,
}

/// The next step to end the remaining ranks after a failure, and its time.
#[derive(Clone, Copy)]
enum Step {
    Terminate(Instant),
    Kill(Instant),
}

impl Step {
    fn due(self) -> Instant {
        match self {
            Step::Terminate(due) | Step::Kill(due) => due,
        }
    }
}

impl Supervisor {
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
        self.guard.announce(pid)
    }

    /// Forwards signals, and ends the other ranks when one fails. Returns the first failure.
    pub(crate) fn until_all_ended(mut self, signals: &Signals) -> Result<Option<Failure>> {
        while self.ranks.iter().any(Option::is_some) {
            match signals.next(self.next_step.map(Step::due))? {
                Some(Event::Child(first)) => self.reap(first)?,
                Some(Event::PassOn(signal)) => self.pass_on(signal),
                None => {}
            }
            self.take_step();
        }
        Ok(self.first_failure)
    }

    /// Reaps every rank that has ended. `first` ended before the others, so it is checked first.
    fn reap(&mut self, first: Pid) -> Result<()> {
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
            // The rank's process is not reaped yet, so the id of its process group is still its own. Processes that the rank
            // has left running are killed, so that they keep neither the job's output nor its memory.
            let _ = killpg(pid, Signal::SIGKILL);
            self.guard.withdraw(pid);
            if let Some(mut child) = self.ranks[rank].take() {
                let status = child.wait().with_context(|| format!("cannot read the status of rank {rank}"))?;
                self.record_end(rank, status);
            }
        }
        self.reap_adopted();
        Ok(())
    }

    /// Reaps processes that the launcher has not started. As the first process of a container it is the parent of all whose own
    /// has ended.
    fn reap_adopted(&mut self) {
        self.guard.reap();
        let any = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
        // Without a number: none has ended, or one by a signal unknown to nix.
        while let Some(pid) = waitid(Id::All, any).ok().and_then(|ended| ended.pid()) {
            // A rank that has ended since is reaped by its own SIGCHLD, and then this goes on.
            if self.ranks.iter().flatten().any(|child| pid_of(child) == pid) || waitpid(pid, None).is_err() {
                return;
            }
        }
    }

    fn record_end(&mut self, rank: usize, status: ExitStatus) {
        if status.success() {
            return;
        }
        match &self.first_failure {
            None => {
                self.next_step = Some(Step::Terminate(Instant::now() + GRACE));
                // A rank that was ended by one of the earlier ones may be what this rank has reacted to.
                self.sent.clear();
            }
            Some(earlier) if earlier.may_react_to(status, &self.sent) => {}
            Some(_) => return,
        }
        self.first_failure = Some(Failure::new(rank as u32, status));
    }

    fn take_step(&mut self) {
        let now = Instant::now();
        match self.next_step {
            Some(Step::Terminate(due)) if due <= now => {
                self.signal_all(Signal::SIGTERM);
                // A stopped process would not handle it.
                self.signal_all(Signal::SIGCONT);
                // None if the clock does not go as far.
                self.next_step = now.checked_add(self.kill_after).map(Step::Kill);
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
            // The shell waits until the launcher stops too.
            let _ = raise(Signal::SIGSTOP);
        }
    }

    fn signal_all(&mut self, signal: Signal) {
        self.sent.insert(signal);
        for child in self.ranks.iter().flatten() {
            let pid = pid_of(child);
            // It fails only for a group that has just ended, or a process that has changed its user.
            let _ = killpg(pid, signal);
            // A rank can move to another group, and leave its children in this one.
            if getpgid(Some(pid)).is_ok_and(|group| group != pid) {
                let _ = kill(pid, signal);
            }
        }
    }
}

/// Whether a process has ended, without reaping it.
fn has_ended(pid: Pid) -> Result<bool> {
    match waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT) {
        Ok(WaitStatus::StillAlive) => Ok(false),
        // EINVAL: it has ended, by a signal unknown to nix.
        Ok(_) | Err(Errno::EINVAL) => Ok(true),
        Err(error) => Err(error).context("cannot read the state of a rank"),
    }
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(child.id().cast_signed())
}
